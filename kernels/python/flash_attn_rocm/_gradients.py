"""The operator ``bwd``, which launches the backward kernels, and around it the operator ``backward``, which
torch.compile takes as one opaque call: what is copied is decided when it runs."""

import torch
from torch import Tensor

from flash_attn_rocm import _canary, _ops
from flash_attn_rocm._layout import is_aligned, padded
from flash_attn_rocm._notice import fall_back
from flash_attn_rocm._options import DTYPES, Inputs, Options
from flash_attn_rocm._plan import BACKWARD as OP
from flash_attn_rocm._plan import padded_head_dim

BWD = torch.ops.flash_attn_rocm.bwd.default
BACKWARD = (
    f"backward(Tensor dout, Tensor out, Tensor lse, {_ops.INPUTS}, {_ops.OPTIONS}, Tensor? rng_state, "
    "str arch, int together) -> Tensor[]"
)
Three = tuple[Tensor, Tensor, Tensor]
Places = tuple[Tensor | None, Tensor | None, Tensor | None]
NO_PLACES: Places = (None, None, None)


def backward(
    dout: Tensor,
    out: Tensor,
    lse: Tensor,
    inputs: Inputs,
    options: Options,
    rng_state: Tensor | None,
    arch: str,
    together: int = 0,
) -> list[Tensor]:
    """Gradients of q, k and v, in their shapes and dtype, contiguous, the last ``together`` in one tensor."""
    found: list[Tensor] = torch.ops.flash_attn_rocm.backward(
        dout, out, lse, *inputs, *options, rng_state, arch, together
    )
    return found


def written(
    dout: Tensor,
    out: Tensor,
    lse: Tensor,
    inputs: Inputs,
    options: Options,
    rng_state: Tensor | None,
    arch: str,
    places: Places = NO_PLACES,
) -> tuple[Three, Tensor]:
    """The gradients, each in its place where one is given, and the sums of dout * out over headdim.

    Rows of packed sequences that belong to none are 0.
    """
    wanted = inputs.q.shape[-1]
    head_dim = padded_head_dim(arch, DTYPES[inputs.q.dtype], wanted, OP)
    q, k, v, out, dout = (padded(x, head_dim) for x in (*inputs[:3], out, dout))
    ragged = inputs.cu_seqlens_q is not None
    dq, dk, dv = (_place(*each, ragged) for each in zip(places, (q, k, v), strict=True))
    delta = _launch(dout, lse, Inputs(q, k, v, *inputs[3:]), options, rng_state, out, (dq, dk, dv))
    some = zip(places, (dq, dk, dv), strict=True)
    dq, dk, dv = (_result(place, found, wanted) for place, found in some)
    return (dq, dk, dv), delta


def _launch(
    dout: Tensor,
    lse: Tensor,
    inputs: Inputs,
    options: Options,
    rng_state: Tensor | None,
    out: Tensor,
    gradients: Three,
) -> Tensor:
    """The sums of dout * out; the kernels can read and write all tensors as they are."""
    q, k, v, slopes, cu_q, cu_k, *_ = inputs
    scale, left, right, softcap, dropout_p, max_q, max_k, _ = options
    delta = torch.empty_like(lse, memory_format=torch.contiguous_format)
    BWD(
        q, k, v, out, dout, lse.contiguous(), *gradients, delta, slopes, cu_q, cu_k, rng_state, max_q, max_k,
        scale, left, right, softcap, dropout_p,
    )  # fmt: skip
    return delta


def _place(given: Tensor | None, like: Tensor, ragged: bool) -> Tensor:  # noqa: FBT001
    """Where the kernels write: what is given if they can, else new memory."""
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
    inputs, options, (rng_state, arch, together) = _ops.split(arguments)
    assert isinstance(arch, str), "the operator's schema says so"
    assert isinstance(together, int), "the operator's schema says so"
    state = rng_state if isinstance(rng_state, Tensor) else None
    return answered(dout, out, lse, inputs, options, state, arch, together)


def answered(
    dout: Tensor,
    out: Tensor,
    lse: Tensor,
    inputs: Inputs,
    options: Options,
    rng_state: Tensor | None,
    arch: str,
    together: int,
) -> list[Tensor]:
    """``backward`` without the operator around it."""
    if failure := unproven(inputs, arch):
        fall_back(failure, stacklevel=2)
        return _ops.backward(dout, out, lse, inputs, options, rng_state, together)
    places, found = _ops.empty_gradients(inputs, together)
    written(dout, out, lse, inputs, options, rng_state, arch, places)
    return found


def decided(
    dout: Tensor,
    out: Tensor,
    lse: Tensor,
    inputs: Inputs,
    options: Options,
    rng_state: Tensor | None,
    arch: str,
    together: int,
) -> list[Tensor]:
    """The same where the forward's kernel took the inputs as they are (``_recall``): so do these kernels."""
    head_dim = inputs.q.shape[-1]
    served = padded_head_dim(arch, DTYPES[inputs.q.dtype], head_dim, OP) == head_dim
    if not served or not is_aligned(dout) or unproven(inputs, arch):
        return answered(dout, out, lse, inputs, options, rng_state, arch, together)
    places, found = _ops.empty_gradients(inputs, together)
    if inputs.cu_seqlens_q is not None:
        for gradient in found:
            gradient.zero_()
    _launch(dout, lse, inputs, options, rng_state, out, places)
    return found


def unproven(inputs: Inputs, arch: str) -> str:
    """Why the kernels for these inputs are switched off, by a check at their first use, or ""."""
    return _canary.gradients_failure(_answer, inputs, arch)


def _answer(
    dout: Tensor,
    out: Tensor,
    lse: Tensor,
    inputs: Inputs,
    options: Options,
    rng_state: Tensor | None,
    arch: str,
) -> Three:
    return written(dout, out, lse, inputs, options, rng_state, arch)[0]


def _backward_fake(_dout: Tensor, _out: Tensor, _lse: Tensor, *arguments: object) -> list[Tensor]:
    inputs, _, (_, _, together) = _ops.split(arguments)
    return _ops.empty_gradients(inputs, together)[1]


_ops.LIBRARY.define(BACKWARD)
_ops.LIBRARY.impl("backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake(f"{_ops.NAMESPACE}::backward", _backward_fake, lib=_ops.LIBRARY)


@torch.library.register_fake(f"{_ops.NAMESPACE}::bwd")
def _kernels_fake(*_arguments: object) -> None:
    """Writes into its arguments and returns nothing, so there is no shape to infer."""
