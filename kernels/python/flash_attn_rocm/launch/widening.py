"""The operator ``widen``: a dense copy of a cache of 8 bits, in q's dtype."""

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.reference.operators import NAMESPACE
from flash_attn_rocm.rewrite import dense_caches

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
        inputs.k, inputs.v, inputs.k_descale, inputs.v_descale, used, inputs.block_table,
        inputs.cache_batch_idx, k, v,
    )  # fmt: skip
    return dense_caches.dense(inputs, k, v, used)


def widened_latent(inputs: Inputs, descale: Tensor | None) -> Tensor:
    """(batch, keys, 1, headdim) of a cache of latent attention, likewise."""
    q, cache = inputs.q, inputs.k
    copy = q.new_empty((q.shape[0], inputs.key_capacity, *cache.shape[2:]))
    halves = (x.chunk(2, dim=-1) for x in (cache, copy))  # the operator takes two tensors
    (of_cache, others), (of_copy, other_copies) = halves
    WIDEN(
        of_cache, others, descale, descale, inputs.seqused_k, inputs.block_table, None, of_copy, other_copies
    )
    return copy
