"""Attention under torch.func (grad, vjp, jvp, vmap) and forward-mode differentiation.

Autograd functions with support for these cost more in each call, and torch.compile rejects them, so other
calls avoid them. They have first derivatives in both modes, and no second ones. A vmap over dense tensors is
one call with a larger batch. Over packed sequences, caches, sinks or dropout it is one call per entry.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active  # the only way to ask
from torch.autograd import forward_ad

from flash_attn_rocm.arguments.normal_form import LEAVES, BackwardCall, Inputs, Options
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.reference import operators
from flash_attn_rocm.values.given import Given

Three = tuple[Tensor, Tensor, Tensor]
Dims = tuple[Any, ...]
NO_SECOND = (
    "attention has no second derivative\n"
    "  next: differentiate once: with torch.func.grad, vjp, jacrev, jvp or jacfwd, not one inside another"
)
NO_CODES = (
    "attention with 8 bits has no derivative and no vmap\n"
    "  next: call it outside of torch.func and of forward-mode differentiation"
)
SLOPES, MASK = (Inputs._fields.index(name) - LEAVES for name in ("alibi_slopes", "attn_mask"))


@dataclass(frozen=True)
class Call:
    """``forward`` and ``backward`` compute a call with these options. ``by_kernel``: whether kernels do."""

    options: Options
    by_kernel: bool
    forward: Callable[[Inputs, Options, Tensor | None], Three]
    backward: Callable[[BackwardCall], Sequence[Tensor]]


def is_active() -> bool:
    """Whether a transform of torch.func or forward-mode differentiation is going on."""
    return bool(_are_functorch_transforms_active()) or forward_ad._current_level >= 0  # noqa: SLF001 - the only way to ask


def leave_graph() -> None:
    """Breaks the graph under torch.compile: as operators of a graph, transformed calls would give zeros."""
    if is_active():
        torch._dynamo.graph_break("a derivative or vmap of attention")  # noqa: SLF001


def refuse_tangents(function: str, tensors: Sequence[Any]) -> None:
    """Raises RuntimeError if forward mode differentiates a function without derivatives."""
    if not is_active():
        return
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors if _is_real(x)):
        message = (
            f"{function} has no derivatives, and forward-mode differentiation asks for one\n"
            "  next: call flash_attn_func or flash_attn_varlen_func"
        )
        raise RuntimeError(message)


def refuse_codes() -> None:
    """Raises RuntimeError if a transform of a call with 8 bits is going on."""
    if is_active():
        raise RuntimeError(NO_CODES)


def attend(call: Call, state: Tensor | None, inputs: Inputs) -> Three:
    """out, the log-sum-exp and the probabilities, differentiable. ``state`` is the key of dropout."""
    if inputs.coded:
        refuse_codes()
    found: Three = _Attention.apply(call, state, *inputs[:LEAVES])
    return found


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(call: Call, state: Tensor | None, *tensors: Tensor | None) -> Three:
        return call.forward(Inputs(*tensors), call.options, state)

    @staticmethod
    def setup_context(ctx: Given, inputs: tuple[Any, ...], output: Three) -> None:
        call, state, *tensors = inputs
        out, lse, probabilities = output
        ctx.call = call
        ctx.save_for_backward(out, lse, state, *tensors)
        ctx.save_for_forward(out, lse, state, *tensors)
        ctx.mark_non_differentiable(lse, probabilities)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Given, dout: Tensor | None, *_unused: None) -> tuple[Tensor | None, ...]:
        if dout is None:
            return (None,) * (2 + LEAVES)
        if ctx.needs_input_grad[MASK]:
            message = (
                "attention has no derivative by attn_mask under torch.func\n"
                "  next: use backward() or torch.autograd.grad"
            )
            raise RuntimeError(message)
        found = _Gradients.apply(ctx.call, dout, *ctx.saved_tensors)
        of_sink = ctx.saved_tensors[-1] is not None
        return None, None, *operators.placed(found, LEAVES, of_sink=of_sink)

    @staticmethod
    def jvp(ctx: Given, _call: None, _state: None, *tangents: Tensor | None) -> tuple[Tensor | None, ...]:
        out, lse, state, *tensors = ctx.saved_tensors
        if any(x is not None for x in tangents[3:]):
            message = (
                "attention has such derivatives by q, k and v only; alibi_slopes, attn_mask or sink has a "
                "tangent"
            )
            raise RuntimeError(message)
        if all(x is None for x in tangents[:3]):
            return None, None, None
        given = [torch.zeros_like(x) if t is None else t for t, x in zip(tangents, tensors[:3], strict=False)]
        return _Tangent.apply(ctx.call, out, lse, state, *given, *tensors), None, None

    @staticmethod
    def vmap(info: Given, in_dims: Dims, call: Call, state: Tensor | None, *tensors: Tensor | None) -> Given:
        return _mapped(_Attention, info.batch_size, in_dims, (call, state, *tensors))


class _Final(torch.autograd.Function):
    """A derivative, without derivatives of its own."""

    @staticmethod
    def setup_context(ctx: Given, inputs: tuple[Any, ...], output: Given) -> None:
        pass

    @staticmethod
    def backward(_ctx: Given, *_gradients: Tensor) -> Given:
        raise RuntimeError(NO_SECOND)

    @staticmethod
    def jvp(_ctx: Given, *_tangents: Tensor | None) -> Given:
        raise RuntimeError(NO_SECOND)


class _Gradients(_Final):
    """The gradients of q, k, v and, if present, sink, from the gradient of out."""

    @staticmethod
    def forward(
        call: Call, dout: Tensor, out: Tensor, lse: Tensor, state: Tensor | None, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        return tuple(call.backward(BackwardCall(dout, out, lse, Inputs(*tensors), call.options, state)))

    @staticmethod
    def vmap(info: Given, in_dims: Dims, *arguments: Given) -> Given:
        return _mapped(_Gradients, info.batch_size, in_dims, arguments)


class _Tangent(_Final):
    """The tangent of out, from the tangents of q, k and v."""

    @staticmethod
    def forward(
        call: Call,
        out: Tensor,
        lse: Tensor,
        state: Tensor | None,
        q_tangent: Tensor,
        k_tangent: Tensor,
        v_tangent: Tensor,
        *tensors: Tensor | None,
    ) -> Tensor:
        if call.by_kernel:
            fall_back("kernels compute no forward-mode derivatives", stacklevel=2)
        tangents = (q_tangent, k_tangent, v_tangent)
        return operators.tangent(tangents, out, lse, Inputs(*tensors), call.options, state)

    @staticmethod
    def vmap(info: Given, in_dims: Dims, *arguments: Given) -> Given:
        return _mapped(_Tangent, info.batch_size, in_dims, arguments)


def _mapped(
    function: type[torch.autograd.Function], size: int, in_dims: Dims, arguments: tuple[Any, ...]
) -> tuple[Any, Any]:
    """The results of ``size`` calls, stacked along a new first dimension, and which results have it.

    ``arguments`` begin with a Call and end in the fields of Inputs. All between are like q or None.
    """
    inputs = Inputs(*arguments[-LEAVES:])
    by_entry = (*inputs.integers, inputs.sink)  # sinks have no batch
    if arguments[0].options.dropout_p > 0.0 or any(x is not None for x in by_entry):
        entries = (
            [_entry(x, dim, i) for x, dim in zip(arguments, in_dims, strict=True)] for i in range(size)
        )
        each = [function.apply(*entry) for entry in entries]
        if isinstance(each[0], Tensor):
            return torch.stack(each), 0
        return tuple(torch.stack(some) for some in zip(*each, strict=True)), (0,) * len(each[0])
    folded = [_folded(x, dim, size) for x, dim in zip(arguments, in_dims, strict=True)]
    batch = folded[-LEAVES].shape[0] // size
    folded[SLOPES] = _folded_slopes(inputs.alibi_slopes, in_dims[SLOPES], size, batch)
    folded[MASK] = _folded_mask(inputs.attn_mask, in_dims[MASK], size, batch)
    found = function.apply(*folded)
    if isinstance(found, Tensor):
        return found.unflatten(0, (size, batch)), 0
    dims = tuple(0 if x.dim() > 1 else None for x in found)  # Unwanted probabilities are empty.
    return tuple(
        x if dim is None else x.unflatten(0, (size, batch)) for x, dim in zip(found, dims, strict=True)
    ), dims


def _entry(x: Given, dim: int | None, i: int) -> Given:
    return x if dim is None else x.select(dim, i)


def _first(x: Tensor, dim: int | None, size: int) -> Tensor:
    """With the mapped dimension first."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _folded(x: Given, dim: int | None, size: int) -> Given:
    """(…, batch, …) mapped ``size`` times to (size * batch, …)."""
    return _first(x, dim, size).flatten(0, 1) if isinstance(x, Tensor) else x


def _folded_slopes(slopes: Tensor | None, dim: int | None, size: int, batch: int) -> Tensor | None:
    if slopes is None or (dim is None and slopes.dim() == 1):
        return slopes
    first = _first(slopes, dim, size)
    first = first[:, None].expand(size, batch, -1) if first.dim() == 2 else first
    return first.flatten(0, 1)


def _folded_mask(mask: Tensor | None, dim: int | None, size: int, batch: int) -> Tensor | None:
    if mask is None or (dim is None and mask.shape[0] == 1):
        return mask
    first = _first(mask, dim, size)
    return first.expand(size, batch, *first.shape[2:]).flatten(0, 1)


def _is_real(x: Given) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()
