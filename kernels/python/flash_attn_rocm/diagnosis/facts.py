"""What a report of the doctor is made of: facts about a machine, as values."""

import re
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from flash_attn_rocm.machine import requirements
from flash_attn_rocm.machine.drop_in import FLASH_ATTN_3, DropIn
from flash_attn_rocm.machine.requirements import WINDOWS, Step

State = Literal["absent", "denied", "open"]
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
# For one node of the driver's topology, since ROCm 6.2; it counts before the other.
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
    """The installed PyTorch; ``version`` is empty when none can be imported."""

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
    """An AMD GPU.  ``reasons`` maps ``"fp16 head_dim 64"`` to why no kernel serves it, ``""`` if one does.

    ``compute_units`` are those that the HIP runtime reports; 0: it was not asked.  ``node`` is its number in
    the driver's topology, where CPUs are nodes too; -1: of PyTorch's GPUs nobody says it.
    """

    index: int
    name: str
    arch: str
    reasons: tuple[tuple[str, str], ...] = ()
    compute_units: int = 0
    node: int = -1


@dataclass(frozen=True)
class Fused:
    """One of PyTorch's own fused attention kernels, flash or memory-efficient; ``words`` say how it fails."""

    name: str
    state: Literal["works", "absent", "fails"]
    words: str = ""


@dataclass(frozen=True)
class Facts:
    """Everything the report is made of.

    ``problems`` keep the package from importing. ``hip_libraries`` are the files of the HIP runtime mapped
    into this process, ``environment`` the variables that change what it sees. ``gpus`` are those that PyTorch
    can use, ``driver_gpus`` those that the kernel driver lists, on Windows none. ``canary`` has what failed
    at first use, each with the file that remembers it. ``kfd`` is the file through which GPUs compute:
    /dev/kfd, or /dev/dxg on WSL2, and on Windows none: absent where there is no driver. ``drop_in`` is what
    ``import flash_attn`` finds, ``drop_in_3`` what ``import flash_attn_interface`` does, ``fused`` what
    PyTorch's own attention does on the first GPU. ``archs`` are those that the wheel has machine code of,
    ``served`` the GPUs that run it, each with its arch; ``torch_archs`` are those that PyTorch's own kernels
    were built for and ``torch_devices`` those whose kernels this build has in packages of their own,
    installed or not; both are empty where PyTorch does not say. ``rocdxg`` is the name of ROCm's library for
    WSL2, "" where none was found.
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
    drop_in: DropIn = field(default_factory=DropIn)
    drop_in_3: DropIn = field(default_factory=partial(DropIn, distribution=FLASH_ATTN_3))
    fused: tuple[Fused, ...] = ()
    served: tuple[tuple[str, str], ...] = ()
    torch_archs: tuple[str, ...] = ()
    torch_devices: tuple[str, ...] = ()
    rocdxg: str = ""

    @property
    def windows(self) -> bool:
        return self.system == WINDOWS
