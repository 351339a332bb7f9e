"""What the doctor needs to know about this machine.  Only this module looks at it."""

import hashlib
import importlib
import os
import platform
import re
import stat
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Literal

from flash_attn_rocm.machine import drop_in, environment, requirements, torch_devices, windows
from flash_attn_rocm.machine.drop_in import DropIn
from flash_attn_rocm.machine.requirements import WINDOWS, Step

if sys.platform != "win32":
    import grp

State = Literal["absent", "denied", "open"]
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
# For one node of the driver's topology, since ROCm 6.2; it counts before the other.
OVERRIDE_OF_NODE = re.compile(rf"{OVERRIDE}_(\d+)")
DXG_VARIABLE = "HSA_ENABLE_DXG_DETECTION"
HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
VARIABLES = (OVERRIDE, *HIDING, DXG_VARIABLE)
AMD = "0x1002"  # the vendor of PCI
# Where WSL2 shows the drivers of Windows, a folder for each with its version's hash in the name, and where
# ROCm's library that reaches them may be.
WSL_DRIVERS = "usr/lib/wsl/drivers"
ROCDXG_FOLDERS = ("opt/rocm/lib", "usr/lib/x86_64-linux-gnu", "usr/local/lib")


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
    drop_in_3: DropIn = field(default_factory=partial(DropIn, distribution=drop_in.FLASH_ATTN_3))
    fused: tuple[Fused, ...] = ()
    served: tuple[tuple[str, str], ...] = ()
    torch_archs: tuple[str, ...] = ()
    torch_devices: tuple[str, ...] = ()
    rocdxg: str = ""

    @property
    def windows(self) -> bool:
        return self.system == WINDOWS


def collect(root: Path = Path("/"), *, ask_gpus: bool = True) -> Facts:
    """Look at this machine; ``root`` is where its /dev, /proc and /sys begin.

    Asking PyTorch for its GPUs starts the HIP runtime in this process, which is then not fit to be forked.
    """
    torch, module = _torch()
    problems = _package_problems()
    listed = driver_gpus(root / "sys/class/kfd/kfd/topology/nodes")
    gpus = _torch_gpus(module) if ask_gpus and module is not None and not problems else ()
    wsl = is_wsl(root)
    return Facts(
        system=sys.platform,
        machine=platform.machine(),
        os_name=_os_name(),
        glibc=requirements.glibc(),
        python=platform.python_version(),
        package=requirements.package_version(),
        rocm=requirements.wheel_rocm(),
        problems=problems,
        torch=torch,
        hip_libraries=_hip_libraries(root),
        environment=_variables(),
        driver=driver(root),
        kfd=_gateway(root, wsl=wsl),
        renders=tuple(map(device_file, render_nodes(root))),
        user_groups=_user_groups(),
        archs=() if problems else _archs(),
        gpus=gpus,
        driver_gpus=listed
        if problems
        else tuple(replace(gpu, reasons=gpu_reasons(gpu.arch)) for gpu in listed),
        canary=() if problems else _canary(),
        wsl=wsl,
        drop_in=drop_in.find(),
        drop_in_3=drop_in.find(drop_in.FLASH_ATTN_3),
        fused=_fused() if gpus else (),
        served=() if problems else _served(),
        torch_archs=_torch_archs(module) if gpus and module is not None else (),
        torch_devices=torch_devices.offered(),
        rocdxg=rocdxg(root) if wsl else "",
    )


def _variables() -> tuple[tuple[str, str], ...]:
    per_node = sorted(filter(OVERRIDE_OF_NODE.fullmatch, os.environ))
    names = [name for name in (OVERRIDE, *per_node, *VARIABLES[1:]) if name in os.environ]
    return (*((name, os.environ[name]) for name in names), *environment.given(os.environ))


def _hip_libraries(root: Path) -> tuple[str, ...]:
    if sys.platform == "win32":
        return windows.hip_libraries()
    return hip_libraries((root / "proc/self/maps").read_text(encoding="utf-8", errors="replace"))


def _gateway(root: Path, *, wsl: bool) -> DeviceFile:
    if sys.platform == "win32":
        return DeviceFile("", "open" if driver(root) else "absent")
    return device_file(root / ("dev/dxg" if wsl else "dev/kfd"))


def is_wsl(root: Path) -> bool:
    """Whether this Linux runs in WSL2, where Windows has the GPUs and their driver."""
    return "microsoft" in _read(root / "proc/sys/kernel/osrelease").lower()


def rocdxg(root: Path) -> str:
    """The file of ROCm's library for WSL2, such as librocdxg.so.1.1.0; "" where none is installed."""
    found = (path for folder in ROCDXG_FOLDERS for path in sorted((root / folder).glob("librocdxg.so*")))
    return next((path.resolve().name for path in found), "")


def hip_libraries(maps: str) -> tuple[str, ...]:
    """The HIP runtime's files in the text of /proc/<pid>/maps, each once."""
    paths = [line.split(maxsplit=5)[5] for line in maps.splitlines() if "libamdhip64" in line]
    return tuple(dict.fromkeys(paths))


def device_file(path: Path) -> DeviceFile:
    """Whether a device's file exists and this user may open it."""
    try:
        found = path.stat()
    except OSError:
        return DeviceFile(str(path), "absent")
    state: State = "open" if os.access(path, os.R_OK | os.W_OK) else "denied"
    return DeviceFile(str(path), state, _group(found.st_gid), stat.filemode(found.st_mode))


def render_nodes(root: Path) -> list[Path]:
    """The files of AMD's GPUs in /dev/dri, and those of which nobody says whose they are."""
    nodes = sorted((root / "dev/dri").glob("render*"))
    return [
        node
        for node in nodes
        if _read(root / f"sys/class/drm/{node.name}/device/vendor").strip() in {"", AMD}
    ]


def driver(root: Path) -> str:
    """The kernel driver: its own version where it is not a part of Linux, or Linux's; "" when not loaded.

    On WSL2 it is one of Windows, which no file names: a digest of all drivers there changes with it.
    """
    if sys.platform == "win32":
        return windows.driver()
    if is_wsl(root):
        return _of_windows(root)
    module = root / "sys/module/amdgpu"
    if not module.is_dir():
        return ""
    version = _read(module / "version").strip()
    return f"amdgpu {version}" if version else f"amdgpu of Linux {platform.release()}"


def _of_windows(root: Path) -> str:
    names = sorted(folder.name for folder in (root / WSL_DRIVERS).glob("*.inf_*"))
    if not names:
        return ""
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    return f"that of Windows (drivers {digest}), {rocdxg(root) or 'no librocdxg'}"


def driver_gpus(nodes: Path) -> tuple[Gpu, ...]:
    """The GPUs in the driver's topology; its other nodes are CPUs and have no gfx version."""
    folders = sorted(nodes.glob("*"), key=lambda folder: int(folder.name)) if nodes.is_dir() else []
    # Where a container may not read a node, the runtime leaves it out and counts on with the next.
    texts = [text for folder in folders if (text := _read(folder / "properties"))]
    found = [(node, arch) for node, text in enumerate(texts) if (arch := _topology_arch(text))]
    return tuple(Gpu(index, "AMD GPU", arch, node=node) for index, (node, arch) in enumerate(found))


def _topology_arch(properties: str) -> str:
    pairs = (line.split() for line in properties.splitlines())
    version = int(dict(pair for pair in pairs if len(pair) == 2).get("gfx_target_version", "0"))
    # 90010 is gfx90a: major, then two digits each for minor and stepping, which names write in hex.
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def _torch() -> tuple[Torch, ModuleType | None]:
    try:
        module = requirements.import_torch()
    except ImportError as error:
        return Torch(problem=str(error)), None
    rocm, cuda = module.version.hip or "", module.version.cuda or ""
    return Torch(version=module.__version__, rocm=rocm, cuda=cuda), module


def _package_problems() -> tuple[Step, ...]:
    if steps := requirements.unmet():
        return tuple(steps)
    try:
        importlib.import_module("flash_attn_rocm.library.host")
    except ImportError as error:
        return (Step(str(error), (requirements.REMOVE,)),)
    return ()


def _archs() -> tuple[str, ...]:
    library = importlib.import_module("flash_attn_rocm.library.host")
    return tuple(dict.fromkeys(arch for each in library.instances() for arch in each.archs))


def _served() -> tuple[tuple[str, str], ...]:
    return tuple(importlib.import_module("flash_attn_rocm.library.host").gpus().items())


def _torch_gpus(torch: ModuleType) -> tuple[Gpu, ...]:
    if not torch.version.hip:
        return ()
    return tuple(_torch_gpu(torch, index) for index in range(torch.cuda.device_count()))


def _torch_archs(torch: ModuleType) -> tuple[str, ...]:
    built_for = (arch.partition(":")[0] for arch in torch.cuda.get_arch_list())
    return torch_devices.installed(tuple(built_for))


def _torch_gpu(torch: ModuleType, index: int) -> Gpu:
    name = str(torch.cuda.get_device_name(index))
    try:
        arch = str(torch.ops.flash_attn_rocm.device_arch(index))
        units = int(torch.ops.flash_attn_rocm.compute_units(index))
    except RuntimeError as error:
        return Gpu(index, name, "arch unknown", (("every kernel", str(error)),))
    return Gpu(index, name, arch, gpu_reasons(arch), units)


def gpu_reasons(arch: str) -> tuple[tuple[str, str], ...]:
    """For each dtype and head dim of the wheel, why this arch has no kernel, or ``""``."""
    library = importlib.import_module("flash_attn_rocm.library.host")
    support = importlib.import_module("flash_attn_rocm.serving.support")
    forward = (each for each in library.instances() if each.op == "fwd")
    wanted = dict.fromkeys((each.dtype, each.head_dim) for each in forward)
    return tuple(
        (f"{dtype} head_dim {head_dim}", "" if found.ok else found.reason)
        for dtype, head_dim in wanted
        for found in (support.is_supported(arch, dtype, head_dim),)
    )


def _canary() -> tuple[tuple[str, str], ...]:
    failures = importlib.import_module("flash_attn_rocm.machine.remembered").failures()
    return tuple((f"{found.family}, {found.arch}: {found.words}", str(path)) for path, found in failures)


def _fused() -> tuple[Fused, ...]:
    found: tuple[Fused, ...] = importlib.import_module("flash_attn_rocm.diagnosis.fused").look()
    return found


def _os_name() -> str:
    if sys.platform == "win32":
        return f"{platform.system()} {platform.release()}"
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _user_groups() -> tuple[str, ...]:
    if sys.platform == "win32":
        return ()
    return tuple(_group(gid) for gid in dict.fromkeys((os.getegid(), *os.getgroups())))


def _group(gid: int) -> str:
    if sys.platform == "win32":
        return ""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
