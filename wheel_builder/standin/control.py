"""Steers the stand-in HIP runtime of this process, and drives the installed wheel onto it.

``flash_attn_func`` takes its kernel path only for tensors on a GPU, and PyTorch's CPU build has none.  So
two seams are opened from outside, and everything else is the shipped code, from the Python function to the
machine code:

- the question for a device's arch, which the package asks of its own operator, is asked for host memory too;
- the operators ``fwd`` and ``append`` get an implementation for host memory that registers the tensors as the
  memory that the kernel may touch, and passes the call on to the shipped implementation for GPUs.
"""

import ctypes
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from flash_attn_rocm import _support
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet

ARCH_VARIABLE = "FA_STANDIN_ARCH"
CURRENT_DEVICE = -1
FUNCTIONS = ("fa_standin_buffer", "fa_standin_fail", "fa_standin_forget_buffers", "fa_standin_report")
READONLY, WRITTEN = True, False
# What one kernel of a call leaves for the next.  The stand-in knows of writes within a launch only: these count as
# written, and are NaN beforehand, so that reading what nobody wrote shows in the result.
BETWEEN = ("partial_out", "partial_lse")
# Of the operator ``fwd``, in its order, after q, k, v, out, lse.
OPTIONAL_TENSORS = (
    "alibi_slopes", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "leftpad_k", "block_table",
    "cache_batch_idx", "rng_state", "partial_out", "partial_lse",
)  # fmt: skip
WRITTEN_OPTIONALS = frozenset({"partial_out", "partial_lse"})


@dataclass(frozen=True)
class Launch:
    """One kernel that ran: ``executed`` wave-instructions; ``stopped`` says why it ended early, or is ""."""

    kernel: str
    arch: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    executed: int
    stopped: str
    findings: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """``modules``: loaded since the process began; ``launches``: since the last report."""

    modules: int
    launches: tuple[Launch, ...]


class StandIn:
    """The preloaded library's control functions; raises ``RuntimeError`` when it is not preloaded."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        missing = [name for name in FUNCTIONS if not hasattr(self._library, name)]
        if missing:
            message = "the stand-in HIP runtime is not in this process: name it in LD_PRELOAD"
            raise RuntimeError(message)
        for name in FUNCTIONS:
            getattr(self._library, name).restype = ctypes.c_char_p
        self._library.fa_standin_buffer.argtypes = [
            ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int, ctypes.c_int,
        ]  # fmt: skip
        self._library.fa_standin_fail.argtypes = [ctypes.c_char_p]

    @property
    def archs(self) -> tuple[str, ...]:
        """The devices' archs, without their feature flags."""
        return tuple(name.partition(":")[0] for name in os.environ[ARCH_VARIABLE].split(","))

    def fail(self, failures: str) -> None:
        """Plan failures as FA_STANDIN_FAIL does; "" ends them."""
        self._told(self._library.fa_standin_fail(failures.encode()))

    def report(self) -> Report:
        """What was loaded, and what ran since the last report."""
        found = json.loads(self._told(self._library.fa_standin_report()))
        return Report(found["modules"], tuple(_launch(row) for row in found["launches"]))

    def select(self, device: int) -> None:
        """Make ``device`` the current one of this thread, as hipSetDevice does."""
        if code := self._library.hipSetDevice(device):
            message = f"hipSetDevice({device}) failed with HIP error {code}"
            raise RuntimeError(message)

    @contextmanager
    def memory(self, tensors: Mapping[str, tuple[Tensor, bool]]) -> Iterator[None]:
        """Let kernels touch these tensors' elements, and nothing else, inside the ``with`` block.

        Each comes with whether kernels only read it; what they write counts as never written before.
        """
        for name, (tensor, readonly) in tensors.items():
            self._told(
                self._library.fa_standin_buffer(
                    tensor.data_ptr(),
                    span_bytes(tensor),
                    name.encode(),
                    readonly,
                    readonly or name in BETWEEN,
                )
            )
        try:
            yield
        finally:
            self._told(self._library.fa_standin_forget_buffers())

    @staticmethod
    def _told(answer: bytes) -> str:
        text = answer.decode(errors="replace")
        if text.startswith("error: "):
            raise RuntimeError(text)
        return text


def span_bytes(tensor: Tensor) -> int:
    """Bytes from a tensor's first element to its last, holes between its rows included."""
    if tensor.numel() == 0:
        return 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((steps + 1) * tensor.element_size())


@contextmanager
def kernels_on_host_memory(standin: StandIn) -> Iterator[None]:
    """Inside the ``with`` block ``flash_attn_func`` on CPU tensors goes the way of GPU tensors."""
    _support.Machine.host_memory_arch = _arch_of_current_device
    library = torch.library.Library("flash_attn_rocm", "IMPL")
    library.impl("fwd", _fwd_on(standin), "CPU")
    library.impl("append", _append_on(standin), "CPU")
    try:
        yield
    finally:
        _support.Machine.host_memory_arch = None
        library._destroy()  # noqa: SLF001 - torch has no public way to take an implementation back


def _fwd_on(standin: StandIn) -> Any:  # noqa: ANN401 - torch wants the operator's own signature
    def fwd(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *rest: Any) -> None:  # noqa: ANN401
        optional = dict(zip(OPTIONAL_TENSORS, rest, strict=False))
        tensors = {
            "q": (q, READONLY), "k": (k, READONLY), "v": (v, READONLY),
            "out": (out, WRITTEN), "lse": (lse, WRITTEN),
            **{
                name: (tensor, name not in WRITTEN_OPTIONALS)
                for name, tensor in optional.items() if tensor is not None
            },
        }  # fmt: skip
        for name in BETWEEN:
            if optional.get(name) is not None:
                optional[name].fill_(torch.nan)
        with standin.memory(tensors):
            shipped = torch.ops.flash_attn_rocm.fwd.default
            shipped.redispatch(DispatchKeySet(DispatchKey.CUDA), q, k, v, out, lse, *rest)

    return fwd


def _append_on(standin: StandIn) -> Any:  # noqa: ANN401
    shipped = torch.ops.flash_attn_rocm.append.default
    rows = [(each.name, each.is_write) for each in shipped._schema.arguments]  # noqa: SLF001 - no other way

    def append(*arguments: Any) -> None:  # noqa: ANN401
        tensors = {
            name: (value, WRITTEN if written else READONLY)
            for (name, written), value in zip(rows, arguments, strict=True)
            if isinstance(value, Tensor)
        }
        with standin.memory(tensors):
            shipped.redispatch(DispatchKeySet(DispatchKey.CUDA), *arguments)

    return append


def _arch_of_current_device() -> str:
    return str(torch.ops.flash_attn_rocm.device_arch(CURRENT_DEVICE))


def _launch(row: dict[str, Any]) -> Launch:
    grid, block, findings = (tuple(row[name]) for name in ("grid", "block", "findings"))
    return Launch(**{**row, "grid": grid, "block": block, "findings": findings})
