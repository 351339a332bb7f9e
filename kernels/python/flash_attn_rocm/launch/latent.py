"""Multi-head latent attention by kernels: support, the operator ``mla``, and ``latent`` around it.

``mla`` launches the kernel. torch.compile takes ``latent`` as one opaque call.
"""

from functools import lru_cache

import torch
from torch import Tensor

from flash_attn_rocm.arguments import flops
from flash_attn_rocm.arguments.normal_form import DTYPES, Inputs, Options, is_causal
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.launch import watched, widening
from flash_attn_rocm.library import plans
from flash_attn_rocm.library.plans import Plan
from flash_attn_rocm.machine.remembered import CODED, LATENT, Family
from flash_attn_rocm.reference import operators
from flash_attn_rocm.reference.codes import is_coded
from flash_attn_rocm.rewrite import dense_caches
from flash_attn_rocm.serving import resets
from flash_attn_rocm.serving.layouts import Device, in_rows, is_aligned, one_head, padded
from flash_attn_rocm.serving.support import (
    FAILURES,
    NO_GRADIENTS,
    Support,
    device_of,
    row_words,
    unserved_device,
)
from flash_attn_rocm.values import kinds
from flash_attn_rocm.values.tracing import constant_when_traced

HEAD_DIM, VALUE_DIM = 576, 512  # of K, and of V, the first elements of K
MLA = torch.ops.flash_attn_rocm.mla.default
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
    return _reason(q.device, DTYPES[q.dtype], is_coded(inputs.k))


def support_of(inputs: Inputs, options: Options) -> Support:
    """How checked arguments are served."""
    if reason := unserved(inputs):
        return Support(ok=False, reason=reason, backward_reason=NO_GRADIENTS)
    device, dtype = device_of(inputs.q.device), DTYPES[inputs.q.dtype]
    coded = inputs.coded and reads_codes(device.arch, dtype)
    found = _planned(inputs.q, inputs.key_capacity, options.num_splits, device, coded=coded)
    row = row_words(inputs.q.device, kinds.CODED_LATENT if coded else found.path, dtype, HEAD_DIM)
    words = _copying(inputs, options, coded=coded)
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


def reads_codes(arch: str, dtype: str) -> bool:
    """Whether kernels read caches of 8 bits. Others read a copy."""
    return plans.has_kernel(arch, dtype, HEAD_DIM, kinds.ATTENDING[kinds.CODED_LATENT])


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
    coded = is_coded(kv_cache)
    if coded and not reads_codes(device.arch, DTYPES[q.dtype]):
        inputs = Inputs(q, kv_cache, kv_cache, None, None, None, lengths, None, block_table)
        kv_cache = widening.widened_latent(inputs, kv_descale)
        block_table, kv_descale, coded = None, None, False
    rows, keys = (padded(x, HEAD_DIM) for x in (q, one_head(kv_cache)))
    capacity = keys.shape[1] if block_table is None else block_table.shape[1] * keys.shape[1]
    plan = _planned(q, capacity, options.num_splits, device, coded=coded)
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
    coded: bool = False,  # noqa: FBT001, FBT002 - the operator passes by position
) -> Plan:
    """The library's decision. ``coded``: the kernel reads a cache of 8 bits."""
    sizes = (batch, seqlen_q, seqlen_k, nheads, compute_units, num_splits)
    return Plan(*PLAN(arch, dtype, HEAD_DIM, *sizes, coded))


def _planned(q: Tensor, capacity: int, num_splits: int, device: Device, *, coded: bool) -> Plan:
    batch, rows, heads, _ = q.shape
    sizes = (batch, rows, capacity, heads, device.compute_units, num_splits)
    return plan(device.arch, DTYPES[q.dtype], *sizes, coded)


def _new(q: Tensor) -> Two:
    batch, rows, heads, _ = q.shape
    return q.new_empty((batch, rows, heads, VALUE_DIM)), q.new_empty(
        (batch, heads, rows), dtype=torch.float32
    )


def _copying(inputs: Inputs, options: Options, *, coded: bool) -> str:
    """What is done with the cache first, and the memory that it takes. ``coded``: a kernel reads codes."""
    cache = inputs.k
    if inputs.coded and not coded:
        return dense_caches.words(inputs, options, copies=1)
    if is_aligned(one_head(cache)):
        return ""
    return f"kv_cache copied to aligned rows first, {cache.numel() * cache.element_size()} bytes; "


@constant_when_traced
def _reason(device: torch.device, dtype: str, coded: bool) -> str:  # noqa: FBT001 - traced by position
    arch = device_of(device).arch
    found = plan(arch, dtype, 1, 1, 1, 1, 0, 0)
    if not found.path:
        return found.reason
    families = (Family(arch, dtype, HEAD_DIM, work) for work in _works(arch, dtype, coded=coded))
    return next((FAILURES[family] for family in families if family in FAILURES), "")


def _works(arch: str, dtype: str, *, coded: bool) -> tuple[str, ...]:
    """What the kernels of a call do."""
    if not coded:
        return (LATENT,)
    return (CODED,) if reads_codes(arch, dtype) else (LATENT, CODED)


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
    failure = _failure(q, device, coded=is_coded(kv_cache))
    if failure:
        fall_back(failure, stacklevel=2)
        v = kv_cache[..., :VALUE_DIM]
        inputs = Inputs(
            q, kv_cache, v, seqused_k=lengths, block_table=block_table, k_descale=kv_descale,
            v_descale=kv_descale,
        )  # fmt: skip
        sizes = options._replace(max_seqlen_q=q.shape[1], max_seqlen_k=inputs.key_capacity)
        return operators.forward(inputs, sizes, None, want_probabilities=False)[:2]
    return answer(*tensors, options, device, kv_descale)


def _failure(q: Tensor, device: Device, *, coded: bool) -> str | None:
    """Why the kernels of a call are disabled, or ""."""
    if coded and reads_codes(device.arch, DTYPES[q.dtype]):
        return first_use.coded_latent_failure(answer, q, device)
    failure = first_use.latent_failure(answer, q, device)
    if failure or not coded:
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
