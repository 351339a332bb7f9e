"""Whole calls of the launch model, its files, and the choice that follows from them."""

import re

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.atomics import ATOMICS, modelled_ratio, read_atomics
from wheel_builder.extras.perf.launch.calls import backward, decode, forward, planned_parts, taller
from wheel_builder.extras.perf.launch.kernels import (
    FOLDER,
    SPEEDS,
    Kernel,
    dies_of,
    launched,
    parse_speeds,
    speeds_text,
)
from wheel_builder.extras.perf.launch.shapes import Shape, packed
from wheel_builder.extras.perf.launch.simulate import Speed
from wheel_builder.extras.perf.launch.table import (
    BACKWARD,
    FORWARD,
    Row,
    fused_wins,
    parse_rows,
    report,
    rows_of,
    shapes_on,
    to_text,
)
from wheel_builder.tables.archs import arch_named, known_archs
from wheel_builder.tables.tiles import known_tiles, tile_of

LAUNCHED = launched(CHECKOUT)
SHORT = (Shape(512, 512, 8, 8, causal=True), Shape(512, 512, 8, 8))


@pytest.fixture(scope="module")
def known():
    return parse_speeds(str(SPEEDS), (CHECKOUT / SPEEDS).read_text())


def accepted(arch):
    return parse_rows((CHECKOUT / FOLDER / f"{arch}.csv").read_text())


def test_the_file_of_speeds_is_read_as_written(known):
    assert sorted(known) == sorted(LAUNCHED)
    text = speeds_text({arch: kernels.values() for arch, kernels in known.items()})
    assert text == (CHECKOUT / SPEEDS).read_text()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[gfx942", "Expected"),
        ('[gfx942]\n"fwd" = {rows = 128, clocks = [], start = 1.0, reads = 2}', "clocks"),
        ('[gfx942]\n"fwd" = {rows = 0, clocks = [1.0], start = 1.0, reads = 2}', "rows"),
    ],
)
def test_a_wrong_file_of_speeds_is_refused(text, problem):
    with pytest.raises(PerfError) as raised:
        parse_speeds("speeds.toml", text)
    assert "speeds.toml is not right" in str(raised.value)
    assert problem in str(raised.value)
    assert "test_launches.py --update" in str(raised.value)


@pytest.mark.parametrize("row", [*read_atomics(CHECKOUT / ATOMICS)], ids=str)
def test_additions_cost_amds_backward_what_amd_published(row):
    """One number is fitted to the rows of 8,192 keys: ``LEAVE``."""
    assert modelled_ratio(row) == pytest.approx(row.ratio, abs=0.035)


def test_heads_in_turn_help_causal_calls_only(known):
    kernel = known["gfx1201"]["fwd fp16 d128"]
    shapes = (Shape(1024, 1024, 16, 16, causal=True), Shape(1024, 1024, 16, 16))
    causal, whole = (
        [forward("gfx1201", kernel, shape, together=turn) for turn in (False, True)] for shape in shapes
    )
    assert whole[0] == whole[1]
    assert causal[1].seconds < causal[0].seconds


def test_heads_of_packed_calls_stay_on_a_die_too(known):
    """So keys and values come from memory once."""
    kernel, shape = known["gfx942"]["fwd fp16 d128"], packed((512, 128), 8)
    for turn in (False, True):
        assert forward("gfx942", kernel, shape, together=turn).memory_bytes == 640 * 8 * 512


def test_additions_make_the_fused_backward_slower_only(known):
    kernels = known["gfx942"]
    for path, slower in (("separate", False), ("fused", True)):
        plain, worst = (
            backward(
                "gfx942", kernels, Shape(2048, 2048, 16, 16), path, "fp16 d128", together=True, worst=each
            )
            for each in (False, True)
        )
        assert (worst.seconds > plain.seconds) == slower


def test_a_backward_counts_its_other_launches(known):
    """Two further launches of the separate path, three of the fused one."""
    small = Shape(128, 128, 1, 1)
    for path, ops, launches in (("separate", ("bwd_dkdv", "bwd_dq"), 2), ("fused", ("bwd_fused",), 3)):
        kernels = {
            f"{op} fp16 d64": Kernel(f"{op} fp16 d64", 128, Speed((1.0,), 0.0, 1)) for op in ("bwd_dq", *ops)
        }
        found = backward("gfx942", kernels, small, path, "fp16 d64", together=False)
        assert found.seconds == pytest.approx(launches * 3e-6 + len(ops) * 0.8e-6, rel=0.1)


def test_parts_are_those_of_the_host():
    assert planned_parts("gfx942", Shape(1, 8192, 32, 8)) == 69
    most = re.search(r"kMaxSplits = (\d+);", (CHECKOUT / "kernels/device/call/params.hpp").read_text())
    assert planned_parts("gfx942", Shape(1, 1 << 17, 8, 1)) == int(most[1])
    assert planned_parts("gfx942", Shape(1, 128, 32, 8)) == 2
    assert planned_parts("gfx942", Shape(1, 8192, 32, 8, batch=128)) == 1


def test_a_decode_with_more_parts_reads_as_much_and_joins_them(known):
    kernel, shape = known["gfx942"]["decode fp16 d128"], Shape(1, 8192, 32, 8)
    one, many = (decode("gfx942", kernel, shape, parts) for parts in (1, 16))
    assert one.memory_bytes == many.memory_bytes == 8192 * 8 * 512
    assert many.seconds < one.seconds / 4


def test_a_taller_workgroup_takes_the_place_of_several():
    kernel = Kernel("fwd fp16 d64", 128, Speed((10.0, 18.0, 27.0), 5.0, 256))
    assert taller(kernel, 2) == Kernel("fwd fp16 d64", 256, Speed((18.0,), 5.0, 256))
    assert taller(kernel, 3).speed.clocks == (27.0,)
    assert taller(kernel, 4) is None


def test_rows_survive_their_file():
    rows = (Row(FORWARD, "fp16 d64", "4096 x 32 causal", {"head after head": "12", "gain": "+3%"}),)
    assert parse_rows(to_text(rows)) == rows


def test_every_figure_is_in_the_table(known, monkeypatch):
    for name in ("FORWARDS", "BACKWARDS", "NARROW"):
        monkeypatch.setattr(f"wheel_builder.extras.perf.launch.table.{name}", SHORT)
    monkeypatch.setattr("wheel_builder.extras.perf.launch.table.DECODES", (Shape(1, 512, 8, 8),))
    text = report("gfx942", known["gfx942"])
    lines = [re.split("  +", line) for line in text.splitlines()]
    for row in rows_of("gfx942", known["gfx942"]):
        # Head dims without a tall workgroup have no such figure: their lines end before.
        assert any(line[: 2 + len(row.figures)] == [row.table, "launch", *row.figures] for line in lines)
        assert [row.kernel, row.launch, *row.figures.values()] in lines
    assert "MI300X (gfx942), modelled, not measured" in text


def test_one_die_has_no_launches_that_take_long():
    shapes = (Shape(8192, 8192, 32, 32), Shape(4096, 4096, 32, 32), packed((8192, 128), 32))
    assert [*shapes_on("gfx1201", shapes)] == [*shapes[1:]]
    assert [*shapes_on("gfx942", shapes)] == [*shapes]


def choice(launch, plain, worst):
    return Row(BACKWARD, "fp16 d64", launch, {"fused / separate": plain, "worst fused / separate": worst})


def test_the_fused_path_has_to_win_every_long_call():
    good, bad = choice("4096 x 32", "1.20", "1.10"), choice("4096 x 32 causal", "1.20", "0.99")
    short = choice("1024 x 16 causal", "0.5", "0.5")
    mixed = choice("16 of 128 to 4096 x 16 batch 16", "0.5", "0.5")
    assert fused_wins("gfx942", [good, short, mixed], "fp16 d64")
    assert not fused_wins("gfx942", [good, bad], "fp16 d64"), "additions may leave a die"
    assert fused_wins("gfx1201", [good, bad], "fp16 d64"), "it has one"
    assert not fused_wins("gfx1201", [good, choice("4096 x 32", "0.99", "0.9")], "fp16 d64")
    assert not fused_wins("gfx942", [good], "fp16 d128")
    assert not fused_wins("gfx942", [Row(BACKWARD, "fp16 d64", "4096 x 32", {"separate": "3"})], "fp16 d64")


# Defaults that differ from the modelled choice, with the reason.
UNLIKE = {
    "gfx908": "as before: its fused kernels have no features, and lose a quarter in the worst case",
    "gfx942": "fused wins if additions stay on a die, which the order of workgroups decides",
}


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("arch", LAUNCHED)
def test_the_default_backward_is_the_modelled_choice(arch, head_dim):
    modelled = fused_wins(arch, accepted(arch), f"fp16 d{head_dim}")
    default = False
    if known_archs()[arch].isa.name in known_tiles().rows["bwd_fused"]:
        default = "preferred" in tile_of(arch_named(arch), "bwd_fused", "fp16", head_dim).switches
    assert (default != modelled) == (arch in UNLIKE)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_accepted_launches_of_a_quick_call_are_what_the_model_says(known, monkeypatch, arch):
    """All of them: tests/engine/perf/test_launches.py --full."""
    for name in ("FORWARDS", "BACKWARDS"):
        monkeypatch.setattr(
            f"wheel_builder.extras.perf.launch.table.{name}", (Shape(1024, 1024, 16, 16, causal=True),)
        )
    monkeypatch.setattr("wheel_builder.extras.perf.launch.table.NARROW", ())
    found = [*rows_of(arch, known[arch])]
    assert {row.table for row in found} == {"forward", "backward", "decode"}
    assert [row for row in found if row not in accepted(arch)] == []


def test_dies_are_those_of_the_gpus():
    assert {arch: dies_of(each) for arch, each in known_archs().items() if dies_of(each) > 1} == {
        "gfx942": 8, "gfx950": 8,
    }  # fmt: skip
