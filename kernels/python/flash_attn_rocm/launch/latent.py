"""Multi-head latent attention by kernels: support, the operator ``mla``, and ``latent`` around it.

``mla`` launches the kernel. torch.compile takes ``latent`` as one opaque call.
"""

from functools import lru_cache

import torch
from torch import Tensor

from flash_attn_rocm.arguments import flops
from flash_attn_rocm.arguments.normal_form import DTYPES, Inputs, Options, is_causal
from flash_attn_rocm.arguments.packed_rows import BYTES, CODE, is_packed
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.launch import watched, widening
from flash_attn_rocm.library import plans
from flash_attn_rocm.library.plans import Plan
from flash_attn_rocm.machine.remembered import CODED, LATENT, ROWS, Family
from flash_attn_rocm.reference import operators
from flash_attn_rocm.reference.codes import is_coded
from flash_attn_rocm.rewrite import dense_caches
from flash_attn_rocm.serving import resets
from flash_attn_rocm.serving.layouts import NOWHERE, Device, in_rows, is_aligned, one_head, padded
from flash_attn_rocm.serving.support import (
    FAILURES,
    NO_GRADIENTS,
    Support,
    device_of,
    row_words,
    unserved_device,
)
from flash_attn_rocm.values import kinds, paths
from flash_attn_rocm.values.tracing import constant_when_traced

HEAD_DIM, VALUE_DIM = 576, 512  # of K, and of V, the first elements of K
MLA = torch.ops.flash_attn_rocm.mla.default
# The checks at first use of the kernels that read such caches.
CHECKS = {
    paths.LATENT: first_use.latent_failure,
    kinds.CODED_LATENT: first_use.coded_latent_failure,
    kinds.PACKED_LATENT: first_use.rows_failure,
}
WORKS = {paths.LATENT: LATENT, kinds.CODED_LATENT: CODED, kinds.PACKED_LATENT: ROWS}  # of their families
PLAN = torch.ops.flash_attn_rocm.plan_mla.default
if resets.THREATENED:
    MLA = watched.latent(MLA, operators.arguments_of(MLA))
OPERATOR = (
    "latent(Tensor q, Tensor kv_cache, Tensor? cache_seqlens, Tensor? block_table, Tensor? kv_descale, "
    "float softmax_scale, bool causal, SymInt num_splits, str arch, int compute_units) -> (Tensor, Tensor)"
)
Two = tuple[Tensor, Tensor]


def unserved(inputs: Inputs) -> str:
    """The reason against kernels for checked arguments, or "". Independent of sizes."""
    q, of_v = inputs.q, inputs.v.shape[-1]
    if reason := unserved_device(q):
        return reason
    if (q.shape[-1], of_v) != (HEAD_DIM, VALUE_DIM):
        return (
            f"the head dim is {q.shape[-1]} and that of v {of_v}, and kernels for latent attention have "
            f"{HEAD_DIM} and {VALUE_DIM}"
        )
    return _reason(q.device, DTYPES[q.dtype], _kind(inputs.k))


def support_of(inputs: Inputs, options: Options) -> Support:
    """How checked arguments are served."""
    if reason := unserved(inputs):
        return Support(ok=False, reason=reason, backward_reason=NO_GRADIENTS)
    device, dtype = device_of(inputs.q.device), DTYPES[inputs.q.dtype]
    how = _read_as(_kind(inputs.k), device.arch, dtype)
    found = _planned(inputs.q, inputs.key_capacity, options.num_splits, device, how)
    row = row_words(inputs.q.device, how, dtype, HEAD_DIM)
    words = _copying(inputs, options, how)
    return Support(
        ok=True, reason=f"{words}{found.reason}", path=found.path, splits=found.splits,
        backward_reason=NO_GRADIENTS, row=row,
    )  # fmt: skip


def attend(inputs: Inputs, options: Options) -> Two:
    """out and the log-sum-exp of checked arguments with a kernel."""
    flops.register()
    device = device_of(inputs.q.device)
    found: Two = torch.ops.flash_attn_rocm.latent(
        inputs.q, inputs.k, inputs.seqused_k, inputs.block_table, inputs.k_descale, options.softmax_scale,
        is_causal(options), options.num_splits, *device,
    )  # fmt: skip
    return found


def reads_rows(inputs: Inputs) -> bool:
    """Whether kernels read rows of 656 bytes of a call that they serve. Others read a copy."""
    return is_packed(inputs.k) and _has_rows(inputs.q.device, DTYPES[inputs.q.dtype])


def answer(
    q: Tensor,
    kv_cache: Tensor,
    lengths: Tensor | None,
    block_table: Tensor | None,
    options: Options,
    device: Device,
    kv_descale: Tensor | None = None,
) -> Two:
    """out and the log-sum-exp by the kernel, on a device."""
    lengths, block_table = (None if x is None else in_rows(x) for x in (lengths, block_table))
    kind = _kind(kv_cache)
    how = _read_as(kind, device.arch, DTYPES[q.dtype])
    if how != kind:
        inputs = Inputs(q, kv_cache, kv_cache, None, None, None, lengths, None, block_table)
        kv_cache = widening.widened_latent(inputs, kv_descale)
        block_table, kv_descale = None, None
    rows, keys = padded(q, HEAD_DIM), padded(_rows(kv_cache), BYTES if is_packed(kv_cache) else HEAD_DIM)
    capacity = keys.shape[1] if block_table is None else block_table.shape[1] * keys.shape[1]
    plan = _planned(q, capacity, options.num_splits, device, how)
    if not plan.path:
        raise RuntimeError(plan.reason)
    out, lse = _new(q)
    partial_out = partial_lse = None
    if plan.splits > 1:
        partial_out = lse.new_empty((plan.splits, *lse.shape, VALUE_DIM))
        partial_lse = lse.new_empty((plan.splits, *lse.shape))
    MLA(
        rows, keys, lengths, block_table, kv_descale, out, lse, partial_out, partial_lse,
        options.softmax_scale, is_causal(options),
    )  # fmt: skip
    return out, lse


@lru_cache(maxsize=4096)
def plan(
    arch: str,
    dtype: str,
    batch: int,
    seqlen_q: int,
    seqlen_k: int,
    nheads: int,
    compute_units: int,
    num_splits: int,
    how: str = paths.LATENT,
) -> Plan:
    """The library's decision. ``how``: the path or variant of the kernel, by the cache that it reads."""
    sizes = (batch, seqlen_q, seqlen_k, nheads, compute_units, num_splits)
    return Plan(*PLAN(arch, dtype, HEAD_DIM, *sizes, how == kinds.CODED_LATENT, how == kinds.PACKED_LATENT))


def _kind(kv_cache: Tensor) -> str:
    """The path or variant of kernels for such a cache."""
    if is_packed(kv_cache):
        return kinds.PACKED_LATENT
    return kinds.CODED_LATENT if is_coded(kv_cache) else paths.LATENT


def _read_as(kind: str, arch: str, dtype: str) -> str:
    """``kind``, or without such kernels that of a copy in 16 bits."""
    return kind if plans.has_kernel(arch, dtype, HEAD_DIM, kinds.ATTENDING[kind]) else paths.LATENT


def _rows(kv_cache: Tensor) -> Tensor:
    """As the operator takes them: bytes of rows that hold their scales are codes to it."""
    rows = one_head(kv_cache)
    return rows.view(CODE) if is_packed(kv_cache) else rows


def _planned(q: Tensor, capacity: int, num_splits: int, device: Device, how: str) -> Plan:
    batch, rows, heads, _ = q.shape
    sizes = (batch, rows, capacity, heads, device.compute_units, num_splits)
    return plan(device.arch, DTYPES[q.dtype], *sizes, how)


def _new(q: Tensor) -> Two:
    batch, rows, heads, _ = q.shape
    return q.new_empty((batch, rows, heads, VALUE_DIM)), q.new_empty(
        (batch, heads, rows), dtype=torch.float32
    )


def _copying(inputs: Inputs, options: Options, how: str) -> str:
    """What is done with the cache first, and the memory that it takes."""
    cache = inputs.k
    if how != _kind(cache):
        return dense_caches.words(inputs, options, copies=1)
    if is_aligned(_rows(cache)):
        return ""
    return f"kv_cache copied to aligned rows first, {cache.numel() * cache.element_size()} bytes; "


@constant_when_traced
def _reason(device: torch.device, dtype: str, kind: str) -> str:
    arch = device_of(device).arch
    found = plan(arch, dtype, 1, 1, 1, 1, 0, 0)
    if not found.path:
        return found.reason
    families = (Family(arch, dtype, HEAD_DIM, work) for work in _works(arch, dtype, kind))
    return next((FAILURES[family] for family in families if family in FAILURES), "")


@constant_when_traced
def _has_rows(device: torch.device, dtype: str) -> bool:
    packed = kinds.PACKED_LATENT
    return _read_as(packed, device_of(device).arch, dtype) == packed


def _works(arch: str, dtype: str, kind: str) -> tuple[str, ...]:
    """What the kernels of a call do. Rows are widened before (packed_rows.py)."""
    how = _read_as(kind, arch, dtype)
    return (WORKS[how], CODED) if how != kind and kind == kinds.CODED_LATENT else (WORKS[how],)


def _latent(
    q: Tensor,
    kv_cache: Tensor,
    lengths: Tensor | None,
    block_table: Tensor | None,
    kv_descale: Tensor | None,
    softmax_scale: float,
    causal: bool,  # noqa: FBT001 - the operator passes by position
    num_splits: int,
    arch: str,
    compute_units: int,
) -> Two:
    device, tensors = Device(arch, compute_units), (q, kv_cache, lengths, block_table)
    options = Options(softmax_scale, window_right=0 if causal else -1, num_splits=num_splits)
    failure = _failure(q, device, _kind(kv_cache))
    if failure:
        fall_back(failure, stacklevel=2)
        if is_packed(kv_cache):
            kv_cache = torch.ops.flash_attn_rocm.packed_rows(q, kv_cache, lengths, block_table, *NOWHERE)
            block_table = None
        v = kv_cache[..., :VALUE_DIM]
        inputs = Inputs(
            q, kv_cache, v, seqused_k=lengths, block_table=block_table, k_descale=kv_descale,
            v_descale=kv_descale,
        )  # fmt: skip
        sizes = options._replace(max_seqlen_q=q.shape[1], max_seqlen_k=inputs.key_capacity)
        return operators.forward(inputs, sizes, None, want_probabilities=False)[:2]
    return answer(*tensors, options, device, kv_descale)


def _failure(q: Tensor, device: Device, kind: str) -> str | None:
    """Why the kernels of a call are disabled, or ""."""
    how = _read_as(kind, device.arch, DTYPES[q.dtype])
    failure = CHECKS[how](answer, q, device)
    if failure or how == kind:
        return failure
    return first_use.widening_failure(widening.widened_latent, q, device.arch)


def _latent_fake(q: Tensor, *_arguments: object) -> Two:
    return _new(q)


operators.LIBRARY.define(OPERATOR)
operators.LIBRARY.impl("latent", _latent, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::latent", _latent_fake, lib=operators.LIBRARY)


@torch.library.register_fake(f"{operators.NAMESPACE}::mla")
def _mla_fake(*_arguments: object) -> None:
    """Fills its arguments: torch.compile has no shape to infer."""
