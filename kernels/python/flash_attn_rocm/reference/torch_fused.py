"""PyTorch's own fused attention for calls without features: faster, in linear memory.

On a CPU it is PyTorch's flash attention in the dtype of this implementation's arithmetic, so it adds no
rounding. On GPUs it is PyTorch's memory-efficient attention, under two conditions: PyTorch accepts the call,
and a small call, made once, matched the formula. Some builds for AMD GPUs fail it.
"""

import math
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from flash_attn_rocm.arguments.normal_form import WIDE, Options, arithmetic
from flash_attn_rocm.serving.capture import is_capturing

NAMES = "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention"
(ON_CPU, ON_CPU_BACKWARD), (ON_GPU, ON_GPU_BACKWARD) = (
    [getattr(torch.ops.aten, f"{name}{more}").default for more in ("", "_backward")] for name in NAMES
)
LSE_ROWS = 32  # CUDA's log-sum-exp is padded to a multiple
TRIAL = (1, 2, 33, 64)
IRREGULAR = 12.9898  # its multiples, as angles
TOLERANCE = 2**-5  # of the largest: bf16 has 8 bits
Three = tuple[Tensor, Tensor, Tensor]


def forward(q: Tensor, k: Tensor, v: Tensor, options: Options) -> tuple[Tensor, Tensor] | None:
    """out and the log-sum-exp as ``dense.forward`` gives them. None if PyTorch cannot compute the call."""
    if (causal := _causal(q, k, v, options)) is None:
        return None
    heads = _heads(q, k, v)
    if _on_cpu(q):
        out, lse = ON_CPU(*heads, 0.0, causal, scale=options.softmax_scale)
        # An lse of 0 marks rows of NaN: PyTorch takes them for rows without visible keys.
        if not (lse.isfinite() & (lse != 0.0)).all():
            return None
    elif _takes(q, heads, causal=causal, which=0):
        out, lse = _forward_on_gpu(*heads, options.softmax_scale, causal=causal)
    else:
        return None
    return out.transpose(1, 2).to(q.dtype).contiguous(), lse.masked_fill(lse.isnan(), torch.inf).contiguous()


def backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, options: Options
) -> Three | None:
    """Gradients of q, k and v, likewise."""
    if (causal := _causal(q, k, v, options)) is None:
        return None
    heads = _heads(q, k, v)
    of_out = _rows_first(dout.transpose(1, 2)), _rows_first(out.transpose(1, 2)), lse.contiguous()
    if _on_cpu(q):
        found = _backward_on_cpu(*of_out, *heads, options.softmax_scale, causal=causal)
    elif not _deterministic(options) and _takes(q, heads, causal=causal, which=1):
        found = _backward_on_gpu(*of_out, *heads, options.softmax_scale, causal=causal)
    else:
        return None
    return tuple(_as_given(x, given) for x, given in zip(found, (q, k, v), strict=True))


def _causal(q: Tensor, k: Tensor, v: Tensor, options: Options) -> bool | None:
    """Whether the mask is PyTorch's causal one. None for other masks and features."""
    rows, keys = q.shape[1], k.shape[1]
    fits = q.device.type in {"cpu", "cuda"} and q.numel() and k.numel() and q.shape[-1] == v.shape[-1]
    if not fits or q.dtype == WIDE or options.softcap or options.chunk or options.window_left >= 0:
        return None
    if options.window_right < 0 or (options.window_right == 0 and rows == 1):
        return False
    return True if options.window_right == 0 and rows == keys else None


def _on_cpu(q: Tensor) -> bool:
    return q.device.type == "cpu"


def _deterministic(options: Options) -> bool:
    return options.deterministic or torch.are_deterministic_algorithms_enabled()


def _heads(q: Tensor, k: Tensor, v: Tensor) -> Three:
    """(batch, nheads, seqlen, headdim) of each, in the arithmetic's dtype, with contiguous rows."""
    work = arithmetic(q.dtype) if _on_cpu(q) else q.dtype
    several = q.shape[2] // k.shape[2]

    def of(x: Tensor, times: int) -> Tensor:
        rows = x.to(work).transpose(1, 2)
        rows = rows if rows.stride(-1) == 1 else rows.contiguous()
        return rows[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2)

    return of(q, 1), of(k, several), of(v, several)


def _rows_first(x: Tensor) -> Tensor:
    """(batch, nheads, seqlen, headdim) in the memory order (batch, seqlen, nheads, headdim).

    CUDA's operator assumes this layout of out.
    """
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _as_given(gradient: Tensor, given: Tensor) -> Tensor:
    """(batch, nheads, seqlen, headdim) to the form of ``given``, where several heads may share one."""
    several = gradient.shape[1] // given.shape[2]
    summed = gradient.unflatten(1, (given.shape[2], several)).sum(2) if several > 1 else gradient
    return summed.transpose(1, 2).to(given.dtype)


def _backward_on_cpu(
    dout: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool
) -> Three:
    dout, out = dout.to(q.dtype), out.to(q.dtype)
    found: Three = ON_CPU_BACKWARD(dout, q, k, v, out, lse, 0.0, causal, scale=scale)
    return found


def _forward_on_gpu(q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    out, lse = ON_GPU(q, k, v, None, True, 0.0, causal, scale=scale)[:2]  # noqa: FBT003 - compute_log_sumexp
    return out, lse[..., : q.shape[2]]


def _backward_on_gpu(
    dout: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool
) -> Three:
    if torch.version.hip is None:
        lse = pad(lse, (0, -lse.shape[-1] % LSE_ROWS), value=torch.inf)
    seed, offset = lse.new_zeros(2, dtype=torch.int64).unbind()  # unused without dropout
    wanted = [True, True, True, False]
    found = ON_GPU_BACKWARD(dout, q, k, v, None, out, lse, seed, offset, 0.0, wanted, causal, scale=scale)
    return found[0], found[1], found[2]


def _takes(q: Tensor, heads: Three, *, causal: bool, which: int) -> bool:
    """Whether PyTorch accepts the call, and its operator passed the small call.

    ``which`` is 0 for the forward pass and 1 for the backward pass.
    """
    backends = torch.backends.cuda
    if not backends.can_use_efficient_attention(backends.SDPAParams(*heads, None, 0.0, causal, False)):  # noqa: FBT003
        return False
    return not is_capturing(q.device) and _right(q.device, q.dtype)[which]


@cache
def _right(device: torch.device, dtype: torch.dtype) -> tuple[bool, bool]:
    """Whether forward and backward of a small causal call, including a row of NaN, match the formula."""
    scale = TRIAL[3] ** -0.5
    with torch.inference_mode(mode=False), torch.enable_grad():
        elements = torch.arange(4 * math.prod(TRIAL), device=device).view(4, *TRIAL)
        q, k, v, dout = (elements * IRREGULAR).sin().to(dtype)
        leaves = [x.float().requires_grad_() for x in (q, k, v)]
        hidden = torch.ones(TRIAL[2], TRIAL[2], dtype=torch.bool, device=device).triu(1)
        scores = (leaves[0] @ leaves[1].mT * scale).masked_fill(hidden, -torch.inf)
        out, lse = torch.softmax(scores, -1) @ leaves[2], torch.logsumexp(scores, -1)
        gradients = torch.autograd.grad(out, leaves, dout.float())
        out, lse, of_nan = out.detach(), lse.detach(), q.clone()
        of_nan[:, :, 0] = torch.nan
        forward = partial(_forward_on_gpu, k=k, v=v, scale=scale, causal=True)
        of_out = _rows_first(dout), _rows_first(out.to(dtype)), lse
        backward = partial(_backward_on_gpu, *of_out, q, k, v, scale, causal=True)
        return (
            _agree(lambda: forward(q), (out, lse)) and bool(forward(of_nan)[0][:, :, 0].isnan().all()),
            _agree(backward, gradients),
        )


def _agree(call: Callable[[], tuple[Tensor, ...]], wanted: tuple[Tensor, ...]) -> bool:
    try:
        found = call()
    except RuntimeError:
        return False
    pairs = zip(found, wanted, strict=True)
    return all(a.shape == b.shape and (a - b).abs().max() <= TOLERANCE * b.abs().max() for a, b in pairs)
