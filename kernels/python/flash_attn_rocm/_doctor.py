"""Turns facts about a machine into a report.  It does not look at the machine itself."""

from dataclasses import dataclass

from flash_attn_rocm._facts import Facts, Gpu
from flash_attn_rocm._requirements import install_torch

GLIBC_FLOOR = (2, 28)
NOT_RUN = "These kernels were not run on hardware by the project's CI, which has no AMD GPU."


@dataclass(frozen=True)
class Report:
    """``findings`` are (what, value) pairs; ``ready``: kernels can run on a GPU of this machine."""

    findings: tuple[tuple[str, str], ...]
    advice: tuple[str, ...]
    ready: bool


def diagnose(facts: Facts) -> Report:
    """What the machine has, what to do next, and whether kernels can run on it."""
    ready = any(_served(gpu) for gpu in facts.gpus) and not facts.problem
    return Report(_findings(facts), _advice(facts), ready)


def text(report: Report) -> str:
    """The report for a terminal."""
    width = max(len(name) for name, _ in report.findings)
    lines = [f"{name.ljust(width)}  {value}" for name, value in report.findings]
    verdict = (
        "Kernels serve this machine."
        if report.ready
        else "No kernel serves this machine as it is; on CPU tensors the PyTorch implementation answers."
    )
    lines += ["", verdict, NOT_RUN]
    if report.advice:
        lines += ["", "What to do next:"]
        lines += [f"  {number}. {_indented(each)}" for number, each in enumerate(report.advice, 1)]
    return "\n".join(lines)


def _findings(facts: Facts) -> tuple[tuple[str, str], ...]:
    torch = facts.torch
    kfd = {"absent": "not there", "denied": "there, but this user may not open it", "open": "there, usable"}
    found = [
        ("flash_attn_rocm", f"{facts.package}, built with ROCm {facts.rocm or 'of an unknown version'}"),
        ("kernels for", ", ".join(facts.archs) or "unknown, because the library does not load"),
        ("system", f"{facts.os_name}, {facts.system} {facts.machine}, glibc {facts.glibc or 'unknown'}"),
        ("Python", facts.python),
        ("PyTorch", f"{torch.version} ({torch.build} build)" if torch.version else "none that imports"),
        ("HIP runtime", ", ".join(facts.hip_libraries) or "none in this process"),
        ("/dev/kfd", kfd[facts.kfd]),
    ]
    found += [(f"GPU {gpu.index}", _describe(gpu)) for gpu in facts.gpus]
    if not facts.gpus:
        note = "listed by the driver, not usable by this PyTorch"
        found += [(f"GPU {gpu.index}", f"{_describe(gpu)} ({note})") for gpu in facts.driver_gpus]
    if not facts.gpus and not facts.driver_gpus:
        found.append(("GPUs", "no AMD GPU found"))
    return tuple(found)


def _describe(gpu: Gpu) -> str:
    served = [what for what, reason in gpu.reasons if not reason]
    kernels = (
        f"kernels for {', '.join(served)}" if served else "no kernels" if gpu.reasons else "kernels unknown"
    )
    return f"{gpu.name}, {gpu.arch}; {kernels}"


def _served(gpu: Gpu) -> bool:
    return any(not reason for _, reason in gpu.reasons)


def _advice(facts: Facts) -> tuple[str, ...]:
    steps = [
        facts.problem,
        _glibc_advice(facts.glibc),
        _torch_advice(facts),
        _kfd_advice(facts),
        _runtime_advice(facts),
        *_gpu_advice(facts),
    ]
    return tuple(dict.fromkeys(step for step in steps if step))


def _glibc_advice(glibc: str) -> str:
    parts = glibc.split(".")
    known = len(parts) >= 2 and all(part.isdigit() for part in parts[:2])
    if not known or (int(parts[0]), int(parts[1])) >= GLIBC_FLOOR:
        return ""
    floor = ".".join(map(str, GLIBC_FLOOR))
    return f"glibc {glibc} is too old: the wheel needs {floor} (Debian 10, Ubuntu 20.04, RHEL 8 or newer)"


def _torch_advice(facts: Facts) -> str:
    if facts.problem or not facts.torch.version or facts.torch.rocm:
        return ""
    # On a machine without an AMD GPU any build of PyTorch will do.
    if facts.kfd == "absent" and not facts.driver_gpus:
        return ""
    return (
        f"this PyTorch is a {facts.torch.build} build, which cannot use AMD GPUs; install a ROCm build:\n"
        f"{install_torch()}"
    )


def _kfd_advice(facts: Facts) -> str:
    if facts.kfd == "open":
        return ""
    if facts.kfd == "denied":
        groups = [name for name in ("render", "video") if name not in facts.user_groups]
        return (
            "this user may not open /dev/kfd; run this and log in again:\n"
            f"sudo usermod -aG {','.join(groups or ['render', 'video'])} $USER\n"
            "in a container, start it with --group-add video and --group-add with the number that\n"
            "stat -c %g /dev/kfd prints"
        )
    return (
        "no AMD GPU can be used, because /dev/kfd is not there. If this machine has one: load the driver\n"
        "(sudo modprobe amdgpu); in a container, start it with --device=/dev/kfd --device=/dev/dri"
    )


def _runtime_advice(facts: Facts) -> str:
    if len(facts.hip_libraries) > 1:
        return (
            f"{len(facts.hip_libraries)} HIP runtimes are mapped into this process, which breaks device "
            "state: take ROCm's folders out of LD_LIBRARY_PATH and LD_PRELOAD"
        )
    if facts.torch.rocm and facts.rocm and _major(facts.torch.rocm) != _major(facts.rocm):
        return (
            f"PyTorch brings ROCm {facts.torch.rocm}, and this wheel was built with ROCm {facts.rocm}: "
            f"install the wheel for ROCm {_major(facts.torch.rocm)}"
        )
    return ""


def _major(version: str) -> str:
    return version.split(".", maxsplit=1)[0]


def _gpu_advice(facts: Facts) -> list[str]:
    """Why GPUs are not served, and what happens instead."""
    return [
        f"GPU {gpu.index}: {gpu.reasons[0][1]}; the PyTorch implementation answers there"
        for gpu in facts.gpus or facts.driver_gpus
        if gpu.reasons and not _served(gpu)
    ]


def _indented(step: str) -> str:
    return step.replace("\n", "\n     ")
