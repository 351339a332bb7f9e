"""From padded batches to packed sequences and back."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def index_first_axis(values: Tensor, indices: Tensor) -> Tensor:
    """Rows of the first dimension; differentiable."""
    return values[indices]


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """A zero tensor with ``first_axis_dim`` rows, some of which are those of ``values``; differentiable."""
    empty = values.new_zeros(first_axis_dim, *values.shape[1:])
    return empty.index_put((indices,), values)


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The rows of (batch, seqlen, …) that either mask (batch, seqlen) has, one after another.

    Returns them, their numbers in the flattened batch, cu_seqlens (batch + 1) int32, the largest length, and
    how many of each sequence ``attention_mask`` has, (batch) int32.
    """
    both = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = both.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = both.flatten().nonzero().flatten()
    longest = int(lengths.max()) if lengths.numel() else 0
    ends = pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden_states.flatten(0, 1), indices), indices, ends, longest, used


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The reverse: (batch, seqlen, …), zero where there is no row."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
