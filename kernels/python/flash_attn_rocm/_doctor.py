"""Turns facts about a machine into a report.  It does not look at the machine itself."""

import shlex
from dataclasses import dataclass

from flash_attn_rocm._facts import OVERRIDE, DeviceFile, Facts, Gpu
from flash_attn_rocm._requirements import (
    OPEN_TORCH_PAGE,
    REMOVE,
    REMOVE_TORCH,
    Step,
    install_torch,
    numbered,
    wrong_build,
)

# Groups by number, because names differ between machines and images; a shell on the host fills them in.
CONTAINER_OPTIONS = (
    "--device /dev/kfd --device /dev/dri "
    '--group-add "$(stat -c %g /dev/kfd)" --group-add "$(stat -c %g /dev/dri/renderD128)"'
)
NOT_RUN = "These kernels were not run on hardware by the project's CI, which has no AMD GPU."


@dataclass(frozen=True)
class Report:
    """``findings`` are (what, value) pairs.

    ``usable``: the package works here, if only on CPU tensors; ``ready``: attention would run on a GPU.
    """

    headline: str
    findings: tuple[tuple[str, str], ...]
    advice: tuple[Step, ...]
    usable: bool
    ready: bool


def diagnose(facts: Facts) -> Report:
    """What the machine has, what to do next, and whether the package and its kernels can run on it."""
    usable = not facts.problems
    ready = usable and any(_served(gpu) for gpu in facts.gpus) and not facts.canary
    advice = dict.fromkeys((*mismatches(facts), *_gpu_steps(facts)))
    return Report(_headline(facts), _findings(facts), tuple(advice), usable, ready)


def mismatches(facts: Facts) -> list[Step]:
    """What does not fit together here, as far as it can be told without asking for GPUs."""
    steps = [
        *facts.problems,
        _torch_step(facts),
        *_device_file_steps(facts),
        _driver_step(facts),
        _runtimes_step(facts),
        _rocm_step(facts),
        _override_step(facts),
        *_canary_steps(facts),
    ]
    return [step for step in steps if step]


def text(report: Report) -> str:
    """The report for a terminal."""
    width = max(len(name) for name, _ in report.findings)
    lines = [report.headline, "", *(f"{name.ljust(width)}  {value}" for name, value in report.findings)]
    lines += ["", _verdict(report), NOT_RUN]
    if report.advice:
        lines += ["", "What to do next:"]
        lines += numbered(report.advice)
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
    found = [
        ("flash_attn_rocm", f"{facts.package}, built with ROCm {facts.rocm or 'of an unknown version'}"),
        ("kernels for", ", ".join(facts.archs) or "unknown, because the library does not load"),
        ("system", f"{facts.os_name}, {facts.system} {facts.machine}, glibc {facts.glibc or 'unknown'}"),
        ("Python", facts.python),
        ("PyTorch", f"{torch.version} ({torch.build} build)" if torch.version else "none that imports"),
        ("HIP runtime", ", ".join(facts.hip_libraries) or "none in this process"),
        ("driver", facts.driver or "none loaded"),
        *((file.path, _access(file)) for file in (facts.kfd, *facts.renders)),
        *facts.environment,
    ]
    found += [(f"GPU {gpu.index}", _describe(gpu)) for gpu in facts.gpus]
    if not facts.gpus:
        note = "listed by the driver, not usable by this PyTorch"
        found += [(f"GPU {gpu.index}", f"{_describe(gpu)} ({note})") for gpu in facts.driver_gpus]
    if not facts.gpus and not facts.driver_gpus:
        found.append(("GPUs", "no AMD GPU found"))
    return tuple(found)


def _access(file: DeviceFile) -> str:
    if file.state == "absent":
        return "not there"
    may = "this user may open it" if file.state == "open" else "this user may not open it"
    return f"{file.mode} of group {file.group}: {may}"


def _describe(gpu: Gpu) -> str:
    served = [what for what, reason in gpu.reasons if not reason]
    kernels = (
        f"kernels for {', '.join(served)}" if served else "no kernels" if gpu.reasons else "kernels unknown"
    )
    return f"{gpu.name}, {gpu.arch}; {kernels}"


def _served(gpu: Gpu) -> bool:
    return any(not reason for _, reason in gpu.reasons)


def _torch_step(facts: Facts) -> Step | None:
    if facts.problems or not facts.torch.version or facts.torch.rocm:
        return None
    # On a machine without an AMD GPU any build of PyTorch will do.
    if facts.kfd.state == "absent" and not facts.driver_gpus:
        return None
    return Step(
        f"{wrong_build(facts.torch.build)}; remove it with the first command, then {install_torch()}",
        (REMOVE_TORCH, OPEN_TORCH_PAGE),
    )


def _device_file_steps(facts: Facts) -> list[Step]:
    """A missing /dev/kfd, and all device files that this user may not open."""
    found = []
    if facts.kfd.state == "absent":
        found.append(
            Step(
                "no AMD GPU can be used, because /dev/kfd is not there. If this machine has one: in a "
                f"container,\nstart it with the options\n{CONTAINER_OPTIONS}\n"
                "else load the driver:",
                ("sudo modprobe amdgpu",),
            )
        )
    denied = [file for file in (facts.kfd, *facts.renders) if file.state == "denied"]
    if denied:
        found.append(_denied_step(denied, facts.user_groups))
    return found


def _denied_step(denied: list[DeviceFile], user_groups: tuple[str, ...]) -> Step:
    paths = ", ".join(f"{file.path} ({file.mode}, group {file.group})" for file in denied)
    begin = (
        f"this user may not open {paths}; in a container, start it with the options\n{CONTAINER_OPTIONS}\n"
    )
    missing = list(dict.fromkeys(file.group for file in denied if file.group not in user_groups))
    if not missing:
        words = "else the groups are right and the files' modes are not, until the driver is loaded again:"
        return Step(begin + words, tuple(f"sudo chmod g+rw {file.path}" for file in denied))
    if unnamed := [group for group in missing if group.isdigit()]:
        words = f"else give the group {', '.join(unnamed)}, which has no name here, to this user:"
        return Step(begin + words, tuple(_join_unnamed(group) for group in unnamed))
    words = "else run this and log in again:"
    return Step(begin + words, (f'sudo usermod -aG {",".join(missing)} "$(id -un)"',))


def _join_unnamed(group: str) -> str:
    return f'sudo groupadd --gid {group} gpu{group} && sudo usermod -aG gpu{group} "$(id -un)"'


def _driver_step(facts: Facts) -> Step | None:
    if facts.kfd.state != "open" or facts.driver_gpus:
        return None
    return Step(
        f"the driver ({facts.driver or 'of unknown version'}) is loaded and lists no GPU that computes; its "
        "messages say why:",
        ("sudo dmesg | grep -iE 'amdgpu|kfd'",),
    )


def _runtimes_step(facts: Facts) -> Step | None:
    if len(facts.hip_libraries) < 2:
        return None
    return Step(
        f"{len(facts.hip_libraries)} HIP runtimes are mapped into this process, which breaks device state: "
        f"{', '.join(facts.hip_libraries)}; take ROCm's folders out of the loader's way:",
        ("unset LD_LIBRARY_PATH LD_PRELOAD",),
    )


def _rocm_step(facts: Facts) -> Step | None:
    theirs, ours = facts.torch.rocm, facts.rocm
    if not theirs or not ours or _major(theirs) == _major(ours):
        return None
    return Step(
        f"PyTorch brings ROCm {theirs}, and this wheel was built with ROCm {ours}: remove it with the "
        f"command below, then install the wheel for ROCm {_major(theirs)}, with the command on the page of "
        "the index that you installed from",
        (REMOVE,),
    )


def _override_step(facts: Facts) -> Step | None:
    value = dict(facts.environment).get(OVERRIDE)
    if value is None:
        return None
    real = ", ".join(dict.fromkeys(gpu.arch for gpu in facts.driver_gpus)) or "of unknown arch"
    return Step(
        f"{OVERRIDE}={value} makes every GPU report this arch, and they are {real}: kernels of another arch "
        "may fail or give wrong results",
        (f"unset {OVERRIDE}",),
    )


def _canary_steps(facts: Facts) -> list[Step]:
    """Kernels that were wrong at first use; where the driver, say, has changed they are checked again."""
    return [
        Step(
            f"kernels are switched off, because they failed a check at first use: {words}; please report "
            "it with the file that the first command writes; the second one has them checked again",
            ("python -m flash_attn_rocm selftest", f"rm {shlex.quote(path)}"),
        )
        for words, path in facts.canary
    ]


def _gpu_steps(facts: Facts) -> list[Step]:
    """GPUs that PyTorch does not see, and why others are not served."""
    found = []
    if facts.torch.rocm and not facts.problems and not facts.gpus and facts.driver_gpus:
        found.append(_unseen_step(facts))
    for gpu in facts.gpus or facts.driver_gpus:
        if gpu.reasons and not _served(gpu):
            words = (
                f"GPU {gpu.index}: {gpu.reasons[0][1]}; the PyTorch implementation answers there. PyTorch's "
                "own scaled_dot_product_attention may be faster, on some GPUs only with this:"
            )
            found.append(Step(words, ("export TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1",)))
    return found


def _unseen_step(facts: Facts) -> Step:
    count = f"the driver ({facts.driver or 'of unknown version'}) lists {len(facts.driver_gpus)} GPUs"
    hiding = [(name, value) for name, value in facts.environment if name != OVERRIDE]
    if hiding:
        given = ", ".join(f"{name}={value}" for name, value in hiding)
        words = f"{count}, and PyTorch sees none: {given} hides them"
        return Step(words, (f"unset {' '.join(name for name, _ in hiding)}",))
    return Step(
        f"{count}, and the HIP runtime of PyTorch (ROCm {facts.torch.rocm}) sees none: where all device "
        "files may be opened, the driver is older than this ROCm supports; its messages say more",
        ("sudo dmesg | grep -iE 'amdgpu|kfd'",),
    )


def _major(version: str) -> str:
    return version.split(".", maxsplit=1)[0]
