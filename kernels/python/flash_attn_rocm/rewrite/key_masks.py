"""Boolean masks shared by all heads and rows, on kernels of packed sequences.

Such a mask, for example of padding, chooses keys. If positions have no influence, the order of keys is free.
The visible keys are copied together, sequence after sequence, and the hidden keys lie behind all sequences.
So kernels skip hidden keys, and this module needs no tensor values.

Dropout then counts columns among a sequence's visible keys, as for packed sequences. The PyTorch
implementation counts such masks' columns alike (``columns``).
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from flash_attn_rocm.arguments.normal_form import BackwardCall, Inputs, Options
from flash_attn_rocm.pieces import flat

Order = tuple[Tensor, Tensor]


def chooses_keys(inputs: Inputs, options: Options) -> bool:
    """Whether there is such a mask, and key positions have no influence."""
    mask = inputs.attn_mask
    if mask is None or mask.dtype != torch.bool or mask.shape[1] != 1 or mask.shape[2] != 1:
        return False
    places = options.window_left >= 0 or options.window_right >= 0 or options.chunk > 0
    return not places and inputs.alibi_slopes is None


def columns(inputs: Inputs, options: Options) -> Tensor | None:
    """Dropout's column numbers of the keys, (batch, seqlen_k), if they differ from positions.

    A hidden key has probability 0, so its column may be any number. Numbers never fall along the keys.
    """
    if not chooses_keys(inputs, options):
        return None
    return (_seen(inputs).cumsum(-1) - 1).clamp_(min=0)


def cut(inputs: Inputs, options: Options) -> tuple[Inputs, Options]:
    """Equivalent attention of packed sequences."""
    order, ends = _order(inputs)
    return _packed(inputs, flat(inputs.q), inputs.k[order], inputs.v[order], ends), options


def cut_call(call: BackwardCall) -> tuple[BackwardCall, Order]:
    """The part of ``cut`` for gradients, and the input of ``put_back``."""
    inputs = call.inputs
    order, ends = _order(inputs)
    packed = _packed(inputs, flat(inputs.q), inputs.k[order], inputs.v[order], ends)
    lse = call.lse.transpose(0, 1).flatten(1)
    return BackwardCall(flat(call.dout), flat(call.out), lse, packed, call.options, call.rng_state), order


def put_back(gradient: Tensor, order: Order, like: Tensor, place: Tensor | None) -> Tensor:
    """The gradient of k or v, from the gradient of the sorted ones, in ``place`` if given."""
    found = torch.empty_like(like, memory_format=torch.contiguous_format) if place is None else place
    found[order] = gradient
    return found


def form(inputs: Inputs) -> Inputs:
    """The form of ``cut``'s result, for a plan."""
    q, k, v = (x.new_empty((0, *x.shape[2:])) for x in inputs[:3])
    return _packed(inputs, q, k, v, torch.zeros(inputs.batch + 1, dtype=torch.int32, device=q.device))


def _seen(inputs: Inputs) -> Tensor:
    """The visible keys of each sequence: (batch, seqlen_k)."""
    mask = inputs.attn_mask
    assert mask is not None, "asked before"
    return mask[:, 0, 0].expand(inputs.batch, inputs.k.shape[1])


def _order(inputs: Inputs) -> tuple[Order, Tensor]:
    """The sequence and position of each key, visible keys first, and the end of each sequence."""
    seen = _seen(inputs)
    order = seen.flatten().to(torch.uint8).argsort(descending=True, stable=True)
    ends = pad(seen.sum(-1).cumsum(0), (1, 0)).to(torch.int32)
    keys = max(1, seen.shape[1])
    return (order // keys, order % keys), ends


def _packed(inputs: Inputs, q: Tensor, k: Tensor, v: Tensor, ends_k: Tensor) -> Inputs:
    numbers = torch.arange(inputs.batch + 1, dtype=torch.int32, device=q.device)
    return Inputs(q, k, v, None, numbers * inputs.q.shape[1], ends_k, sink=inputs.sink)
