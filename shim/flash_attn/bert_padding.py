"""From padded batches to packed sequences and back. Every function is differentiable."""

import torch
from torch import Tensor
from torch.nn.functional import pad

try:
    from einops import rearrange
except ImportError:
    # The index has no einops, so it is an optional dependency. Libraries import the name from here.

    def rearrange(tensor: Tensor, pattern: str, **axes_lengths: int) -> Tensor:
        """einops' function. Raises ``ImportError`` if einops is missing."""
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
    """A zero tensor of ``first_axis_dim`` rows with ``values`` in the rows ``indices``."""
    empty = values.new_zeros(first_axis_dim, *values.shape[1:])
    return empty.index_put((indices,), values)


def index_first_axis_residual(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the first dimension, and ``values``, for a residual connection."""
    return values[indices], values


class IndexFirstAxis:
    """``apply`` is ``index_first_axis``. PyTorch differentiates it, so this is no autograd.Function."""

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
    """The rows of (batch, seqlen, …) selected by either mask (batch, seqlen), one after another.

    Returns them, their numbers in the flattened batch, cu_seqlens (batch + 1) int32, the largest length, and
    the number of rows per sequence in ``attention_mask``, (batch) int32.
    """
    both = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = both.sum(dim=-1, dtype=torch.int32)
    used = attention_mask.sum(dim=-1, dtype=torch.int32)
    return (*_packed(hidden_states, both, lengths), used)


def unpad_input_for_concatenated_sequences(
    hidden_states: Tensor, attention_mask_in_length: Tensor
) -> tuple[Tensor, Tensor, Tensor, int]:
    """The used rows of (batch, seqlen, …), for a batch with several sequences in each row.

    ``attention_mask_in_length`` (batch, seqlen) integer begins with the lengths of a row's sequences,
    followed by zeros: [2, 3, 0, 0, 0, 0] is a row with sequences of 2 and 3, and one unused position.
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
    """The reverse: (batch, seqlen, …), zero in all other rows."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
