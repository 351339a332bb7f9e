"""Repeated calls go straight to their kernel.

Argument checks and the choice of path and layout depend on shapes, strides, types and numbers, never on
values in tensors. So each decision is stored under everything it depends on, and the next layer's identical
call reuses it. Decisions of calls with copies are left out.
"""

from collections.abc import Callable, Hashable
from itertools import takewhile
from marshal import dumps, loads
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import _len_torch_dispatch_stack  # the only way to ask
from torch.compiler import is_compiling

from flash_attn_rocm.arguments.normal_form import DTYPES, Inputs, Options, is_featured
from flash_attn_rocm.autograd import transforms
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.launch import backward_pass, forward_pass
from flash_attn_rocm.library.plans import (
    BACKWARD,
    UNEVEN_BACKWARD,
    Paths,
    Plan,
    padded_head_dim,
    uneven_head_dims,
)
from flash_attn_rocm.reference import philox
from flash_attn_rocm.rewrite import chunks
from flash_attn_rocm.serving import machine
from flash_attn_rocm.serving.layouts import ADDRESS_BITS, choose, small_in_rows
from flash_attn_rocm.serving.support import device_of, gradients_unserved, unserved

MOST = 2048  # decisions of a few hundred bytes each
PLAIN = frozenset({bool, float, int, type(None)})
WITHOUT_REFERENCES = 2  # marshal's format. Later ones depend on reference counts
Unpack = Callable[..., Inputs]
Signature = tuple[Any, ...]


class Decision(NamedTuple):
    """``unpack`` turns the given tensors into Inputs. The other fields are the decisions for them.

    ``no_gradients``: the reason against gradients by kernels, or "". None for calls in forward only.
    ``paths`` collects the decisions about gradients. None where gradients need copies. ``absent``: what
    ``unpack`` takes behind the last given tensor.

    ``in_place``, for gradients in one step: sorts dout, the saved tensors and None for
    ``backward_pass.made``. ``without``: the gradients behind those of q, k and v.
    """

    unpack: Unpack
    options: Options
    arch: str
    plan: Plan
    no_gradients: str | None
    paths: Paths | None
    absent: tuple[None, ...]
    in_place: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    without: tuple[None, ...] = ()


def signature(unpack: Unpack, tensors: tuple[Any, ...], numbers: tuple[Any, ...]) -> Signature | None:
    """Everything a decision depends on, or None for calls of other kinds.

    ``numbers`` are the arguments other than tensors, and end in window_size. Their bytes tell types apart:
    1 == 1.0 == True, and only some of these are valid.
    """
    if is_compiling() or is_watched():
        return None
    differentiable = torch.is_grad_enabled()
    try:
        key: list[Any] = [unpack, dumps(numbers, WITHOUT_REFERENCES)]
        for x in tensors:
            if x is None:
                key.append(None)
            elif type(x) is not Tensor:
                return None
            else:
                wanted = differentiable and x.requires_grad
                key += (x.shape, x.stride(), x.dtype, x.device, x.data_ptr() & ADDRESS_BITS, wanted)
    except (RuntimeError, ValueError):  # a tensor without memory, a number of another library
        return None
    return tuple(key)


def known() -> dict[Hashable, Decision]:
    """Decisions about calls, by signature."""
    return machine.current().decisions


def is_watched() -> bool:
    """Whether a dispatch mode, a transform of torch.func or forward-mode differentiation is active.

    It observes each operator, so every call must then run all of them.
    """
    return bool(_len_torch_dispatch_stack()) or transforms.is_active()


def is_plain(x: Tensor) -> bool:
    """Whether the tensor is plain memory, so that a kernel can be launched on it at once."""
    return type(x) is Tensor and not is_watched()


def decided(
    key: Signature | None,
    unpack: Unpack,
    tensors: tuple[Any, ...],
    inputs: Inputs,
    options: Options,
    together: int = 0,
) -> Decision | None:
    """The decision about calls with this signature, now stored if possible, else None.

    The last ``together`` of q, k and v are one tensor.
    """
    chunked = options.chunk and chunks.divide(inputs, options)
    if key is None or inputs.attn_mask is not None or chunked or unserved(inputs, options):
        return None
    if small_in_rows(inputs) is not inputs:
        return None
    device = device_of(inputs.q.device)
    layout = choose(inputs, options, device)
    if not layout.as_it_is or first_use.failure(forward_pass.answer, inputs, options, device) != "":
        return None  # also without a finding about the kernels: the next call asks again
    *numbers, window = loads(key[1])  # noqa: S302 - of ``signature``
    if type(window) is not tuple or not PLAIN.issuperset(map(type, (*numbers, *window))):
        return None  # numbers of other libraries became bytes
    decisions = known()
    if len(decisions) >= MOST:
        decisions.clear()
    no_gradients = gradients_unserved(inputs, options) if inputs.wants_gradients else None
    reads = no_gradients is not None and _gradients_read_them(inputs, options, device.arch)
    paths: Paths | None = {} if reads else None
    absent = (None,) * sum(1 for _ in takewhile(lambda x: x is None, reversed(tensors)))
    found = Decision(unpack, options, device.arch, layout.plan, no_gradients, paths, absent)
    if reads and not together and inputs.sink is None:
        given = len(tensors) - len(absent)
        places = unpack(*range(given), *absent)
        found = found._replace(in_place=backward_pass.order(places), without=(None,) * (given - 3))
    decisions[key] = found
    return found


def _gradients_read_them(inputs: Inputs, options: Options, arch: str) -> bool:
    """Whether kernels read q, k and v in place for gradients, given aligned tensors."""
    dtype, head_dim, of_v = DTYPES[inputs.q.dtype], inputs.q.shape[-1], inputs.v.shape[-1]
    if of_v == head_dim:
        return padded_head_dim(arch, dtype, head_dim, BACKWARD) == head_dim
    found = uneven_head_dims(arch, dtype, head_dim, of_v, UNEVEN_BACKWARD)
    return found == (head_dim, of_v) and not is_featured(inputs, options)


def forget() -> None:
    """Forget all decisions."""
    known().clear()


def launched(found: Decision, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """out and the log-sum-exp of a call, by the decision made for its signature."""
    state = philox.new_state(inputs[0].device) if found.options.dropout_p > 0.0 else None
    return forward_pass.launch(inputs, found.options, state, found.plan)
