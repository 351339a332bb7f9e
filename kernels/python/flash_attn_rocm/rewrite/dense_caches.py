"""A cache of 8 bits as a dense copy in q's dtype, for calls without a kernel that reads its codes.

The copy has the keys of each sequence at its own row of the batch. It is made on the device, and only its
sizes depend on the call.
"""

import math

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import Inputs, Options


def shape(inputs: Inputs, options: Options) -> tuple[int, ...]:
    """(batch, keys, nheads_k, headdim) of the copy of k, and of v."""
    keys = capacity(inputs)
    if inputs.cu_seqlens_q is not None:  # otherwise keys count from a sequence's padding
        keys = min(options.max_seqlen_k, keys)
    return (inputs.batch, keys, *inputs.k.shape[-2:])


def capacity(inputs: Inputs) -> int:
    """How many keys a sequence of a cache can have: none without rows or pages, whatever their size."""
    return inputs.key_capacity if inputs.k.shape[0] else 0


def lengths(inputs: Inputs) -> Tensor | None:
    """(batch), int32: the keys of each sequence. None: all."""
    if inputs.seqused_k is not None or inputs.cu_seqlens_k is None:
        return inputs.seqused_k
    return inputs.cu_seqlens_k.diff()


def dense(inputs: Inputs, k: Tensor, v: Tensor, used: Tensor | None) -> Inputs:
    """The call over copies, of which ``used`` keys count.

    Packed queries need packed keys: then the copies are sequences of equal length.
    """
    inputs = inputs._replace(
        k=k, v=v, seqused_k=used, block_table=None, cache_batch_idx=None, k_descale=None, v_descale=None
    )
    if inputs.cu_seqlens_q is None:
        return inputs
    batch, keys = k.shape[:2]
    numbers = torch.arange(batch + 1, dtype=torch.int32, device=k.device)
    return inputs._replace(k=k.flatten(0, 1), v=v.flatten(0, 1), cu_seqlens_k=numbers * keys)


def form(inputs: Inputs, options: Options) -> Inputs:
    """The form of that call, for a plan."""
    copy = torch.empty(shape(inputs, options), dtype=inputs.q.dtype, device="meta")
    return dense(inputs, copy, copy, inputs.seqused_k)


def words(inputs: Inputs, options: Options, *, copies: int = 2) -> str:
    """What is done first, for people, and the memory that it takes."""
    size = copies * math.prod(shape(inputs, options)) * inputs.q.element_size()
    return f"8 bits widened to {str(inputs.q.dtype).removeprefix('torch.')} first, {size} bytes; "
