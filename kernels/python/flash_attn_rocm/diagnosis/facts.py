"""Facts about a machine, as values for the doctor's report."""

import re
from dataclasses import dataclass
from typing import Literal

from flash_attn_rocm.machine import drop_in, requirements
from flash_attn_rocm.machine.drop_in import DropIn
from flash_attn_rocm.machine.requirements import WINDOWS, Step
from flash_attn_rocm.machine.tuning import Tuning

State = Literal["absent", "denied", "open"]
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
# For one node of the driver's topology, since ROCm 6.2. Takes precedence over the other variable.
OVERRIDE_OF_NODE = re.compile(rf"{OVERRIDE}_(\d+)")
DXG_VARIABLE = "HSA_ENABLE_DXG_DETECTION"
HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


@dataclass(frozen=True)
class DeviceFile:
    """A device's file: whether this user may open it, its group, and its mode as ``ls -l`` shows it."""

    path: str
    state: State
    group: str = ""
    mode: str = ""


@dataclass(frozen=True)
class Torch:
    """The installed PyTorch. ``version`` is empty if the import fails."""

    version: str = ""
    rocm: str = ""
    cuda: str = ""
    problem: str = ""

    @property
    def build(self) -> str:
        """``ROCm 7.2.53``, ``CUDA 12.8`` or ``CPU``."""
        return requirements.build_name(self.rocm, self.cuda)


@dataclass(frozen=True)
class Gpu:
    """An AMD GPU.

    ``reasons`` maps ``"fp16 head_dim 64"`` to the reason against a kernel, ``""`` if one serves.

    ``compute_units`` are the HIP runtime's number (0: unknown). ``node`` is the number in the driver's
    topology, CPUs included (-1: unknown, as for GPUs from PyTorch).
    """

    index: int
    name: str
    arch: str
    reasons: tuple[tuple[str, str], ...] = ()
    compute_units: int = 0
    node: int = -1


@dataclass(frozen=True)
class Fused:
    """One of PyTorch's fused attention kernels, flash or memory-efficient. ``words`` describe a failure."""

    name: str
    state: Literal["works", "absent", "fails"]
    words: str = ""


@dataclass(frozen=True)
class Facts:
    """The facts of a report.

    ``problems`` keep the package from importing. ``hip_libraries`` are files of the HIP runtime mapped into
    this process, ``environment`` the variables affecting it. ``gpus`` are PyTorch's GPUs, ``driver_gpus`` the
    kernel driver's list (on Windows empty). ``canary`` has failures at first use, each with the file
    remembering it.

    ``kfd`` is the device file for compute: /dev/kfd, on WSL2 /dev/dxg, on Windows none. Its state is absent
    without a driver. ``drop_ins`` are the modules found by ``import flash_attn`` and the like, ``tuning`` the
    distributions of candidates for the GPUs. ``fused`` has the state of PyTorch's own attention on the first
    GPU.

    ``archs`` are the archs of the wheel's machine code, ``served`` the GPUs running it, each with its arch.
    ``torch_archs`` are the archs of PyTorch's own kernels, ``torch_devices`` those in separate packages of
    this build, installed or not. Both are empty if unknown. ``rocdxg`` is the file name of ROCm's library for
    WSL2, or "".
    """

    system: str
    machine: str
    os_name: str
    glibc: str
    python: str
    package: str
    rocm: str
    problems: tuple[Step, ...]
    torch: Torch
    hip_libraries: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    driver: str
    kfd: DeviceFile
    renders: tuple[DeviceFile, ...]
    user_groups: tuple[str, ...]
    archs: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    driver_gpus: tuple[Gpu, ...]
    canary: tuple[tuple[str, str], ...] = ()
    wsl: bool = False
    drop_ins: tuple[DropIn, ...] = drop_in.NONE
    tuning: tuple[Tuning, ...] = ()
    fused: tuple[Fused, ...] = ()
    served: tuple[tuple[str, str], ...] = ()
    torch_archs: tuple[str, ...] = ()
    torch_devices: tuple[str, ...] = ()
    rocdxg: str = ""

    @property
    def windows(self) -> bool:
        return self.system == WINDOWS
