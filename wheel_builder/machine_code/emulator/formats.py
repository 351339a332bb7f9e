"""The 16-bit number formats of tensors, to and from Python floats."""

import struct
from collections.abc import Sequence

DTYPES = ("fp16", "bf16")


def encode(values: Sequence[float], dtype: str) -> bytes:
    """Rounded to nearest, ties to even. Finite values beyond the range of fp16 raise ``OverflowError``."""
    if dtype == "fp16":
        return struct.pack(f"<{len(values)}e", *values)
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(words)}H", *(_upper_half(word) for word in words))


def decode(data: bytes, dtype: str) -> tuple[float, ...]:
    count = len(data) // 2
    if dtype == "fp16":
        return struct.unpack(f"<{count}e", data)
    return struct.unpack(f"<{count}f", b"".join(b"\0\0" + data[2 * i : 2 * i + 2] for i in range(count)))


def rounded(values: Sequence[float], dtype: str) -> tuple[float, ...]:
    """The values after rounding to ``dtype``."""
    return decode(encode(values, dtype), dtype)


def _upper_half(word: int) -> int:
    if word & 0x7FFFFFFF > 0x7F800000:  # NaN stays one
        return (word >> 16) | 0x40
    return (word + 0x7FFF + (word >> 16 & 1)) >> 16
