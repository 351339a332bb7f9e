"""The operator ``bwd``, which launches the backward kernels, and the operator ``backward`` around it.

torch.compile takes ``backward`` as one opaque call: the copies are decided at run time.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.arguments import flops
from flash_attn_rocm.arguments.normal_form import DTYPES, BackwardCall, Inputs, Options, is_featured
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back, tell_slower
from flash_attn_rocm.launch import makers, mask_gradients, watched
from flash_attn_rocm.library.plans import BACKWARD as OP
from flash_attn_rocm.library.plans import MASKED_BACKWARD as MASKED_OP
from flash_attn_rocm.library.plans import (
    UNEVEN_BACKWARD,
    Paths,
    Plan,
    backward_wishes,
    fused_sums,
    padded_head_dim,
    uneven_head_dims,
)
from flash_attn_rocm.pieces import flat
from flash_attn_rocm.reference import operators
from flash_attn_rocm.rewrite import chunks, dense_masks, key_masks, sinks
from flash_attn_rocm.serving import resets
from flash_attn_rocm.serving.capture import is_capturing
from flash_attn_rocm.serving.layouts import is_aligned, is_aligned_rows, padded, small_in_rows
from flash_attn_rocm.serving.support import PYTORCH, gradients_plan
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.values.paths import FUSED

BWD = torch.ops.flash_attn_rocm.bwd.default
ARGUMENTS = operators.arguments_of(BWD)
GRADIENTS = torch.ops.flash_attn_rocm.gradients.default  # BWD with memory of its own for the results
READ, PACKED, NUMBERS = Inputs._fields[:3], Inputs._fields[3:6], (*Options._fields[:7], "path")
TENSORS = (*READ, "out", "dout", "lse", *PACKED, "rng_state")  # of GRADIENTS
# In the order of ``_launch`` and ``made``.
GIVEN = (
    *READ, "out", "dout", "lse", "dq", "dk", "dv", "delta", "dq_sums", *PACKED, "rng_state", "attn_mask",
    "dscores", *NUMBERS,
)  # fmt: skip
assert GIVEN == ARGUMENTS, makers.ORDER
assert (*TENSORS, *NUMBERS) == operators.arguments_of(GRADIENTS), makers.ORDER
BACKWARD = (
    f"backward(Tensor dout, Tensor out, Tensor lse, {operators.INPUTS}, {operators.OPTIONS}, "
    "Tensor? rng_state, str arch, int together, bool of_mask) -> Tensor[]"
)
Three = tuple[Tensor, Tensor, Tensor]
Places = tuple[Tensor | None, Tensor | None, Tensor | None]
NO_PLACES: Places = (None, None, None)


def backward(call: BackwardCall, arch: str, together: int = 0, *, of_mask: bool = False) -> list[Tensor]:
    """Gradients of q, k and v, in their shapes and dtype, contiguous.

    The last ``together`` come in one tensor. Then follow the gradient of attn_mask, on request, and the
    gradient of sink, if there is one.
    """
    flops.register()
    found: list[Tensor] = torch.ops.flash_attn_rocm.backward(*operators.flat(call), arch, together, of_mask)
    return found


def answered(
    call: BackwardCall, arch: str, together: int, paths: Paths | None = None, *, of_mask: bool = False
) -> list[Tensor]:
    """``backward`` without the operator around it.

    ``paths`` come with calls whose tensors kernels read in place, except for dout.
    """
    path = _path(call, arch, paths)
    if path == PYTORCH:
        return operators.backward(call, together, of_mask=of_mask)
    reads = paths is not None and is_aligned_rows(call.dout)
    places, found = operators.empty_gradients(call.inputs, together)
    mask, gradient = call.inputs.attn_mask, None
    if mask is not None and of_mask:
        gradient = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    if not reads:
        sums = written(call, arch, path, places, gradient)[1]
    else:
        sums = _in_place(call, path, places, found)
    if mask is not None and gradient is not None:
        found.append(gradient.to(mask.dtype))
    if call.inputs.sink is None:
        return found
    return [*found, sinks.gradient(call.inputs.sink, call.lse, sums)]


def order(places: Inputs) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Sorts (dout, out, lse, rng_state, tensors..., None) for ``made``.

    ``places`` has each of the tensors' number instead of the tensor.
    """
    first = {"dout": 0, "out": 1, "lse": 2, "rng_state": 3}
    behind = {name: len(first) + at for name, at in places._asdict().items() if at is not None}
    return itemgetter(*((first | behind).get(name, -1) for name in TENSORS))


def made(tensors: tuple[Tensor | None, ...], options: Options, path: str) -> Three:
    """The gradients of q, k and v, without mask and sink. Kernels use ``tensors`` in place."""
    return makers.made(GRADIENTS, _gradients, *tensors, *options[:7], path)


def _gradients(*arguments: Given) -> Three:
    """``GRADIENTS`` in Python."""
    q, k, v, out, dout, lse, slopes, cu_q, cu_k, rng_state, *numbers, path = arguments
    inputs = Inputs(q, k, v, slopes, cu_q, cu_k)
    places, found = operators.empty_gradients(inputs)
    _in_place(BackwardCall(dout, out, lse, inputs, Options(*numbers), rng_state), path, places, found)
    return places


def _in_place(call: BackwardCall, path: str, places: Three, found: list[Tensor]) -> Tensor:
    """Writes into ``places``, parts of the tensors ``found``. Returns the sums of dout * out."""
    if call.inputs.cu_seqlens_q is not None:
        for each in found:
            each.zero_()
    sums = torch.empty_like(call.lse, memory_format=torch.contiguous_format)
    _launch(call, path, places, sums)
    return sums


def _path(call: BackwardCall, arch: str, paths: Paths | None) -> str:
    if paths is None:
        return proven(call.inputs, call.options, arch).path
    wishes = backward_wishes()
    if (path := paths.get(wishes)) is None:
        plan = proven(call.inputs, call.options, arch)
        path = plan.path
        if not plan.instead and not is_capturing(call.inputs.q.device):
            paths[wishes] = path
    return path


def proven(inputs: Inputs, options: Options, arch: str) -> Plan:
    """The kernels for these gradients, after a check at their first use. ``pytorch`` if all are disabled.

    Warns about disabled kernels.
    """
    plan = gradients_plan(inputs, options, arch)
    while plan.path != PYTORCH and first_use.gradients_failure(checked, inputs, options, arch, plan.path):
        plan = gradients_plan(inputs, options, arch)
    if plan.path == PYTORCH:
        fall_back(plan.reason, stacklevel=2)
    elif plan.instead:
        tell_slower("separate kernels compute gradients instead of the fused ones", plan.reason, stacklevel=2)
    return plan


def written(
    call: BackwardCall, arch: str, path: str, places: Places = NO_PLACES, of_mask: Tensor | None = None
) -> tuple[Three, Tensor]:
    """The gradients, each in its given place if any, and the sums of dout * out over headdim.

    ``of_mask``, fp32 and shaped like attn_mask, accumulates the mask's gradient. Packed rows outside of all
    sequences, or behind a sequence's first max_seqlen rows, are 0.
    """
    inputs = small_in_rows(call.inputs)
    call = call._replace(inputs=inputs)
    if key_masks.chooses_keys(inputs, call.options):
        return _written_of_sorted(call, arch, path, places)
    if chunks.divide(inputs, call.options):
        return _written_of_chunks(call, arch, path, places)
    head_dim, of_v = _head_dims(call, arch)
    q, k = (padded(x, head_dim) for x in inputs[:2])
    v, out, dout = (padded(x, of_v) for x in (inputs.v, call.out, call.dout))
    ragged = inputs.cu_seqlens_q is not None
    dq, dk, dv = (_place(*each, ragged) for each in zip(places, (q, k, v), strict=True))
    given = Inputs(q, k, v, *inputs[3:])._replace(attn_mask=dense_masks.readable(inputs))
    read = call._replace(dout=dout, out=out, inputs=given)
    delta = torch.zeros_like(call.lse, memory_format=torch.contiguous_format)
    _launch(read, path, (dq, dk, dv), delta, of_mask)
    some = zip(places, (dq, dk, dv), inputs[:3], strict=True)
    dq, dk, dv = (_result(place, found, of.shape[-1]) for place, found, of in some)
    return (dq, dk, dv), delta


def _head_dims(call: BackwardCall, arch: str) -> tuple[int, int]:
    """The kernels' head dims that q and k, and v, are padded to. Equal without kernels for two."""
    inputs, dtype = call.inputs, DTYPES[call.inputs.q.dtype]
    if inputs.attn_mask is not None:
        one = padded_head_dim(arch, dtype, inputs.head_dim, MASKED_OP)
        return one, one
    one = padded_head_dim(arch, dtype, inputs.head_dim, OP)
    found = uneven_head_dims(arch, dtype, inputs.q.shape[-1], inputs.v.shape[-1], UNEVEN_BACKWARD)
    return found if found and not is_featured(inputs, call.options) else (one, one)


def _written_of_chunks(call: BackwardCall, arch: str, path: str, places: Places) -> tuple[Three, Tensor]:
    inputs = call.inputs
    of_q, of_k, of_v = (None if x is None else flat(x) for x in places)
    (dq, dk, dv), sums = written(chunks.cut_call(call), arch, path, (of_q, of_k, of_v))
    gradients = (dq.view_as(inputs.q), dk.view_as(inputs.k), dv.view_as(inputs.v))
    return gradients, chunks.joined_lse(sums, inputs)


def _written_of_sorted(call: BackwardCall, arch: str, path: str, places: Places) -> tuple[Three, Tensor]:
    inputs, (of_q, of_k, of_v) = call.inputs, places
    of_sorted, order = key_masks.cut_call(call)
    (dq, dk, dv), sums = written(of_sorted, arch, path, (None if of_q is None else flat(of_q), None, None))
    dk = key_masks.put_back(dk, order, inputs.k, of_k)
    dv = key_masks.put_back(dv, order, inputs.v, of_v)
    return (dq.view_as(inputs.q), dk, dv), chunks.joined_lse(sums, inputs)


def _launch(
    call: BackwardCall, path: str, gradients: Three, delta: Tensor, of_mask: Tensor | None = None
) -> None:
    """Writes the gradients, and into ``delta`` the sums of dout * out. Kernels use all tensors in place."""
    dout, out, lse, inputs, options, rng_state = call
    dq_sums = _sums(inputs) if path == FUSED else None
    if inputs.sink is not None:
        lse = sinks.for_kernels(lse, inputs.sink)
    arguments = (
        *inputs[:3], out, dout, lse.contiguous(), *gradients, delta, dq_sums, *inputs[3:6],
        rng_state, inputs.attn_mask, None, *options[:7], path,
    )  # fmt: skip
    if of_mask is None:
        BWD(*arguments)
    else:
        mask_gradients.launch(BWD, dict(zip(ARGUMENTS, arguments, strict=True)), of_mask)
    if inputs.sink is not None and inputs.attn_mask is not None:
        sinks.mark(gradients[2], inputs.sink)


def _sums(inputs: Inputs) -> Tensor:
    """Where the fused kernels add up dq."""
    q, ends = inputs.q, inputs.cu_seqlens_q
    sizes = q.shape if ends is None else (ends.shape[0] - 1, *q.shape)
    return q.new_zeros(fused_sums(ends is not None, *sizes), dtype=torch.float32)


def _place(given: Tensor | None, like: Tensor, ragged: bool) -> Tensor:  # noqa: FBT001
    """Where the kernels write: the given tensor if possible, else new memory."""
    usable = given is not None and given.shape == like.shape and given.dtype == like.dtype
    if given is None or not usable or not is_aligned(given):
        given = torch.empty_like(like, memory_format=torch.contiguous_format)
    return given.zero_() if ragged else given


def _result(given: Tensor | None, found: Tensor, head_dim: int) -> Tensor:
    if found is given:
        return found
    found = found if found.shape[-1] == head_dim else found[..., :head_dim].contiguous()
    return found if given is None else given.copy_(found)


def _backward(dout: Tensor, out: Tensor, lse: Tensor, *arguments: object) -> list[Tensor]:
    inputs, options, (rng_state, arch, together, of_mask) = operators.split(arguments)
    assert isinstance(arch, str), "the operator's schema says so"
    assert isinstance(together, int), "the operator's schema says so"
    state = rng_state if isinstance(rng_state, Tensor) else None
    call = BackwardCall(dout, out, lse, inputs, options, state)
    return answered(call, arch, together, of_mask=bool(of_mask))


def checked(call: BackwardCall, arch: str, path: str) -> tuple[Tensor, ...]:
    """For the check at first use, with the gradient of an additive attn_mask."""
    mask = call.inputs.attn_mask
    if mask is None or mask.dtype == torch.bool:
        return written(call, arch, path)[0]
    of_mask = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return *written(call, arch, path, of_mask=of_mask)[0], of_mask


def _backward_fake(_dout: Tensor, _out: Tensor, _lse: Tensor, *arguments: object) -> list[Tensor]:
    inputs, _, (_, _, together, of_mask) = operators.split(arguments)
    return operators.fake_gradients(inputs, together, of_mask)


operators.LIBRARY.define(BACKWARD)
operators.LIBRARY.impl("backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::backward", _backward_fake, lib=operators.LIBRARY)


@torch.library.register_fake(f"{operators.NAMESPACE}::bwd")
def _kernels_fake(*_arguments: object) -> None:
    """Writes into its arguments and returns nothing, so there is no shape to infer."""


def _gradients_fake(q: Tensor, k: Tensor, v: Tensor, *_arguments: object) -> Three:
    return operators.empty_gradients(Inputs(q, k, v))[0]


operators.LIBRARY.impl("gradients", _gradients, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::gradients", _gradients_fake, lib=operators.LIBRARY)
if resets.THREATENED:
    BWD, GRADIENTS = watched.backward(BWD, ARGUMENTS), _gradients
