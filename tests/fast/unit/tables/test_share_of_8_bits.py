"""The code of kernels for 8 bits beside all other code of an arch, by the accepted costs."""

import re
from dataclasses import replace

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.build.budget import COSTS, KernelCost, load_budgets
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.kinds import known_kinds

MOST = 20.0  # percent
# What kernels for 8 bits take. One of them finds scales beside its codes, and takes no more than others.
TAKEN = {"CodedParams", "CodedAppendParams", "Fp8Params", "QuantiseParams", "WidenParams"}
WITH_SCALES = "packed_latent"
OP = re.compile(r"fa_(\w+?)_(?:fp16|bf16)(?:_d\d+)?")
ACCEPTED = load_budgets(CHECKOUT / COSTS)


def has_8_bits(kernel):
    return is_of_8_bits(known_kinds()[OP.fullmatch(kernel)[1]])


def is_of_8_bits(kind):
    return kind.params in TAKEN or kind.variant == WITH_SCALES


def share(costs):
    """Percent of the other kernels' code, in tenths."""
    everything = sum(cost.code_bytes for cost in costs.values())
    found = sum(cost.code_bytes for kernel, cost in costs.items() if has_8_bits(kernel))
    return round(100 * found / (everything - found), 1)


def test_kernels_for_8_bits():
    assert {op for op, kind in known_kinds().items() if is_of_8_bits(kind)} == {
        "fwd_fp8", "fwd_int8", "quantise", "decode_8bit", "mla_8bit", "mla_rows", "append_8bit", "widen",
    }  # fmt: skip


@pytest.mark.parametrize("arch", known_archs())
def test_8_bits_take_at_most_a_fifth_of_the_other_code(arch):
    """Kernels that few archs need are built for those only: `needs` in kernels/tables/kinds.toml."""
    assert share(ACCEPTED[arch]) <= MOST


@pytest.mark.parametrize("arch", known_archs())
@pytest.mark.parametrize("kernel", ["fa_decode_8bit_fp16_d128", "fa_append_8bit_bf16", "fa_widen_fp16"])
def test_a_kernel_that_grows_is_seen(arch, kernel):
    costs = ACCEPTED[arch]
    larger = replace(costs[kernel], code_bytes=costs[kernel].code_bytes + 300_000)
    assert share({**costs, kernel: larger}) > MOST


def test_the_share_is_of_other_code():
    costs = {"fa_fwd_fp16_d64": KernelCost(6_000, 1.0, 1), "fa_decode_bf16_d64": KernelCost(4_000, 1.0, 1)}
    assert share({**costs, "fa_widen_bf16": KernelCost(2_000, 1.0, 1)}) == MOST
    assert share({**costs, "fa_widen_bf16": KernelCost(2_006, 1.0, 1)}) > MOST
