"""The picture of a bench, drawn by matplotlib. The module works without PyTorch, as here."""

import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from wheel_builder.tables.package import package_module

PLOT = package_module("tools.plot")


def row(kind, causal, name, seqlen, problem=""):
    return SimpleNamespace(
        kind=kind,
        causal=causal,
        implementation=name,
        seqlen=seqlen,
        tflops=0.0 if problem else 1.5,
        problem=problem,
    )


ROWS = [
    row(kind, causal, name, seqlen)
    for kind, causal in (("forward", True), ("decode", False))
    for name in ("ours", "sdpa", "plain")
    for seqlen in (128, 256)
]


def texts(file):
    """The text of an SVG: matplotlib draws letters as shapes, and keeps the text in comments."""
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    return [each.text.strip() for each in ET.parse(file, parser).iter() if each.tag is ET.Comment]


def test_a_panel_for_each_kind_a_line_for_each_implementation(tmp_path):
    PLOT.draw(ROWS, "RX 6800 XT\nmeasured", tmp_path / "a.svg")
    found = texts(tmp_path / "a.svg")
    assert {"forward causal", "decode", "RX 6800 XT", "measured"} <= set(found)
    assert [found.count(name) for name in ("ours", "sdpa", "plain", "TFLOP/s")] == [2] * 4


def test_a_row_without_numbers_is_left_out(tmp_path):
    rows = [*ROWS, row("forward", True, "ours", 1 << 20, "out of memory")]
    PLOT.draw(rows, "", tmp_path / "a.svg")
    PLOT.draw(ROWS, "", tmp_path / "b.svg")
    assert texts(tmp_path / "a.svg") == texts(tmp_path / "b.svg")


@pytest.mark.parametrize("rows", [ROWS, [], [row("forward", False, "ours", 64, "out of memory")]])
def test_png(tmp_path, rows):
    PLOT.draw(rows, "a title", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
