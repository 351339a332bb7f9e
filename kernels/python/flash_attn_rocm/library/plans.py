"""Asks the library which path takes a call, and how many parts the keys are cut into.

All questions of the package go through this module.
"""

import os
from functools import lru_cache
from typing import NamedTuple

import torch

from flash_attn_rocm.library import host
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.machine.environment import BACKWARD as BACKWARD_VARIABLE
from flash_attn_rocm.machine.environment import FORMER, refuse
from flash_attn_rocm.values import kinds, paths, tolerances
from flash_attn_rocm.values.paths import FUSED
from flash_attn_rocm.values.rates import FP8_TOPS, OCP

PLAN = torch.ops.flash_attn_rocm.plan.default
PLAN_BWD = torch.ops.flash_attn_rocm.plan_bwd.default
SUMS = torch.ops.flash_attn_rocm.bwd_sums.default
# Kernels for one head dim. Their head dims hold for the other kernels too.
FORWARD, MASKED = kinds.ATTENDING[paths.MATRIX], kinds.ATTENDING[kinds.MASKED]
WIDE_OP, UNEVEN_OP = (kinds.ATTENDING[each] for each in (paths.WIDE, paths.UNEVEN))
BACKWARD, MASKED_BACKWARD = kinds.GRADIENTS[paths.SEPARATE], kinds.GRADIENTS[kinds.MASKED]
UNEVEN_BACKWARD = kinds.GRADIENTS[kinds.UNEVEN]
TYPICAL_LENGTH = 128
NO_TRAINING = "{} has kernels for inference only: call under torch.no_grad(), or train on another GPU"


class Plan(NamedTuple):
    """The library's answer for a call: one of ``values.paths``, the parts of the keys, and why.

    The path is "" without a kernel. ``serving.support`` replaces it where kernels are disabled: ``instead``,
    and the reason says so.
    """

    path: str
    splits: int
    reason: str
    instead: bool = False


@lru_cache(maxsize=4096)
def plan(
    arch: str,
    dtype: str,
    head_dim: int,
    batch: int,
    max_seqlen_q: int,
    max_seqlen_k: int,
    nheads: int,
    nheads_k: int,
    compute_units: int,
    num_splits: int,
    dropout: bool,  # noqa: FBT001 - in the order of the library's operator
    aligned: bool,  # noqa: FBT001
    plain: bool = False,  # noqa: FBT001, FBT002
    masked: bool = False,  # noqa: FBT001, FBT002
    v_head_dim: int = 0,
    coded: bool = False,  # noqa: FBT001, FBT002
    causal: bool = False,  # noqa: FBT001, FBT002
) -> Plan:
    """The library's decision.

    ``aligned``: all strides and addresses are multiples of 8 elements. ``plain``: the call may profit from
    tall workgroups. ``v_head_dim`` is v's where it differs. Paths other than uneven need a padded v.
    ``coded``: k and v are codes of 8 bits. Then the path is "" if no kernel reads them. ``causal``: rows do
    not see later keys.
    """
    return Plan(
        *PLAN(
            arch, dtype, head_dim, batch, max_seqlen_q, max_seqlen_k, nheads, nheads_k, compute_units,
            num_splits, dropout, aligned, plain, masked, v_head_dim, coded, causal,
        )
    )  # fmt: skip


def typical(arch: str, dtype: str, head_dim: int, *, dropout: bool = False, masked: bool = False) -> Plan:
    """The plan of a typical call: support is independent of sizes. ``masked``: kernels read an attn_mask."""
    padded, rows = padded_head_dim(arch, dtype, head_dim, MASKED if masked else FORWARD), TYPICAL_LENGTH
    return plan(arch, dtype, padded, 1, rows, rows, 1, 1, 0, 0, dropout, True, False, masked)  # noqa: FBT003


def typical_gradients(arch: str, dtype: str, head_dim: int, *, masked: bool = False) -> Plan:
    """The default plan of gradients. Independent of sizes."""
    return _backward_plan(arch, dtype, head_dim, masked=masked)


Paths = dict[tuple[str, bool], str]  # of calls with one signature, by ``backward_wishes``


def backward_plan(
    arch: str,
    dtype: str,
    head_dim: int,
    *,
    featured: bool = False,
    deterministic: bool = False,
    masked: bool = False,
) -> Plan:
    """How existing kernels compute gradients.

    ``featured``: with ALiBi, softcap or dropout. ``masked``: kernels read an attn_mask. Raises ValueError for
    a wrong environment variable.
    """
    wanted, everywhere = backward_wishes()
    refuse(BACKWARD_VARIABLE, wanted)
    path = FORMER.get(wanted, wanted)
    return _backward_plan(
        arch,
        dtype,
        head_dim,
        featured=featured,
        deterministic=deterministic or everywhere,
        masked=masked,
        wanted=path,
    )


def backward_wishes() -> tuple[str, bool]:
    """Settings that users may change between calls: the environment's path, deterministic algorithms."""
    wanted = os.environ.get(BACKWARD_VARIABLE, "")
    return wanted, torch.are_deterministic_algorithms_enabled()


@lru_cache(maxsize=1024)
def _backward_plan(
    arch: str,
    dtype: str,
    head_dim: int,
    *,
    featured: bool = False,
    deterministic: bool = False,
    masked: bool = False,
    wanted: str = "",
) -> Plan:
    if not trains(arch):
        return Plan("", 1, NO_TRAINING.format(host.code_of(arch)))
    padded = padded_head_dim(arch, dtype, head_dim, MASKED_BACKWARD if masked else BACKWARD)
    return Plan(*PLAN_BWD(arch, dtype, padded, featured, deterministic, masked, wanted))


@lru_cache(maxsize=256)
def trains(arch: str) -> bool:
    """Whether there are gradient kernels where there are others (``trains`` of kernels/tables/isas.toml)."""
    name = host.code_of(arch)
    ops = {each.op for each in host.instances() if name in each.archs}
    return not ops or BACKWARD in ops


def fused_takes_features(arch: str, dtype: str, head_dim: int) -> bool:
    """Whether the existing fused kernels support ALiBi, softcap and dropout."""
    return _backward_plan(arch, dtype, head_dim, featured=True, wanted=FUSED).path == FUSED


@lru_cache(maxsize=4096)
def fused_sums(ragged: bool, batch: int, rows: int, nheads: int, head_dim: int) -> int:  # noqa: FBT001
    """How many elements of float32 the fused kernels add dq up in."""
    return int(SUMS(ragged, batch, rows, nheads, head_dim))


@lru_cache(maxsize=1024)
def padded_head_dim(arch: str, dtype: str, head_dim: int, op: str = FORWARD) -> int:
    """The smallest head dim of a kernel that is at least ``head_dim``, or ``head_dim`` without one."""
    found = _head_dims(arch, dtype, op)
    if op == FORWARD:
        found |= _head_dims(arch, dtype, WIDE_OP)
    return min((each for each in found if each >= head_dim > 0), default=head_dim)


def has_kernel(arch: str, dtype: str, head_dim: int, op: str) -> bool:
    """Whether there is a kernel of an operation for exactly this head dim."""
    return head_dim in _head_dims(arch, dtype, op)


def multiplies_fnuz(arch: str) -> bool:
    """Whether products of fp8 read e4m3fnuz. Those of OCP's formats read its largest number as NaN."""
    return host.code_of(arch) not in OCP


def multiplies_fp8(arch: str) -> bool:
    """Whether kernels have products of fp8."""
    return host.code_of(arch) in FP8_TOPS


def codes_of_values(arch: str) -> torch.dtype | None:
    """What v becomes for products of int8. None: it stays in 16 bits, as there are no products of fp8."""
    if not multiplies_fp8(arch):
        return None
    return torch.float8_e4m3fnuz if multiplies_fnuz(arch) else torch.float8_e4m3fn


def coded_allowed(arch: str, weighted: tolerances.Numbers, keys: int, largest: float) -> tolerances.Numbers:
    """The largest difference of out from attention of the codes' numbers (``values.tolerances``)."""
    if multiplies_fp8(arch):
        return tolerances.fp8_allowed(weighted, keys, largest, fp8_subnormal(arch))
    return tolerances.fp16_allowed(weighted, keys, largest)


def fp8_subnormal(arch: str) -> float:
    """The error of a subnormal probability in fp8 beside its row's largest."""
    return tolerances.fp8_subnormal(FP8_TOPS[host.code_of(arch)], fnuz=multiplies_fnuz(arch))


@lru_cache(maxsize=1024)
def uneven_head_dims(
    arch: str, dtype: str, head_dim: int, v_head_dim: int, op: str = UNEVEN_OP
) -> tuple[int, int] | None:
    """The kernel's head dims that q and k, and v, are padded to.

    None if a kernel with one head dim is as small.
    """
    one = BACKWARD if op == UNEVEN_BACKWARD else FORWARD
    found = padded_head_dim(arch, dtype, max(head_dim, v_head_dim), one)
    if head_dim == v_head_dim or not head_dim or not 0 < v_head_dim <= LIMITS.uneven_head_dim < found:
        return None
    return (found, LIMITS.uneven_head_dim) if has_kernel(arch, dtype, found, op) else None


@lru_cache(maxsize=256)
def _head_dims(arch: str, dtype: str, op: str) -> frozenset[int]:
    """The head dims of the operation's kernels."""
    name, all_kernels = host.code_of(arch), host.instances()
    own = (each for each in all_kernels if (each.op, each.dtype) == (op, dtype) and name in each.archs)
    return frozenset(each.head_dim for each in own)
