"""Turns facts about a machine into a report.  It does not look at the machine itself."""

from dataclasses import dataclass

from flash_attn_rocm._facts import Facts, Gpu
from flash_attn_rocm._requirements import install_torch

GLIBC_FLOOR = (2, 28)
# Groups by number, because names differ between machines and images; a shell on the host fills them in.
CONTAINER_OPTIONS = (
    "--device /dev/kfd --device /dev/dri "
    '--group-add "$(stat -c %g /dev/kfd)" --group-add "$(stat -c %g /dev/dri/renderD128)"'
)
NOT_RUN = "These kernels were not run on hardware by the project's CI, which has no AMD GPU."


@dataclass(frozen=True)
class Step:
    """What to do next: ``commands`` are lines for a shell, to be pasted as they are."""

    words: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """``findings`` are (what, value) pairs.

    ``usable``: the package works here, if only on CPU tensors; ``ready``: kernels can run on a GPU.
    """

    headline: str
    findings: tuple[tuple[str, str], ...]
    advice: tuple[Step, ...]
    usable: bool
    ready: bool


def diagnose(facts: Facts) -> Report:
    """What the machine has, what to do next, and whether the package and its kernels can run on it."""
    usable = not facts.problem
    ready = usable and any(_served(gpu) for gpu in facts.gpus)
    return Report(_headline(facts), _findings(facts), _advice(facts), usable, ready)


def text(report: Report) -> str:
    """The report for a terminal."""
    width = max(len(name) for name, _ in report.findings)
    lines = [report.headline, "", *(f"{name.ljust(width)}  {value}" for name, value in report.findings)]
    lines += ["", _verdict(report), NOT_RUN]
    if report.advice:
        lines += ["", "What to do next:"]
        lines += [line for number, step in enumerate(report.advice, 1) for line in _shown(number, step)]
    return "\n".join(lines)


def _verdict(report: Report) -> str:
    if report.ready:
        return "Kernels serve this machine."
    if report.usable:
        return "No kernel serves this machine as it is; on CPU tensors the PyTorch implementation answers."
    return "flash_attn_rocm does not import here, so nothing of it answers."


def _headline(facts: Facts) -> str:
    """One line that says which PyTorch is there: with another build than ROCm's no GPU is used."""
    package, torch = f"flash_attn_rocm {facts.package}", facts.torch
    if not torch.version:
        return f"{package} without a PyTorch that imports"
    limit = "" if torch.rocm else ", which cannot use an AMD GPU"
    return f"{package} with PyTorch {torch.version}, a {torch.build} build{limit}"


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


def _advice(facts: Facts) -> tuple[Step, ...]:
    steps = [
        Step(facts.problem) if facts.problem else None,
        _glibc_advice(facts.glibc),
        _torch_advice(facts),
        _kfd_advice(facts),
        _runtime_advice(facts),
        *_gpu_advice(facts),
    ]
    return tuple(dict.fromkeys(step for step in steps if step))


def _glibc_advice(glibc: str) -> Step | None:
    parts = glibc.split(".")
    known = len(parts) >= 2 and all(part.isdigit() for part in parts[:2])
    if not known or (int(parts[0]), int(parts[1])) >= GLIBC_FLOOR:
        return None
    floor = ".".join(map(str, GLIBC_FLOOR))
    return Step(
        f"glibc {glibc} is too old: the wheel needs {floor} (Debian 10, Ubuntu 20.04, RHEL 8 or newer)"
    )


def _torch_advice(facts: Facts) -> Step | None:
    if facts.problem or not facts.torch.version or facts.torch.rocm:
        return None
    # On a machine without an AMD GPU any build of PyTorch will do.
    if facts.kfd == "absent" and not facts.driver_gpus:
        return None
    return Step(
        f"this PyTorch is a {facts.torch.build} build, which cannot use AMD GPUs; remove it with the command "
        f"below, then {install_torch()}",
        ("python -m pip uninstall --yes torch",),
    )


def _kfd_advice(facts: Facts) -> Step | None:
    if facts.kfd == "open":
        return None
    if facts.kfd == "denied":
        groups = [name for name in ("render", "video") if name not in facts.user_groups]
        return Step(
            "this user may not open /dev/kfd; in a container, start it with the options\n"
            f"{CONTAINER_OPTIONS}\n"
            "else run this and log in again:",
            (f'sudo usermod -aG {",".join(groups or ["render", "video"])} "$(id -un)"',),
        )
    return Step(
        "no AMD GPU can be used, because /dev/kfd is not there. If this machine has one: in a container,\n"
        f"start it with the options\n{CONTAINER_OPTIONS}\n"
        "else load the driver:",
        ("sudo modprobe amdgpu",),
    )


def _runtime_advice(facts: Facts) -> Step | None:
    if len(facts.hip_libraries) > 1:
        return Step(
            f"{len(facts.hip_libraries)} HIP runtimes are mapped into this process, which breaks device "
            "state: take ROCm's folders out of LD_LIBRARY_PATH and LD_PRELOAD"
        )
    if facts.torch.rocm and facts.rocm and _major(facts.torch.rocm) != _major(facts.rocm):
        return Step(
            f"PyTorch brings ROCm {facts.torch.rocm}, and this wheel was built with ROCm {facts.rocm}: "
            f"install the wheel for ROCm {_major(facts.torch.rocm)}; the page of the index that you "
            "installed from has the command"
        )
    return None


def _major(version: str) -> str:
    return version.split(".", maxsplit=1)[0]


def _gpu_advice(facts: Facts) -> list[Step]:
    """Why GPUs are not served, and what happens instead."""
    return [
        Step(f"GPU {gpu.index}: {gpu.reasons[0][1]}; the PyTorch implementation answers there")
        for gpu in facts.gpus or facts.driver_gpus
        if gpu.reasons and not _served(gpu)
    ]


def _shown(number: int, step: Step) -> list[str]:
    return [
        f"  {number}. " + step.words.replace("\n", "\n     "),
        *(f"     {line}" for line in step.commands),
    ]
