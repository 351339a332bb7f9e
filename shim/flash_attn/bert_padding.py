"""From padded batches to packed sequences and back; every function is differentiable."""

import torch
from torch import Tensor
from torch.nn.functional import pad

try:
    from einops import rearrange
except ImportError:
    # The index has no einops, so it is no requirement; libraries import the name with those below.

    def rearrange(tensor: Tensor, pattern: str, **axes_lengths: int) -> Tensor:
        """einops' function; raises ``ImportError`` where einops is not installed."""
        del tensor, pattern, axes_lengths
        message = "flash_attn.bert_padding.rearrange is einops' function, which is not installed\n"
        raise ImportError(message + "  next: pip install einops")


__all__ = [
    "IndexFirstAxis",
    "IndexFirstAxisResidual",
    "IndexPutFirstAxis",
    "index_first_axis",
    "index_first_axis_residual",
    "index_put_first_axis",
    "pad_input",
    "rearrange",
    "unpad_input",
    "unpad_input_for_concatenated_sequences",
]


def index_first_axis(values: Tensor, indices: Tensor) -> Tensor:
    """Rows of the first dimension."""
    return values[indices]


def index_put_first_axis(values: Tensor, indices: Tensor, first_axis_dim: int) -> Tensor:
    """A zero tensor with ``first_axis_dim`` rows, some of which are those of ``values``."""
    empty = values.new_zeros(first_axis_dim, *values.shape[1:])
    return empty.index_put((indices,), values)


def index_first_axis_residual(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the first dimension, and ``values``, for a residual connection."""
    return values[indices], values


class IndexFirstAxis:
    """``apply`` is ``index_first_axis``; PyTorch differentiates it, so this is no autograd.Function."""

    apply = staticmethod(index_first_axis)


class IndexPutFirstAxis:
    """``apply`` is ``index_put_first_axis``, likewise."""

    apply = staticmethod(index_put_first_axis)


class IndexFirstAxisResidual:
    """``apply`` is ``index_first_axis_residual``, likewise."""

    apply = staticmethod(index_first_axis_residual)


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
    return (*_packed(hidden_states, both, lengths), used)


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """The rows of (batch, seqlen, …) that are used, where each row of the batch holds several sequences.

    ``attention_mask_in_length`` (batch, seqlen) integer begins with the lengths of a row's sequences, zeros
    follow: [2, 3, 0, 0, 0, 0] is a row with sequences of 2 and 3, and one position that is not used.
    Returns the rows, their numbers in the flattened batch, cu_seqlens (sequences + 1) int32, and the largest
    length.
    """
    rows = attention_mask_in_length.sum(dim=-1, keepdim=True)
    positions = torch.arange(attention_mask_in_length.shape[1], device=rows.device)
    lengths = attention_mask_in_length[attention_mask_in_length > 0]
    return _packed(hidden_states, positions < rows, lengths)


def _packed(values: Tensor, mask: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    indices = mask.flatten().nonzero().flatten()
    longest = int(lengths.max()) if lengths.numel() else 0
    ends = pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return index_first_axis(values.flatten(0, 1), indices), indices, ends, longest


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The reverse: (batch, seqlen, …), zero where there is no row."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
