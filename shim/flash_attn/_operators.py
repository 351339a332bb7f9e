"""``torch.ops.flash_attn``: the entry points as operators opaque to torch.compile."""
# ruff: noqa: FBT001, FBT002 - the signatures are upstream's

import torch
from torch import Tensor

from flash_attn._entry_points import (
    Four,
    _flash_attn_backward,
    _flash_attn_forward,
    _flash_attn_varlen_backward,
    _flash_attn_varlen_forward,
)

GRADIENTS = ("dq", "dk", "dv")


def register() -> None:
    """Define the operators, with the shapes of their results."""
    for name, function, fake, written in (
        ("flash_attn::_flash_attn_forward", _flash_attn_forward, _forward_fake, ()),
        ("flash_attn::_flash_attn_varlen_forward", _flash_attn_varlen_forward, _varlen_forward_fake, ()),
        ("flash_attn::_flash_attn_backward", _flash_attn_backward, _backward_fake, GRADIENTS),
        (
            "flash_attn::_flash_attn_varlen_backward", _flash_attn_varlen_backward, _backward_fake,
            GRADIENTS,
        ),
    ):  # fmt: skip
        operator = torch.library.custom_op(name, function, mutates_args=written)
        operator.register_fake(fake)


def _forward_fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: Tensor | None,
    return_softmax: bool,
) -> Four:
    del v, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes
    batch, seqlen_q, nheads, _ = q.shape
    scores = (batch, nheads, seqlen_q, k.shape[1]) if return_softmax and dropout_p > 0.0 else (0,)
    return _made(q, (batch, nheads, seqlen_q), scores)


def _varlen_forward_fake(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    return_softmax: bool = False,
    block_table: Tensor | None = None,
    leftpad_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    zero_tensors: bool = False,
    num_splits: int = 0,
) -> Four:
    del k, v, cu_seqlens_k, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes
    del block_table, leftpad_k, seqused_k, zero_tensors, num_splits
    total_q, nheads, _ = q.shape
    whole = (cu_seqlens_q.shape[0] - 1, nheads, max_seqlen_q, max_seqlen_k)
    return _made(q, (nheads, total_q), whole if return_softmax and dropout_p > 0.0 else (0,))


def _made(q: Tensor, rows: tuple[int, ...], scores: tuple[int, ...]) -> Four:
    lse = q.new_empty(rows, dtype=torch.float32)
    return q.new_empty(q.shape), lse, q.new_empty(scores), q.new_empty(2, dtype=torch.int64)


def _backward_fake(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor, *rest: object
) -> Tensor:
    del dout, q, k, v, out, rest
    return torch.empty_like(softmax_lse)
