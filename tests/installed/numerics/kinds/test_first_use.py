"""The check at first use of kernels beside the usual ones: it launches these only, and finds a fault."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from flash_attn_rocm.canary import calls, latent
from flash_attn_rocm.launch import forward_pass
from flash_attn_rocm.launch import latent as launched
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.serving.layouts import Device
from here import ARCH, CODED_LATENT, LATENT, PACKED_LATENT, WIDE


class Check(NamedTuple):
    """``there``: the dtypes and head dims of the arch's kernels. ``says``: the beginning of its words."""

    there: Sequence[tuple[str, int]]
    work: str
    problem: Callable[..., str]
    answer: Callable[..., Any]
    kernel: str
    says: str = "causal: out differs by"


CHECKS = {
    "wide": Check(WIDE, "", calls.attention_problem, forward_pass.answer, "fa_fwd_wide"),
    "latent": Check(LATENT, remembered.LATENT, latent.latent_problem, launched.answer, "fa_mla"),
    "latent over 8 bits": Check(
        CODED_LATENT, remembered.CODED, latent.coded_latent_problem, launched.answer, "fa_mla_8bit",
        "8 bits, causal, descales of keys: out differs by",
    ),
    "latent over rows of 656 bytes": Check(
        PACKED_LATENT, remembered.ROWS, latent.packed_latent_problem, launched.answer, "fa_mla_rows",
        "rows of 656 bytes, causal: out differs by",
    ),
}  # fmt: skip
CASES = [
    pytest.param(name, *each, marks=() if name == "wide" else pytest.mark.divided)
    for name, check in CHECKS.items()
    for each in check.there
]


@pytest.mark.parametrize(("name", "dtype", "head_dim"), CASES)
def test_the_check_launches_nothing_else_and_finds_a_fault(target, name, dtype, head_dim):
    _, work, problem, answer, kernel, says = CHECKS[name]
    family, others = remembered.Family(ARCH, dtype, head_dim, work), (Device(ARCH, 0), target.device)
    found, kernels = target.attend(problem, family, answer, *others)
    assert found == ""
    assert kernels is None or {*kernels} == {f"{kernel}_{dtype}_d{head_dim}", f"fa_combine_{dtype}"}

    def zeros(*arguments):
        return tuple(torch.zeros_like(x) for x in answer(*arguments))

    wrong, _ = target.attend(problem, family, zeros, *others)
    assert wrong.startswith(says)
