"""The number formats of tensors, of 16 bits and of 8, to and from Python floats."""

import math
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache

DTYPES = ("fp16", "bf16")
CODES = ("e4m3fn", "e4m3fnuz", "e5m2", "int8")  # CodeFormat of params.hpp


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


@cache
def values_of_codes(name: str) -> tuple[float, ...]:
    """The value of each of the 256 codes of a format of ``CODES``."""
    if name == "int8":
        return tuple(float(code - 256 * (code >= 128)) for code in range(256))
    half = [_value(name, code) for code in range(128)]
    values = [*half, *(-value for value in half)]
    if name == "e4m3fnuz":
        values[0x80] = math.nan
    return tuple(values)


def nearest(name: str) -> Callable[[float], int]:
    """A function to the nearest finite code."""
    table = sorted((value, code) for code, value in enumerate(values_of_codes(name)) if math.isfinite(value))
    values = [value for value, _ in table]

    def find(x: float) -> int:
        at = bisect_left(values, x)
        near = table[max(at - 1, 0) : at + 1]
        return min(near, key=lambda each: abs(each[0] - x))[1]

    return find


def _value(name: str, code: int) -> float:
    """Of a floating-point code without its sign."""
    mantissa_bits, bias = {"e4m3fn": (3, 7), "e4m3fnuz": (3, 8), "e5m2": (2, 15)}[name]
    exponent, mantissa = code >> mantissa_bits, code % (1 << mantissa_bits)
    if name == "e4m3fn" and code == 0x7F:
        return math.nan
    if name == "e5m2" and exponent == 0x1F:
        return math.nan if mantissa else math.inf
    share = mantissa / (1 << mantissa_bits)
    return math.ldexp(share + 1, exponent - bias) if exponent else math.ldexp(share, 1 - bias)
