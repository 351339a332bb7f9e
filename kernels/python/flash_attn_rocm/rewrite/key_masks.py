"""Boolean masks that are the same for all heads and rows, on kernels that have no argument for one.

Such a mask, as of padding, chooses keys.  Where no rule depends on positions, their order changes no answer:
those that are seen are copied together, sequence after sequence, and the others behind them belong to none.
So kernels do not look at hidden keys, and nothing here reads a value of a tensor.

Dropout then counts columns among the keys that a sequence sees, as it does where they come packed: wherever
such a mask is given, also in the PyTorch implementation (``columns``).
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from flash_attn_rocm.arguments.normal_form import BackwardCall, Inputs, Options
from flash_attn_rocm.pieces import flat

Order = tuple[Tensor, Tensor]


def chooses_keys(inputs: Inputs, options: Options) -> bool:
    """Whether there is such a mask, and nothing depends on the places of keys."""
    mask = inputs.attn_mask
    if mask is None or mask.dtype != torch.bool or mask.shape[1] != 1 or mask.shape[2] != 1:
        return False
    places = options.window_left >= 0 or options.window_right >= 0 or options.chunk > 0
    return not places and inputs.alibi_slopes is None


def columns(inputs: Inputs, options: Options) -> Tensor | None:
    """The columns by which dropout knows the keys, (batch, seqlen_k), where these are not their places.

    That of a hidden key, whose probability is 0, is anything that does not fall along the keys.
    """
    if not chooses_keys(inputs, options):
        return None
    return (_seen(inputs).cumsum(-1) - 1).clamp_(min=0)


def cut(inputs: Inputs, options: Options) -> tuple[Inputs, Options]:
    """The same attention without a mask, of packed sequences."""
    order, ends = _order(inputs)
    return _packed(inputs, flat(inputs.q), inputs.k[order], inputs.v[order], ends), options


def cut_call(call: BackwardCall) -> tuple[BackwardCall, Order]:
    """Of ``cut``, what gradients are computed from, and what ``put_back`` needs."""
    inputs = call.inputs
    order, ends = _order(inputs)
    packed = _packed(inputs, flat(inputs.q), inputs.k[order], inputs.v[order], ends)
    lse = call.lse.transpose(0, 1).flatten(1)
    return BackwardCall(flat(call.dout), flat(call.out), lse, packed, call.options, call.rng_state), order


def put_back(gradient: Tensor, order: Order, like: Tensor, place: Tensor | None) -> Tensor:
    """The gradient of k or v, into ``place`` if there is one, from that of the sorted ones."""
    found = torch.empty_like(like, memory_format=torch.contiguous_format) if place is None else place
    found[order] = gradient
    return found


def form(inputs: Inputs) -> Inputs:
    """What ``cut`` gives a plan to see, without its values."""
    q, k, v = (x.new_empty((0, *x.shape[2:])) for x in inputs[:3])
    return _packed(inputs, q, k, v, torch.zeros(inputs.batch + 1, dtype=torch.int32, device=q.device))


def _seen(inputs: Inputs) -> Tensor:
    """Which keys each sequence sees: (batch, seqlen_k)."""
    mask = inputs.attn_mask
    assert mask is not None, "asked before"
    return mask[:, 0, 0].expand(inputs.batch, inputs.k.shape[1])


def _order(inputs: Inputs) -> tuple[Order, Tensor]:
    """The sequence and place of each key, those first that are seen, and where each sequence's end."""
    seen = _seen(inputs)
    order = seen.flatten().to(torch.uint8).argsort(descending=True, stable=True)
    ends = pad(seen.sum(-1).cumsum(0), (1, 0)).to(torch.int32)
    keys = max(1, seen.shape[1])
    return (order // keys, order % keys), ends


def _packed(inputs: Inputs, q: Tensor, k: Tensor, v: Tensor, ends_k: Tensor) -> Inputs:
    numbers = torch.arange(inputs.batch + 1, dtype=torch.int32, device=q.device)
    return Inputs(q, k, v, None, numbers * inputs.q.shape[1], ends_k, sink=inputs.sink)
