"""The operator ``packed_rows``: a dense copy of rows of 656 bytes in bf16, where no kernel reads them.

torch.compile takes it as one opaque call: kernel or PyTorch, both round each code times its scale once. The
kernel takes the groups of codes for heads, of which each key has a descale.
"""

from dataclasses import replace

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import DTYPES, Inputs, Options
from flash_attn_rocm.arguments.packed_rows import BYTES, GROUPS, HEAD_DIM, NUMBERS, VALUE_DIM, views
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.launch import forward_pass, latent, widening
from flash_attn_rocm.library import plans
from flash_attn_rocm.reference import codes, operators
from flash_attn_rocm.reference.sequences import parts
from flash_attn_rocm.rewrite import dense_caches
from flash_attn_rocm.serving import machine
from flash_attn_rocm.serving.layouts import NOWHERE, Device, is_aligned, one_head
from flash_attn_rocm.serving.support import Support, device_of

OPERATOR = (
    "packed_rows(Tensor q, Tensor rows, Tensor? cache_seqlens, Tensor? block_table, str arch, "
    "int compute_units) -> Tensor"
)
NAME, GROUP = DTYPES[NUMBERS], VALUE_DIM // GROUPS


def widened(inputs: Inputs) -> Inputs:
    """The call over a copy, (batch, keys, 1, headdim). Keys behind a sequence's may be anything."""
    device = NOWHERE if machine.current().unserved(inputs.q.device) else device_of(inputs.q.device)
    keys: Tensor = torch.ops.flash_attn_rocm.packed_rows(
        inputs.q, inputs.k, inputs.seqused_k, inputs.block_table, *device
    )
    return _over(inputs, keys)


def support_of(inputs: Inputs, options: Options) -> Support:
    """How checked arguments are served."""
    if latent.unserved(inputs) or latent.reads_rows(inputs):
        return latent.support_of(inputs, options)
    keys = torch.empty(_sizes(inputs), dtype=NUMBERS, device="meta")
    served = latent.support_of(_over(inputs, keys), options)
    size = keys.numel() * NUMBERS.itemsize
    if inputs.block_table is not None:  # the rotated elements are gathered first
        size += size // HEAD_DIM * (HEAD_DIM - VALUE_DIM)
    size += 0 if _is_readable(inputs.k) else inputs.k.numel()
    words = f"rows of {BYTES} bytes widened to {str(NUMBERS).removeprefix('torch.')} first, {size} bytes"
    return replace(served, reason=f"{words}; {served.reason}")


def _over(inputs: Inputs, keys: Tensor) -> Inputs:
    return inputs._replace(k=keys, v=keys[..., :VALUE_DIM], block_table=None)


def _sizes(inputs: Inputs) -> tuple[int, ...]:
    return (inputs.q.shape[0], dense_caches.capacity(inputs), 1, HEAD_DIM)


def _is_readable(rows: Tensor) -> bool:
    return is_aligned(one_head(rows).view(torch.int8))


def _widened(
    q: Tensor,
    rows: Tensor,
    lengths: Tensor | None,
    block_table: Tensor | None,
    arch: str,
    compute_units: int,
) -> Tensor:
    inputs = Inputs(q, rows, rows[..., :VALUE_DIM], seqused_k=lengths, block_table=block_table)
    answer = _by_kernel if _is_served(q, Device(arch, compute_units)) else _by_pytorch
    return answer(inputs)


def _is_served(q: Tensor, device: Device) -> bool:
    if not (device.arch and plans.has_kernel(device.arch, NAME, 0, widening.OP)):
        return False
    failure = first_use.codes_failure(forward_pass.answer, q.device, NAME, GROUP, device)
    if failure:
        fall_back(failure, stacklevel=2)
    return not failure


def _by_kernel(inputs: Inputs) -> Tensor:
    copy = inputs.q.new_empty(_sizes(inputs))
    if copy.numel():
        rows = inputs.k if _is_readable(inputs.k) else inputs.k.clone(memory_format=torch.contiguous_format)
        of, to = views(rows), copy.squeeze(-2)
        groups = to[..., :VALUE_DIM].unflatten(-1, (GROUPS, GROUP))
        widening.widen_one(of.codes, of.scales, inputs.seqused_k, inputs.block_table, groups)
        to[..., VALUE_DIM:].copy_(_dense(of.rotated, inputs.block_table))
    return copy


def _dense(rotated: Tensor, block_table: Tensor | None) -> Tensor:
    """Rows in the order of keys. Invalid blocks, of which no key may count, give any rows."""
    if block_table is None:
        return rotated
    return rotated[block_table.clamp(0, len(rotated) - 1)].flatten(1, 2)


def _by_pytorch(inputs: Inputs) -> Tensor:
    """Raises FlashAttnArgumentError if lengths or indices point outside of the tensors."""
    copy = inputs.q.new_zeros(_sizes(inputs))
    options = Options(1.0, max_seqlen_q=inputs.q.shape[1], max_seqlen_k=inputs.key_capacity)
    for part in parts(inputs, options):
        keys = _numbers(part.keys_of(inputs.k))
        if copy.numel():  # a cache without sequences may have rows
            copy[part.sequences, : keys.shape[1]] = keys
    return copy


def _numbers(rows: Tensor) -> Tensor:
    of = views(rows.clone(memory_format=torch.contiguous_format))
    numbers = codes.dequantised(of.codes, of.scales[..., None], NUMBERS).flatten(-2)
    return torch.cat((numbers, of.rotated), -1).unsqueeze(-2)


def _widened_fake(
    q: Tensor, rows: Tensor, _lengths: object, block_table: Tensor | None, *_: object
) -> Tensor:
    return q.new_empty(_sizes(Inputs(q, rows, rows, block_table=block_table)))


operators.LIBRARY.define(OPERATOR)
operators.LIBRARY.impl("packed_rows", _widened, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::packed_rows", _widened_fake, lib=operators.LIBRARY)
