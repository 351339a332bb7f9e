"""Chunks on kernels: each becomes a sequence of its own (``pieces``)."""

from torch import Tensor

from flash_attn_rocm import pieces
from flash_attn_rocm.arguments.normal_form import BackwardCall, Inputs, Options
from flash_attn_rocm.pieces import flat


def divide(inputs: Inputs, options: Options) -> bool:
    """Whether chunks hide keys. Otherwise kernels answer the call as it is."""
    if not options.chunk or not inputs.batch:
        return False
    dense = inputs.cu_seqlens_q is None
    return not (dense and options.max_seqlen_q <= options.max_seqlen_k <= options.chunk)


def cut(inputs: Inputs, options: Options) -> tuple[Inputs, Options]:
    """Equivalent attention of packed sequences.

    Rows before the first key's position become a sequence without keys. Kernels leave 0 in its rows, also
    behind the first max_seqlen_q.
    """
    rows, keys = (_span(inputs, x, ends) for x, ends in zip(inputs[:2], inputs[4:6], strict=True))
    made = pieces.cut(rows, keys, options.chunk, options.max_seqlen_q, options.max_seqlen_k)
    slopes = inputs.alibi_slopes
    if slopes is not None and slopes.dim() == 2:
        slopes = slopes.repeat_interleave((len(made.cu_seqlens_q) - 1) // inputs.batch, 0)
    q, k, v = map(flat, inputs[:3])
    cut_options = options._replace(
        chunk=0,
        max_seqlen_q=min(options.chunk, options.max_seqlen_q),
        max_seqlen_k=made.max_seqlen_k,
    )
    return Inputs(q, k, v, slopes, *made[:2], sink=inputs.sink), cut_options


def cut_call(call: BackwardCall) -> BackwardCall:
    """The part of ``cut`` for gradients."""
    inputs, options = cut(call.inputs, call.options)
    lse = call.lse if call.lse.dim() == 2 else call.lse.transpose(0, 1).flatten(1)
    return BackwardCall(flat(call.dout), flat(call.out), lse, inputs, options, call.rng_state)


def joined(x: Tensor, inputs: Inputs) -> Tensor:
    """Rows (total, nheads, headdim) as the inputs have them, dense or packed."""
    return x if inputs.q.dim() == 3 else x.unflatten(0, inputs.q.shape[:2])


def joined_lse(lse: Tensor, inputs: Inputs) -> Tensor:
    """(nheads, total) to the log-sum-exp of the inputs' shape."""
    if inputs.q.dim() == 3:
        return lse
    return lse.unflatten(-1, inputs.q.shape[:2]).transpose(0, 1).contiguous()


def _span(inputs: Inputs, x: Tensor, ends: Tensor | None) -> pieces.Span:
    if ends is None:
        return pieces.dense(inputs.batch, x.shape[1], x.device)
    return pieces.packed(ends)
