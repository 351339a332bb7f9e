"""The small calls of the check at first use, and how they are compared with the PyTorch implementation.

What is allowed is with the other tolerances, in wheel_builder/emulator/rule.py, which the wheel carries for
``selftest``.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from flash_attn_rocm import _ops, _plan
from flash_attn_rocm._layout import Device
from flash_attn_rocm._options import TORCH_DTYPES, BackwardCall, Inputs, Options
from flash_attn_rocm._remembered import Family
from flash_attn_rocm._suite.wheel_builder.emulator import rule

SECONDS = 30.0  # until calls that take milliseconds count as a hang
DROPOUT_KEY = (1, 2)
Answer = Callable[[Inputs, Options, Tensor | None, Device], tuple[Tensor, Tensor]]
Backward = Callable[[BackwardCall, str, str], tuple[Tensor, ...]]  # of a call, on an arch, on a path
Append = Callable[..., tuple[Tensor, ...]]
Call = tuple[str, Inputs, Options]
Some = TypeVar("Some", Tensor, Tensor | None)


def attention_problem(family: Family, answer: Answer, device: Device, where: torch.device) -> str:
    """What is wrong with out and the log-sum-exp, or ""."""
    for name, inputs, options in attention_calls(family):
        found = _ended(where, lambda: answer(_on(inputs, where), options, None, device))  # noqa: B023
        if found is None:
            return _endless(name)
        out, lse, _ = _ops.forward(inputs, options, None, want_probabilities=False)
        allowed = rule.canary_allowed(family.dtype, _largest(inputs.v))
        wrong = _difference("out", found[0], out, allowed)
        if wrong := wrong or _difference("log-sum-exp", found[1], lse, rule.CANARY_LSE):
            return f"{name}: {wrong}"
    return ""


def gradients_problem(family: Family, backward: Backward, where: torch.device) -> str:
    """What is wrong with the gradients, or ""; out and the log-sum-exp are the PyTorch implementation's."""
    for name, inputs, options in gradient_calls(family):
        state = torch.tensor(DROPOUT_KEY) if options.dropout_p else None
        out, lse, _ = _ops.forward(inputs, options, state, want_probabilities=False)
        dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
        call = BackwardCall(
            _moved(dout, where),
            _moved(out, where),
            _moved(lse, where),
            _on(inputs, where),
            options,
            _moved(state, where),
        )
        found = _ended(where, lambda: backward(call, family.arch, family.gradients))  # noqa: B023
        if found is None:
            return _endless(name)
        wanted = _ops.backward(BackwardCall(dout, out, lse, inputs, options, state))
        for what, one, other in zip(("dq", "dk", "dv"), found, wanted, strict=True):
            allowed = rule.canary_allowed(family.dtype, _largest(other))
            if wrong := _difference(what, one, other, allowed):
                return f"{name}: {wrong}"
    return ""


def append_problem(family: Family, append: Append, where: torch.device) -> str:
    """What is wrong with in-place appends with rotation, which have the very bits of PyTorch's operators."""
    draw = torch.Generator().manual_seed(0)
    sizes = ((2, 3, 4, 64), (2, 40, 2, 64), (2, 40, 2, 64), (2, 3, 2, 64), (2, 3, 2, 64), (48, 16), (48, 16))
    drawn = tuple(torch.randn(*each, generator=draw).to(TORCH_DTYPES[family.dtype]) for each in sizes)
    lengths, nothing = torch.tensor([0, 17], dtype=torch.int32), (None, None, None)
    for name, interleaved in (("append", False), ("append, interleaved", True)):
        ours, theirs = ([x.to(place, copy=True) for x in (*drawn, lengths)] for place in (where, "cpu"))
        results = _ended(where, lambda: append(*ours, interleaved))  # noqa: B023
        if results is None:
            return _endless(name)
        rotated = torch.ops.flash_attn_rocm.pytorch_append(*theirs, *nothing, interleaved, True)[0]  # noqa: FBT003
        pairs = {"q": (results[0], rotated), "k_cache": (ours[1], theirs[1]), "v_cache": (ours[2], theirs[2])}
        if wrong := [each for each, (one, other) in pairs.items() if not torch.equal(one.cpu(), other)]:
            return f"{name}: {', '.join(wrong)} differ from the PyTorch implementation"
    return ""


def attention_calls(family: Family) -> Iterator[Call]:
    """Small calls that take the family's paths, on the CPU."""
    drawn = _Drawn(family, nheads=4)
    yield from _masked_calls(drawn, 65, 129)
    parts = Options(drawn.scale, max_seqlen_q=1, max_seqlen_k=257, num_splits=3)
    yield "decode in parts", Inputs(*drawn.dense(1, 257)), parts
    used = Inputs(*drawn.dense(5, 40, wider=1), seqused_k=_integers(33))
    yield "unaligned cache", used, Options(drawn.scale, window_right=0, max_seqlen_q=5, max_seqlen_k=40)


def gradient_calls(family: Family) -> Iterator[Call]:
    """The same for gradients, with the features that the family's kernels have."""
    takes_features = family.gradients != _plan.FUSED or _plan.fused_takes_features(*family[:3])
    for name, inputs, options in _gradient_calls(_Drawn(family, nheads=2)):
        if takes_features:
            yield name, inputs, options
        else:
            plain = options._replace(softcap=0.0, dropout_p=0.0)
            yield name.split(",")[0], inputs._replace(alibi_slopes=None), plain


def _gradient_calls(drawn: "_Drawn") -> Iterator[Call]:
    yield from _masked_calls(drawn, 45, 140)
    q, k, v = (x.squeeze(0) for x in drawn.dense(24, 40))
    dropped = Options(drawn.scale, dropout_p=0.3, max_seqlen_q=17, max_seqlen_k=33)
    cut = (_integers(0, 17, 17, 24), _integers(0, 33, 36, 40))
    yield "packed sequences, dropout", Inputs(q, k, v, None, *cut), dropped


def _masked_calls(drawn: "_Drawn", rows: int, keys: int) -> Iterator[Call]:
    causal = Options(drawn.scale, window_right=0, max_seqlen_q=rows, max_seqlen_k=keys)
    yield "causal", Inputs(*drawn.dense(rows, keys)), causal
    windowed = Options(drawn.scale, 40, 8, softcap=5.0, max_seqlen_q=33, max_seqlen_k=70)
    yield "window, softcap, ALiBi", Inputs(*drawn.dense(33, 70), drawn.slopes), windowed


class _Drawn:
    """Random tensors with two query heads for each of k and v."""

    def __init__(self, family: Family, nheads: int) -> None:
        self._family, self._nheads = family, nheads
        self._draw = torch.Generator().manual_seed(0)
        self.slopes = torch.tensor([0.5, 0.1, 0.02, 0.0][-nheads:])
        self.scale = family.head_dim**-0.5

    def dense(self, rows: int, keys: int, wider: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        head_dim, dtype = self._family.head_dim, TORCH_DTYPES[self._family.dtype]
        sizes = ((rows, self._nheads), *((keys, self._nheads // 2),) * 2)
        made = (torch.randn(1, n, heads, head_dim + wider, generator=self._draw) for n, heads in sizes)
        q, k, v = (x.to(dtype)[..., :head_dim] for x in made)
        return q.contiguous(), k, v


def _integers(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _largest(x: Tensor) -> float:
    return float(x.abs().max())


def _difference(what: str, found: Tensor, wanted: Tensor, most: float) -> str:
    error = (found.cpu().float() - wanted.float()).abs().max().item()
    if error <= most:  # which NaN is not
        return ""
    return f"{what} differs by {error:.3g} from the PyTorch implementation, and {most:.3g} is allowed"


def _on(inputs: Inputs, where: torch.device) -> Inputs:
    return Inputs(*(_moved(x, where) for x in inputs))


def _moved(x: Some, where: torch.device) -> Some:
    """On the device, with the strides that it has."""
    if x is None or where.type == "cpu":
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=where).copy_(x)


def _endless(name: str) -> str:
    return f"{name}: it did not end within {SECONDS:.0f} s"


def _ended(where: torch.device, launch: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...] | None:
    """What a launch gives; None when the device does not end it in time."""
    if where.type != "cuda":
        return launch()
    # On a stream of its own, so that what does not end holds up nothing else.
    stream = torch.cuda.Stream(where)
    with torch.cuda.stream(stream):
        found = launch()
        event = torch.cuda.Event()
        event.record(stream)
    end = time.monotonic() + SECONDS
    while not event.query():
        if time.monotonic() > end:
            return None
        time.sleep(1e-4)
    return found
