"""The entry points below the public functions, with the arguments of flash_attn's extension.

Results equal those of the upstream namesakes, with two differences: probabilities are normalised, and
probabilities and ``softmax_d`` have no padding to whole tiles. ``out`` and gradients are written into the
given tensors, and returned. Gradients do not flow through these functions. Dropout uses torch's default
generator. Another one, ``gen_``, raises a RuntimeError.
"""
# ruff: noqa: ARG001, FBT001 - the signatures are upstream's

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from flash_attn_rocm.arguments import checks, preparation
from flash_attn_rocm.arguments.memory import begin_together
from flash_attn_rocm.arguments.normal_form import (
    DEQUANTISED,
    QUERY_CODES,
    BackwardCall,
    Inputs,
    Options,
    arithmetic,
    is_quantised,
)
from flash_attn_rocm.autograd.dispatch import forward
from flash_attn_rocm.autograd.transforms import refuse_tangents
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.functions.kvcache import flash_attn_with_kvcache
from flash_attn_rocm.launch import backward_pass
from flash_attn_rocm.launch.backward_pass import Places
from flash_attn_rocm.launch.dequantising import dequantised
from flash_attn_rocm.reference import operators, philox
from flash_attn_rocm.serving.support import PYTORCH, device_of, gradients_unserved
from flash_attn_rocm.values.given import Given

NO_DESCALES = (None, None, None)


def fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out_: Tensor | None,
    alibi_slopes_: Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen_: Given = None,
) -> list[Tensor]:
    """out, the log-sum-exp, with dropout the probabilities if wanted, and the key of dropout for ``bwd``."""
    _refuse_generator(gen_)
    window = (window_size_left, window_size_right)
    rules = (p_dropout, softmax_scale, is_causal, softcap, False, window)
    prepared = preparation.dense(q, k, v, alibi_slopes_, None, *NO_DESCALES, *rules)
    return _forward("fwd", prepared, out_, want=return_softmax)


def varlen_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out_: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    seqused_k: Tensor | None,
    leftpad_k_: Tensor | None,
    block_table_: Tensor | None,
    alibi_slopes_: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    return_softmax: bool,
    gen_: Given = None,
    num_splits: int = 0,
    sink: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    q_descale: Tensor | None = None,
) -> list[Tensor]:
    """``fwd`` for packed sequences. Sequences without a row or key are always zeroed.

    ``num_splits``, ``sink`` and the descales are as in ``flash_attn_with_kvcache``.
    """
    _refuse_generator(gen_)
    checks.refuse("varlen_fwd", checks.splits(num_splits))
    rules = (p_dropout, softmax_scale, is_causal, softcap, False, (window_size_left, window_size_right))
    inputs, options = preparation.varlen(
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        block_table_,
        alibi_slopes_,
        sink,
        q_descale,
        k_descale,
        v_descale,
        max_seqlen_q,
        max_seqlen_k,
        0,
        *rules,
    )
    inputs = preparation.with_lengths(inputs, seqused_k, leftpad_k_)
    prepared = inputs, options._replace(num_splits=num_splits)
    return _forward("varlen_fwd", prepared, out_, want=return_softmax, q_descale=q_descale)


def bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq_: Tensor | None,
    dk_: Tensor | None,
    dv_: Tensor | None,
    alibi_slopes_: Tensor | None,
    p_dropout: float,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen_: Given = None,
    rng_state: Tensor | None = None,
) -> list[Tensor]:
    """dq, dk, dv, and the sums of dout * out over headdim, (batch, nheads, seqlen_q) fp32."""
    _refuse_generator(gen_)
    window = (window_size_left, window_size_right)
    rules = (p_dropout, softmax_scale, is_causal, softcap, deterministic, window)
    prepared = preparation.dense(q, k, v, alibi_slopes_, None, *NO_DESCALES, *rules)
    return _backward("bwd", BackwardCall(dout, out, softmax_lse, *prepared, rng_state), (dq_, dk_, dv_))


def varlen_bwd(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    softmax_lse: Tensor,
    dq_: Tensor | None,
    dk_: Tensor | None,
    dv_: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    alibi_slopes_: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    p_dropout: float,
    softmax_scale: float,
    zero_tensors: bool,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    deterministic: bool,
    gen_: Given = None,
    rng_state: Tensor | None = None,
) -> list[Tensor]:
    """``bwd`` for packed sequences. The sums are (nheads, total_q)."""
    _refuse_generator(gen_)
    window = (window_size_left, window_size_right)
    rules = (p_dropout, softmax_scale, is_causal, softcap, deterministic, window)
    prepared = preparation.varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, None, alibi_slopes_, None, *NO_DESCALES, max_seqlen_q,
        max_seqlen_k, 0, *rules,
    )  # fmt: skip
    call = BackwardCall(dout, out, softmax_lse, *prepared, rng_state)
    return _backward("varlen_bwd", call, (dq_, dk_, dv_))


def fwd_kvcache(
    q: Tensor,
    kcache: Tensor,
    vcache: Tensor,
    k_: Tensor | None,
    v_: Tensor | None,
    seqlens_k_: Tensor | None,
    rotary_cos_: Tensor | None,
    rotary_sin_: Tensor | None,
    cache_batch_idx_: Tensor | None,
    leftpad_k_: Tensor | None,
    block_table_: Tensor | None,
    alibi_slopes_: Tensor | None,
    out_: Tensor | None,
    softmax_scale: float,
    is_causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    is_rotary_interleaved: bool,
    num_splits: int,
) -> list[Tensor]:
    """out and the log-sum-exp of attention over a cache, after appending to it."""
    if isinstance(q, Tensor) and isinstance(vcache, Tensor):  # before the caches are written
        _refuse_others("fwd_kvcache", q, {"out_": (out_, (*q.shape[:-1], *vcache.shape[-1:]))})
    out, lse = flash_attn_with_kvcache(
        q, kcache, vcache, k_, v_, rotary_cos_, rotary_sin_, seqlens_k_, cache_batch_idx_, leftpad_k_,
        block_table_, softmax_scale, is_causal, (window_size_left, window_size_right), softcap,
        is_rotary_interleaved, alibi_slopes_, num_splits, return_softmax_lse=True,
    )  # fmt: skip
    return [_into(out_, out), lse]


def _refuse_generator(generator: Given) -> None:
    if generator is not None:
        message = (
            f"gen_: expected None, got {type(generator).__name__}; dropout uses torch's default generator\n"
            "  next: pass None, and seed with torch.manual_seed"
        )
        raise RuntimeError(message)


def _forward(
    function: str,
    prepared: tuple[Inputs, Options],
    given: Tensor | None,
    *,
    want: bool,
    q_descale: Tensor | None = None,
) -> list[Tensor]:
    inputs, options = prepared
    refuse_tangents("the extension's fwd", inputs[:3])
    _refuse_others(function, inputs.q, {"out_": (given, inputs.out_shape)})
    with torch.no_grad():
        if is_quantised(inputs):
            inputs = dequantised(inputs, q_descale)
        state = philox.new_state(inputs.q.device) if options.dropout_p > 0.0 else None
        out, lse, signed = forward(inputs, options, state, want_probabilities=want and state is not None)
        seed = inputs.q.new_zeros(2, dtype=torch.int64) if state is None else state
        return [_into(given, out), lse, signed, seed]


def _backward(function: str, call: BackwardCall, given: Places) -> list[Tensor]:
    inputs, options = call.inputs, call.options
    refuse_tangents("the extension's bwd", (call.dout, *inputs[:3]))
    if is_quantised(inputs):
        problem = f"q, k, v: expected no 8 bits, which have no gradients, got {inputs.q.dtype}"
        checks.refuse("the extension's bwd", [problem])
    _refuse_saved(function, call, given)
    if options.dropout_p > 0.0 and call.rng_state is None:
        message = (
            "rng_state: expected that of the forward pass, because dropout_p > 0, got None\n"
            "  next: pass the last tensor returned by the forward pass"
        )
        raise RuntimeError(message)
    if options.dropout_p == 0.0:
        call = call._replace(rng_state=None)
    with torch.no_grad():
        if reason := gradients_unserved(inputs, options):
            fall_back(reason, stacklevel=4)
        else:
            arch = device_of(inputs.q.device).arch
            if (path := backward_pass.proven(inputs, options, arch).path) != PYTORCH:
                read = (call.dout, call.out, *inputs[:3])
                dq, dk, dv = (None if x is None or _begins_with(x, read) else x for x in given)
                gradients, sums = backward_pass.written(call, arch, path, (dq, dk, dv))
                return [*map(_into, given, gradients), sums]
        found = operators.backward(call)
        work = arithmetic(call.out.dtype)
        sums = (call.dout.to(work) * call.out.to(work)).sum(dim=-1).transpose(-1, -2).contiguous()
        return [*map(_into, given, found), sums]


def _refuse_saved(function: str, call: BackwardCall, given: Places) -> None:
    """Refuses tensors that are not the forward pass's, and places that do not fit the gradients."""
    q, k, v = call.inputs[:3]
    sizes = call.inputs.out_shape
    dq, dk, dv = given
    _refuse_others(function, q, {
        "dout": (call.dout, sizes), "out": (call.out, sizes), "dq_": (dq, q.shape), "dk_": (dk, k.shape),
        "dv_": (dv, v.shape),
    })  # fmt: skip
    _refuse_others(function, q, {"softmax_lse": (call.lse, call.inputs.lse_shape)}, arithmetic(q.dtype))
    if dk is not None and dv is not None and _begins_with(dk, (dv,)):
        checks.refuse(function, ["dv_: expected memory of its own, got that of dk_"])


def _refuse_others(
    function: str, q: Tensor, named: dict[str, tuple[Given, Sequence[int]]], dtype: torch.dtype | None = None
) -> None:
    """Refuses other tensors than those of these shapes, on q's device and of ``dtype``, by default q's."""
    found, kind = [], dtype or (DEQUANTISED if q.dtype in QUERY_CODES else q.dtype)
    for name, (x, sizes) in named.items():
        wanted = (tuple(sizes), kind, q.device)
        if isinstance(x, Tensor) and (tuple(x.shape), x.dtype, x.device) != wanted:
            got = f"got {checks.shape(x)} of {x.dtype} on {x.device}"
            found.append(f"{name}: expected shape {wanted[0]} of {kind} on {q.device}, {got}")
    checks.refuse(function, found)


def _begins_with(x: Tensor, others: Iterable[Tensor]) -> bool:
    """Whether the first element is that of another tensor, too."""
    return any(begin_together(x, other) for other in others)


def _into(given: Tensor | None, found: Tensor) -> Tensor:
    return found if given is None or given is found else given.copy_(found)
