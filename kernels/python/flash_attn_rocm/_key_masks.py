"""Boolean masks that are the same for all heads and rows, on kernels that have no argument for one.

Such a mask, as of padding, chooses keys.  Where no rule depends on positions, their order changes no answer:
those of each sequence that are seen are copied to its front, and the others become a sequence without rows.
So kernels do not look at hidden keys, and nothing here reads a value of a tensor.
"""

import torch
from torch import Tensor

from flash_attn_rocm._options import BackwardCall, Inputs, Options
from flash_attn_rocm.pieces import flat


def chooses_keys(inputs: Inputs, options: Options) -> bool:
    """Whether there is such a mask, and nothing depends on the places of keys."""
    mask = inputs.attn_mask
    if mask is None or mask.dtype != torch.bool or mask.shape[1] != 1 or mask.shape[2] != 1:
        return False
    places = options.window_left >= 0 or options.window_right >= 0 or options.chunk > 0
    # A branch, because torch.compile may know dropout_p only as a symbol.
    drops = True if options.dropout_p > 0.0 else False  # noqa: SIM210
    return not places and inputs.alibi_slopes is None and not drops


def cut(inputs: Inputs, options: Options) -> tuple[Inputs, Options]:
    """The same attention without a mask, of packed sequences: two of each."""
    order, lengths = _order(inputs)
    k, v = (flat(_sorted(x, order)) for x in inputs[1:3])
    return _packed(inputs, flat(inputs.q), k, v, lengths), options


def cut_call(call: BackwardCall) -> tuple[BackwardCall, Tensor]:
    """Of ``cut``, what gradients are computed from, and what ``put_back`` needs."""
    inputs = call.inputs
    order, lengths = _order(inputs)
    k, v = (flat(_sorted(x, order)) for x in inputs[1:3])
    packed = _packed(inputs, flat(inputs.q), k, v, lengths)
    lse = call.lse.transpose(0, 1).flatten(1)
    return BackwardCall(flat(call.dout), flat(call.out), lse, packed, call.options, call.rng_state), order


def put_back(gradient: Tensor, order: Tensor, like: Tensor, place: Tensor | None) -> Tensor:
    """The gradient of k or v, into ``place`` if there is one, from that of the sorted ones."""
    found = torch.empty_like(like, memory_format=torch.contiguous_format) if place is None else place
    found[_sequences(order), order] = gradient.view(like.shape)
    return found


def form(inputs: Inputs) -> Inputs:
    """What ``cut`` gives a plan to see, without its values."""
    q, k, v = (x.new_empty((0, *x.shape[2:])) for x in inputs[:3])
    return _packed(inputs, q, k, v, torch.zeros(inputs.batch, dtype=torch.int32, device=q.device))


def _order(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The keys of each sequence, (batch, seqlen_k), those first that are seen, and how many these are."""
    mask = inputs.attn_mask
    assert mask is not None, "asked before"
    seen = mask[:, 0, 0].expand(inputs.batch, inputs.k.shape[1])
    order = seen.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    return order, seen.sum(-1, dtype=torch.int32)


def _sequences(order: Tensor) -> Tensor:
    return torch.arange(len(order), device=order.device)[:, None]


def _sorted(x: Tensor, order: Tensor) -> Tensor:
    return x[_sequences(order), order]


def _packed(inputs: Inputs, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Inputs:
    rows, keys = inputs.q.shape[1], inputs.k.shape[1]
    numbers = torch.arange(inputs.batch + 1, dtype=torch.int32, device=q.device)
    ends_q, ends_k = numbers * rows, numbers * keys
    cut_q = torch.stack((ends_q[:-1], ends_q[1:]), 1).flatten()
    cut_k = torch.stack((ends_k[:-1], ends_k[:-1] + lengths), 1).flatten()
    ends = torch.cat((cut_q, ends_q[-1:])), torch.cat((cut_k, ends_k[-1:]))
    return Inputs(q, k, v, None, *ends, sink=inputs.sink)
