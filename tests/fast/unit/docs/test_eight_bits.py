"""What products of int8 gain, and the rule of which calls take them."""

import re

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.golden import FIGURES, FLOP, Figure, parse_figures
from wheel_builder.extras.site.eight_bits import LENGTHS, NONE, OP, PAYS, gain, gains, head_dims
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.extras.site.modelled import OURS
from wheel_builder.tables.archs import arch_named, known_archs
from wheel_builder.tables.kinds import known_kinds

ARCH = "gfx1201"
LEAST = {name: arch.isa.int8_pairs for name, arch in known_archs().items() if arch.isa.int8_pairs}
# With 2 FLOP a clock, a call of 4096 rows and head dim 64 takes 271 ms. Quantising takes 0.15 ms.
SLOW = {f"{op} 2048 fp16 d{dim}": flop for op, flop in (("fwd", 1), (OP, 2)) for dim in (64, 128)}


def test_with_slow_kernels_the_rates_alone_count():
    found = gain(arch_named(ARCH), SLOW, 4096, 64, causal=False)
    assert found == pytest.approx(2, abs=2e-3)


def test_v_in_16_bits_costs_no_quantising():
    """Per element 6 bytes instead of 11, and a launch less."""
    flop = {kernel: 500 * each for kernel, each in SLOW.items()}
    arch = arch_named("gfx1030")
    found = gain(arch, flop, 1024, 64, causal=False)
    work = 4 * 1024 * 1024 * 64 * 24 / (1000 * arch.compute_units * arch.model.clock)
    moved = 24 * 1024 * 64 * 6 / (arch.model.memory * 0.75)
    assert found == pytest.approx(2 * work / (work + moved + 3e-6))


def test_quantising_counts_more_in_causal_calls_and_in_short_ones():
    flop = {kernel: 500 * each for kernel, each in SLOW.items()}
    long, causal, short = (
        gain(arch_named(ARCH), flop, length, 64, causal=masked)
        for length, masked in ((8192, False), (8192, True), (2048, False))
    )
    assert 2 > long > causal > short


def test_a_taller_kernel_is_the_one_of_16_bits_if_it_is_faster():
    tall = SLOW | {"fwd_tall 2048 fp16 d64": 2}
    assert gain(arch_named(ARCH), tall, 4096, 64, causal=False) == pytest.approx(1, abs=1e-3)


def test_archs_without_such_kernels_have_no_row():
    own = [Figure(FLOP, OURS, kernel, each) for kernel, each in SLOW.items()]
    assert gains({"gfx942": own[:2], ARCH: own}) == markdown(
        [
            ("GPU", "queries and keys", "head dim 64", "head dim 128", "64, causal", "128, causal"),
            *(("RX 9070 XT", str(length), *["2.00"] * 4) for length in LENGTHS),
        ]
    )


def test_a_kernel_of_bf16_counts_beside_fp16_in_16_bits_from_where_it_gains():
    own = [Figure(FLOP, OURS, "fwd 2048 fp16 d128", 1900), Figure(FLOP, OURS, f"{OP} 2048 bf16 d128", 2280)]
    *_, last = table = gains({"gfx942": own}).splitlines()
    assert last == f"| MI300X | 32768 | {NONE} | 1.16 | {NONE} | 1.13 |"
    assert len(table) == 2 + 2  # 16384 and 32768: below, quantising takes the gain away


def flop_of(arch):
    figures = parse_figures(arch, (CHECKOUT / FIGURES / f"{arch}.toml").read_text("utf-8"))
    return {each.kernel: each.value for each in figures if (each.what, each.maker) == (FLOP, OURS)}


def all_pay(arch, least):
    """Whether calls with so many pairs for each row gain enough, at each head dim with kernels."""
    flop = flop_of(arch)
    assert head_dims(flop)
    return all(
        gain(arch_named(arch), flop, least * (4 if causal else 2), head_dim, causal=causal) > PAYS
        for head_dim in head_dims(flop)
        for causal in (False, True)
    )


@pytest.mark.parametrize("arch", LEAST)
def test_the_rule_takes_calls_that_gain_and_leaves_others(arch):
    """``int8_pairs`` is the least power of two: calls of half as many pairs gain too little."""
    least = LEAST[arch]
    assert least & (least - 1) == 0
    assert (all_pay(arch, least), all_pay(arch, least // 2)) == (True, False)


def test_each_arch_with_products_of_int8_has_its_rule():
    needs = [{*row.needs} for row in known_kinds()[OP].kernels]
    assert {*LEAST} == {
        name for name, arch in known_archs().items() if any(each <= {*arch.isa.features} for each in needs)
    }


SERIES = {"gfx942": "MI300", "gfx950": "MI350", "gfx1030": "RX 6000", "gfx1201": "RX 9000"}


def test_the_page_has_the_least_lengths():
    page = (CHECKOUT / "docs/sageattention.md").read_text("utf-8")
    found = re.findall(
        r"^\| (.+) \| (\d+) \| (\d+) \| n · m of (\d+) · \(n \+ m\) or more \|$", page, re.MULTILINE
    )
    wanted = {(SERIES[arch], str(2 * least), str(4 * least), str(least)) for arch, least in LEAST.items()}
    assert {*found} == wanted
