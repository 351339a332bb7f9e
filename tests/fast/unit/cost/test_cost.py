"""Costs as tables and as a picture."""

import pytest

from wheel_builder.build.budget import KernelCost
from wheel_builder.extras.cost.table import changes, report
from wheel_builder.extras.cost.treemap import Box, squarified, to_svg

ARCHS = {
    "gfx908": {
        "fa_fwd_fp16_d64": KernelCost(2048, 3.0, 140),
        "fa_bwd_dq_bf16_d128": KernelCost(1024, 1.0, 150),
        "fa_append_fp16": KernelCost(1024, 0.0, 120),
    },
    "gfx1100": {"fa_fwd_fp16_d64": KernelCost(4096, 4.0, 130)},
}


def test_what_each_part_adds():
    lines = [line.split() for line in report(ARCHS, {}).splitlines()]
    assert ["gfx908", "3", "4.0", "50.0%", "150", "4.0", "50.0%"] in lines
    assert ["gfx1100", "1", "4.0", "50.0%", "130", "4.0", "50.0%"] in lines
    assert ["bwd_dq", "1", "1.0", "12.5%", "150", "1.0", "12.5%"] in lines
    assert ["any", "1", "0.0", "0.0%", "120", "1.0", "12.5%"] in lines
    assert ["64", "2", "7.0", "87.5%", "140", "6.0", "75.0%"] in lines
    assert ["bf16", "1", "1.0", "12.5%", "150", "1.0", "12.5%"] in lines


def test_the_compilers_phases():
    said = report(ARCHS, {"gfx908": {"frontend": 1.0, "optimiser": 2.0, "code generation": 1.0}})
    assert "compiler phases  frontend  optimiser  code generation" in said
    assert said.splitlines()[-1].split() == ["gfx908", "25.0%", "50.0%", "25.0%"]


def test_what_has_changed():
    now = {"gfx1100": {"fa_fwd_fp16_d64": KernelCost(8192, 4.0, 130), "fa_new": KernelCost(512, 1, 1)}}
    lines = [line.split() for line in changes(ARCHS, now, "v0.1.0").splitlines()]
    assert lines[0][:4] == ["arch", "kernel,", "against", "v0.1.0"]
    assert lines[1:] == [
        ["gfx1100", "fa_fwd_fp16_d64", "4.0", "8.0", "2.00"],
        ["gfx1100", "fa_new", "-", "0.5", "new"],
    ]
    assert changes(ARCHS, {"gfx908": {}}, "v0.1.0").count("gone") == 3
    assert changes(ARCHS, ARCHS, "v0.1.0") == "no kernel has changed against v0.1.0\n"


@pytest.mark.parametrize("sizes", [[1.0], [6, 6, 4, 3, 2, 2, 1], [1000, 1, 1, 1]])
def test_rectangles_fill_the_box_without_overlap(sizes):
    box = Box(10, 20, 600, 400)
    boxes = squarified(sizes, box)
    assert [one.width * one.height for one in boxes] == pytest.approx(
        [size / sum(sizes) * 240_000 for size in sizes]
    )
    for at, one in enumerate(boxes):
        assert 10 - 1e-6 <= one.x <= one.x + one.width <= 610 + 1e-6
        assert 20 - 1e-6 <= one.y <= one.y + one.height <= 420 + 1e-6
        for other in boxes[:at]:
            assert (
                one.x >= other.x + other.width - 1e-6
                or other.x >= one.x + one.width - 1e-6
                or one.y >= other.y + other.height - 1e-6
                or other.y >= one.y + one.height - 1e-6
            )


def test_the_picture_has_every_kernel_and_says_what_it_is():
    svg = to_svg(ARCHS)
    assert svg.count("<rect") == 4
    assert "<title>fa_bwd_dq_bf16_d128 for gfx908: 1024 bytes, 1.00 CPU-seconds</title>" in svg
    assert "gfx1100: 4 KiB" in svg
    assert squarified([], Box(0, 0, 1, 1)) == []
