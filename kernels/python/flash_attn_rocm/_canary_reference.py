"""What the PyTorch implementation finds for a call of the check at first use.

Its overhead is most of what the check costs, so that it gets all sequences in one padded batch.  Dropout
numbers rows and keys from each sequence's first: where lengths differ such calls go one sequence at a time.
"""

import torch
from torch import Tensor

from flash_attn_rocm import _ops
from flash_attn_rocm._canary_made import Call, packed, there
from flash_attn_rocm._options import BackwardCall

DROPOUT_KEY = (1, 2)


def dropout_state(call: Call) -> Tensor | None:
    """The state of the call's dropout, if it has any."""
    return torch.tensor(DROPOUT_KEY) if call.options.dropout_p else None


def forward(call: Call) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp, in the kernels' shapes."""
    out, lse, _ = _forward(call)
    return (_rows(call, out), _rows(call, lse.mT).mT) if _is_repacked(call) else (out, lse)


def backward(call: Call) -> tuple[BackwardCall, list[Tensor]]:
    """What kernels are given, and the gradients that they should find."""
    out, lse, state = _forward(call)
    if call.nan:  # with 0 for out only what is hidden has gradients that are 0
        out = torch.zeros_like(out)
    dout = _rows(call, call.dout) if call.ragged else call.dout
    given = BackwardCall(dout, out, lse, call.inputs, call.options, state)
    if _is_repacked(call):
        alone = call.dout * there(call.rows)[..., None, None]  # padding has no gradient
        dq, *others = _ops.backward(given._replace(dout=alone, inputs=call.padded))
        wanted = [_rows(call, dq), *(packed(x, call.keys) for x in others)]
        given = given._replace(out=_rows(call, out), lse=_rows(call, lse.mT).mT.contiguous())
    else:
        wanted = _ops.backward(given)
    if not call.nan:
        return given, wanted
    q, k, v, dout = (torch.full_like(x, torch.nan) for x in (*call.inputs[:3], dout))
    given = given._replace(dout=dout, inputs=call.inputs._replace(q=q, k=k, v=v))
    return given, [x.where((x == 0).all(-1, keepdim=True), torch.nan) for x in wanted]


def _is_batch(call: Call) -> bool:
    """Whether the PyTorch implementation gets the padded batch."""
    return not call.options.dropout_p or len({*call.rows}) == len({*call.keys}) == 1


def _is_repacked(call: Call) -> bool:
    """Whether its results then are in other shapes than the kernels'."""
    return call.ragged and _is_batch(call)


def _forward(call: Call) -> tuple[Tensor, Tensor, Tensor | None]:
    state = dropout_state(call)
    inputs = call.padded if _is_batch(call) else call.inputs
    out, lse, _ = _ops.forward(inputs, call.options, state, want_probabilities=False)
    return out, lse, state


def _rows(call: Call, x: Tensor) -> Tensor:
    return packed(x, call.rows)
