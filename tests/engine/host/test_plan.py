"""The one place for the choice of a forward call's path and number of parts."""

import math
import re
import subprocess
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tools.programs import CHECKOUT, compile_program
from wheel_builder.tables.archs import arch_named, known_archs, known_gpus
from wheel_builder.tables.tuning import TUNING, cpp_tuning, decode_rules, parse_tuning

LARGEST = {gpu.name: gpu.compute_units for gpu in known_gpus().values()}
# The GPUs with kernels of large head dims.
LARGE = {
    gpu.name for gpu in known_gpus().values() if "large_head_dims" in arch_named(gpu.code_object).features
}
# Packed rows of a workgroup.
ROWS = {
    arch.name: {"mfma": 32, "wmma": 16, "wmma_split": 16, "dot2": 16, "dot2_64": 8}[arch.isa.unit]
    for arch in known_archs().values()
}
PLACES = decode_rules().places
MAX_SPLITS = re.compile(r"int64_t kMaxSplits = (\d+);")
MOST = int(MAX_SPLITS.search((CHECKOUT / "kernels/device/call/params.hpp").read_text())[1])


@dataclass(frozen=True)
class Request:
    """A forward call as seen by the planner. Default: decode with 32k keys."""

    arch: str = "gfx942"
    dtype: str = "fp16"
    head_dim: int = 128
    batch: int = 1
    max_seqlen_q: int = 1
    max_seqlen_k: int = 32768
    nheads: int = 8
    nheads_k: int = 8
    compute_units: int = 304
    num_splits: int = 0
    dropout: bool = False
    aligned: bool = True
    tall: bool = False
    masked: bool = False
    wide: bool = False
    uneven: bool = False
    coded: bool = False
    causal: bool = False

    def line(self) -> str:
        values = (int(v) if isinstance(v, bool) else v for v in vars(self).values())
        return " ".join(map(str, values))


class Plan(NamedTuple):
    path: str
    splits: int
    reason: str


SOURCES = (Path(__file__).with_name("programs") / "plans.cpp", CHECKOUT / "kernels/host/plan/plan.cpp")


@pytest.fixture(scope="session")
def plans(builder_image, tmp_path_factory):
    """The plans of a list of requests."""
    return asked(compile_program(builder_image, tmp_path_factory.mktemp("plans") / "plans", *SOURCES))


def asked(program):
    def ask(requests):
        lines = "\n".join(request.line() for request in requests)
        done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
        found = [line.split(" ", 2) for line in done.stdout.splitlines()]
        assert len(found) == len(requests)
        return [Plan(path, int(splits), reason) for path, splits, reason in found]

    return ask


def share_of_places(workgroups, units, places=PLACES):
    """The busy share of the compute units' places, over all rounds of workgroups."""
    places *= units
    return workgroups / (math.ceil(workgroups / places) * places)


def places_of(case):
    """Of a compute unit, for parts of the keys."""
    of_one_wave = case.head_dim <= 96 or (case.head_dim == 128 and case.dtype == "bf16")
    return 4 if case.arch == "gfx906" and of_one_wave else PLACES


def dims(arch, *every):
    """Those with kernels."""
    return [each for each in every if arch in LARGE or each <= 128]


@pytest.mark.parametrize("arch", LARGEST)
def test_decode_of_one_sequence_with_32k_keys_fills_the_largest_device(plans, arch):
    units = LARGEST[arch]
    cases = [
        Request(
            arch=arch,
            dtype=dtype,
            head_dim=head_dim,
            nheads=nheads_k * group,
            nheads_k=nheads_k,
            compute_units=units,
        )
        for dtype, head_dim, nheads_k, group in product(
            ("fp16", "bf16"), dims(arch, 32, 64, 96, 128, 192, 256), range(1, 33), (1, 2, 8)
        )
    ]
    for case, plan in zip(cases, plans(cases), strict=True):
        assert plan.path == "split"
        places = places_of(case)
        if case.nheads_k >= 0.9 * places * units:  # small GPUs: a round is full, the rest is in the next
            assert plan.splits == 1
            continue
        most = share_of_places(MOST, units, places)
        enough = 0.9 if case.nheads_k * MOST >= 0.9 * places * units else most
        assert share_of_places(case.nheads_k * plan.splits, units, places) >= enough, (case, plan)
        assert plan.splits <= MOST


@pytest.mark.parametrize("arch", LARGEST)
def test_codes_are_cut_into_as_many_parts_as_give_the_bytes_in_flight_of_16_bits(plans, arch):
    """A compute unit has at most 4 places, two that share workgroups at most 8: registers have no more."""
    units, pair = LARGEST[arch], arch_named(known_gpus()[arch].code_object).isa.cus_of_workgroup
    cases = [
        Request(arch=arch, head_dim=head_dim, nheads=heads, nheads_k=heads, compute_units=units, coded=True)
        for head_dim, heads in product(dims(arch, 64, 128, 256), (1, 8, 64))
    ]
    for case, plan in zip(cases, plans(cases), strict=True):
        places = min({64: 8, 128: 4, 256: 2}[case.head_dim] // pair, 4)
        places = max(places, places_of(case))
        shares = [share_of_places(case.nheads_k * s, units, places) for s in range(1, MOST + 1)]
        full = case.nheads_k >= 0.9 * places * units
        enough = 0.0 if full else min(0.9, max(shares))
        assert plan.splits == next(s for s, share in enumerate(shares, 1) if share >= enough)
        assert plan.reason.startswith("decode over a cache of 8 bits; ")


@pytest.mark.parametrize("arch", LARGEST)
def test_no_fewer_parts_would_fill_as_much(plans, arch):
    units = LARGEST[arch]
    cases = [
        Request(arch=arch, batch=batch, nheads=heads, nheads_k=heads, max_seqlen_k=keys, compute_units=units)
        for batch, heads, keys in product((1, 2, 5), (1, 3, 7, 16), (1, 64, 65, 500, 4096, 32768))
    ]
    for case, plan in zip(cases, plans(cases), strict=True):
        workgroups = case.batch * case.nheads_k
        shares = [share_of_places(workgroups * s, units) for s in range(1, -(-case.max_seqlen_k // 64) + 1)]
        enough = min(0.9, max(shares[:MOST]))
        if workgroups >= 0.9 * PLACES * units:
            assert plan.splits == 1
        else:
            assert plan.splits == next(s for s, share in enumerate(shares, start=1) if share >= enough)


def test_a_device_that_is_full_anyway_gets_no_parts(plans):
    [full, half, few] = plans([Request(batch=n, nheads_k=heads) for n, heads in ((76, 8), (38, 8), (64, 1))])
    assert (full.path, full.splits) == ("split", 1)
    assert half.splits == 2  # one workgroup for each compute unit is too few
    assert few.splits > 1


def test_a_gpu_of_two_compute_units_gets_few_parts(plans):
    """gfx1036, the graphics of desktop processors: four workgroups fill it."""
    of = Request(arch="gfx1036", compute_units=known_gpus()["gfx1036"].compute_units)
    found = plans([replace(of, nheads=n, nheads_k=n) for n in (1, 2, 3, 4, 5, 8, 32)])
    assert [(plan.path, plan.splits) for plan in found] == [
        ("split", splits) for splits in (4, 2, 4, 1, 1, 1, 1)
    ]
    assert found[0].reason.endswith("32768 keys in 4 parts give 4 workgroups for 2 compute units")
    short = plans([replace(of, nheads=1, nheads_k=1, max_seqlen_k=keys) for keys in (1, 64, 65, 128)])
    assert [plan.splits for plan in short] == [1, 1, 2, 2]


def test_a_gpu_plans_with_its_own_compute_units_and_the_tiles_of_its_code(plans):
    same = [Request(arch=arch, nheads=1, nheads_k=1, compute_units=40) for arch in ("gfx1030", "gfx1031")]
    first, second = plans(same)
    assert first == second
    [larger] = plans([replace(same[0], compute_units=LARGEST["gfx1030"])])
    assert larger.splits > second.splits


def test_short_keys_are_cut_into_parts_of_64_at_most(plans):
    [plan] = plans([Request(max_seqlen_k=1000)])
    assert plan.splits == 16


def test_short_queries_are_packed_and_long_ones_are_not(plans):
    for arch, hardware in known_archs().items():
        whole = "tiled" if hardware.isa.unit.startswith("dot2") else "matrix"
        asked = [Request(arch=arch, max_seqlen_q=n) for n in (1, 2, 3, 15, 16, 17, 4096)]
        assert [plan.path for plan in plans(asked)] == ["split"] * 5 + [whole] * 2


def test_every_block_of_packed_rows_counts_as_a_workgroup(plans):
    for arch, rows in ROWS.items():
        base = Request(arch=arch, nheads=8, nheads_k=1, compute_units=LARGEST[arch])
        one, two = plans([replace(base, max_seqlen_q=rows // 8), replace(base, max_seqlen_q=rows // 8 + 1)])
        assert f" {one.splits} workgroups" in one.reason
        assert f" {two.splits * 2} workgroups" in two.reason
        assert one.splits > two.splits


def test_a_wanted_number_of_parts_is_taken_as_far_as_there_are_tiles(plans):
    wanted = Request(max_seqlen_k=100, num_splits=3)
    found = plans([wanted, replace(wanted, num_splits=9), replace(wanted, max_seqlen_k=0)])
    assert [(plan.path, plan.splits) for plan in found] == [("split", 3), ("split", 4), ("split", 1)]
    assert found[1].reason.endswith("9 parts wanted, 4 used for 100 keys")
    assert plans([replace(wanted, max_seqlen_k=10**6, num_splits=10**6)])[0].splits == MOST


def test_what_was_planned_is_planned_again_when_it_is_wanted(plans):
    asked = [
        Request(max_seqlen_q=q, max_seqlen_k=k, nheads=h, nheads_k=1)
        for q, k, h in product((1, 16, 17), (0, 1, 63, 100, 32768), (1, 8))
    ]
    first = plans(asked)
    again = plans(
        [
            replace(each, num_splits=plan.splits, compute_units=0)
            for each, plan in zip(asked, first, strict=True)
        ]
    )
    assert [plan[:2] for plan in again] == [plan[:2] for plan in first]


def test_long_queries_are_split_only_when_that_is_wanted(plans):
    long = Request(max_seqlen_q=4096)
    found = plans([long, replace(long, num_splits=1), replace(long, num_splits=4)])
    assert [(plan.path, plan.splits) for plan in found] == [("matrix", 1), ("matrix", 1), ("split", 4)]


def test_a_mask_is_never_split(plans):
    found = plans([Request(masked=True), Request(masked=True, num_splits=4, arch="gfx1030")])
    assert found == [
        ("matrix", 1, "a mask: keys are not split"),
        ("tiled", 1, "a mask: keys are not split"),
    ]


def test_dropout_is_never_split(plans):
    found = plans([Request(dropout=True), Request(dropout=True, num_splits=4, arch="gfx1030")])
    assert [tuple(plan) for plan in found] == [
        ("matrix", 1, "dropout: keys are not split"),
        ("tiled", 1, "dropout: keys are not split"),
    ]


def test_what_the_fast_kernels_do_not_take_goes_to_the_reference(plans):
    found = plans([Request(head_dim=80), Request(aligned=False), Request(head_dim=2**40)])
    assert [(plan.path, plan.splits) for plan in found] == [("reference", 1)] * 3
    assert found[0].reason == "no other kernel has head_dim 80"
    assert "not a multiple of 8 elements" in found[1].reason


def test_nothing_to_compute_needs_no_parts(plans):
    empty = [Request(batch=0), Request(max_seqlen_q=0), Request(nheads=0, nheads_k=0)]
    assert [tuple(plan) for plan in plans(empty)] == [("matrix", 1, "nothing to compute")] * 3


def test_more_packed_rows_than_32_bits_are_not_packed(plans):
    [plan] = plans([Request(max_seqlen_q=2**29, nheads=8, nheads_k=1, num_splits=4)])
    assert tuple(plan) == ("matrix", 1, "more rows than can be packed")


def test_the_reason_counts_in_words(plans):
    [plan] = plans([Request(max_seqlen_q=3, nheads=32, nheads_k=8)])
    assert plan.reason == (
        "3 rows of 4 heads packed for each head of keys; 32768 keys in 69 parts give 552 workgroups for 304 "
        "compute units"
    )


LONG = Request(arch="gfx1201", max_seqlen_q=2048, max_seqlen_k=2048, nheads=8, compute_units=64, tall=True)


def test_long_sequences_that_fill_the_device_take_tall_workgroups(plans):
    """8 of 256 rows for each head, one for each compute unit at a time."""
    [plan] = plans([LONG])
    assert tuple(plan) == (
        "tall",
        1,
        (
            "2048 query rows and 2048 keys are many: workgroups of 256 rows load keys half as often, and 64 "
            "workgroups fill 64 compute units"
        ),
    )
    of_gfx1151 = replace(LONG, arch="gfx1151", compute_units=40)
    found = plans(
        [replace(of_gfx1151, head_dim=dim, nheads=n, nheads_k=1) for dim in (64, 128) for n in (5, 32)]
    )
    assert [plan.path for plan in found] == ["tall"] * 4
    [of_gfx942] = plans(
        [replace(LONG, arch="gfx942", head_dim=128, nheads=38, nheads_k=38, compute_units=304)]
    )
    assert of_gfx942.path == "tall"


@pytest.mark.parametrize(
    "changes",
    [
        {"tall": False},  # the kernel is missing, or unfit for the call
        {"max_seqlen_q": 2047},
        {"max_seqlen_k": 2047},
        {"nheads": 7, "nheads_k": 7},  # 56 workgroups for 64 compute units
        {"nheads": 9, "nheads_k": 9},  # 72: a second round with 8
        {"compute_units": 0},  # unknown
        {"dropout": True},
        {"num_splits": 1},
    ],
)
def test_other_calls_do_not(plans, changes):
    [plan] = plans([replace(LONG, **changes)])
    assert (plan.path, plan.splits) == ("matrix", 1)


# One head of an image decoder: batch 1, 4,096 queries and keys.
WIDE = Request(head_dim=512, wide=True, max_seqlen_q=4096, max_seqlen_k=4096, nheads=1, nheads_k=1)


@pytest.mark.parametrize(
    ("changes", "path", "splits", "reason"),
    [
        ({}, "wide", 4, "4096 keys in 4 parts give 256 workgroups for 304 compute units"),
        ({"nheads": 8, "nheads_k": 2}, "wide", 1, "4096 keys in 1 part give 512 workgroups for 304 compute"),
        # With 32 rows a workgroup, two compute units have three. With 16 rows each unit has one: parts would
        # fill them better, at a gain below a tenth.
        ({"arch": "gfx1100", "compute_units": 96}, "wide", 1, "4096 keys in 1 part give 128 workgroups for"),
        ({"arch": "gfx1030", "compute_units": 80}, "wide", 1, "4096 keys in 1 part give 256 workgroups for"),
        ({"max_seqlen_q": 1}, "wide", 64, "4096 keys in 64 parts give 64 workgroups for 304 compute units"),
        ({"max_seqlen_k": 63}, "wide", 1, "63 keys in 1 part give 64 workgroups for 304 compute units"),
        ({"compute_units": 0}, "wide", 1, "keys are not split"),
        ({"num_splits": 1}, "wide", 1, "keys are not split"),
        ({"num_splits": 3}, "wide", 3, "3 parts wanted, 3 used for 4096 keys"),
        ({"num_splits": 3, "max_seqlen_k": 33}, "wide", 2, "3 parts wanted, 2 used for 33 keys"),
        ({"nheads": 0, "nheads_k": 0}, "wide", 1, "keys are not split"),
        (
            {"aligned": False},
            "reference",
            1,
            "an address or a stride is not a multiple of 8 elements, or too",
        ),
        ({"dropout": True}, "reference", 1, "its kernels have neither dropout nor a mask"),
        ({"masked": True}, "reference", 1, "its kernels have neither dropout nor a mask"),
    ],
)
def test_large_head_dims_that_waves_divide(plans, changes, path, splits, reason):
    """The reference kernel lacks them, so all but wide calls are refused (fwd_plan.cpp)."""
    [plan] = plans([replace(WIDE, **changes)])
    assert (plan.path, plan.splits) == (path, splits)
    assert plan.reason.removeprefix("waves divide head_dim 512; ").startswith(reason)


def test_what_was_planned_of_large_head_dims_is_planned_again_when_it_is_wanted(plans):
    cases = [
        replace(WIDE, arch=arch, max_seqlen_q=rows, nheads=heads, nheads_k=heads, compute_units=units)
        for arch, units in LARGEST.items()
        if arch in LARGE
        for rows in (1, 100, 4096)
        for heads in (1, 3)
    ]
    planned = plans(cases)
    again = plans([replace(case, num_splits=plan.splits) for case, plan in zip(cases, planned, strict=True)])
    assert [plan[:2] for plan in again] == [plan[:2] for plan in planned]
    assert {plan.splits > 1 for plan in planned} == {True, False}


UNEVEN = Request(head_dim=192, uneven=True, max_seqlen_q=300)


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({}, "uneven", "a kernel for head_dim 192 and another one of v; keys are not split"),
        ({"max_seqlen_q": 17, "num_splits": 3}, "uneven", "a kernel for head_dim 192 and another one of v"),
        ({"tall": True, "max_seqlen_q": 4096, "max_seqlen_k": 4096}, "uneven", "a kernel for head_dim 192"),
        ({"max_seqlen_q": 16, "compute_units": 0}, "split", "16 rows of "),
        ({"aligned": False}, "reference", "an address or a stride is not a multiple of 8 elements, or too"),
        ({"dropout": True}, "matrix", "dropout: keys are not split"),
        ({"masked": True}, "matrix", "a mask: keys are not split"),
        ({"uneven": False}, "matrix", "300 query rows: more than 16 fill the waves of a workgroup"),
    ],
)
def test_another_head_dim_of_v(plans, changes, path, reason):
    """On other paths it is padded."""
    [plan] = plans([replace(UNEVEN, **changes)])
    assert (plan.path, plan.splits) == (path, 1)
    assert plan.reason.startswith(reason)


def test_tall_workgroups_are_taken_by_few_queries_and_unaligned_rows_never(plans):
    found = plans([replace(LONG, max_seqlen_q=16), replace(LONG, aligned=False)])
    assert [plan.path for plan in found] == ["split", "reference"]


OTHER_RULES = """
[[choices]]
kernels = "tall"
regimes = ["short"]
archs = ["gfx942"]
dtypes = ["bf16"]
head_dims = [128]
evidence = "of this test"
[[choices]]
kernels = "split"
regimes = ["shared"]
evidence = "of this test"
places = 4
[[choices]]
kernels = "whole"
regimes = ["decode"]
archs = ["gfx90a"]
evidence = "of this test"
[[choices]]
kernels = "whole"
regimes = ["long-causal"]
archs = ["gfx1201"]
evidence = "of this test"
[[choices]]
kernels = "whole"
regimes = ["long-gqa"]
archs = ["gfx1151"]
evidence = "of this test"
[regimes.shared]
queries = [17, 64]
width = [8, 0]
"""


def test_the_table_of_regimes_decides(plans, builder_image, tmp_path):
    """Each call in a row has another path or number of parts by the other table, and no other call has."""
    text = (CHECKOUT / TUNING).read_text()
    regimes, last = text.index("[regimes.long-causal]"), text.index("[[choices]]")
    choices, shared = OTHER_RULES.split("[regimes.shared]")
    other = text[:regimes] + "[regimes.shared]" + shared + text[regimes:last] + choices + text[last:]
    (tmp_path / "generated/host").mkdir(parents=True)
    (tmp_path / "generated/host/regimes.inc").write_text(cpp_tuning(parse_tuning(other)))
    ask = asked(compile_program(builder_image, tmp_path / "plans", f"-iquote{tmp_path}", *SOURCES))
    many = Request(dtype="bf16", batch=64, max_seqlen_q=1024, max_seqlen_k=1024, tall=True)
    few = Request(max_seqlen_q=32, nheads=64, nheads_k=8)
    one = Request(arch="gfx90a", compute_units=104)
    of_heads = replace(LONG, arch="gfx1151", compute_units=40, nheads=5, nheads_k=1)
    calls = [
        one, many, replace(many, dtype="fp16"), replace(many, head_dim=64), replace(many, max_seqlen_q=16),
        few, replace(few, nheads_k=16), replace(few, max_seqlen_q=65), replace(few, max_seqlen_q=1),
        replace(LONG, causal=True), LONG, replace(LONG, causal=True, max_seqlen_q=2047),
        of_heads, replace(of_heads, nheads_k=5), replace(of_heads, causal=True),
    ]  # fmt: skip
    before, after = plans(calls), ask(calls)
    assert [call for call, one, two in zip(calls, before, after, strict=True) if one != two] == [
        one,
        many,
        few,
        replace(LONG, causal=True),
        of_heads,
    ]
    assert {before[at].path for at in (9, 10, 12, 13, 14)} == {"tall"}
    assert {after[at].path for at in (9, 12)} == {"matrix"}
    assert (before[0].path, after[0][::2]) == ("split", ("matrix", "1 query row, heads not packed"))
    assert (before[1].path, after[1].path) == ("matrix", "tall")
    assert (before[5].path, after[5].path, after[5].splits) == (
        "matrix",
        "split",
        math.ceil(0.9 * 4 * 304 / 64),
    )
