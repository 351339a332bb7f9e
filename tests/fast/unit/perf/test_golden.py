"""The modelled figures required of kernels by tests."""

from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from tests.fast.unit.perf.test_measure import measured
from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.golden import (
    DECODE,
    EXCLUSIVE,
    FIGURES,
    FLOP,
    LATENCY,
    Figure,
    figures_of,
    parse_figures,
    to_text,
)
from wheel_builder.extras.perf.measure import Decoded
from wheel_builder.extras.perf.model.memory import Decode, Share
from wheel_builder.tables.archs import known_archs


def test_the_figure_of_a_kernel_is_the_schedules_under_the_worst_order_of_phases():
    row = measured(label="ours, 64x64")
    best, worst = row.charged[0], replace(row.charged[0], schedule=replace(row.schedule, clocks=128))
    for charged in ((best, worst), (worst, best)):
        found = [*figures_of([replace(row, charged=charged)])]
        assert found == [
            Figure(FLOP, "ours", "fwd fp16 d64", 64),
            Figure(EXCLUSIVE, "ours", "fwd fp16 d64", 128),
        ]


def test_the_exclusive_figure_is_that_schedules_under_its_worst_order():
    row = measured()
    best, worst = row.charged[0], replace(row.charged[0], exclusive=replace(row.schedule, clocks=256))
    for charged in ((best, worst), (worst, best)):
        plain, exclusive = figures_of([replace(row, charged=charged)])
        assert (plain.value, exclusive.what, exclusive.value) == (128, EXCLUSIVE, 32)


def test_archs_without_the_rule_have_no_exclusive_figures():
    assert {each.what for each in figures_of([measured(arch="gfx908")])} == {FLOP}


def test_a_whole_backward_has_a_figure_too():
    parts = ("bwd_delta", "bwd_dkdv", "bwd_dq")
    both = [*figures_of([measured(op=op) for op in parts])]
    found = [each for each in both if each.what == FLOP]
    assert [each.kernel for each in both if each.what == EXCLUSIVE] == [each.kernel for each in found]
    assert [each.kernel for each in found] == [f"{name} fp16 d64" for name in (*parts, "separate")]
    (total,) = (each.value for each in found if each.kernel.startswith("separate"))
    assert total == round(5 / 4 * 1024 / (3 * 8))


def test_the_figure_of_decode_is_a_single_workgroups_share_under_load():
    shares = (Share(LATENCY, 1, 0.472), Share(LATENCY, 2, 0.9), Share(500, 1, 0.6))
    row = Decoded("gfx942", "ours", "bf16", 64, 1, 2, Decode({}, shares))
    assert [*figures_of([row])] == [Figure(DECODE, "ours", "bf16 d64", 47)]


@pytest.mark.parametrize("arch", known_archs())
def test_the_files_are_as_they_are_written(arch):
    file = CHECKOUT / FIGURES / f"{arch}.toml"
    assert to_text(parse_figures(file.name, file.read_text())) == file.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[flop", "Expected"),
        ('[speed."ours"]', "speed"),
        ('[flop."ours"]\n"fwd fp16" = {d64 = "7"}', "flop ours fwd fp16 d64"),
        ('[flop."ours"]\n"fwd fp16" = {d64 = -7}', "greater than or equal to 0"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_what_is_wrong(text, words):
    with pytest.raises(PerfError, match=r"gfx942\.toml is not right") as caught:
        parse_figures("gfx942.toml", text)
    assert words in str(caught.value)
    assert "scripts/test --full tests/engine/perf --update" in str(caught.value)
