"""fa_mla_rows_* against float64 on the numbers of the rows' bytes."""

import math
import struct

import pytest

from tests.engine.emulator.kernels.coded import exact, results, run
from tests.engine.emulator.kernels.scaled_rows import CODES, GROUPS, RowsCall, ScaledRows
from tests.engine.emulator.kernels.test_coded import OUT
from wheel_builder.machine_code.emulator.machine import load_machine
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(arch for arch, known in known_archs().items() if "latent_rows" in known.features)
CAUSAL = {"keys": (33, 70), "window": (-1, 0), "queries": 3, "heads": (5, 1), "store": "used"}
CALLS = {
    "every code": {"values": "codes", "queries": 2, "heads": (17, 1)},
    "part in use": {"keys": (37, 64), "store": "used"},
    "pages, parts": {"store": "paged", "page": 48, "keys": (100, 17, 3), "splits": 2},
    "several workgroups of rows, outliers": {"values": "outliers", "queries": 3, "heads": (13, 1)},
    "scales 2^20 apart": {"scales": "far", "keys": (90,), "queries": 2, "heads": (3, 1)},
    "scales 2^20 apart, pages": {"scales": "far", "keys": (90, 31), "store": "paged", "queries": 2},
    "rows of many magnitudes": {"queries": 3, "heads": (3, 1), "spread": 12},
    "negative scale": {"scale": -0.07, "queries": 2},
    "queries of 0, a sequence without keys": {"zeros": True, "keys": (0, 5), "store": "used"},
    # Seen by the last query only.
    "a key with codes of NaN": CAUSAL | {"last_code": 0x7F},
    "a key with codes of -NaN, pages": CAUSAL | {"last_code": 0xFF, "store": "paged"},
    "a key with scales of NaN": CAUSAL | {"last_scale": math.nan},
    "a key with scales of inf": CAUSAL | {"last_scale": math.inf, "store": "paged"},
    "a key with scales of 0": CAUSAL | {"last_scale": 0.0},
    "a key with negative scales": CAUSAL | {"last_scale": -0.02},
    "a key with the least scales": CAUSAL | {"last_scale": 2.0**-149},
}
READ_AS = {0x7F: 480.0, 0xFF: -480.0}  # codes of NaN, in params.hpp


class ReadAs(RowsCall):
    """With the numbers that kernels read codes of NaN as."""

    def _cache(self):
        self.values = tuple(READ_AS.get(code, value) for code, value in enumerate(self.values))
        super()._cache()


@pytest.fixture
def machine_for(core, device_code, disassembled):
    """``machine_for(arch)``: the kernel, loaded."""

    def load(arch):
        code = device_code(arch) / f"{ScaledRows().kernel}.hsaco"
        return load_machine(core, code, disassembled(code))

    return load


def wrong_rows(done):
    """The places of rows that are out of the tolerance."""
    found = []
    for place, out, lse in results(done):
        wanted = exact(done, *place)
        if math.isnan(wanted.lse):
            good = all(map(math.isnan, out)) and lse == math.inf
        elif wanted.lse == math.inf:
            good = list(out) == wanted.out and lse == math.inf
        else:
            error = max(abs(x - want) for x, want in zip(out, wanted.out, strict=True))
            allowed = tolerances.lse_allowed(wanted.lse, wanted.magnitude)
            good = error <= OUT["bf16"] * wanted.largest and abs(lse - wanted.lse) <= allowed
        if not good:
            found.append(place)
    return found


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("arch", ARCHS)
def test_out_and_log_sum_exp(machine_for, arch, call):
    coded = ScaledRows(**CALLS[call])
    done = run(machine_for(arch), arch, coded, ReadAs)
    seen = [place for place in wrong_rows(done) if coded.last_scale != math.inf or place[2] < 2]
    assert seen == []


@pytest.mark.parametrize("arch", ARCHS)
def test_a_key_with_scales_of_inf_gives_no_finite_row(machine_for, arch):
    """Its scores are infinite. Of -inf its weight is 0, and nothing of it is in out."""
    coded = ScaledRows(**CAUSAL, last_scale=math.inf)
    done = run(machine_for(arch), arch, coded, ReadAs)
    for (_, _, query), out, lse in results(done):
        assert query < 2 or lse != math.inf or all(map(math.isnan, out))


class Planted(ReadAs):
    """A cache whose bytes are changed behind the reference's back."""

    def given(self, name, data):
        is_rows = name == "k" and hasattr(self, "numbers")
        super().given(name, self.changed(bytearray(data)) if is_rows else data)

    def rows_of(self, data):
        return range(0, len(data), self.row_bytes)


class SwappedScales(Planted):
    """Of two groups."""

    def changed(self, data):
        for row in self.rows_of(data):
            scales = list(struct.unpack_from(f"<{GROUPS}f", data, row + CODES))
            scales[1], scales[2] = scales[2], scales[1]
            struct.pack_into(f"<{GROUPS}f", data, row + CODES, *scales)
        return bytes(data)


class NeighboursScale(Planted):
    """Of one group, in each pair of rows."""

    def changed(self, data):
        rows = self.rows_of(data)
        for pair in zip(rows[::2], rows[1::2], strict=False):
            first, second = (slice(row + CODES + 4, row + CODES + 8) for row in pair)
            data[first], data[second] = data[second], data[first]
        return bytes(data)


class OneRotated(Planted):
    """An element of one key."""

    def changed(self, data):
        data[8 * self.row_bytes - 1] ^= 0x80
        return bytes(data)


@pytest.mark.parametrize("planted", [SwappedScales, NeighboursScale, OneRotated])
@pytest.mark.parametrize("arch", ARCHS[:1])
def test_the_comparison_sees_a_wrong_byte(machine_for, arch, planted):
    coded = ScaledRows(keys=(40,), queries=2, heads=(4, 1))
    assert wrong_rows(run(machine_for(arch), arch, coded, planted)) != []
    assert wrong_rows(run(machine_for(arch), arch, coded, ReadAs)) == []
