"""The calls that ``tune`` times: bins by length, causal, GQA width, mask and dtype."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from flash_attn_rocm.arguments.normal_form import TORCH_DTYPES, BackwardCall, Inputs, Options
from flash_attn_rocm.launch import backward_pass, forward_pass
from flash_attn_rocm.library import plans, regimes
from flash_attn_rocm.library.host import LIMITS, Instance
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.values import kinds, paths
from flash_attn_rocm.values.bins import DECODE, Bin, Timed, bins
from flash_attn_rocm.values.tuning import CALLS, DECODE_BATCH, HEADS, LENGTHS, TOKENS, WIDTHS

BACKWARD = "backward"
BOOL = "bool"
# The path that a kernel of an op is timed on, where a plan might choose another one.
GRADIENTS = {
    op: path for path, last in kinds.GRADIENTS.items() for op in kinds.LAUNCHES[last] if op in kinds.TILED
}
CODED = kinds.ATTENDING[kinds.CODED]
CODES = torch.float8_e4m3fn  # of a cache of 8 bits, as vLLM's
Call = Callable[[], object]


class Sizes(NamedTuple):
    """Lengths, tokens of a call, and heads of q."""

    lengths: tuple[int, ...] = LENGTHS
    tokens: int = TOKENS
    heads: int = HEADS


def bins_of(kernel: Instance, sizes: Sizes) -> tuple[Bin, ...]:
    """The bins of a kernel. Empty for kernels that are not timed."""
    if kernel.op not in CALLS:
        return ()
    timed = Timed(sizes.lengths, WIDTHS, sizes.tokens, sizes.heads, DECODE_BATCH)
    return tuple(bins(CALLS[kernel.op], *_own(kernel), timed))


def call_of(each: Bin, kernel: Instance, where: torch.device, device: Device) -> Call:
    """The call, which launches the kernel."""
    inputs, options = _made(each, kernel.op, where)
    if each.kind != BACKWARD:
        path = _path(kernel, device)
        return lambda: forward_pass.answer(inputs, options, None, device, path=path)
    out, lse = forward_pass.answer(inputs, options, None, device)
    given = BackwardCall(torch.ones_like(out), out, lse, inputs, options, None)
    path = GRADIENTS[kernel.op]
    path = path if path in paths.BACKWARD else paths.SEPARATE
    return lambda: backward_pass.written(given, device.arch, path)


def sdpa_of(each: Bin, op: str, where: torch.device) -> Call:
    """The same call of PyTorch's attention: its gradients alone for a backward, 16 bits for a cache of 8."""
    inputs, options = _made(each, op, where)
    numbers = (x.to(inputs.q.dtype).transpose(1, 2) for x in inputs[:3])
    leaves = [x.requires_grad_(each.kind == BACKWARD) for x in numbers]

    def attend() -> Tensor:
        return scaled_dot_product_attention(
            *leaves, attn_mask=inputs.attn_mask, is_causal=each.causal, scale=options.softmax_scale,
            enable_gqa=each.width > 1,
        )  # fmt: skip

    if each.kind != BACKWARD:
        return attend
    with torch.enable_grad():
        out = attend()
    dout = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


def regime_of(each: Bin) -> str:
    """The regime of its call."""
    queries = 1 if each.kind == DECODE else each.length
    return regimes.regime_of(queries, each.length, each.width, causal=each.causal)


def flop_of(each: Bin) -> float:
    """As ``bench`` counts: 4 per score and head dim, half if causal, and 2.5 times with gradients."""
    rows = 1 if each.kind == DECODE else each.length
    forward = 4.0 * each.batch * each.heads * rows * each.length * each.head_dim
    return forward * (0.5 if each.causal else 1.0) * (2.5 if each.kind == BACKWARD else 1.0)


def _path(kernel: Instance, device: Device) -> str:
    """The path to force, or "": only plain forwards have two."""
    if kernel.op == kinds.ATTENDING[paths.TALL]:
        return paths.TALL
    return plans.typical(device.arch, *_own(kernel)).path if kernel.op == plans.FORWARD else ""


def _own(kernel: Instance) -> tuple[str, int]:
    return kernel.dtype, kernel.head_dim


def _made(each: Bin, op: str, where: torch.device) -> tuple[Inputs, Options]:
    generator, dtype = torch.Generator().manual_seed(0), TORCH_DTYPES[each.dtype]

    def drawn(rows: int, heads: int, head_dim: int) -> Tensor:
        sizes = (each.batch, rows, heads, head_dim)
        return torch.randn(sizes, generator=generator, device="cpu").to(dtype).to(where)

    rows, heads_k = 1 if each.kind == DECODE else each.length, max(1, each.heads // each.width)
    of_v = LIMITS.uneven_head_dim if op in UNEVEN else each.head_dim
    of_cache = CODES if op == CODED else dtype
    inputs = Inputs(
        drawn(rows, each.heads, each.head_dim),
        drawn(each.length, heads_k, each.head_dim).to(of_cache),
        drawn(each.length, heads_k, of_v).to(of_cache),
        attn_mask=_mask(each, dtype, where),
    )
    scale = each.head_dim**-0.5
    options = Options(
        scale, window_right=0 if each.causal else -1, max_seqlen_q=rows, max_seqlen_k=each.length
    )
    return inputs, options


UNEVEN = (kinds.ATTENDING[kinds.UNEVEN], *kinds.LAUNCHES[kinds.GRADIENTS[kinds.UNEVEN]][1:])


def _mask(each: Bin, dtype: torch.dtype, where: torch.device) -> Tensor | None:
    """A mask that hides the later half of the first half of the keys, or a bias of each head."""
    if not each.mask:
        return None
    size = each.length
    if each.mask == BOOL:
        mask = torch.ones((1, 1, size, size), dtype=torch.bool, device=where)
        mask[..., size // 4 : size // 2] = False
        return mask
    return torch.linspace(-1.0, 1.0, size, device=where).to(dtype).expand(1, 1, size, size).contiguous()
