"""The machine running kernels: AMD GPUs, or a replacement from ``use``."""

from collections.abc import Hashable
from functools import cache
from typing import Any

import torch

from flash_attn_rocm.library.host import gfx_of
from flash_attn_rocm.library.tuned import Gpu
from flash_attn_rocm.machine.requirements import build_name, wrong_build
from flash_attn_rocm.serving.layouts import Device


class Machine:
    """AMD GPUs, as PyTorch has them.

    Kernels read tensors on devices of the type ``kind``.  With ``checks_kernels`` their first use is checked
    (``canary.first_use``).  ``decisions`` about calls belong to a machine (``autograd.recall``).
    """

    kind = "cuda"
    checks_kernels = True

    def __init__(self) -> None:
        self.decisions: dict[Hashable, Any] = {}

    def unserved(self, device: torch.device) -> str:
        """The reason against tensors on the device, or ""."""
        if device.type != self.kind:
            return f"the tensors are on {device.type}, and kernels run on AMD GPUs"
        return wrong_build(build_name(None, torch.version.cuda)) if torch.version.hip is None else ""

    def count(self) -> int:
        """How many devices there are."""
        return torch.cuda.device_count()

    def device(self, device: torch.device) -> Device:
        """The device facts for a plan. Raises RuntimeError if the device lacks an arch."""
        return _device(device)

    def gpu(self, device: torch.device) -> Gpu:
        """What rows are kept for. Without a name if nothing tells it."""
        found, name = self.device(device), torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        return Gpu(gfx_of(found.arch), str(name), found.compute_units)


class _Current:
    machine = Machine()


def current() -> Machine:
    """The machine in use."""
    return _Current.machine


def use(machine: Machine) -> Machine:
    """Replace the machine. Returns the former one."""
    former, _Current.machine = _Current.machine, machine
    return former


@cache
def _device(device: torch.device) -> Device:
    arch = str(torch.ops.flash_attn_rocm.device_arch(device.index))
    return Device(arch, int(torch.ops.flash_attn_rocm.compute_units(device.index)))
