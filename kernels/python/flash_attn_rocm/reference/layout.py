"""The inner layout of the PyTorch implementation, and products in it.

Queries are grouped by the kv head that they read: (pairs, group, seqlen_q, headdim). Keys and values are
(pairs, seqlen_k, headdim). pairs = batch * nheads_k, group = nheads / nheads_k.
"""

import torch
from torch import Tensor


def of_heads(x: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """(nheads) or (batch, nheads) to (pairs, group)."""
    batch, _, nheads, _ = q.shape
    return x.expand(batch, nheads).reshape(batch * k.shape[2], nheads // k.shape[2])


def grouped(q: Tensor, nheads_k: int, dtype: torch.dtype | None = None) -> Tensor:
    """(batch, seqlen_q, nheads, headdim) to (pairs, group, seqlen_q, headdim). A view of one sequence."""
    batch, seqlen_q, nheads, head_dim = q.shape
    split = q.reshape(batch, seqlen_q, nheads_k, nheads // nheads_k, head_dim).permute(0, 2, 3, 1, 4)
    return _first_flat(split, dtype)


def ungrouped(x: Tensor, q: Tensor) -> Tensor:
    """The reverse of ``grouped``, contiguous, in q's dtype and q's shape with the given headdim."""
    batch, seqlen_q, nheads, _ = q.shape
    return _heads_last(x.reshape(batch, nheads, seqlen_q, x.shape[-1]), q.dtype)


def flattened(k: Tensor, dtype: torch.dtype) -> Tensor:
    """(batch, seqlen_k, nheads_k, headdim) to (pairs, seqlen_k, headdim). A view of one sequence."""
    return _first_flat(k.transpose(1, 2), dtype)


def unflattened(flat: Tensor, k: Tensor) -> Tensor:
    """The reverse of ``flattened``, contiguous, in k's shape and dtype."""
    batch, seqlen_k, nheads_k, head_dim = k.shape
    return _heads_last(flat.reshape(batch, nheads_k, seqlen_k, head_dim), k.dtype)


def _first_flat(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The first two dimensions as one, in the dtype, with contiguous rows."""
    one = torch.preserve_format if x.shape[0] == 1 else torch.contiguous_format
    found = (x if dtype in {None, x.dtype} else x.to(dtype, memory_format=one)).flatten(0, 1)
    return found if found.stride(-1) == 1 else found.contiguous()


def _heads_last(x: Tensor, dtype: torch.dtype) -> Tensor:
    """(batch, nheads, seqlen, headdim) to (batch, seqlen, nheads, headdim), contiguous."""
    return x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format).contiguous()


def product(left: Tensor, right: Tensor, alpha: float = 1.0) -> Tensor:
    """(pairs, group, rows, n) times (pairs, n, m), times alpha: (pairs, group, rows, m)."""
    rows, shape = left.flatten(1, 2), (*left.shape[:3], right.shape[2])
    if alpha == 1.0:
        return torch.bmm(rows, right).view(shape)
    found = left.new_empty((*rows.shape[:2], right.shape[2]))
    return found.baddbmm_(rows, right, beta=0, alpha=alpha).view(shape)


def add_product(to: Tensor, left: Tensor, right: Tensor, *, alpha: float, beta: bool) -> None:
    """``product``, added to ``to``, or instead of ``to`` if beta is False."""
    if to.shape[1] == 1:
        to[:, 0].baddbmm_(left[:, 0], right, beta=int(beta), alpha=alpha)
    elif beta:
        to += product(left, right, alpha)
    else:
        to.copy_(product(left, right, alpha))


def add_transposed_product(
    to: Tensor, left: Tensor, right: Tensor, *, alpha: float = 1.0, beta: bool
) -> None:
    """(pairs, group, rows, n) times (pairs, group, rows, m), times alpha, summed over rows.

    Added to ``to``, (pairs, n, m), or instead of ``to`` if beta is False.
    """
    to.baddbmm_(left.flatten(1, 2).mT, right.flatten(1, 2), beta=int(beta), alpha=alpha)


def with_column(rows: Tensor, keys: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and keys whose products are smaller by the rows' numbers."""
    return torch.cat((rows, -numbers), dim=-1), torch.cat((keys, torch.ones_like(keys[..., :1])), dim=-1)
