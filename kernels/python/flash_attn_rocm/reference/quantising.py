"""The codes of ``fa_quantise_*`` in PyTorch, bit for bit (kernels/device/cache/quantise.hpp)."""

from typing import NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.reference import codes

KEYS_OF_SCALE = 32  # kKeysOfScale of params.hpp
QUANTISED_ROWS = 256
INT8_MOST, LEAST = 127.0, 2.0**-100
FP32_BYTES = 4
SIGNS = 0x13198A2E03707344243F6A8885A308D3  # kSigns of quantise.hpp
INVERSE_ROOTS = {64: 2.0**-3, 128: float.fromhex("0x1.6a09e6p-4")}  # of head dims, in fp32


class Numbers(NamedTuple):
    """What codes of q, k and v mean, in float64. q and k are rotated, which their products do not show."""

    q: Tensor
    k: Tensor
    v: Tensor


def numbers(q: Tensor, k: Tensor, v: Tensor, *, of_v: torch.dtype | None) -> Numbers:
    """Of (batch, rows, heads, head_dim). ``of_v``: v has these codes, or none."""
    rows = k.shape[1]
    blocks = -(-rows // KEYS_OF_SCALE)
    turned_q, turned_k = (rotated(x.float()) for x in (q, k))
    behind = torch.nn.functional.pad(turned_k, (0, 0, 0, 0, 0, blocks * KEYS_OF_SCALE - rows))
    of_keys = behind.unflatten(1, (blocks, KEYS_OF_SCALE)).abs().amax((2, 4))
    of_keys = of_keys.repeat_interleave(KEYS_OF_SCALE, 1)[:, :rows]
    values = _rounded(v, of_v) if of_v else v.double()
    return Numbers(_counted(turned_q, turned_q.abs().amax(-1)), _counted(turned_k, of_keys), values)


def rotated(x: Tensor) -> Tensor:
    """Rows, with their signs changed, times the Hadamard matrix without its factor, in the kernel's order."""
    head_dim = x.shape[-1]
    x = x * torch.tensor([1.0 - 2.0 * (SIGNS >> n & 1) for n in range(head_dim)], device=x.device)
    apart = 1
    while apart < head_dim:
        pairs = x.unflatten(-1, (head_dim // (2 * apart), 2, apart))
        a, b = pairs.unbind(-2)
        x = torch.stack((a + b, a - b), -2).flatten(-3)
        apart *= 2
    return x


def _counted(x: Tensor, largest: Tensor) -> Tensor:
    most = largest.clamp(min=LEAST)[..., None]
    counts = (x.double() * _divided(INT8_MOST, most).double()).round()
    return counts * (most / INT8_MOST * INVERSE_ROOTS[x.shape[-1]]).double()


def _rounded(v: Tensor, dtype: torch.dtype) -> Tensor:
    largest = codes.largest(dtype)
    most = v.float().abs().amax((1, 3), keepdim=True).clamp(min=LEAST)
    coded = codes.encode(v.float() * _divided(largest, most), 1.0, dtype)
    return codes.decode(coded).double() * (most / largest).double()


def _divided(number: float, by: Tensor) -> Tensor:
    """Rounded once. PyTorch multiplies a number by the reciprocal of a tensor."""
    return torch.full_like(by, number) / by


def floats(q: tuple[int, ...], k: tuple[int, ...]) -> int:
    """The numbers of the kernels' workspace, of q's and k's sizes (kernels/host/calls/int8.cpp)."""
    batch, rows, heads, head_dim = q
    keys, heads_k = k[1], k[2]
    of_q, of_k = batch * heads * rows, batch * heads_k * keys
    of_codes = (of_q + 2 * of_k) * head_dim // FP32_BYTES
    scales = -(-keys // (2 * KEYS_OF_SCALE)) * 2
    return of_codes + of_q + batch * heads_k * (scales + 1 + -(-keys // QUANTISED_ROWS))
