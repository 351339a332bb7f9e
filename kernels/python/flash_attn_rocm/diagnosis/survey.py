"""Collects the doctor's facts. This is the only module that examines the machine."""

import os
import platform
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from flash_attn_rocm.diagnosis import fused, wheel
from flash_attn_rocm.diagnosis.facts import (
    DXG_VARIABLE,
    HIDING,
    OVERRIDE,
    OVERRIDE_OF_NODE,
    DeviceFile,
    Facts,
    Gpu,
    State,
    Torch,
)
from flash_attn_rocm.machine import (
    driver,
    drop_in,
    environment,
    requirements,
    torch_devices,
    tuning,
    windows,
)

if sys.platform != "win32":
    import grp

VARIABLES = (OVERRIDE, *HIDING, DXG_VARIABLE)
AMD = "0x1002"  # PCI vendor


def collect(root: Path = Path("/"), *, ask_gpus: bool = True) -> Facts:
    """Examine this machine. ``root`` contains /dev, /proc and /sys.

    Asking PyTorch for GPUs starts the HIP runtime in this process: later forks are unsafe.
    """
    torch, module = _torch()
    listed = driver_gpus(root / "sys/class/kfd/kfd/topology/nodes")
    gpus = _torch_gpus(module) if ask_gpus and module is not None and not wheel.PROBLEMS else ()
    wsl = driver.is_wsl(root)
    return Facts(
        system=sys.platform,
        machine=platform.machine(),
        os_name=_os_name(),
        glibc=requirements.glibc(),
        python=platform.python_version(),
        package=requirements.package_version(),
        rocm=requirements.wheel_rocm(),
        problems=wheel.PROBLEMS,
        torch=torch,
        hip_libraries=_hip_libraries(root),
        environment=_variables(),
        driver=driver.version(root),
        kfd=_gateway(root, wsl=wsl),
        renders=tuple(map(device_file, render_nodes(root))),
        user_groups=_user_groups(),
        archs=wheel.archs(),
        gpus=gpus,
        driver_gpus=tuple(replace(gpu, reasons=wheel.gpu_reasons(gpu.arch)) for gpu in listed),
        canary=tuple(wheel.failures()),
        wsl=wsl,
        drop_ins=drop_in.find_all(),
        tuning=_tuning(gpus),
        fused=fused.look() if gpus else (),
        served=wheel.served(),
        torch_archs=_torch_archs(module) if gpus and module is not None else (),
        torch_devices=torch_devices.offered(),
        rocdxg=driver.rocdxg(root) if wsl else "",
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
        return DeviceFile("", "open" if driver.version(root) else "absent")
    return device_file(root / ("dev/dxg" if wsl else "dev/kfd"))


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
    """AMD's files in /dev/dri, and files of unknown vendors."""
    nodes = sorted((root / "dev/dri").glob("render*"))
    return [
        node
        for node in nodes
        if driver.text_of(root / f"sys/class/drm/{node.name}/device/vendor").strip() in {"", AMD}
    ]


def driver_gpus(nodes: Path) -> tuple[Gpu, ...]:
    """The GPUs in the driver's topology. CPU nodes have no gfx version."""
    folders = sorted(nodes.glob("*"), key=lambda folder: int(folder.name)) if nodes.is_dir() else []
    # Like the runtime, number only the nodes readable in this container.
    texts = [text for folder in folders if (text := driver.text_of(folder / "properties"))]
    found = [(node, arch) for node, text in enumerate(texts) if (arch := _topology_arch(text))]
    return tuple(Gpu(index, "AMD GPU", arch, node=node) for index, (node, arch) in enumerate(found))


def _topology_arch(properties: str) -> str:
    pairs = (line.split() for line in properties.splitlines())
    version = int(dict(pair for pair in pairs if len(pair) == 2).get("gfx_target_version", "0"))
    # 90010 is gfx90a: the major number, then two digits each for minor and stepping, in hex in the name.
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else ""


def _torch() -> tuple[Torch, ModuleType | None]:
    try:
        module = requirements.import_torch()
    except ImportError as error:
        return Torch(problem=str(error)), None
    rocm, cuda = module.version.hip or "", module.version.cuda or ""
    return Torch(version=module.__version__, rocm=rocm, cuda=cuda), module


def _torch_gpus(torch: ModuleType) -> tuple[Gpu, ...]:
    if not torch.version.hip:
        return ()
    return tuple(_torch_gpu(torch, index) for index in range(torch.cuda.device_count()))


def _tuning(gpus: tuple[Gpu, ...]) -> tuple[tuning.Tuning, ...]:
    """The distributions of candidates for the code that these GPUs run."""
    served = dict(wheel.served()) if gpus else {}
    names = (gpu.arch.partition(":")[0] for gpu in gpus)
    return tuning.installed(served[name] for name in names if name in served)


def _torch_archs(torch: ModuleType) -> tuple[str, ...]:
    built_for = tuple(arch.partition(":")[0] for arch in torch.cuda.get_arch_list())
    library = Path(torch.__file__ or "").parent / "lib" / "rocblas" / "library"
    return torch_devices.installed(torch_devices.with_products(built_for, library))


def _torch_gpu(torch: ModuleType, index: int) -> Gpu:
    name = str(torch.cuda.get_device_name(index))
    try:
        arch = str(torch.ops.flash_attn_rocm.device_arch(index))
        units = int(torch.ops.flash_attn_rocm.compute_units(index))
    except RuntimeError as error:
        return Gpu(index, name, "arch unknown", (("every kernel", str(error)),))
    return Gpu(index, name, arch, wheel.gpu_reasons(arch), units)


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
