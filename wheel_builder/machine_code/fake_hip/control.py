"""Controls the fake HIP runtime of this process, and makes the installed wheel use it.

``flash_attn_func`` takes its kernel path only for tensors on a GPU, and PyTorch's CPU build has none. So two
parts are replaced from outside. The rest is shipped code, from the Python function to the machine code:

- the machine that kernels run on is one that reads host memory (``flash_attn_rocm.serving.machine``);
- the operators ``fwd``, ``bwd``, ``append``, ``widen``, ``fwd_fp8``, ``fwd_int8`` and ``mla`` get an
  implementation for host memory. It registers the tensors as accessible memory of kernels, and passes the
  call on to the shipped implementation for GPUs.
"""

import ctypes
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from flash_attn_rocm.library.host import gfx_of
from flash_attn_rocm.serving import machine
from flash_attn_rocm.serving.layouts import Device
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet

ARCH_VARIABLE = "FA_FAKE_HIP_ARCH"
DLL_VARIABLE = "FA_FAKE_HIP_DLL"  # the runtime's path on Windows, which lacks preloading
CURRENT_DEVICE = -1
FUNCTIONS = (
    "fa_fake_hip_buffer", "fa_fake_hip_fail", "fa_fake_hip_forget_buffers", "fa_fake_hip_listing",
    "fa_fake_hip_report",
)  # fmt: skip
READONLY, WRITTEN = True, False
HOLE = 1 << 20  # bytes: the limit of holes in tensors of tests, except for tests of large strides
# Intermediate tensors, written by one kernel of a call for the next. The fake HIP runtime tracks writes
# within one launch only, so these count as written. They start as NaN: reading an unwritten element shows in
# the result.
BETWEEN = ("partial_out", "partial_lse", "delta", "workspace")
# Likewise a forward's out with a boolean mask, and dq from so many queries on: before its rows it holds the
# visible keys of the mask (masks/shown_range.hpp).
HOLD_WHAT_IS_SHOWN = {"out": 0, "dq": 1024}
# Kernels add to the caller's values, write only parts, or read some calls' values.
ADDED_TO = ("dq_sums", "dscores", "k_descale", "v_descale")


@dataclass(frozen=True)
class Launch:
    """One executed kernel: ``executed`` wave-instructions. ``stopped`` is the reason of an early end, or "".

    Bit i of ``ran``: some wave executed instruction i of ``FakeHip.listing``. With FA_FAKE_HIP_OUTCOMES=1,
    bits 4 i to 4 i + 3 of ``outcomes`` are its outcomes (core/run/outcomes.hpp).
    """

    kernel: str
    arch: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    executed: int
    ran: int
    outcomes: int
    stopped: str
    findings: tuple[str, ...]


@dataclass(frozen=True)
class Instruction:
    """``offset`` is in bytes from the kernel's entry, ``text`` the disassembler's."""

    offset: int
    text: str


@dataclass(frozen=True)
class Report:
    """``modules``: loaded since the process began. ``launches``: since the last report."""

    modules: int
    launches: tuple[Launch, ...]


class FakeHip:
    """The runtime's control functions. Raises ``RuntimeError`` when it is neither preloaded nor named."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ.get(DLL_VARIABLE))
        missing = [name for name in FUNCTIONS if not hasattr(self._library, name)]
        if missing:
            message = (
                "the fake HIP runtime is not in this process: name it in LD_PRELOAD, on Windows in "
                f"{DLL_VARIABLE}"
            )
            raise RuntimeError(message)
        for name in FUNCTIONS:
            getattr(self._library, name).restype = ctypes.c_char_p
        self._library.fa_fake_hip_buffer.argtypes = [
            ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int, ctypes.c_int,
        ]  # fmt: skip
        self._library.fa_fake_hip_fail.argtypes = [ctypes.c_char_p]
        self._library.fa_fake_hip_listing.argtypes = [ctypes.c_char_p]

    @property
    def archs(self) -> tuple[str, ...]:
        """The devices' archs, without feature flags."""
        return tuple(gfx_of(name) for name in os.environ[ARCH_VARIABLE].split(","))

    def fail(self, failures: str) -> None:
        """Plan failures as FA_FAKE_HIP_FAIL does. "" ends them."""
        self._told(self._library.fa_fake_hip_fail(failures.encode()))

    def report(self) -> Report:
        """Loaded modules, and launches since the last report."""
        found = json.loads(self._told(self._library.fa_fake_hip_report()))
        return Report(found["modules"], tuple(_launch(row) for row in found["launches"]))

    def listing(self, kernel: str) -> tuple[Instruction, ...]:
        """The instructions of a loaded kernel, with the rare blocks after ``s_endpgm``."""
        found = json.loads(self._told(self._library.fa_fake_hip_listing(kernel.encode())))
        return tuple(Instruction(**row) for row in found)

    def select(self, device: int) -> None:
        """Make ``device`` the current one of this thread, as hipSetDevice does."""
        if code := self._library.hipSetDevice(device):
            message = f"hipSetDevice({device}) failed with HIP error {code}"
            raise RuntimeError(message)

    @contextmanager
    def memory(self, tensors: Mapping[str, tuple[Tensor, bool]]) -> Iterator[None]:
        """Inside the ``with`` block, kernels may access only these tensors' elements.

        Each has a flag for read-only access. Written tensors, except for those above, count as unwritten at
        first.
        """
        written = {*_between(tensors), *ADDED_TO}
        for name, (tensor, readonly) in tensors.items():
            for part in [tensor] if readonly else parts_of(tensor):
                self._told(
                    self._library.fa_fake_hip_buffer(
                        part.data_ptr(),
                        span_bytes(part),
                        name.encode(),
                        readonly,
                        readonly or name in written,
                    )
                )
        try:
            yield
        finally:
            self._told(self._library.fa_fake_hip_forget_buffers())

    @staticmethod
    def _told(answer: bytes) -> str:
        text = answer.decode(errors="replace")
        if text.startswith("error: "):
            raise RuntimeError(text)
        return text


def _between(tensors: Mapping[str, tuple[Tensor, bool]]) -> tuple[str, ...]:
    """The intermediate tensors among a call's."""
    between = tuple(name for name in BETWEEN if name in tensors)
    if "attn_mask" not in tensors:
        return between
    (mask, _), (q, _) = tensors["attn_mask"], tensors["q"]
    looked_at = has_ranges(mask, q.dtype)
    written = [name for name in HOLD_WHAT_IS_SHOWN if name in tensors and tensors[name][1] == WRITTEN]
    shown = [name for name in written if looked_at and q.shape[1] >= HOLD_WHAT_IS_SHOWN[name]]
    return (*between, *shown)


def has_ranges(mask: Tensor, dtype: torch.dtype) -> bool:
    """Whether a kernel finds a mask's visible keys in calls of this dtype (``has_ranges`` of params.hpp)."""
    shared = any(mask.shape[axis] == 1 or mask.stride(axis) == 0 for axis in (1, 2))
    return mask.dtype == torch.bool or (mask.dtype == dtype and shared)


def span_bytes(tensor: Tensor) -> int:
    """Bytes from a tensor's first element to its last, holes between its rows included."""
    if tensor.numel() == 0:
        return 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((steps + 1) * tensor.element_size())


def parts_of(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor in parts, wherever its elements are more than HOLE bytes apart.

    The emulator keeps a byte for each one of a result, its holes included.
    """
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    apart = [n for n, (size, step) in enumerate(steps) if size > 1 and step * tensor.element_size() > HOLE]
    if apart and tensor.numel():
        for part in tensor.unbind(apart[0]):
            yield from parts_of(part)
    else:
        yield tensor


class HostMemory(machine.Machine):
    """The emulated GPU reads tensors on the CPU; it has ``units`` compute units to fill (0: unknown)."""

    kind = "cpu"
    checks_kernels = False
    units = 0

    def unserved(self, device: torch.device) -> str:  # noqa: ARG002
        return ""

    def count(self) -> int:
        return 1

    def device(self, device: torch.device) -> Device:  # noqa: ARG002
        return Device(str(torch.ops.flash_attn_rocm.device_arch(CURRENT_DEVICE)), self.units)


HOST_MEMORY = HostMemory()


@contextmanager
def kernels_on_host_memory(fake_hip: FakeHip) -> Iterator[None]:
    """Inside the ``with`` block ``flash_attn_func`` treats CPU tensors like GPU tensors."""
    former = machine.use(HOST_MEMORY)
    library = torch.library.Library("flash_attn_rocm", "IMPL")
    library.impl("fwd", _on(fake_hip, torch.ops.flash_attn_rocm.fwd.default), "CPU")
    library.impl("bwd", _on(fake_hip, torch.ops.flash_attn_rocm.bwd.default), "CPU")
    library.impl("append", _on(fake_hip, torch.ops.flash_attn_rocm.append.default), "CPU")
    library.impl("widen", _on(fake_hip, torch.ops.flash_attn_rocm.widen.default), "CPU")
    library.impl("fwd_fp8", _on(fake_hip, torch.ops.flash_attn_rocm.fwd_fp8.default), "CPU")
    library.impl("fwd_int8", _on(fake_hip, torch.ops.flash_attn_rocm.fwd_int8.default), "CPU")
    library.impl("mla", _on(fake_hip, torch.ops.flash_attn_rocm.mla.default), "CPU")
    try:
        yield
    finally:
        machine.use(former)
        library._destroy()  # noqa: SLF001 - torch has no public way to take an implementation back


def _on(fake_hip: FakeHip, shipped: Any) -> Any:  # noqa: ANN401
    rows = [(each.name, each.is_write) for each in shipped._schema.arguments]  # noqa: SLF001 - no other way

    def operator(*arguments: Any) -> None:  # noqa: ANN401
        tensors = {
            name: (value, WRITTEN if written else READONLY)
            for (name, written), value in zip(rows, arguments, strict=True)
            if isinstance(value, Tensor)
        }
        for name in _between(tensors):
            tensors[name][0].fill_(torch.nan)
        with fake_hip.memory(tensors):
            shipped.redispatch(DispatchKeySet(DispatchKey.CUDA), *arguments)

    return operator


def _launch(row: dict[str, Any]) -> Launch:
    grid, block, findings = (tuple(row[name]) for name in ("grid", "block", "findings"))
    # One digit for every four instructions, the first four in the first digit.
    ran, outcomes = (int(row[name][::-1] or "0", 16) for name in ("ran", "outcomes"))
    shown = {"findings": findings, "ran": ran, "outcomes": outcomes}
    return Launch(**{**row, "grid": grid, "block": block, **shown})
