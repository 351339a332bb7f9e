"""Caches of 8 bits beside 16: the table from a few figures, and what the accepted figures reach."""

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.golden import DECODE, FIGURES, FLOP, MANY_DECODE, Figure, parse_figures
from wheel_builder.extras.site.coded_caches import beside_16_bits, coded_caches, report
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
        (arch, "latent"): COPIES
        for arch, of in known_archs().items()
        if arch not in NO_LATENT and "latent_codes" not in of.features
    },
    **{(arch, f"prefill d{dim}"): SHORT for arch in ("gfx942", "gfx950") for dim in (64, 128)},
}


def without(what, kernel):
    return [each for each in FOUND if (each.what, each.kernel) != (what, kernel)]


def found(figures):
    return {each.name: each for each in beside_16_bits(arch_named(ARCH), figures)}


def test_time_and_speed_beside_16_bits():
    columns = found(FOUND)
    assert columns["decode d64"].found == columns["decode d64, one"].found == 50 / 80
    assert columns["latent"].found == 2.5, "3 bytes of the copy beside 2"
    native = Figure(MANY_DECODE, OURS, "8-bit bf16 d576", 80)
    assert found([*FOUND, native])["latent"].found == 100 / 160
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


def test_what_misses_its_target_is_marked():
    figures = {ARCH: without(DECODE, "bf16 d576")}
    row = coded_caches(figures).splitlines()[-1]
    assert row.startswith("| gfx942 | MI300X | **0.62** | **0.62** | 0.62 | 0.62 | - | ")
    assert report(figures).splitlines()[-1].split()[2:7] == ["*0.62*", "*0.62*", "0.62", "0.62", "-"]


def test_the_accepted_figures_reach_the_targets_or_it_is_said_why():
    missed = {
        (name, each.name)
        for name in known_archs()
        for each in beside_16_bits(
            arch_named(name), parse_figures(name, (CHECKOUT / FIGURES / f"{name}.toml").read_text("utf-8"))
        )
        if not each.reached
    }
    assert missed == MISSES.keys()
