"""fa_mla_rows_* on the emulator: calls over rows of 656 bytes, which hold their scales."""

import struct
from dataclasses import dataclass

from tests.engine.emulator.kernels.coded import REST, Call, Coded, fp32
from wheel_builder.machine_code.emulator.formats import decode, encode

CODES, GROUP = 512, 128  # of a row, and of a scale
GROUPS = CODES // GROUP
NAN = b"\xff"  # a code of NaN, and a byte of scales and bf16 of NaN


@dataclass(frozen=True)
class ScaledRows(Coded):
    """``scales``: "near" each other, "far" (2^20 apart, in turn), or "one".

    ``unseen``: bytes of the rows that no sequence has. ``last_code``: the code in all places of each
    sequence's last key, with ``last_scale`` in place of its scales.
    """

    dtype: str = "bf16"
    head_dim: int = 576
    code: str = "e4m3fn"
    latent: bool = True
    descales: str = "none"
    scales: str = "near"
    last_code: int | None = None
    last_scale: float | None = None

    @property
    def op(self):
        return "mla_rows"


class RowsCall(Call):
    @property
    def row_bytes(self):
        return CODES + 4 * GROUPS + 2 * REST

    def _cache(self):
        super()._cache()
        coded, random = self.coded, self.random
        used = {self.place(b, key) for b, keys in enumerate(coded.keys) for key in range(keys)}
        last = {self.place(b, keys - 1) for b, keys in enumerate(coded.keys) if keys}
        rows, self.numbers = [], {}
        for place in range(self.places):
            for row in range(self.rows):
                at = (place * self.rows + row) * coded.head_dim
                codes = self.codes["k"][at : at + CODES]
                scales = [self._scale(random, row + group) for group in range(GROUPS)]
                if (place, row) in last and coded.last_code is not None:
                    codes = [coded.last_code] * CODES
                if (place, row) in last and coded.last_scale is not None:
                    scales = [coded.last_scale] * GROUPS
                rest = encode([random.gauss(0, 1) for _ in range(REST)], "bf16")
                packed = bytes(codes) + struct.pack(f"<{GROUPS}f", *scales) + rest
                rows.append(packed if (place, row) in used else NAN * self.row_bytes)
                values = [self.values[code] * scales[n // GROUP] for n, code in enumerate(codes)]
                self.numbers[place, row] = [*values, *decode(rest, "bf16")]
        self.given("k", b"".join(rows))

    def _scale(self, random, number):
        near = 2.0 ** random.uniform(-7, -5)
        far = {"near": 1.0, "far": 2.0 ** (-20 * (number % 2))}
        return 1.0 if self.coded.scales == "one" else fp32(near * far[self.coded.scales])

    def row(self, name, b, key, head):
        assert head == 0
        found = self.numbers[self.place(b, key)]
        return found[: self.coded.value_dim] if name == "v" else found

    def with_descales(self, packed):
        return packed
