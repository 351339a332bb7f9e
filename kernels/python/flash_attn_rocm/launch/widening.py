"""The operator ``widen``: a dense copy of a cache of 8 bits, or of q, k or v, in 16 bits."""

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.reference.operators import NAMESPACE
from flash_attn_rocm.rewrite import dense_caches
from flash_attn_rocm.serving.layouts import ADDRESS_ALIGNMENT, in_rows

ALIGNMENT = ADDRESS_ALIGNMENT  # codes of an access
OP = "widen"  # of kernels
WIDEN = torch.ops.flash_attn_rocm.widen.default


@torch.library.register_fake(f"{NAMESPACE}::widen")
def _kernel_fake(*_arguments: object) -> None:
    """Writes into its arguments and returns nothing, so there is no shape to infer."""


def widened(inputs: Inputs, options: Options) -> Inputs:
    """The call over copies of k and v: each code times its descale, rounded once to q's dtype.

    Rows behind a sequence's keys stay unwritten.
    """
    sizes, used = dense_caches.shape(inputs, options), dense_caches.lengths(inputs)
    k, v = inputs.q.new_empty(sizes), inputs.q.new_empty(sizes)
    WIDEN(
        in_rows(inputs.k), in_rows(inputs.v), inputs.k_descale, inputs.v_descale, used, inputs.block_table,
        inputs.cache_batch_idx, k, v,
    )  # fmt: skip
    return dense_caches.dense(inputs, k, v, used)


def widened_latent(inputs: Inputs, descale: Tensor | None) -> Tensor:
    """(batch, keys, 1, headdim) of a cache of latent attention, likewise."""
    q, cache = inputs.q, in_rows(inputs.k)
    copy = q.new_empty((q.shape[0], dense_caches.capacity(inputs), *cache.shape[2:]))
    widen_one(cache, descale, inputs.seqused_k, inputs.block_table, copy)
    return copy


def widened_rows(codes: Tensor, descale: Tensor | None, dtype: torch.dtype) -> Tensor:
    """(batch, rows, heads, headdim) of codes times their descales, each rounded once to ``dtype``."""
    codes = in_rows(codes)
    copy = codes.new_empty(codes.shape, dtype=dtype)
    if codes.shape[0]:  # the operator takes no rows of sequences that are not there
        widen_one(codes, descale, None, None, copy)
    return copy


def widen_one(
    codes: Tensor, descale: Tensor | None, used: Tensor | None, table: Tensor | None, copy: Tensor
) -> None:
    """Fills ``copy`` by the operator, which takes two tensors: the halves of one.

    Where they overlap, both write the same.
    """
    head_dim = codes.shape[-1]
    step = 1 if head_dim % ALIGNMENT else ALIGNMENT
    width = -(-head_dim // (2 * step)) * step
    (first, last), (to, to_last) = ((x[..., :width], x[..., head_dim - width :]) for x in (codes, copy))
    WIDEN(first, last, descale, descale, used, table, None, to, to_last)
