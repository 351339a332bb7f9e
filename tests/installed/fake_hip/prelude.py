"""The beginning of every scenario. ``shown`` is the scenario's report to the test at its end."""

import gc
import weakref
from pathlib import Path

import flash_attn_rocm
import torch
from flash_attn_rocm import flash_attn_func
from flash_attn_rocm.launch import forward_pass
from torch._C import DispatchKey, DispatchKeySet

from wheel_builder.machine_code.fake_hip.control import FakeHip, kernels_on_host_memory

shown = {}
flash_attn_rocm.set_strict(True)
fake_hip = FakeHip()


def qkv(rows=17, dtype=torch.float16, head_dim=64):
    """q (1, rows, 4, head_dim), k and v (1, rows, 2, head_dim)."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, rows, n, head_dim, generator=generator).to(dtype) for n in (4, 2, 2)]


def attend(*tensors):
    with kernels_on_host_memory(fake_hip):
        return flash_attn_func(*(tensors or qkv()), causal=True)


def dense_fwd(q, k, v, out, lse, **more):
    """The operator's GPU implementation, called directly."""
    given = {
        "q": q, "k": k, "v": v, "out": out, "lse": lse, "max_seqlen_q": q.shape[1],
        "max_seqlen_k": k.shape[1], "softmax_scale": 0.125, "window_left": -1, "window_right": -1,
        "softcap": 0.0, "dropout_p": 0.0, "path": "", **more,
    }  # fmt: skip
    fwd = torch.ops.flash_attn_rocm.fwd.default
    fwd.redispatch(DispatchKeySet(DispatchKey.CUDA), *(given.get(name) for name in forward_pass.ARGUMENTS))


def words_of_failure(*tensors):
    """The text of the RuntimeError raised by attention."""
    try:
        attend(*tensors)
    except RuntimeError as error:
        return str(error)
    message = "attention succeeded"
    raise AssertionError(message)


def resident_bytes():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def watch(tensors):
    """Weak references to the tensors."""
    return [weakref.ref(x) for x in tensors]


def alive(watched):
    gc.collect()
    return sum(ref() is not None for ref in watched)
