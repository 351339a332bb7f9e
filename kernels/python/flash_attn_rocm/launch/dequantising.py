"""The operator ``dequantise``: q, k or v of 8 bits as numbers of 16 bits.

torch.compile takes it as one opaque call: kernel or PyTorch, both round each code times its descale once.
"""

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import DEQUANTISED, DTYPES, Inputs
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.launch import forward_pass, widening
from flash_attn_rocm.library import plans
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.reference import codes as reference
from flash_attn_rocm.reference import operators
from flash_attn_rocm.rewrite import dequantised as rewrite
from flash_attn_rocm.serving import machine
from flash_attn_rocm.serving.layouts import NOWHERE, Device
from flash_attn_rocm.serving.support import device_of

OPERATOR = (
    "dequantise(Tensor codes, Tensor? descale, Tensor? cu_seqlens, str arch, int compute_units) -> Tensor"
)
NAME = DTYPES[DEQUANTISED]


def dequantised(inputs: Inputs, q_descale: Tensor | None, *, cached: bool = False) -> Inputs:
    """The call over numbers. ``cached``: k and v are a cache, and stay codes."""
    device = NOWHERE if machine.current().unserved(inputs.q.device) else device_of(inputs.q.device)
    given = {
        "q": (inputs.q, q_descale, inputs.cu_seqlens_q),
        "k": (inputs.k, inputs.k_descale, inputs.cu_seqlens_k),
        "v": (inputs.v, inputs.v_descale, inputs.cu_seqlens_k),
    }
    names = rewrite.fields(inputs, cached=cached)
    dequantise = torch.ops.flash_attn_rocm.dequantise
    return rewrite.over(inputs, {name: dequantise(*given[name], *device) for name in names})


def _dequantise(
    codes: Tensor, descale: Tensor | None, cu_seqlens: Tensor | None, arch: str, compute_units: int
) -> Tensor:
    rows = codes if cu_seqlens is None else codes[None]
    own = None if descale is None else _of_heads(descale, cu_seqlens, rows)
    if _is_served(codes, Device(arch, compute_units)):
        return widening.widened_rows(rows, own, DEQUANTISED).view(codes.shape)
    if own is not None:
        own = own[..., None] if own.dim() > 2 else own[:, None, :, None]
    return reference.dequantised(rows, own, DEQUANTISED).contiguous().view(codes.shape)


def _of_heads(descale: Tensor, cu_seqlens: Tensor | None, rows: Tensor) -> Tensor:
    """Of each head, (batch, heads), and for packed rows also of each of them, (1, rows, heads).

    q's heads share the descale of the head of k that they read. Rows behind all sequences take any.
    """
    own = descale.repeat_interleave(rows.shape[-2] // descale.shape[-1], dim=-1)
    if cu_seqlens is None:
        return own
    if not len(own):
        return own.new_ones((1, *rows.shape[1:3]))
    numbers = torch.arange(rows.shape[1], dtype=cu_seqlens.dtype, device=cu_seqlens.device)
    sequence = torch.searchsorted(cu_seqlens.contiguous(), numbers, right=True) - 1
    return own[sequence.clamp(0, len(own) - 1)][None]


def _is_served(codes: Tensor, device: Device) -> bool:
    head_dim = codes.shape[-1]
    there = device.arch and plans.has_kernel(device.arch, NAME, 0, widening.OP)
    if not there or head_dim > LIMITS.wide_head_dim:
        return False
    failure = first_use.codes_failure(forward_pass.answer, codes.device, NAME, head_dim, device)
    if failure:
        fall_back(failure, stacklevel=2)
    return not failure


def _dequantise_fake(codes: Tensor, *_arguments: object) -> Tensor:
    return codes.new_empty(codes.shape, dtype=DEQUANTISED)


operators.LIBRARY.define(OPERATOR)
operators.LIBRARY.impl("dequantise", _dequantise, "CompositeExplicitAutograd")
torch.library.register_fake(f"{operators.NAMESPACE}::dequantise", _dequantise_fake, lib=operators.LIBRARY)
