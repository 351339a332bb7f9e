"""Expected results of the check at first use: plain attention in float32, all sequences in one batch.

The check's cost is mostly the overhead of PyTorch's operations. So there are few of them, on whole matrices
of scores. ``tests/installed/wheel/serving/test_canary.py`` compares the results with the PyTorch
implementation.
"""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import BackwardCall
from flash_attn_rocm.canary.making import Call, packed, there
from flash_attn_rocm.reference import philox
from flash_attn_rocm.rewrite import sinks

DROPOUT_KEY = (1, 2)


class _Attended(NamedTuple):
    """Attention of a padded batch, all fp32, pairs = batch * nheads_k.

    q: (pairs, group * rows, headdim). k and v: (pairs, keys, headdim). Probabilities, softcap's tanh and
    dropout's factors: (pairs, group * rows, keys). out: like q. Rows without keys, and the log-sum-exp:
    (pairs, group * rows, 1).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    probabilities: Tensor
    capped: Tensor | None
    kept: Tensor | None
    blind: Tensor
    out: Tensor
    lse: Tensor


def forget() -> None:
    """Clears the cache that calls share, as in a new process."""
    _first_kept.cache_clear()


def dropout_state(call: Call) -> Tensor | None:
    """The state of the call's dropout, if it has any."""
    return torch.tensor(DROPOUT_KEY) if call.options.dropout_p else None


def forward(call: Call) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp in fp32, in the kernels' shapes."""
    found = _attended(call)
    out, lse = _heads_last(call, found.out), _heads_last(call, found.lse)
    if call.inputs.sink is not None:
        share, lse = sinks.shares(lse, call.inputs.sink[:, None])
        out = out * share
    return _rows(call, out), _rows(call, lse)[..., 0].mT


def backward(call: Call) -> tuple[BackwardCall, list[Tensor]]:
    """The arguments of the kernels, and the expected gradients in fp32."""
    if call.nan:
        return _of_nan(call)
    found = _attended(call)
    out = _heads_last(call, found.out).to(call.dout.dtype)
    dq, dk, dv, ds = _gradients(call, found, out)
    wanted = [_rows(call, _heads_last(call, dq)), *(_keys(call, x) for x in (dk, dv))]
    if (mask := call.inputs.attn_mask) is not None and mask.dtype != torch.bool:
        batch, rows, nheads, _ = call.padded.q.shape
        wanted.append(ds.view(batch, nheads, rows, -1).sum_to_size(mask.shape))
    lse = _rows(call, _heads_last(call, found.lse))[..., 0].mT.contiguous()
    dout, out = _rows(call, call.dout), _rows(call, out)
    return BackwardCall(dout, out, lse, call.inputs, call.options, dropout_state(call)), wanted


def _of_nan(call: Call) -> tuple[BackwardCall, list[Tensor]]:
    """A call with tensors of NaN: its gradients are NaN, and 0 for fully hidden keys and rows."""
    (batch, rows, nheads, _), keys = call.padded.q.shape, call.padded.k.shape[1]
    hidden = _hidden(call, _distance(call))
    assert hidden is not None, "such calls have a window"
    hidden = hidden.expand(batch, 1, rows, keys)[:, 0]
    blind, unseen = hidden.all(2), (hidden | ~there(call.rows)[..., None]).all(1)
    lse = (
        torch.zeros(batch, rows, dtype=torch.float32)
        .masked_fill_(blind, math.inf)[..., None]
        .expand(-1, -1, nheads)
    )
    q, k, v = (torch.full_like(x, torch.nan) for x in call.inputs[:3])
    dout = q.new_full(call.inputs.out_shape, torch.nan)
    given = BackwardCall(
        dout, torch.zeros_like(dout), _rows(call, lse).mT.contiguous(), call.inputs._replace(q=q, k=k, v=v),
        call.options,
    )  # fmt: skip
    dq, dk, dv = (torch.full_like(x, torch.nan) for x in call.padded[:3])
    dq.masked_fill_(blind[..., None, None], 0.0)
    for each in (dk, dv):
        each.masked_fill_(unseen[..., None, None], 0.0)
    return given, [_rows(call, dq), packed(dk, call.keys), packed(dv, call.keys)]


def _attended(call: Call) -> _Attended:
    q, k, v = _grouped(call, call.padded.q), _heads_first(call.padded.k), _heads_first(call.padded.v)
    scores, capped = _scores(call, q, k)
    highest = scores.amax(-1, keepdim=True)
    # The fused operation: exp is slow where it underflows. Rows without keys are NaN until ``blind`` is used.
    probabilities, blind = scores.softmax(-1), highest == -math.inf
    lse = highest.sub_(probabilities.amax(-1, keepdim=True).log_()).nan_to_num_(math.inf, math.inf)
    kept = _kept(call, probabilities)
    out = torch.bmm(probabilities if kept is None else probabilities * kept, v).masked_fill_(blind, 0.0)
    return _Attended(q, k, v, probabilities, capped, kept, blind, out, lse)


def _scores(call: Call, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor | None]:
    """Scores with bias and mask, and softcap's tanh. Both (pairs, group * rows, keys)."""
    options, (batch, rows, nheads, _) = call.options, call.padded.q.shape
    cap = options.softcap or 1.0
    scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0.0, alpha=options.softmax_scale / cap)
    capped = scores.tanh_() if options.softcap else None
    if capped is not None:
        scores = capped * cap
    each = scores.view(batch, nheads, rows, -1)
    distance = _distance(call)
    if call.padded.alibi_slopes is not None:
        each.addcmul_(call.padded.alibi_slopes[..., None, None], distance.abs(), value=-1.0)
    mask = call.padded.attn_mask
    if mask is not None and mask.dtype != torch.bool:
        each.add_(mask)
    if (hidden := _hidden(call, distance)) is not None:
        each.masked_fill_(hidden, -math.inf)
    return scores, capped


def _distance(call: Call) -> Tensor:
    """(rows, keys): of each key from each row's diagonal."""
    rows, keys = call.padded.q.shape[1], call.padded.k.shape[1]
    return torch.arange(keys) - torch.arange(keys - rows, keys)[:, None]


def _hidden(call: Call, distance: Tensor) -> Tensor | None:
    """Keys hidden by window and padding, in a shape that broadcasts to (batch, nheads, rows, keys)."""
    left, right, mask = call.options.window_left, call.options.window_right, call.padded.attn_mask
    each = [] if mask is None or mask.dtype != torch.bool else [~mask]
    each += [distance > right] if right >= 0 else []
    each += [distance < -left] if left >= 0 else []
    return functools.reduce(torch.logical_or, each) if each else None


def _gradients(call: Call, found: _Attended, out: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dq like q, dk and dv like k, and the gradients of scores. ``out`` is as kernels get it."""
    dout = call.dout
    if call.ragged:  # padding gets no gradient
        dout = dout * there(call.rows)[..., None, None]
    dout, out = _grouped(call, dout), _grouped(call, out)
    probabilities = found.probabilities.masked_fill_(found.blind, 0.0)
    dropped = probabilities if found.kept is None else probabilities * found.kept
    dv = torch.bmm(dropped.mT, dout)
    dp = torch.bmm(dout, found.v.mT)
    if found.kept is not None:
        dp.mul_(found.kept)
    ds = dp.sub_((dout * out).sum(-1, keepdim=True)).mul_(probabilities)
    if found.capped is not None:
        ds.mul_(1.0 - found.capped.square_())
    dq, dk = torch.bmm(ds, found.k), torch.bmm(ds.mT, found.q)
    return dq.mul_(call.options.softmax_scale), dk.mul_(call.options.softmax_scale), dv, ds


def _kept(call: Call, probabilities: Tensor) -> Tensor | None:
    """Dropout's factors. Rows and keys count from the start of each sequence."""
    dropout, (batch, rows, nheads, _) = call.options.dropout_p, call.padded.q.shape
    if not dropout:
        return None
    first = _first_kept(dropout, batch, nheads, rows, probabilities.shape[-1])
    kept = torch.zeros_like(probabilities).view(first.shape)
    for b, (its_rows, its_keys) in enumerate(zip(call.rows, call.keys, strict=True)):
        kept[b, :, rows - its_rows :, kept.shape[-1] - its_keys :] = first[b, :, :its_rows, :its_keys]
    return kept.view_as(probabilities).div_(1.0 - dropout)


@functools.cache  # shared by calls with equal arguments
def _first_kept(dropout: float, batch: int, nheads: int, rows: int, keys: int) -> Tensor:
    """Dropout's kept weights of sequences without offset: (batch, nheads, rows, keys) bool."""
    return philox.keep(
        torch.tensor(DROPOUT_KEY),
        dropout,
        batches=torch.arange(batch)[:, None, None, None],
        heads=torch.arange(nheads)[:, None, None],
        rows=torch.arange(rows)[:, None],
        columns=range(keys),
    )


def _heads_first(x: Tensor) -> Tensor:
    """(batch, length, heads, headdim) to (batch * heads, length, headdim) in fp32."""
    return x.transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format).flatten(0, 1)


def _grouped(call: Call, x: Tensor) -> Tensor:
    """q's shape to (batch * nheads_k, group * rows, headdim): a group of heads reads one head of k and v."""
    return _heads_first(x).view(len(call.rows) * call.padded.k.shape[2], -1, x.shape[-1])


def _heads_last(call: Call, x: Tensor) -> Tensor:
    """The reverse of ``_grouped``, in fp32: a view."""
    batch, rows, nheads, _ = call.padded.q.shape
    return x.view(batch, nheads, rows, x.shape[-1]).transpose(1, 2)


def _rows(call: Call, x: Tensor) -> Tensor:
    """A tensor shaped like the padded q, in the layout of the kernel's q."""
    return packed(x, call.rows) if call.ragged else x


def _keys(call: Call, x: Tensor) -> Tensor:
    """A gradient of k or v, (pairs, keys, headdim), in the layout of the kernel's."""
    split = x.unflatten(0, (len(call.keys), -1)).transpose(1, 2)
    return packed(split, call.keys) if call.ragged else split
