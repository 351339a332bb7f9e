"""The operator ``fwd``, which launches kernels, and the operator ``forward`` around it.

torch.compile takes ``forward`` as one opaque call: cuts and copies are decided at run time.
"""

import torch
from torch import Tensor

from flash_attn_rocm.arguments import flops
from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.launch import makers, watched, widening
from flash_attn_rocm.library.plans import Plan
from flash_attn_rocm.reference import operators
from flash_attn_rocm.rewrite import chunks, dense_masks, key_masks
from flash_attn_rocm.serving import resets
from flash_attn_rocm.serving.layouts import Device, choose, readable, small_in_rows
from flash_attn_rocm.serving.support import unserved
from flash_attn_rocm.values.given import Given

FWD = torch.ops.flash_attn_rocm.fwd.default
ARGUMENTS = operators.arguments_of(FWD)
ATTEND = torch.ops.flash_attn_rocm.attend.default  # FWD with memory of its own for the results
RESULTS = ("out", "lse", "partial_out", "partial_lse")
OPTIONS = Options._fields[:7]  # for kernels
# In the order of ``launch`` and ``_attend``: the fields of Inputs, and the options for kernels.
GIVEN = (*Inputs._fields, *RESULTS[:2], "rng_state", *RESULTS[2:], *OPTIONS, "path")
assert GIVEN == ARGUMENTS, makers.ORDER
assert (*Inputs._fields, "rng_state", *OPTIONS, "path", "splits") == operators.arguments_of(ATTEND), (
    makers.ORDER
)
FORWARD = (
    f"forward({operators.INPUTS}, {operators.OPTIONS}, Tensor? rng_state, str arch, int compute_units) "
    "-> (Tensor, Tensor)"
)
Two = tuple[Tensor, Tensor]


def forward(inputs: Inputs, options: Options, rng_state: Tensor | None, device: Device) -> Two:
    """out like q with the head dim of v, contiguous, and the log-sum-exp."""
    flops.register()
    found: Two = torch.ops.flash_attn_rocm.forward(
        *inputs, *options, rng_state, device.arch, device.compute_units
    )
    return found


def in_16_bits(inputs: Inputs, options: Options, device: Device) -> Two:
    """``forward`` in place of disabled kernels that multiply codes: by kernels, or by PyTorch."""
    if unserved(inputs, options):
        return operators.forward(inputs, options, None, want_probabilities=False)[:2]
    return forward(inputs, options, None, device)


def launch(inputs: Inputs, options: Options, rng_state: Tensor | None, plan: Plan) -> Two:
    """Attention for inputs that a kernel reads in place.

    Packed rows outside of all sequences, or behind a sequence's first max_seqlen_q rows, give out 0 and
    log-sum-exp +inf. Kernels skip them, and only the device knows whether there are any.
    """
    if inputs.sink is not None:
        inputs = inputs._replace(sink=inputs.sink.float().contiguous())
    return makers.made(ATTEND, _attend, *inputs, rng_state, *options[:7], plan.path, plan.splits)


def _attend(*arguments: Given) -> Two:
    """``ATTEND`` in Python."""
    fields = len(Inputs._fields)
    inputs, (rng_state, *numbers, splits) = Inputs(*arguments[:fields]), arguments[fields:]
    q, packed = inputs.q, inputs.cu_seqlens_q is not None
    out = (q.new_zeros if packed else q.new_empty)(inputs.out_shape)
    lse = q.new_empty(inputs.lse_shape, dtype=torch.float32)
    if packed:
        lse.fill_(torch.inf)
    partial_out = partial_lse = None
    if splits > 1:
        partial_out = lse.new_empty((splits, *lse.shape, q.shape[-1]))
        partial_lse = lse.new_empty((splits, *lse.shape))
    FWD(*inputs, out, lse, rng_state, partial_out, partial_lse, *numbers)
    return out, lse


def _forward(*arguments: object) -> Two:
    inputs, options, (rng_state, arch, units) = operators.split(arguments)
    assert isinstance(arch, str), "the operator's schema says so"
    assert isinstance(units, int), "the operator's schema says so"
    state = rng_state if isinstance(rng_state, Tensor) else None
    if failure := first_use.failure(answer, inputs, options, Device(arch, units)):
        fall_back(failure, stacklevel=2)
        return operators.forward(inputs, options, state, want_probabilities=False)[:2]
    return answer(inputs, options, state, Device(arch, units))


def answer(inputs: Inputs, options: Options, state: Tensor | None, device: Device, *, path: str = "") -> Two:
    """``path`` replaces the plan's."""
    inputs = small_in_rows(inputs)
    if inputs.coded and not choose(inputs, options, device).plan.path:
        inputs = widening.widened(inputs, options)
    chosen = key_masks.chooses_keys(inputs, options)
    if chosen or chunks.divide(inputs, options):
        cut = key_masks.cut if chosen else chunks.cut
        out, lse = answer(*cut(inputs, options), state, device)
        return chunks.joined(out, inputs), chunks.joined_lse(lse, inputs)
    layout = choose(inputs, options, device)
    if not layout.plan.path:
        raise RuntimeError(layout.plan.reason)
    q, k, v = readable(inputs, layout)
    plan = layout.plan._replace(path=path) if path else layout.plan
    read = Inputs(q, k, v, *inputs[3:])._replace(attn_mask=dense_masks.readable(inputs))
    out, lse = launch(read, options, state, plan)
    head_dim = inputs.v.shape[-1]
    return (out if out.shape[-1] == head_dim else out[..., :head_dim].contiguous()), lse


def _forward_fake(*arguments: Given) -> Two:
    inputs = Inputs(*arguments[: len(Inputs._fields)])
    return inputs.q.new_empty(inputs.out_shape), operators.new_lse(inputs)


operators.LIBRARY.define(FORWARD)
operators.LIBRARY.impl("forward", _forward, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::forward", _forward_fake, lib=operators.LIBRARY)
operators.LIBRARY.impl("attend", _attend, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::attend", _forward_fake, lib=operators.LIBRARY)
if resets.THREATENED:
    FWD, ATTEND = watched.forward(FWD, ARGUMENTS), _attend
