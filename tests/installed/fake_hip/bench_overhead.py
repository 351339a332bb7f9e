"""Time of a call besides its kernels, for the installed wheel: a benchmark, not a test.

    python -m tests.tools.run_bench [WHEEL]

runs this in the verify container, after a release.  Elsewhere it needs the wheel and PyTorch, and

    FA_FAKE_HIP_ARCH=gfx942 FA_FAKE_HIP_DISASSEMBLY=folder FA_FAKE_HIP_LAUNCH=skip LD_PRELOAD=libamdhip64.so.7

The fake HIP runtime checks each launch and returns at once.  Everything else is the shipped code on host
memory: the Python function, the memory for its results, the operator, and the host library up to
hipModuleLaunchKernel.  Two things differ from a GPU. Memory comes from PyTorch's CPU allocator. The
operator's GPU implementation is called directly, because PyTorch would look for a host implementation.  The
figure is the minimum of many short runs, because other work on the machine only adds time.  Fused gradients
include setting their sums to zero: 32 KiB here, done by the device on a GPU.
"""

import sys
import time
from functools import partial

import flash_attn_rocm
import torch
from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.launch import backward_pass, forward_pass
from flash_attn_rocm.serving import machine
from torch._C import DispatchKey, DispatchKeySet
from torch.autograd import grad

from wheel_builder.machine_code.fake_hip.control import HOST_MEMORY

RUNS, CALLS = 1500, 20
OPERATORS = (
    (forward_pass, "fwd"), (forward_pass, "attend"), (backward_pass, "bwd"), (backward_pass, "gradients"),
)  # fmt: skip
NOTHING = "an autograd function that does nothing"
# In microseconds, on a machine where NOTHING takes about 17.
LIMITS = {"flash_attn_func": 20.0, "forward and backward": 60.0, "forward and backward, separate": 60.0}


class Nothing(torch.autograd.Function):
    """PyTorch's time for a call with gradients."""

    @staticmethod
    def forward(_ctx, q, _k, _v):
        return torch.empty_like(q)

    @staticmethod
    def backward(_ctx, dout):
        return dout, dout, dout


def microseconds(function):
    """The time of one call."""
    least = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(CALLS):
            function()
        least = min(least, time.perf_counter() - start)
    return least / CALLS * 1e6


def use_host_memory():
    """Treat tensors in host memory like a GPU's, directly."""
    machine.use(HOST_MEMORY)
    gpu = DispatchKeySet(DispatchKey.CUDA)
    library = torch.library.Library("flash_attn_rocm", "IMPL")
    for module, name in OPERATORS:
        redispatched = partial(getattr(torch.ops.flash_attn_rocm, name).default.redispatch, gpu)
        setattr(module, name.upper(), redispatched)
        # The first call of each kind takes the long path, through PyTorch's dispatcher.
        library.impl(name, redispatched, "CPU")
    return library


def calls():
    """The measured calls by name."""
    q, k, v = (torch.randn(1, 1, 4, 64).half() for _ in range(3))
    cache, lengths = torch.randn(1, 32, 4, 64).half(), torch.tensor([4], dtype=torch.int32)
    ends = torch.tensor([0, 1], dtype=torch.int32)
    rows = (q[0], k[0], v[0])
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    dout = torch.ones_like(q)
    return {
        "flash_attn_func": lambda: flash_attn_func(q, k, v, causal=True),
        "flash_attn_varlen_func": lambda: flash_attn_varlen_func(*rows, ends, ends, 1, 1),
        "flash_attn_with_kvcache": lambda: flash_attn_with_kvcache(q, cache, cache, cache_seqlens=lengths),
        "forward and backward": lambda: grad(flash_attn_func(*leaves, causal=True), leaves, dout),
        "forward and backward, separate": lambda: grad(
            flash_attn_func(*leaves, causal=True, deterministic=True), leaves, dout
        ),
        NOTHING: lambda: grad(Nothing.apply(*leaves), leaves, dout),
    }


def main():
    torch.set_num_threads(1)
    flash_attn_rocm.set_strict(True)
    library = use_host_memory()
    found = {name: microseconds(call) for name, call in calls().items()}
    library._destroy()
    for name, time_taken in found.items():
        print(f"{name:<38} {time_taken:6.1f} us besides its kernels")  # noqa: T201
    slow = [name for name, limit in LIMITS.items() if found[name] > limit]
    return "\n".join(f"{name}: expected at most {LIMITS[name]:.0f} us" for name in slow) or 0


if __name__ == "__main__":
    sys.exit(main())
