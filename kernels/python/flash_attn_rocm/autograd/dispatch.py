"""Sends a call to a kernel or to the PyTorch implementation, and connects it to autograd."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from flash_attn_rocm.arguments import normal_form
from flash_attn_rocm.arguments.checks import refusal
from flash_attn_rocm.arguments.normal_form import (
    LEAVES,
    BackwardCall,
    FlashAttnArgumentError,
    Inputs,
    Options,
)
from flash_attn_rocm.autograd import recall, transforms
from flash_attn_rocm.diagnosis.notice import FlashAttnUnsupportedError, fall_back
from flash_attn_rocm.launch import backward_pass, dequantising, forward_pass, fp8
from flash_attn_rocm.library.plans import backward_wishes
from flash_attn_rocm.reference import operators, philox
from flash_attn_rocm.serving.layouts import is_aligned_rows
from flash_attn_rocm.serving.support import device_of, gradients_unserved, unserved
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.wrapped import unwrapping

Three = tuple[Tensor, Tensor, Tensor]
Answer: TypeAlias = Tensor | Three
SAME_NAMES: Mapping[str, str] = MappingProxyType({})
MASK = Inputs._fields.index("attn_mask") - LEAVES
CALLERS = 6  # stack frames from the warning to the line that called the public function


class Function(NamedTuple):
    """How a public function reads its arguments: tensors first, then numbers.

    The last tensors of functions that take 8 bits are q_descale, k_descale and v_descale.

    ``prepare`` checks everything. ``unpack`` only sorts the tensors, for calls with a known signature. The
    last ``together`` (0, 2 or 3) of q, k and v come in one tensor. ``arguments`` maps the common argument
    names to the function's names.
    """

    name: str
    prepare: Callable[..., tuple[Inputs, Options]]
    unpack: Callable[..., Inputs]
    together: int = 0
    arguments: Mapping[str, str] = SAME_NAMES

    def packed(self, tensors: tuple[Any, ...]) -> Tensor | None:
        """The tensor that packs several of q, k and v."""
        return tensors[3 - self.together] if self.together else None


def call(
    function: Function,
    tensors: tuple[Any, ...],
    numbers: tuple[Any, ...],
    want_probabilities: bool,  # noqa: FBT001
) -> Answer:
    """out, and on request the log-sum-exp and the probabilities. ``numbers`` end in window_size."""
    key = recall.signature(function.unpack, tensors, numbers)
    found = None if key is None else recall.known().get(key)
    if found is None or (want_probabilities and found.options.dropout_p):
        if key is None and (inside := unwrapping.inside(function.name, function.together, tensors, numbers)):
            answers = call(function, inside.tensors, inside.numbers, want_probabilities)
            if isinstance(answers, Tensor):
                return inside.like(0, answers)
            out, lse, probabilities = (inside.like(place, x) for place, x in enumerate(answers))
            return out, lse, probabilities
        inputs, options = function.prepare(*tensors, *numbers)
        key = None if want_probabilities and options.dropout_p else key  # the decision is for other calls
        found = recall.decided(key, function.unpack, tensors, inputs, options, function.together)
    try:
        if found is None:
            if normal_form.is_quantised(inputs):
                if (answer := of_codes(inputs, options, tensors[-3])) is not None:
                    return answer if want_probabilities else answer[0]
                inputs = numbers_of(inputs, tensors[-3])
            packed, together = function.packed(tensors), function.together
            answer = attend(
                inputs, options, want_probabilities=want_probabilities, packed=packed, together=together
            )
            return answer if want_probabilities else answer[0]
        if found.no_gradients is not None:
            given = tensors[: len(tensors) - len(found.absent)]
            answer = APPLY((found, function.together, want_probabilities), *given)
            return (*answer, answer[0].new_empty(0)) if want_probabilities else answer
        out, lse = recall.launched(found, found.unpack(*tensors))
    except (FlashAttnArgumentError, FlashAttnUnsupportedError) as error:
        raise named(error, function.name, function.arguments) from None
    return (out, lse, out.new_empty(0)) if want_probabilities else out


def of_codes(inputs: Inputs, options: Options, q_descale: Tensor | None) -> Three | None:
    """Attention by products of codes, of checked arguments of 8 bits. None: no kernel has them."""
    if torch.compiler.is_compiling():
        transforms.leave_graph()
    transforms.refuse_codes()
    return fp8.attend(inputs, options, q_descale)


def numbers_of(inputs: Inputs, q_descale: Tensor | None) -> Inputs:
    """The call over numbers of 16 bits, of checked arguments of 8 bits."""
    if torch.compiler.is_compiling():
        transforms.leave_graph()
    transforms.refuse_codes()
    return dequantising.dequantised(inputs, q_descale)


def named(
    error: FlashAttnArgumentError | FlashAttnUnsupportedError,
    function: str,
    arguments: Mapping[str, str] = SAME_NAMES,
) -> FlashAttnArgumentError | FlashAttnUnsupportedError:
    """The error with the names of the called function and of its ``arguments``."""
    if isinstance(error, FlashAttnUnsupportedError):
        return FlashAttnUnsupportedError(f"{function}: {error}")
    split = (each.partition(":") for each in error.problems)
    return refusal(function, [f"{arguments.get(name, name)}:{rest}" for name, _, rest in split])


def attend(
    inputs: Inputs,
    options: Options,
    *,
    want_probabilities: bool = False,
    packed: Tensor | None = None,
    together: int = 0,
) -> Three:
    """Differentiable attention of checked arguments.

    ``packed`` holds the last ``together`` of q, k and v, and then gets one gradient for them.
    Returns out like q, the log-sum-exp (batch, nheads, seqlen_q) fp32, (nheads, total_q) of packed
    sequences, and with dropout when wanted the probabilities, otherwise an empty tensor.
    """
    reason = _reason(inputs, options, want_probabilities=want_probabilities)
    drops = options.dropout_p > 0.0
    state = operators.new_state(inputs) if drops else None
    want = want_probabilities and drops
    if torch.compiler.is_compiling():
        transforms.leave_graph()
    elif transforms.is_active():
        return transforms.attend(
            _transformed(inputs, options, by_kernel=not reason, want=want), state, inputs
        )
    if normal_form.wants_gradients(inputs):
        no_gradients = gradients_unserved(inputs, options)
        tensors = _leaves(_distinct(inputs), packed, together)
        found: Three = _Attention.apply(options, state, not reason, no_gradients, want, together, *tensors)
        return found
    return _forward(inputs, options, state, by_kernel=not reason, want_probabilities=want)


def forward(inputs: Inputs, options: Options, state: Tensor | None, *, want_probabilities: bool) -> Three:
    """Attention without gradients. ``state`` is the key for dropout."""
    by_kernel = not _reason(inputs, options, want_probabilities=want_probabilities)
    return _forward(inputs, options, state, by_kernel=by_kernel, want_probabilities=want_probabilities)


def _reason(inputs: Inputs, options: Options, *, want_probabilities: bool) -> str:
    """Why the PyTorch implementation answers (and warns), or ""."""
    reason = unserved(inputs, options, want_probabilities=want_probabilities)
    if reason:
        fall_back(reason, stacklevel=CALLERS)
    return reason


def _distinct(inputs: Inputs) -> Inputs:
    """Distinct views: torch.compile rejects an autograd function with one tensor given twice."""
    q, k, v, cu_k = inputs.q, inputs.k, inputs.v, inputs.cu_seqlens_k
    if v is q or v is k:
        inputs = inputs._replace(v=v.view_as(v))
    if k is q:
        inputs = inputs._replace(k=k.view_as(k))
    if cu_k is inputs.cu_seqlens_q and cu_k is not None:
        inputs = inputs._replace(cu_seqlens_k=cu_k.view_as(cu_k))
    return inputs


def _leaves(inputs: Inputs, packed: Tensor | None, together: int) -> tuple[Tensor | None, ...]:
    """The tensors for autograd, with ``packed`` instead of the last ``together`` of q, k and v."""
    leaves = inputs[:LEAVES]
    return leaves if packed is None else (*leaves[: 3 - together], packed, *leaves[3:])


def _unpacked(tensors: Sequence[Tensor | None], together: int) -> Inputs:
    """Inputs from ``tensors``, where one tensor holds the last ``together`` of q, k and v."""
    place = 3 - together
    packed = tensors[place]
    if not together or packed is None:
        return Inputs(*tensors)
    return Inputs(*tensors[:place], *packed.unbind(-3), *tensors[place + 1 :])


def _forward(
    inputs: Inputs, options: Options, state: Tensor | None, *, by_kernel: bool, want_probabilities: bool
) -> Three:
    if by_kernel:
        device = device_of(inputs.q.device)
        return *forward_pass.forward(inputs, options, state, device), inputs.q.new_empty(0)
    return operators.forward(inputs, options, state, want_probabilities=want_probabilities)


def _backward(
    call: BackwardCall, no_gradients: str, together: int = 0, *, of_mask: bool = False
) -> list[Tensor]:
    if no_gradients:
        return operators.backward(call, together, of_mask=of_mask)
    return backward_pass.backward(call, device_of(call.inputs.q.device).arch, together, of_mask=of_mask)


def _transformed(inputs: Inputs, options: Options, *, by_kernel: bool, want: bool) -> transforms.Call:
    no_gradients = gradients_unserved(inputs, options)
    return transforms.Call(
        options,
        by_kernel,
        partial(_forward, by_kernel=by_kernel, want_probabilities=want),
        partial(_backward, no_gradients=no_gradients),
    )


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Given,
        options: Options,
        state: Tensor | None,
        by_kernel: bool,  # noqa: FBT001 - autograd passes by position
        no_gradients: str,
        want_probabilities: bool,  # noqa: FBT001
        together: int,
        *tensors: Tensor | None,
    ) -> Three:
        out, lse, probabilities = _forward(
            _unpacked(tensors, together),
            options,
            state,
            by_kernel=by_kernel,
            want_probabilities=want_probabilities,
        )
        ctx.save_for_backward(out, lse, state, *tensors)
        ctx.options, ctx.together = options, together
        ctx.by_kernel, ctx.no_gradients = by_kernel, no_gradients
        ctx.mark_non_differentiable(lse, probabilities)
        return out, lse, probabilities

    @staticmethod
    def backward(ctx: Given, dout: Tensor, *_unused: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        out, lse, state, *tensors = ctx.saved_tensors
        call = BackwardCall(dout, out, lse, _unpacked(tensors, ctx.together), ctx.options, state)
        if ctx.by_kernel and ctx.no_gradients:  # without kernels the forward pass has already warned
            fall_back(ctx.no_gradients, stacklevel=2)
        of_mask = ctx.needs_input_grad[MASK]
        gradients = _backward(call, ctx.no_gradients, ctx.together, of_mask=of_mask)
        of_sink = call.inputs.sink is not None
        return (None,) * 6 + operators.placed(gradients, len(tensors), of_mask=of_mask, of_sink=of_sink)


class _Recalled(torch.autograd.Function):
    """A call with a stored decision, with minimal overhead around its kernels.

    It is never traced. ``tensors`` are the arguments of the public function, without absent ones at the end.
    """

    @staticmethod
    def forward(
        ctx: Given, call: tuple[recall.Decision, int, bool], *tensors: Tensor | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        found, together, want_lse = call
        inputs = found.unpack(*tensors, *found.absent)
        state = philox.new_state(inputs.q.device) if found.options.dropout_p > 0.0 else None
        out, lse = forward_pass.launch(inputs, found.options, state, found.plan)
        ctx.found = found, together
        ctx.save_for_backward(out, lse, state, *tensors)
        ctx.set_materialize_grads(False)  # otherwise autograd makes a tensor of zeros for lse
        if not want_lse:
            return out
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Given, dout: Tensor | None, *_unused: None) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        (found, together), saved = ctx.found, ctx.saved_tensors
        if dout is None:
            return (None,) * (len(saved) - 2)
        is_plain, path = recall.is_plain(dout), None
        if is_plain and found.in_place is not None and is_aligned_rows(dout):
            path = found.paths.get(backward_wishes())
        if path is not None:
            tensors = found.in_place((dout, *saved, None))
            return None, *backward_pass.made(tensors, found.options, path), *found.without
        out, lse, state, *tensors = saved
        inputs = found.unpack(*tensors, *found.absent)
        call = BackwardCall(dout, out, lse, inputs, found.options, state)
        if found.no_gradients:
            fall_back(found.no_gradients, stacklevel=2)
            gradients = operators.backward(call, together)
        elif is_plain:
            gradients = backward_pass.answered(call, found.arch, together, found.paths)
        else:
            gradients = backward_pass.backward(call, found.arch, together)
        return None, *operators.placed(gradients, len(tensors), of_sink=inputs.sink is not None)


# As Function.apply outside of torch.func, where no argument can be a wrapper left over from it.
APPLY = super(torch.autograd.Function, _Recalled).apply


def _refuse_second_derivative() -> None:
    # With create_graph=True. PyTorch's once_differentiable would accept some of these calls.
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        message = (
            "attention has no second derivative, which create_graph=True asks for\n"
            "  next: call backward() or grad() without it"
        )
        raise RuntimeError(message)
