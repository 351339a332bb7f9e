"""Whether and how a kernel serves a call: used by dispatch, and told to users."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from flash_attn_rocm.arguments import normal_form
from flash_attn_rocm.arguments.normal_form import DTYPES, Inputs, Options, is_featured
from flash_attn_rocm.library import host, plans, regimes, tuned
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.library.plans import Plan
from flash_attn_rocm.machine.remembered import CODED, MASKED, MASKED_GRADIENTS
from flash_attn_rocm.rewrite import chunks, dense_caches, dense_masks, key_masks
from flash_attn_rocm.serving import layouts, machine, resets
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.values import kinds
from flash_attn_rocm.values.paths import FUSED, REFERENCE, SEPARATE
from flash_attn_rocm.values.tracing import constant_when_traced

PYTORCH = "pytorch"
WHOLE, NONE = Plan("", 1, ""), Plan(PYTORCH, 1, "")  # a launch with all keys, and no gradients
SEPARATE_INSTEAD, PYTORCH_INSTEAD = (FUSED, SEPARATE), (SEPARATE, PYTORCH)
MEASURED = Path(__file__).parents[1] / "values/measured.json"
NO_GRADIENTS = "kernels compute no gradients through a cache"
NO_GRADIENTS_OF_CODES = "8 bits have no gradients"
OPS = {"": plans.FORWARD, CODED: plans.FORWARD, MASKED: plans.MASKED, MASKED_GRADIENTS: plans.MASKED_BACKWARD}
CACHES = ("seqused_k", "leftpad_k", "block_table", "cache_batch_idx")


# Why kernels are disabled, by family (``machine.remembered.Family``), as ``canary.first_use`` found.
FAILURES: dict[tuple[str, str, int, str], str] = {}


@dataclass(frozen=True)
class Support:
    """Whether a kernel serves a call. ``reason`` explains the path, or the lack of a kernel.

    ``path``: ``"matrix"``, ``"tiled"``, ``"tall"`` (as matrix, with more rows per workgroup), ``"wide"``
    (head dims above 256), ``"uneven"`` (v with another head dim than q and k), ``"split"``, ``"latent"``
    (``mla_decode``), ``"fp8"`` (products of fp8), ``"reference"``, or ``"pytorch"`` for the PyTorch
    implementation. ``splits``: the number of parts of the keys.

    ``backward``: the gradient kernels, ``"separate"`` or ``"fused"``, or ``"pytorch"`` for the PyTorch
    implementation. ``backward_reason`` explains it.

    ``row``: the kernel, the id of its rows in the table of tiles, and the number of hardware reports about
    them. Empty for the PyTorch implementation and for kernels without rows. ``backward_row``: likewise, of
    each kernel of the gradients.

    ``regime``: that of the call's sizes, by which kernels and parts are chosen, and the evidence for the
    choice. Empty for the PyTorch implementation, latent attention and products of fp8.

    ``launches``: on Windows and WSL2, a cautious estimate of the longest launch, and whether the call is cut
    into several. Windows resets a GPU after two seconds in one launch. Elsewhere it is empty.
    """

    ok: bool
    reason: str = ""
    path: str = PYTORCH
    splits: int = 1
    backward: str = PYTORCH
    backward_reason: str = ""
    launches: str = ""
    row: str = ""
    regime: str = ""
    backward_row: str = ""

    def __bool__(self) -> bool:
        return self.ok


def is_supported(arch: str, dtype: torch.dtype | str, head_dim: int) -> Support:
    """Whether this wheel has kernels for a gfx arch, dtype and head dim, in calls of every size.

    The path is that of a long query. Head dims above 256 have the path wide: forward only, without softcap,
    ALiBi, dropout, pages and attn_mask.

    ``arch`` is a name such as ``gfx942`` or ``gfx942:sramecc+:xnack-``. ``dtype`` is torch.float16,
    torch.bfloat16 or ``"fp16"``, ``"bf16"``. Needs no GPU.
    """
    name = dtype if isinstance(dtype, str) else DTYPES.get(dtype, str(dtype))
    backward = plans.typical_gradients(arch, name, head_dim)
    if backward.path:
        backward = plans.backward_plan(arch, name, head_dim)
    return _support(plans.typical(arch, name, head_dim), backward)


def unserved(inputs: Inputs, options: Options, *, want_probabilities: bool = False) -> str:
    """Why no kernel serves checked arguments, or "".

    Independent of sizes, so that a graph of torch.compile is valid for all sizes.
    """
    q = inputs.q
    # A branch, because torch.compile may know dropout_p only as a symbol.
    drops = True if options.dropout_p > 0.0 else False  # noqa: SIM210
    head_dim = normal_form.head_dim(inputs)
    if reason := _unserved_anyway(inputs, options):
        return reason
    if head_dim > LIMITS.head_dim and (reason := _unserved_when_wide(inputs, options)):
        return reason
    if want_probabilities and drops:
        return "kernels do not return the probabilities (return_attn_probs with dropout_p > 0)"
    if normal_form.is_coded(inputs) and (reason := _reasons_of_codes(q.device, DTYPES[q.dtype])[head_dim]):
        return reason
    reason = _reasons(q.device, DTYPES[q.dtype], False, False, drops)[head_dim]  # noqa: FBT003
    if reason or inputs.attn_mask is None or not dense_masks.is_read(inputs, options):
        return reason
    return _reasons(q.device, DTYPES[q.dtype], False, True, False)[head_dim]  # noqa: FBT003


def gradients_unserved(inputs: Inputs, options: Options) -> str:
    """Why no kernel computes the gradients of checked arguments, or "". Independent of sizes.

    Failures of the kernels' checks at first use are excluded. ``gradients_plan`` includes them, in the
    backward pass.
    """
    q = inputs.q
    if reason := _unserved_anyway(inputs, options):
        return reason
    if normal_form.is_coded(inputs) or any(getattr(inputs, name) is not None for name in CACHES):
        return NO_GRADIENTS
    if normal_form.head_dim(inputs) > LIMITS.head_dim:
        head_dim = normal_form.head_dim(inputs)
        return f"the head dim is {head_dim}, and kernels compute gradients of 1 to {LIMITS.head_dim}"
    masked = inputs.attn_mask is not None and dense_masks.is_read(inputs, options)
    return _reasons(q.device, DTYPES[q.dtype], True, masked, False)[normal_form.head_dim(inputs)]  # noqa: FBT003


def gradients_plan(inputs: Inputs, options: Options, arch: str) -> Plan:
    """The kernels for the gradients of checked arguments, which must have some.

    Disabled kernels are replaced: fused by separate, separate by the PyTorch implementation.
    """
    dtype, head_dim = DTYPES[inputs.q.dtype], normal_form.head_dim(inputs)
    masked = dense_masks.is_read(inputs, options)
    found = plans.backward_plan(
        arch,
        dtype,
        head_dim,
        featured=is_featured(inputs, options),
        deterministic=options.deterministic,
        masked=masked,
    )
    if masked:
        reason = _failure(arch, dtype, head_dim, MASKED_GRADIENTS)
        return Plan(PYTORCH, 1, reason, instead=True) if reason else found
    for path, other in (SEPARATE_INSTEAD, PYTORCH_INSTEAD) if FAILURES else ():
        if found.path == path and (reason := _failure(arch, dtype, head_dim, path)):
            found = Plan(other, 1, reason, instead=True)
    return found


def unserved_device(q: Tensor) -> str:
    """Why kernels cannot take q's device or dtype, or ""."""
    if reason := machine.current().unserved(q.device):
        return reason
    if q.dtype not in DTYPES:
        return f"the dtype is {q.dtype}, and kernels have fp16 and bf16"
    return ""


def _unserved_anyway(inputs: Inputs, options: Options) -> str:
    """A reason against every kind of kernel, or ""."""
    if reason := unserved_device(inputs.q):
        return reason
    head_dim, of_v = inputs.q.shape[-1], inputs.v.shape[-1]
    cached = normal_form.is_coded(inputs) or any(getattr(inputs, name) is not None for name in CACHES)
    if of_v != head_dim and cached:
        return f"the head dim of v is {of_v} and that of q and k {head_dim}, and caches have one for both"
    head_dim = normal_form.head_dim(inputs)
    if head_dim > LIMITS.wide_head_dim:
        return f"the head dim is {head_dim}, and kernels have 1 to {LIMITS.wide_head_dim}"
    return "" if inputs.attn_mask is None else dense_masks.unserved(inputs, options)


def _unserved_when_wide(inputs: Inputs, options: Options) -> str:
    """A reason against the kernels for large head dims, or ""."""
    head_dim = normal_form.head_dim(inputs)
    beside = {
        "softcap": options.softcap != 0.0,
        "alibi_slopes": inputs.alibi_slopes is not None,
        "dropout_p > 0": options.dropout_p > 0.0,
        "block_table": inputs.block_table is not None,
        "attn_mask, but for one that is bool and of keys only": dense_masks.is_read(inputs, options),
    }
    for what, there in beside.items():
        if there:
            return f"the head dim is {head_dim}, and above {LIMITS.head_dim} kernels take no {what}"
    return ""


def support_of(inputs: Inputs, options: Options, *, want_probabilities: bool = False) -> Support:
    """How checked arguments are served."""
    reason = unserved(inputs, options, want_probabilities=want_probabilities)
    if no_gradients := gradients_unserved(inputs, options):
        backward = Plan(PYTORCH, 1, no_gradients)
    else:
        backward = gradients_plan(inputs, options, device_of(inputs.q.device).arch)
    if reason:
        return _support(Plan("", 1, reason), backward)
    if key_masks.chooses_keys(inputs, options):
        inputs = key_masks.form(inputs)
    elif chunks.divide(inputs, options):
        inputs, options = chunks.cut(inputs, options)
    device = device_of(inputs.q.device)
    layout, words = layouts.choose(inputs, options, device), ""
    if inputs.coded and not layout.plan.path:
        words = dense_caches.words(inputs, options)
        inputs = dense_caches.form(inputs, options)
        layout = layouts.choose(inputs, options, device)
    head_dim = layout.head_dim or inputs.q.shape[-1]
    path = _kernels_of(layout.plan.path, inputs, options)
    regime = _regime(inputs, options)
    row = row_words(inputs.q.device, path, DTYPES[inputs.q.dtype], head_dim, regime)
    plan = layout.plan._replace(reason=f"{words}{layout.plan.reason}")
    evidence = regimes.evidence_of(regime, device.arch, DTYPES[inputs.q.dtype], head_dim)
    found = replace(
        _support(plan, backward), row=row, regime=f"{regime}: {evidence}",
        backward_row=_gradient_rows(inputs, options, backward.path, regime),
    )  # fmt: skip
    if not resets.THREATENED:
        return found
    head_dim = layout.head_dim or normal_form.head_dim(inputs)
    return replace(found, launches=launch_words(inputs, options, head_dim, layout.plan, backward))


def _kernels_of(path: str, inputs: Inputs, options: Options) -> str:
    """The variant of a path's kernels that answers such a call, or the path."""
    if path == REFERENCE:
        return path
    if inputs.coded:
        return kinds.CODED
    return kinds.MASKED if dense_masks.is_read(inputs, options) else path


def _gradient_rows(inputs: Inputs, options: Options, path: str, regime: str) -> str:
    """The kernels of the gradients, each as in ``row_words``."""
    if path == PYTORCH:
        return ""
    where, dtype = inputs.q.device, DTYPES[inputs.q.dtype]
    variant, head_dim = _gradient_kernels(inputs, options, path, device_of(where).arch)
    ops = kinds.LAUNCHES[kinds.GRADIENTS[variant]]
    return "; ".join(filter(None, (row_words(where, op, dtype, head_dim, regime) for op in ops)))


def _gradient_kernels(inputs: Inputs, options: Options, path: str, arch: str) -> tuple[str, int]:
    """The variant of a path's gradient kernels, or the path, and their head dim."""
    dtype, head_dim, of_v = DTYPES[inputs.q.dtype], inputs.q.shape[-1], inputs.v.shape[-1]
    masked = dense_masks.is_read(inputs, options)
    uneven = plans.uneven_head_dims(arch, dtype, head_dim, of_v, plans.UNEVEN_BACKWARD)
    if uneven and not masked and not is_featured(inputs, options):
        return kinds.UNEVEN, uneven[0]
    op = plans.MASKED_BACKWARD if masked else plans.BACKWARD
    padded = plans.padded_head_dim(arch, dtype, normal_form.head_dim(inputs), op)
    return kinds.MASKED if masked else path, padded


def _regime(inputs: Inputs, options: Options) -> str:
    width = inputs.q.shape[-2] // max(1, inputs.k.shape[-2])
    sizes, causal = (options.max_seqlen_q, options.max_seqlen_k, width), options.window_right >= 0
    return regimes.regime_of(*sizes, causal=causal)


def row_words(where: torch.device, path: str, dtype: str, head_dim: int, regime: str = "") -> str:
    """The kernel of a path or variant, and how its rows were chosen, or "" for a kernel without rows.

    ``regime``: of a call that may have a kept row.
    """
    name = f"fa_{kinds.ATTENDING.get(path, path)}_{dtype}_d{head_dim}"
    gpu = machine.current().gpu(where)
    row = host.row_ids().get((host.code_of(gpu.arch), name))
    if row is None:
        return ""
    count = measured().get(row, 0)
    own = tuned.words(gpu, name, row, regime)
    return f"{name}: row {row}, modelled; measured by {count} report{'' if count == 1 else 's'}{own}"


@cache
def measured() -> Mapping[str, int]:
    """How many reports from hardware measured a kernel, by the id of its rows."""
    found: dict[str, int] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def launch_words(
    inputs: Inputs, options: Options, head_dim: int, found: Plan = WHOLE, backward: Plan = NONE
) -> str:
    """Of the kernels of a plan for ``head_dim``, and of those for gradients: the longest launches."""
    q, device = inputs.q, device_of(inputs.q.device)
    code = host.code_of(device.arch)
    sizes = resets.Sizes(
        batch=inputs.batch,
        rows=q.shape[-3],
        max_seqlen_q=options.max_seqlen_q,
        max_seqlen_k=options.max_seqlen_k,
        nheads=q.shape[-2],
        nheads_k=inputs.k.shape[-2],
        head_dim=head_dim,
        window_left=options.window_left,
        window_right=options.window_right,
        packed=inputs.cu_seqlens_q is not None,
    )
    dropout = options.dropout_p > 0.0
    slow = found.path == REFERENCE
    works = [resets.forward(sizes, reference=slow, splits=found.splits, dropout=dropout)]
    if normal_form.wants_gradients(inputs) and backward.path != PYTORCH:
        works.append(resets.backward(sizes, dropout=dropout))
    return "; ".join(f"{work.kind}: {resets.words(work, code, device.compute_units)}" for work in works)


@constant_when_traced
def device_of(device: torch.device) -> Device:
    """The device facts for a plan. Raises RuntimeError for a device without an arch."""
    return machine.current().device(device)


@constant_when_traced
def _reasons(
    device: torch.device,
    dtype: str,
    gradients: bool,  # noqa: FBT001 - torch.compile passes constants by position
    masked: bool,  # noqa: FBT001
    dropout: bool,  # noqa: FBT001
) -> tuple[str, ...]:
    """For each head dim, why kernels are missing or disabled, or "".

    For all of them, because torch.compile may know head_dim only as a symbol.
    """
    return _reasons_on(device_of(device).arch, dtype, gradients, masked, dropout)


@constant_when_traced
def _reasons_of_codes(device: torch.device, dtype: str) -> tuple[str, ...]:
    """For each head dim, why the kernels for caches of 8 bits are disabled, or ""."""
    arch = device_of(device).arch
    return tuple(_failure(arch, dtype, head_dim, CODED) for head_dim in range(LIMITS.wide_head_dim + 1))


@cache
def _reasons_on(
    arch: str,
    dtype: str,
    gradients: bool,  # noqa: FBT001
    masked: bool,  # noqa: FBT001
    dropout: bool,  # noqa: FBT001
) -> tuple[str, ...]:
    def planned(head_dim: int) -> Plan:
        if gradients:
            return plans.typical_gradients(arch, dtype, head_dim, masked=masked)
        return plans.typical(arch, dtype, head_dim, dropout=dropout, masked=masked)

    most = LIMITS.head_dim if gradients or masked else LIMITS.wide_head_dim
    work = MASKED if masked else ""
    found = enumerate(map(planned, range(most + 1)))
    return tuple(_failure(arch, dtype, at, work) if plan.path else plan.reason for at, plan in found)


def _failure(arch: str, dtype: str, head_dim: int, work: str = "") -> str:
    op = OPS.get(work, plans.BACKWARD)
    return FAILURES.get((arch, dtype, plans.padded_head_dim(arch, dtype, head_dim, op), work), "")


def forget_reasons() -> None:
    """Forget cached reasons, after changes of FAILURES."""
    _reasons_on.cache_clear()


def _support(found: Plan, backward: Plan) -> Support:
    path = found.path or PYTORCH
    by = backward.path or PYTORCH
    return Support(bool(found.path), found.reason, path, found.splits, by, backward.reason)
