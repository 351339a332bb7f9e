"""Time of the PyTorch implementation, compared with scaled_dot_product_attention.

    python bench_pytorch.py [--device cuda] [--lengths 1024,4096] [--dtypes fp32,fp16,bf16]

It needs the installed wheel.  ``math`` is PyTorch's plain path: it keeps all scores. ``default`` is PyTorch's
choice.  Both get windows and ALiBi as attn_mask, made before.  ``bias`` is a mask of numbers, with its
gradient.  They lack softcap: there ``math`` is the formula in fp32, also with all scores, and ``default``
leaves softcap out. On a GPU with kernels only fp32 goes to the PyTorch implementation. ``--gpu-time`` leaves
out the host's time: it adds up the times of the GPU's kernels.
"""

import argparse
import statistics
import sys
import time
import warnings
from contextlib import nullcontext

import torch
from flash_attn_rocm import FlashAttnFallbackWarning, attention
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
KINDS = "plain", "causal", "window", "alibi", "mask", "bias", "softcap"
WINDOW, SLOPE, SOFTCAP = 256, 0.05, 20.0
RUNS, ENOUGH = 7, 2.0  # the most calls, and a sufficient number of seconds
ROW = "{:10}{:6}{:>8}{:>6} {:>10}{:>10}{:>10}{:>11}{:>14}{:>8}{:>10}"
HEADS = (
    "what", "dtype", "length", "pass", "ours ms", "math ms", "deflt ms", "ours/math", "ours/default", "MiB",
    "math MiB",
)  # fmt: skip


def rules(kind, length, nheads, device):
    """Our arguments, and scaled_dot_product_attention's."""
    places = torch.arange(length, device=device)
    behind = places - places[:, None]
    if kind == "window":
        seen = (behind <= 0) & (behind >= -WINDOW)
        return {"causal": True, "window_size": (WINDOW, 0)}, {"attn_mask": seen}
    if kind == "alibi":
        slopes = torch.full((nheads,), SLOPE, device=device)
        bias = (SLOPE * behind).masked_fill(behind > 0, -torch.inf)
        return {"causal": True, "alibi_slopes": slopes}, {"attn_mask": bias}
    if kind == "mask":
        seen = torch.rand(length, length, device=device) < 0.9
        return {"attn_mask": seen}, {"attn_mask": seen}
    if kind == "softcap":
        return {"softcap": SOFTCAP}, {}
    return {"causal": kind == "causal"}, {"is_causal": kind == "causal"}


def implementations(kind, dtype, length, nheads, device):
    """By name, each a function of q, k and v (batch, seqlen, nheads, headdim), and of a bias, if any."""
    ours, others = rules(kind, length, nheads, device)
    if (mask := others.get("attn_mask")) is not None and mask.is_floating_point():
        others["attn_mask"] = mask.to(dtype)

    def own(q, k, v, *bias):
        return attention(q, k, v, *bias, **ours)

    def sdpa(q, k, v, *bias):
        heads = (x.transpose(1, 2) for x in (q, k, v))
        return scaled_dot_product_attention(*heads, *bias, **others).transpose(1, 2)

    plain = (bent, nullcontext) if kind == "softcap" else (sdpa, math)
    return {"ours": (own, nullcontext), "math": plain, "default": (sdpa, nullcontext)}


def bent(q, k, v):
    """Attention with softcap by its formula."""
    dtype = q.dtype
    q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
    scores = SOFTCAP * torch.tanh(q * q.shape[-1] ** -0.5 @ k.mT / SOFTCAP)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).to(dtype)


def math():
    return sdpa_kernel(SDPBackend.MATH)


def seconds(call, synchronize):
    begin = time.perf_counter()
    call()
    synchronize()
    return time.perf_counter() - begin


def gpu_seconds(call, synchronize):
    """Of the kernels alone."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        synchronize()
    return sum(event.self_device_time_total for event in found.key_averages()) / 1e6


def measured(function, tensors, *, backward, gpu_time):
    """Milliseconds, and the most MiB held by PyTorch on a GPU. None if memory is too small."""
    device = tensors[0].device
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def once():
        out = function(*tensors)
        if backward:
            torch.autograd.grad(out, tensors, torch.ones_like(out))

    try:
        once()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        found = []
        while len(found) < RUNS and (not found or sum(found) < ENOUGH):
            synchronize()
            found.append((gpu_seconds if gpu_time else seconds)(once, synchronize))
    except RuntimeError as error:  # out of memory
        if "memory" not in str(error):
            raise
        return None, None
    peak = torch.cuda.max_memory_allocated() / (1 << 20) if device.type == "cuda" else None
    return statistics.median(found) * 1e3, peak


def say(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def text(value, form):
    return "-" if value is None else format(value, form)


def compare(kind, dtype, length, arguments):
    """Print the rows of a call, forward and with gradients."""
    nheads, head_dim, device = arguments.nheads, arguments.head_dim, arguments.device
    for backward in (False, True):
        sizes = [(1, length, nheads, head_dim)] * 3 + [(length, length)] * (kind == "bias")
        tensors = [torch.randn(*each, device=device, dtype=DTYPES[dtype]) for each in sizes]
        for each in tensors:
            each.requires_grad_(backward)
        times, peaks = {}, {}
        for name, (function, context) in implementations(kind, DTYPES[dtype], length, nheads, device).items():
            with context():
                times[name], peaks[name] = measured(
                    function, tensors, backward=backward, gpu_time=arguments.gpu_time
                )
        shares = [times["ours"] / times[name] if times[name] else None for name in ("math", "default")]
        say(
            ROW.format(
                kind, dtype, length, "f+b" if backward else "fwd",
                *(text(times[name], ".2f") for name in times), *(text(share, ".2f") for share in shares),
                text(peaks["ours"], ".0f"), text(peaks["math"], ".0f"),
            )
        )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gpu-time", action="store_true")
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--nheads", type=int, default=16)
    parser.add_argument("--head-dim", type=int, default=64)
    arguments = parser.parse_args()
    where = (
        torch.cuda.get_device_name() if arguments.device == "cuda" else f"{torch.get_num_threads()} threads"
    )
    say(f"PyTorch {torch.__version__} on {where}, {arguments.nheads} heads of {arguments.head_dim}")
    say(ROW.format(*HEADS))
    warnings.simplefilter("ignore", FlashAttnFallbackWarning)
    for kind in arguments.kinds.split(","):
        for dtype in arguments.dtypes.split(","):
            for length in map(int, arguments.lengths.split(",")):
                compare(kind, dtype, length, arguments)


if __name__ == "__main__":
    main()
