"""The PyTorch implementation as operators: torch.compile takes each as one opaque call.

They support every feature on every device, and read lengths and indices on the host.
"""

import itertools
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from flash_attn_rocm.arguments import flops, normal_form
from flash_attn_rocm.arguments.normal_form import BackwardCall, Inputs, Options, arithmetic
from flash_attn_rocm.reference import dense, philox
from flash_attn_rocm.reference.blocks import Dropout
from flash_attn_rocm.reference.sequences import Part, parts
from flash_attn_rocm.rewrite import key_masks, sinks
from flash_attn_rocm.values.tracing import constant_when_traced

NAMESPACE = "flash_attn_rocm"
# Of the fields of Inputs and Options, as operators declare them.
TYPES = {float: "float", int: "SymInt", bool: "bool"}
INPUTS = ", ".join(f"Tensor{'?' * (name in Inputs._field_defaults)} {name}" for name in Inputs._fields)
OPTIONS = ", ".join(f"{TYPES[type_]} {name}" for name, type_ in Options.__annotations__.items())
FORWARD = (
    f"pytorch_forward({INPUTS}, {OPTIONS}, Tensor? rng_state, bool want_probabilities) "
    "-> (Tensor, Tensor, Tensor)"
)
BACKWARD = (
    f"pytorch_backward(Tensor dout, Tensor out, Tensor lse, {INPUTS}, {OPTIONS}, Tensor? rng_state, "
    "int together, bool of_mask) -> Tensor[]"
)
TANGENT = (
    "pytorch_tangent(Tensor q_tangent, Tensor k_tangent, Tensor v_tangent, Tensor out, Tensor lse, "
    f"{INPUTS}, {OPTIONS}, Tensor? rng_state) -> Tensor"
)
DRAW = "draw(int number, *, Device device) -> Tensor"
DRAWS = itertools.count()
FIELDS = len(Inputs._fields) + len(Options._fields)
Three = tuple[Tensor, Tensor, Tensor]


def forward(inputs: Inputs, options: Options, rng_state: Tensor | None, *, want_probabilities: bool) -> Three:
    """out, the log-sum-exp, and the probabilities in q's dtype, negative where dropped by dropout.

    Probabilities are (batch, nheads, max_seqlen_q, max_seqlen_k) on request, else (0,).
    """
    flops.register()
    found: Three = torch.ops.flash_attn_rocm.pytorch_forward(*inputs, *options, rng_state, want_probabilities)
    return found


def backward(call: BackwardCall, together: int = 0, *, of_mask: bool = False) -> list[Tensor]:
    """Gradients of q, k and v, in their shapes and dtype, the last ``together`` in one tensor.

    Then follow the gradient of attn_mask, on request, and the gradient of sink, if there is one.
    """
    flops.register()
    found: list[Tensor] = torch.ops.flash_attn_rocm.pytorch_backward(*flat(call), together, of_mask)
    return found


def tangent(
    tangents: Three, out: Tensor, lse: Tensor, inputs: Inputs, options: Options, rng_state: Tensor | None
) -> Tensor:
    """The tangent of out, from the tangents of q, k and v, in forward-mode differentiation."""
    flops.register()
    found: Tensor = torch.ops.flash_attn_rocm.pytorch_tangent(
        *tangents, out, lse, *inputs, *options, rng_state
    )
    return found


def new_state(inputs: Inputs) -> Tensor:
    """The key of a call with dropout.

    In a graph it is one operator: the compiler replaces random operators by its own, and its backward pass
    draws again with activation_memory_budget below 1. For checkpointed calls it keeps the generator's state.
    """
    if not torch.compiler.is_compiling():
        return philox.new_state(inputs.q.device)
    number, device = _number(), inputs.q.device
    if not normal_form.wants_gradients(inputs):
        return _draw_in_graph(number, device)
    drawn: Tensor = checkpoint(_draw_in_graph, number, device, use_reentrant=False)
    return drawn


@constant_when_traced
def _number() -> int:
    """A distinct number per call in a graph, because a graph merges equal calls."""
    return next(DRAWS)


def _draw_in_graph(number: int, device: torch.device) -> Tensor:
    drawn: Tensor = torch.ops.flash_attn_rocm.draw(number, device=device)
    return drawn


def _draw(_number: int, *, device: torch.device) -> Tensor:
    return philox.new_state(device)


def _draw_fake(_number: int, *, device: torch.device) -> Tensor:
    return torch.empty(2, dtype=torch.int64, device=device)


def _forward(*arguments: object) -> Three:
    inputs, options, (rng_state, want_probabilities) = split(arguments)
    attended = partial(
        dense.forward,
        options=options,
        want_probabilities=bool(want_probabilities),
        mask=inputs.attn_mask,
        sink=inputs.sink,
    )
    if _is_whole(inputs) and not want_probabilities and not inputs.coded:
        return attended(*inputs[:4], dropout=_dropout(0, inputs, options, rng_state))
    out, lse = inputs.q.new_zeros(inputs.out_shape), new_lse(inputs).fill_(torch.inf)
    signed = _new_probabilities(inputs, options, bool(want_probabilities)).zero_()
    for part in parts(inputs, options):
        dropout = _dropout(part.sequences.start, inputs, options, rng_state)
        some_out, some_lse, some = attended(*_tensors_of(part, inputs), dropout=dropout)
        part.rows_of(out).copy_(some_out)
        part.lse_of(lse).copy_(some_lse)
        if want_probabilities:
            signed[part.sequences, :, : some.shape[2], : some.shape[3]] = some
    return out, lse, signed


def _backward(dout: Tensor, out: Tensor, lse: Tensor, *arguments: object) -> list[Tensor]:
    inputs, options, (rng_state, together, wants_mask) = split(arguments)
    if inputs.block_table is not None:
        message = (
            "the gradient of attention over a paged cache (block_table) is not defined\n"
            "  next: pass k and v without block_table, or call under torch.no_grad()"
        )
        raise RuntimeError(message)
    mask, of_mask = inputs.attn_mask, None
    if mask is not None and wants_mask:
        of_mask = torch.zeros(mask.shape, dtype=lse.dtype, device=mask.device)
    gradients = partial(dense.backward, options=options, mask=mask, of_mask=of_mask)
    if _is_whole(inputs) and not together:
        dropout = _dropout(0, inputs, options, rng_state)
        tensors = (*inputs[:3], out, lse, inputs.alibi_slopes)
        found = [x.contiguous() for x in gradients(dout, *tensors, dropout=dropout)]
    else:
        (dq, dk, dv), found = empty_gradients(inputs, together)
        for gradient in found:
            gradient.zero_()
        for part in parts(inputs, options):
            dropout = _dropout(part.sequences.start, inputs, options, rng_state)
            of_out = part.rows_of(out), part.lse_of(lse)
            q, k, v, slopes = _tensors_of(part, inputs)
            some_dq, some_dk, some_dv = gradients(
                part.rows_of(dout), q, k, v, *of_out, slopes, dropout=dropout
            )
            part.rows_of(dq).copy_(some_dq)
            part.keys_of(dk).copy_(some_dk)
            part.keys_of(dv).copy_(some_dv)
    if mask is not None and of_mask is not None:
        found.append(of_mask.to(mask.dtype))
    if inputs.sink is not None:
        sums = (dout.to(lse.dtype) * out.to(lse.dtype)).sum(dim=-1).transpose(-1, -2)
        found.append(sinks.gradient(inputs.sink, lse, sums))
    return found


def _tangent(
    q_tangent: Tensor, k_tangent: Tensor, v_tangent: Tensor, out: Tensor, lse: Tensor, *arguments: object
) -> Tensor:
    inputs, options, (rng_state,) = split(arguments)
    found = torch.zeros_like(out, memory_format=torch.contiguous_format)
    for part in parts(inputs, options):
        some = dense.tangent(
            (part.rows_of(q_tangent), part.keys_of(k_tangent), part.keys_of(v_tangent)),
            *_tensors_of(part, inputs)[:3],
            part.rows_of(out),
            part.lse_of(lse),
            part.slopes_of(inputs.alibi_slopes),
            options,
            dropout=_dropout(part.sequences.start, inputs, options, rng_state),
            mask=inputs.attn_mask,
        )
        part.rows_of(found).copy_(some)
    return found


def _forward_fake(*arguments: object) -> Three:
    inputs, options, (_, want_probabilities) = split(arguments)
    out = inputs.q.new_empty(inputs.out_shape)
    return out, new_lse(inputs), _new_probabilities(inputs, options, bool(want_probabilities))


def _backward_fake(_dout: Tensor, _out: Tensor, _lse: Tensor, *arguments: object) -> list[Tensor]:
    inputs, _, (_, together, of_mask) = split(arguments)
    return fake_gradients(inputs, together, of_mask)


def _tangent_fake(_q: Tensor, _k: Tensor, _v: Tensor, out: Tensor, *_arguments: object) -> Tensor:
    return torch.empty_like(out, memory_format=torch.contiguous_format)


def arguments_of(operator: torch._ops.OpOverload) -> tuple[str, ...]:
    """The names of an operator's arguments, in order."""
    return tuple(argument.name for argument in operator._schema.arguments)  # noqa: SLF001 - the only way to ask


def flat(call: BackwardCall) -> tuple[object, ...]:
    """The arguments common to all gradient operators, which come first."""
    dout, out, lse, inputs, options, rng_state = call
    return (dout, out, lse, *inputs, *options, rng_state)


def split(arguments: tuple[object, ...]) -> tuple[Inputs, Options, tuple[object, ...]]:
    """Splits an operator's arguments into INPUTS, OPTIONS and the rest."""
    options = Options(*arguments[len(Inputs._fields) : FIELDS])  # type: ignore[arg-type]
    return Inputs(*arguments[: len(Inputs._fields)]), options, arguments[FIELDS:]


def _is_whole(inputs: Inputs) -> bool:
    """Whether one part has all rows and keys, so that its results are those of the call."""
    return all(x is None for x in inputs.integers)


def _tensors_of(part: Part, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    work = arithmetic(inputs.q.dtype)
    k = part.values_of(inputs.k, inputs.k_descale, work)
    v = part.values_of(inputs.v, inputs.v_descale, work)
    return part.rows_of(inputs.q), k, v, part.slopes_of(inputs.alibi_slopes)


def _dropout(first: int, inputs: Inputs, options: Options, rng_state: object) -> Dropout | None:
    if options.dropout_p == 0.0:
        return None
    assert isinstance(rng_state, Tensor), "dropout needs the generator's key"
    return Dropout(rng_state, first, key_masks.columns(inputs, options))


def new_lse(inputs: Inputs) -> Tensor:
    """Uninitialised memory for the log-sum-exp."""
    return inputs.q.new_empty(inputs.lse_shape, dtype=arithmetic(inputs.q.dtype))


def _new_probabilities(inputs: Inputs, options: Options, wanted: bool) -> Tensor:  # noqa: FBT001
    sizes = (inputs.batch, inputs.q.shape[-2], options.max_seqlen_q, options.max_seqlen_k) if wanted else (0,)
    return inputs.q.new_empty(sizes)


def empty_gradients(inputs: Inputs, together: object = 0) -> tuple[Three, list[Tensor]]:
    """Uninitialised memory: the places of the gradients of q, k and v, and the tensors that hold them.

    The last ``together`` (0, 2 or 3) lie in one tensor, as in packed arguments: along a dimension before the
    heads.
    """
    assert isinstance(together, int), "the operator's schema says so"
    contiguous = torch.contiguous_format
    if not together:  # in few steps: every backward pass comes here
        dq = torch.empty_like(inputs.q, memory_format=contiguous)
        dk = torch.empty_like(inputs.k, memory_format=contiguous)
        dv = torch.empty_like(inputs.v, memory_format=contiguous)
        return (dq, dk, dv), [dq, dk, dv]
    *rows, heads, head_dim = inputs.k.shape
    one = inputs.k.new_empty((*rows, together, heads, head_dim))
    apart = [torch.empty_like(x, memory_format=contiguous) for x in inputs[: 3 - together]]
    places = [*apart, *one.unbind(-3)]
    dq, dk, dv = places
    return (dq, dk, dv), [*apart, one]


def fake_gradients(inputs: Inputs, together: object, of_mask: object = False) -> list[Tensor]:  # noqa: FBT002
    """The result shapes of gradient operators, without values."""
    found = empty_gradients(inputs, together)[1]
    others = (x for x in (inputs.attn_mask if of_mask else None, inputs.sink) if x is not None)
    return [*found, *(torch.empty_like(x, memory_format=torch.contiguous_format) for x in others)]


def placed(
    gradients: Sequence[Tensor], tensors: int, *, of_mask: bool = False, of_sink: bool = False
) -> tuple[Tensor | None, ...]:
    """One gradient per given tensor: q, k and v first, attn_mask's if it has one, and sink last."""
    missing = (None,) * (tensors - len(gradients))
    if not of_mask and not of_sink:
        return *gradients, *missing
    first = len(gradients) - of_mask - of_sink
    if not of_mask:
        return *gradients[:first], *missing, gradients[-1]
    ends = gradients[first:] if of_sink else (gradients[-1], None)
    return *gradients[:first], *missing[not of_sink :], *ends


LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
LIBRARY.define(FORWARD)
LIBRARY.define(BACKWARD)
LIBRARY.define(TANGENT)
LIBRARY.define(DRAW, tags=(torch.Tag.nondeterministic_seeded,))
LIBRARY.impl("pytorch_forward", _forward, "CompositeExplicitAutograd")
LIBRARY.impl("pytorch_backward", _backward, "CompositeExplicitAutograd")
LIBRARY.impl("pytorch_tangent", _tangent, "CompositeExplicitAutograd")
LIBRARY.impl("draw", _draw, "CompositeExplicitAutograd")
torch.library.register_fake(f"{NAMESPACE}::pytorch_forward", _forward_fake, lib=LIBRARY)
torch.library.register_fake(f"{NAMESPACE}::pytorch_backward", _backward_fake, lib=LIBRARY)
torch.library.register_fake(f"{NAMESPACE}::pytorch_tangent", _tangent_fake, lib=LIBRARY)
torch.library.register_fake(f"{NAMESPACE}::draw", _draw_fake, lib=LIBRARY)
