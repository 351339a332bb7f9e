"""fa_decode_8bit_* and fa_mla_8bit_*, over caches of every format and form, against float64 on the numbers of
the codes."""

import math
from itertools import cycle

import pytest

from tests.engine.emulator.kernels.coded import Coded, exact, results, run
from wheel_builder.machine_code.emulator.attention import with_codes
from wheel_builder.machine_code.emulator.formats import CODES, values_of_codes
from wheel_builder.machine_code.emulator.machine import load_machine
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.kinds import known_kinds

ARCHS = tuple(known_archs())
# P is truncated to fp16, each with an error below 2^-10 of itself, and out is rounded. Of the largest value.
OUT = {"fp16": 2.0**-10 + 2.0**-11, "bf16": 2.0**-10 + 2.0**-8}
LEAST = {"fp16": 2.0**-25, "bf16": 0.0}  # out's rounding, if it is subnormal
GROUPED = {"heads": (4, 2)}

CALLS = {
    "every code": {"code": "e4m3fn", "values": "codes"},
    "every code, part in use": {
        "code": "e4m3fnuz",
        "values": "codes",
        "queries": 4,
        "keys": (37, 64),
        "store": "used",
        **GROUPED,
    },
    "every code, window": {"code": "e5m2", "values": "codes", "window": (20, 0), "queries": 5, "keys": (90,)},
    "every code, parts": {
        "code": "int8",
        "values": "codes",
        "heads": (8, 1),
        "queries": 2,
        "splits": 3,
        "keys": (130,),
    },
    "descales of keys, outliers": {
        "code": "int8",
        "descales": "key",
        "values": "outliers",
        "keys": (33, 150),
        "queries": 2,
        "store": "used",
        **GROUPED,
    },
    "descales of keys, pages, softcap": {
        "code": "e4m3fn",
        "descales": "key",
        "store": "paged",
        "page": 48,
        "keys": (100, 17, 3),
        "softcap": 2.0,
        "queries": 2,
        **GROUPED,
    },
    "descales of keys, places": {"code": "e5m2", "descales": "key", "store": "places", "keys": (40, 65)},
    "left padding, sinks": {
        "code": "e4m3fn",
        "store": "leftpad",
        "keys": (40, 65),
        "sinks": True,
        "heads": (6, 2),
        "queries": 2,
    },
    "descales of keys, left padding, slopes, sinks": {
        "code": "int8",
        "descales": "key",
        "store": "leftpad",
        "keys": (40, 65),
        "sinks": True,
        "slopes": True,
        "heads": (6, 2),
        "queries": 2,
    },
    "ragged, parts, sinks": {
        "code": "e4m3fnuz",
        "store": "ragged",
        "keys": (40, 65),
        "splits": 2,
        "sinks": True,
    },
    "descales of keys, ragged, window, slopes": {
        "code": "int8",
        "descales": "key",
        "store": "ragged",
        "keys": (40, 5),
        "window": (9, 9),
        "queries": 3,
        "slopes": True,
    },
    "without descales, pages, parts": {
        "code": "e4m3fn",
        "descales": "none",
        "store": "paged",
        "keys": (70, 1),
        "queries": 16,
        "splits": 2,
        "slopes": True,
    },
    "several tiles of a wave, a short sequence": {
        "code": "e4m3fnuz",
        "store": "used",
        "keys": (300, 5),
        "queries": 4,
        "heads": (8, 1),
    },
    "several tiles of a wave, descales of keys, outliers": {
        "code": "int8",
        "descales": "key",
        "values": "outliers",
        "keys": (290,),
        "queries": 2,
        "heads": (16, 2),
    },
    "several tiles of a wave, descales of keys, pages, parts": {
        "code": "e4m3fn",
        "descales": "key",
        "store": "paged",
        "keys": (520, 33),
        "splits": 2,
        "queries": 3,
        **GROUPED,
    },
    "one key takes all, of one wave": {"code": "int8", "keys": (200,), "scale": 40.0},
    "rows that see no key, window": {
        "code": "e4m3fn",
        "store": "used",
        "keys": (4, 100),
        "window": (10, 0),
        "queries": 7,
        **GROUPED,
    },
    "rows of many magnitudes": {"code": "e4m3fn", "queries": 3, "heads": (3, 1), "spread": 12, "keys": (50,)},
    "negative scale": {"code": "int8", "scale": -0.07, "queries": 2, "keys": (50,), **GROUPED},
    # As in a warm-up over zeros, of which the largest, at least 1e-12, has the code 127.
    "queries of 0, a small descale": {"code": "int8", "of_k": 1e-12 / 127, "zeros": True},
    "queries of 0, a small descale, parts": {
        "code": "int8",
        "of_k": 1e-12 / 127,
        "zeros": True,
        "keys": (130,),
        "splits": 2,
    },
}

LATENT_CALLS = {
    "every code": {"code": "e4m3fn", "values": "codes", "queries": 2, "heads": (17, 1)},
    "every code, part in use": {"code": "e5m2", "values": "codes", "keys": (37, 64), "store": "used"},
    "descales of keys, outliers, causal": {
        "code": "int8",
        "descales": "key",
        "values": "outliers",
        "keys": (33, 70),
        "window": (-1, 0),
        "queries": 3,
        "heads": (5, 1),
        "store": "used",
    },
    "descales of keys, pages, parts": {
        "code": "e4m3fn",
        "descales": "key",
        "store": "paged",
        "page": 48,
        "keys": (100, 17, 3),
        "splits": 2,
    },
    "without descales, pages": {"code": "e4m3fnuz", "descales": "none", "store": "paged", "keys": (70, 1)},
    "rows of many magnitudes": {"code": "e4m3fn", "queries": 3, "heads": (3, 1), "spread": 12},
    "negative scale": {"code": "int8", "scale": -0.07, "queries": 2},
    "queries of 0, a small descale": {"code": "int8", "of_k": 1e-12 / 127, "zeros": True},
}
LATENT_ARCHS = tuple(arch for arch, known in known_archs().items() if "latent_codes" in known.features)


def has_kernel(arch, dtype, head_dim):
    rows = known_kinds()["decode_8bit"].kernels
    there = known_archs()[arch].features
    return any(dtype in row.dtypes and head_dim in row.head_dims and {*row.needs} <= {*there} for row in rows)


def archs_kernels_and_calls():
    """Each call on each kernel of each arch. Without --full on two of the six, in turn."""
    kernels = [(dtype, head_dim) for head_dim in (64, 128, 256) for dtype in ("fp16", "bf16")]
    for number, call in enumerate(CALLS):
        for which, kernel in enumerate(kernels):
            marks = [] if (number + which) % 3 == 0 else pytest.mark.full
            for arch in ARCHS:
                if has_kernel(arch, *kernel):
                    yield pytest.param(arch, *kernel, call, marks=marks)


@pytest.fixture
def machine_for(core, device_code, disassembled):
    """``machine_for(arch, coded)``: the kernel of a call, loaded."""

    def load(arch, coded):
        code = device_code(arch) / f"{coded.kernel}.hsaco"
        return load_machine(core, code, disassembled(code))

    return load


@pytest.mark.parametrize(("arch", "dtype", "head_dim", "call"), list(archs_kernels_and_calls()))
def test_out_and_log_sum_exp(machine_for, arch, dtype, head_dim, call):
    compare(machine_for, arch, Coded(dtype, head_dim, **CALLS[call]))


@pytest.mark.parametrize("call", LATENT_CALLS)
@pytest.mark.parametrize("arch", LATENT_ARCHS)
def test_latent_attention(machine_for, arch, call):
    compare(machine_for, arch, Coded("bf16", 576, latent=True, **LATENT_CALLS[call]))


def compare(machine_for, arch, coded):
    """Every row of a call with float64."""
    dtype, done = coded.dtype, run(machine_for(arch, coded), arch, coded)
    for place, out, lse in results(done):
        wanted = exact(done, *place)
        if wanted.lse == math.inf:
            assert list(out) == wanted.out
            assert lse == math.inf
            continue
        worst = max(abs(found - want) for found, want in zip(out, wanted.out, strict=True))
        assert worst <= OUT[dtype] * wanted.largest + LEAST[dtype], place
        assert abs(lse - wanted.lse) <= tolerances.lse_allowed(wanted.lse, wanted.magnitude), place


# What a code that is no number counts as, in params.hpp.
READ_AS = {("e4m3fn", 0x7F): 480.0, ("e4m3fn", 0xFF): -480.0, ("e4m3fnuz", 0x80): -0.0}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("code", ["e4m3fn 0x7f", "e4m3fn 0xff", "e4m3fnuz 0x80", "e5m2 0x7d", "e5m2 0xff"])
def test_a_code_that_is_no_number(machine_for, arch, code):
    """e5m2's are NaN in each row that sees them. e4m3's are read as numbers."""
    name, number = code.split()
    number = int(number, 16)
    assert math.isnan(values_of_codes(name)[number])
    coded = Coded("fp16", 128, name, values=number, descales="none")
    done = run(machine_for(arch, coded), arch, coded)
    done.values = tuple(READ_AS.get((name, n), value) for n, value in enumerate(done.values))
    for place, out, _ in results(done):
        wanted = exact(done, *place)
        if name == "e5m2":
            assert all(map(math.isnan, out))
            continue
        worst = max(abs(found - want) for found, want in zip(out, wanted.out, strict=True))
        assert worst <= OUT["fp16"] * wanted.largest, place


def test_arguments_around_those_of_a_forward():
    """As the C++ struct has them."""
    inner = layout("FwdParams").pack({"seqlen_q": 3})
    for number, code in zip(range(len(CODES)), cycle(CODES), strict=False):
        packed = with_codes(inner, code, per_key=True)
        outer = layout("CodedParams")
        found = dict(zip((each.name for each in outer.scalars), outer.unpack(packed), strict=True))
        assert packed[: len(inner)] == inner
        assert (found["format"], found["per_key"], found["k_descale"]) == (number, 1, 0)
