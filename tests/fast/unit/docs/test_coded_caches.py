"""Caches of 8 bits beside 16: the table from a few figures, and what the accepted figures reach."""

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.golden import DECODE, FIGURES, FLOP, MANY_DECODE, Figure, parse_figures
from wheel_builder.extras.site.coded_caches import beside_16_bits, coded_caches, coded_prefills, report
from wheel_builder.extras.site.modelled import OURS
from wheel_builder.tables.archs import arch_named, known_archs

ARCH = "gfx942"
# All decodes reach half of the bandwidth, over 8 bits two fifths. Latent attention and the copy reach all.
FOUND = (
    *(
        Figure(what, OURS, f"{of}fp16 d{dim}", share)
        for what in (DECODE, MANY_DECODE)
        for of, share in (("", 50), ("8-bit ", 40))
        for dim in (64, 128)
    ),
    Figure(DECODE, OURS, "bf16 d576", 100),
    Figure(MANY_DECODE, OURS, "widen fp16 d128", 100),
    *(Figure(FLOP, OURS, f"fwd 2048 fp16 d{dim}", 1000) for dim in (64, 128)),
)
COPIES = "the rows are copied to 16 bits first"
SHORT = "the launch of the copy takes 3 of about 50 microseconds"
NO_LATENT = ("gfx908", "gfx906", "gfx1010", "gfx1012", "gfx1030")
# What misses its target, and why.
MISSES = {
    **{
        (arch, "rows"): COPIES
        for arch, of in known_archs().items()
        if arch not in NO_LATENT and "latent_rows" not in of.features
    },
    **{(arch, f"prefill d{dim}"): SHORT for arch in ("gfx942", "gfx950") for dim in (64, 128)},
}


def without(what, kernel):
    return [each for each in FOUND if (each.what, each.kernel) != (what, kernel)]


def accepted(name):
    return parse_figures(name, (CHECKOUT / FIGURES / f"{name}.toml").read_text("utf-8"))


def found(figures):
    return {each.name: each for each in beside_16_bits(arch_named(ARCH), figures)}


def test_time_and_speed_beside_16_bits():
    columns = found(FOUND)
    assert columns["decode d64"].found == columns["decode d64, one"].found == 50 / 80
    assert columns["latent"].found == 2.5, "3 bytes of the copy beside 2"
    native = Figure(MANY_DECODE, OURS, "8-bit bf16 d576", 80)
    assert found([*FOUND, native])["latent"].found == 100 / 160
    assert columns["rows"].found == 1 + (656 + 1152) / 1152
    native = Figure(MANY_DECODE, OURS, "rows bf16 d576", 80)
    assert found([*FOUND, native])["rows"].found == pytest.approx(656 / 1152 / 0.8)
    arch = arch_named(ARCH)
    plain = 2 * 4096**2 * 64 * 32 / (1000 * arch.compute_units * arch.model.clock)
    copied = 3 * 2 * 4096 * 8 * 64 / arch.model.memory + 3e-6
    assert columns["prefill d64"].found == pytest.approx(plain / (plain + copied))


def test_a_slower_kernel_takes_longer_and_a_slower_copy_makes_calls_slower():
    slower = [*without(MANY_DECODE, "widen fp16 d128"), Figure(MANY_DECODE, OURS, "widen fp16 d128", 50)]
    assert found(slower)["latent"].found == 4
    assert found(slower)["prefill d64"].found < found(FOUND)["prefill d64"].found
    slower = [*without(MANY_DECODE, "8-bit fp16 d64"), Figure(MANY_DECODE, OURS, "8-bit fp16 d64", 20)]
    assert found(slower)["decode d64"].found == 50 / 40
    assert found(slower)["decode d128"].found == 50 / 80


def least_keys(figures):
    """The rows of the table: keys, archs at head dim 64, archs at 128."""
    rows = [line.strip("| ").split(" | ") for line in coded_prefills(figures).splitlines()]
    assert rows[0] == ["keys", "head dim 64", "head dim 128"]
    return rows[2:]


def test_a_prefill_of_the_least_keys_reaches_its_target_and_one_of_half_does_not():
    arch = arch_named(ARCH)
    assert least_keys({ARCH: FOUND}) == [["4,096", ARCH, ARCH]]
    for keys, reaches in ((2048, False), (4096, True)):
        plain = 2 * keys**2 * 64 * 32 / (1000 * arch.compute_units * arch.model.clock)
        copied = 3 * 2 * keys * 8 * 64 / arch.model.memory + 3e-6
        assert (round(plain / (plain + copied), 2) >= 0.95) == reaches


def test_a_faster_kernel_of_16_bits_needs_more_keys():
    """The copy before it is no faster."""
    faster = [each._replace(value=4000) if each.kernel == "fwd 2048 fp16 d64" else each for each in FOUND]
    assert least_keys({ARCH: faster}) == [["4,096", "none", ARCH], ["16,384", ARCH, "none"]]


def test_the_least_keys_agree_with_the_table_of_calls():
    """4,096 keys are enough for the archs that reach the target there, and for no others."""
    known = {name: accepted(name) for name in known_archs()}
    short = [row for row in least_keys(known) if int(row[0].replace(",", "")) <= 4096]
    for name, figures in known.items():
        of_4096 = {each.name: each.reached for each in beside_16_bits(arch_named(name), figures)}
        for column, dim in enumerate((64, 128), start=1):
            enough = any(name in row[column].split(", ") for row in short)
            assert enough == of_4096[f"prefill d{dim}"]


def test_what_misses_its_target_is_marked():
    figures = {ARCH: without(DECODE, "bf16 d576")}
    row = coded_caches(figures).splitlines()[-1]
    assert row.startswith("| gfx942 | MI300X | **0.62** | **0.62** | 0.62 | 0.62 | - | - | ")
    assert report(figures).splitlines()[-1].split()[2:8] == ["*0.62*", "*0.62*", "0.62", "0.62", "-", "-"]


def test_the_accepted_figures_reach_the_targets_or_it_is_said_why():
    missed = {
        (name, each.name)
        for name in known_archs()
        for each in beside_16_bits(arch_named(name), accepted(name))
        if not each.reached
    }
    assert missed == MISSES.keys()
