"""Makes a report from the facts collected by ``survey`` about a machine."""

from dataclasses import dataclass

from flash_attn_rocm.diagnosis import tuned
from flash_attn_rocm.diagnosis.each_gpu import (
    code_of,
    hiding_step,
    hiding_variables,
    lacking_steps,
    lacks_code,
    override_steps,
    own_name,
    runs,
    served,
    unseen,
)
from flash_attn_rocm.diagnosis.facts import DXG_VARIABLE, DeviceFile, Facts, Fused, Gpu
from flash_attn_rocm.diagnosis.shell import quoted, remove_line, set_line, unset_line
from flash_attn_rocm.machine import environment
from flash_attn_rocm.machine.drop_in import DropIn
from flash_attn_rocm.machine.requirements import (
    OPEN_TORCH_PAGE,
    REMOVE,
    REMOVE_TORCH,
    Step,
    install_torch,
    is_public,
    numbered,
    release,
    wrong_build,
)
from flash_attn_rocm.values.floors import OLDEST_ROCM
from flash_attn_rocm.values.rates import LARGEST

# Groups by number, because names differ between hosts and images. The host's shell inserts the numbers.
CONTAINER_OPTIONS = (
    "--device /dev/kfd --device /dev/dri "
    '--group-add "$(stat -c %g /dev/kfd)" --group-add "$(stat -c %g /dev/dri/renderD128)"'
)
WSL_CONTAINER_OPTIONS = "--device /dev/dxg --volume /usr/lib/wsl:/usr/lib/wsl"
AMD_DRIVERS = "https://www.amd.com/en/support"
REMOVE_DROP_IN = "python -m pip uninstall --yes"
REPLACE_FUSED = "sdpa.enable(replace_fused=True)"
ROOT, RENDER = "root", "render"
_OF_ROOT = (
    f"else: the files belong to {ROOT}'s group, because a udev rule is missing. Do not join that group. Give "
    f"the files to the group {RENDER}, until the driver is loaded again, and log in again:"
)
NOT_RUN = "These kernels were not run on hardware by the project's CI, which has no AMD GPU."


@dataclass(frozen=True)
class Report:
    """``findings`` are (name, value) pairs.

    ``usable``: the package works here, at least for CPU tensors. ``ready``: attention runs on every GPU of
    PyTorch. ``running`` are the numbers of the GPUs with attention, ``idle`` those of the others.
    """

    headline: str
    findings: tuple[tuple[str, str], ...]
    advice: tuple[Step, ...]
    usable: bool
    ready: bool
    running: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()


def diagnose(facts: Facts) -> Report:
    """Findings, advice, and whether the package and its kernels can run on this machine."""
    usable = not facts.problems
    running = tuple(gpu.index for gpu in facts.gpus if usable and runs(gpu, facts))
    idle = tuple(gpu.index for gpu in facts.gpus if gpu.index not in running)
    ready = bool(running) and not idle and not facts.canary
    last = (_fused_step(facts), *map(_drop_in_step, facts.drop_ins), *tuned.steps(facts))
    advice = dict.fromkeys((*mismatches(facts), *_gpu_steps(facts), *filter(None, last)))
    return Report(_headline(facts), _findings(facts), tuple(advice), usable, ready, running, idle)


def mismatches(facts: Facts) -> list[Step]:
    """Steps for incompatible parts, as far as known without asking for GPUs."""
    steps = [
        *facts.problems,
        _torch_step(facts),
        *_device_file_steps(facts),
        _driver_step(facts),
        _runtimes_step(facts),
        _rocm_step(facts),
        *override_steps(facts),
        *lacking_steps(facts),
        hiding_step(facts),
        *_canary_steps(facts),
        *_settings_steps(facts),
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
    if report.running and report.idle:
        return f"Kernels serve {_gpus(report.running)}, but not yet {_gpus(report.idle)}."
    if report.usable:
        return "No kernel serves this machine yet; on CPU tensors the PyTorch implementation answers."
    return "flash_attn_rocm does not import on this machine."


def _gpus(numbers: tuple[int, ...]) -> str:
    return f"GPU{'s' if numbers[1:] else ''} {', '.join(map(str, numbers))}"


def _headline(facts: Facts) -> str:
    """One line about the installed PyTorch. Only ROCm builds use an AMD GPU."""
    package, torch = f"flash_attn_rocm {facts.package}", facts.torch
    if not torch.version:
        return f"{package} without a PyTorch that imports"
    limit = "" if torch.rocm else ", which cannot use an AMD GPU"
    return f"{package} with PyTorch {torch.version}, a {torch.build} build{limit}"


def _findings(facts: Facts) -> tuple[tuple[str, str], ...]:
    torch = facts.torch
    found = [
        ("flash_attn_rocm", f"{facts.package}, {_wheel_for(facts)}"),
        ("kernels for", _kernels_for(facts) or "unknown, because the library does not load"),
        ("system", _system(facts)),
        ("Python", facts.python),
        ("PyTorch", f"{torch.version} ({torch.build} build)" if torch.version else "none that imports"),
        *_drop_ins(facts.drop_ins),
        ("HIP runtime", ", ".join(facts.hip_libraries) or "none in this process"),
        ("driver", facts.driver or ("that of Windows, not shown here" if facts.wsl else "none loaded")),
        *((("librocdxg", facts.rocdxg or "not found in the usual folders"),) if facts.wsl else ()),
        *((file.path, _access(file)) for file in (facts.kfd, *facts.renders) if file.path),
        *facts.environment,
    ]
    found += [(f"GPU {gpu.index}", _describe(gpu, facts)) for gpu in facts.gpus]
    if not facts.gpus:
        note = "listed by the driver, not usable by this PyTorch"
        found += [(f"GPU {gpu.index}", f"{_describe(gpu, facts)} ({note})") for gpu in facts.driver_gpus]
    found += [
        (f"node {gpu.node}", f"{_describe(gpu, facts)} ({_why_unseen(facts)})") for gpu in unseen(facts)
    ]
    if not facts.gpus and not facts.driver_gpus:
        found.append(("GPUs", "no AMD GPU found"))
    if facts.fused:
        found.append(("PyTorch's SDPA", "; ".join(map(_of_fused, facts.fused))))
    return (*found, *tuned.findings(facts))


def _why_unseen(facts: Facts) -> str:
    by = f", hidden by {' and '.join(hiding)}" if (hiding := hiding_variables(facts)) else ""
    return f"listed by the driver, not by this PyTorch{by}"


def _wheel_for(facts: Facts) -> str:
    if is_public(facts.package):
        return f"for every ROCm from {OLDEST_ROCM} on"
    return f"built with ROCm {facts.rocm or 'of an unknown version'}"


def _kernels_for(facts: Facts) -> str:
    """ "gfx942, gfx1030 (gfx1031, gfx1032 run it too)"."""
    others = {
        arch: ", ".join(gpu for gpu, code in facts.served if code == arch != gpu) for arch in facts.archs
    }
    also = {
        arch: f" ({more} run{'' if ',' in more else 's'} it too)" for arch, more in others.items() if more
    }
    return ", ".join(arch + also.get(arch, "") for arch in others)


def _system(facts: Facts) -> str:
    if facts.windows:
        return f"{facts.os_name}, {facts.machine}"
    name = f"{facts.os_name} on WSL2" if facts.wsl else facts.os_name
    return f"{name}, {facts.system} {facts.machine}, glibc {facts.glibc or 'unknown'}"


def _drop_ins(found: tuple[DropIn, ...]) -> tuple[tuple[str, str], ...]:
    """The first, flash-attn, and the others if they are there: few need these."""
    told = (each for each in found if each is found[0] or each.kind != "none")
    return tuple((each.distribution, _in_words(each)) for each in told)


def _in_words(found: DropIn) -> str:
    version = found.version or "of unknown version"
    return {
        "none": f"not installed; libraries that import {found.module} do not find these kernels",
        "ours": (
            f"{version}, of this project: libraries that import {found.module} get these kernels{found.note}"
        ),
        "another": f"{version}, not of this project, in {found.folder}",
        "damaged": f"{version}, without its module {found.module}",
    }[found.kind]


def _of_fused(fused: Fused) -> str:
    if fused.state == "absent":
        return f"{fused.name}: not for this GPU"
    return f"{fused.name}: {f'fails ({fused.words})' if fused.words else fused.state}"


def _access(file: DeviceFile) -> str:
    if file.state == "absent":
        return "not there"
    may = "this user may open it" if file.state == "open" else "this user may not open it"
    return f"{file.mode} of group {file.group}: {may}"


def _describe(gpu: Gpu, facts: Facts) -> str:
    served = [what for what, reason in gpu.reasons if not reason]
    kernels = (
        f"kernels for {', '.join(served)}" if served else "no kernels" if gpu.reasons else "kernels unknown"
    )
    code = code_of(gpu, facts)
    whose = "" if code == own_name(gpu) else f", which runs the code of {code}"
    lacking = "; this PyTorch has no code for it" if lacks_code(gpu, facts) else ""
    return f"{gpu.name}, {gpu.arch}{whose}; {kernels}{lacking}{_too_many_units(gpu)}"


def _too_many_units(gpu: Gpu) -> str:
    """A note on an implausible number of compute units. Decoding cuts its keys by this number."""
    most = LARGEST.get(own_name(gpu), gpu.compute_units)
    if gpu.compute_units <= most:
        return ""
    return (
        f"; the runtime reports {gpu.compute_units} compute units, but the largest known {own_name(gpu)} has "
        f"{most}: please report this, decoding may be slower than necessary"
    )


def _torch_step(facts: Facts) -> Step | None:
    if facts.problems or not facts.torch.version or facts.torch.rocm:
        return None
    return Step(
        f"{wrong_build(facts.torch.build)}; remove it with the first command, then {install_torch()}",
        (REMOVE_TORCH, OPEN_TORCH_PAGE),
    )


def _device_file_steps(facts: Facts) -> list[Step]:
    """Steps for a missing GPU device file, and for device files closed to this user."""
    found = []
    if facts.kfd.state == "absent":
        found.append(_absent_step(facts))
    denied = [file for file in (facts.kfd, *facts.renders) if file.state == "denied"]
    if denied:
        found.append(_denied_step(denied, facts))
    return found


def _absent_step(facts: Facts) -> Step:
    if facts.windows:
        return Step(
            "no AMD GPU can be used, because AMD's driver is not installed; download it from this page:",
            (f"python -m webbrowser {AMD_DRIVERS}",),
        )
    if facts.wsl:
        return Step(
            "no AMD GPU can be used, because /dev/dxg is missing; WSL2 reaches the GPUs of Windows through "
            f"it: in a container,\nstart it with the options\n{WSL_CONTAINER_OPTIONS}\n"
            "else install AMD's driver for WSL2 on Windows, then run these and start WSL2 again:",
            ("wsl.exe --update", "wsl.exe --shutdown"),
        )
    return Step(
        "no AMD GPU can be used, because /dev/kfd is missing. If this machine has a GPU: in a "
        f"container,\nstart it with the options\n{CONTAINER_OPTIONS}\n"
        "else load the driver:",
        ("sudo modprobe amdgpu",),
    )


def _denied_step(denied: list[DeviceFile], facts: Facts) -> Step:
    paths = ", ".join(f"{file.path} ({file.mode}, group {file.group})" for file in denied)
    options = WSL_CONTAINER_OPTIONS if facts.wsl else CONTAINER_OPTIONS
    begin = f"this user may not open {paths}; in a container, start it with the options\n{options}\n"
    if roots := [file for file in denied if file.group == ROOT]:
        return Step(begin + _OF_ROOT, _given_to(RENDER, roots, facts))
    missing = list(dict.fromkeys(file.group for file in denied if file.group not in facts.user_groups))
    if not missing:
        words = "else correct the files' modes, until the driver is loaded again:"
        return Step(begin + words, tuple(f"sudo chmod g+rw {file.path}" for file in denied))
    if unnamed := [group for group in missing if group.isdigit()]:
        words = f"else add this user to the group {', '.join(unnamed)}, which has no name here:"
        return Step(begin + words, tuple(_join_unnamed(group) for group in unnamed))
    words = "else run this and log in again:"
    return Step(begin + words, (f'sudo usermod -aG {",".join(missing)} "$(id -un)"',))


def _given_to(group: str, files: list[DeviceFile], facts: Facts) -> tuple[str, ...]:
    paths = " ".join(file.path for file in files)
    join = () if group in facts.user_groups else (f'sudo usermod -aG {group} "$(id -un)"',)
    return (f"sudo chgrp {group} {paths}", f"sudo chmod g+rw {paths}", *join)


def _join_unnamed(group: str) -> str:
    return f'sudo groupadd --gid {group} gpu{group} && sudo usermod -aG gpu{group} "$(id -un)"'


def _driver_step(facts: Facts) -> Step | None:
    if facts.wsl or facts.windows or facts.kfd.state != "open" or facts.driver_gpus:
        return None
    return Step(
        f"the driver ({facts.driver or 'of unknown version'}) is loaded but lists no compute GPU; its "
        "messages have the reason:",
        ("sudo dmesg | grep -iE 'amdgpu|kfd'",),
    )


def _runtimes_step(facts: Facts) -> Step | None:
    if len(facts.hip_libraries) < 2:
        return None
    return Step(
        f"{len(facts.hip_libraries)} HIP runtimes are mapped into this process, which breaks device state: "
        f"{', '.join(facts.hip_libraries)}; remove ROCm's folders from the loader's path:",
        ("unset LD_LIBRARY_PATH LD_PRELOAD",),
    )


def _rocm_step(facts: Facts) -> Step | None:
    theirs, ours = facts.torch.rocm, facts.rocm
    if theirs and is_public(facts.package) and release(theirs) < release(OLDEST_ROCM):
        return Step(
            f"PyTorch brings ROCm {theirs}, and this wheel is for ROCm {OLDEST_ROCM} and newer: remove it "
            f"with the first command, then {install_torch()}",
            (REMOVE_TORCH, OPEN_TORCH_PAGE),
        )
    if not theirs or not ours or _major(theirs) == _major(ours):
        return None
    return Step(
        f"PyTorch brings ROCm {theirs}, and this wheel was built with ROCm {ours}: remove it with the "
        f"command below, then install the wheel for ROCm {_major(theirs)}, or the one for every ROCm from "
        f"{OLDEST_ROCM} on, with the command on the page of your index",
        (REMOVE,),
    )


def _canary_steps(facts: Facts) -> list[Step]:
    """Steps for kernels that failed at first use.

    They are checked again after changes, for example of the driver.
    """
    return [
        Step(
            f"kernels are disabled, because they failed a check at first use: {words}; please report "
            "it with the file that the first command writes; the second command repeats the check",
            ("python -m flash_attn_rocm selftest", remove_line(facts, path)),
        )
        for words, path in facts.canary
    ]


def _settings_steps(facts: Facts) -> list[Step]:
    """Steps for this package's environment variables with a misspelt name or a wrong value."""
    found = []
    for name, value in environment.given(dict(facts.environment)):
        if problem := environment.problem(name, value):
            found.append(Step(problem.partition("\n")[0], (unset_line(facts, name),)))
    return found


def _gpu_steps(facts: Facts) -> list[Step]:
    """Steps for GPUs invisible to PyTorch, and for unserved GPUs."""
    found = []
    there = facts.driver_gpus or ((facts.wsl or facts.windows) and facts.kfd.state == "open")
    if facts.torch.rocm and not facts.problems and not facts.gpus and there:
        found.append(_unseen_step(facts))
    for gpu in facts.gpus or facts.driver_gpus:
        if gpu.reasons and not served(gpu):
            words = (
                f"GPU {gpu.index}: {gpu.reasons[0][1]}; the PyTorch implementation answers there. PyTorch's "
                "own scaled_dot_product_attention may be faster, on some GPUs only with this:"
            )
            found.append(Step(words, (set_line(facts, "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "1"),)))
    return found


def _unseen_step(facts: Facts) -> Step:
    count = f"the driver ({facts.driver or 'of unknown version'}) lists {len(facts.driver_gpus)} GPUs"
    if facts.wsl:
        count = f"WSL2 has {facts.kfd.path}"
    if facts.windows:
        count = f"Windows has a driver of AMD ({facts.driver})"
    if hiding := hiding_variables(facts):
        given = ", ".join(f"{name}={value}" for name, value in hiding.items())
        words = f"{count}, and PyTorch sees none: {given} hides them"
        return Step(words, (unset_line(facts, *hiding),))
    if facts.wsl:
        return _unseen_on_wsl_step(facts)
    if facts.windows:
        words = (
            f"{count}, and the HIP runtime of PyTorch (ROCm {facts.torch.rocm}) sees no AMD GPU: the driver "
            "is too old for this ROCm, or this ROCm does not support the GPU on Windows. AMD's newest "
            "driver:"
        )
        return Step(words, (f"python -m webbrowser {AMD_DRIVERS}",))
    return Step(
        f"{count}, and the HIP runtime of PyTorch (ROCm {facts.torch.rocm}) sees none: if all device files "
        "may be opened, the driver is too old for this ROCm; its messages have details",
        ("sudo dmesg | grep -iE 'amdgpu|kfd'",),
    )


def _unseen_on_wsl_step(facts: Facts) -> Step:
    words = (
        f"WSL2 has {facts.kfd.path}, and the HIP runtime of PyTorch (ROCm {facts.torch.rocm}) sees no AMD "
        "GPU: it needs AMD's driver for WSL2 on Windows, and here ROCm's library for WSL2, librocdxg "
        "(https://github.com/ROCm/librocdxg)"
    )
    if dict(facts.environment).get(DXG_VARIABLE) == "1":
        return Step(f"{words}; this command finds it:", ("ldconfig -p | grep rocdxg",))
    return Step(f"{words}; ROCm before 7.13 uses it only with this:", (set_line(facts, DXG_VARIABLE, "1"),))


def _fused_step(facts: Facts) -> Step | None:
    """The step for a broken attention of PyTorch: use these kernels, or PyTorch's plain formula."""
    broken = ", ".join(f"{each.name} ({each.words})" for each in facts.fused if each.state == "fails")
    if not broken:
        return None
    words = f"PyTorch's own scaled_dot_product_attention does not work on GPU 0 with this build: {broken}. "
    if any(map(served, facts.gpus)):
        words += f"Put flash_attn_rocm.{REPLACE_FUSED} at the start of your program to use these kernels "
        words += "instead; this prints True if it works:"
        code = f"from flash_attn_rocm import sdpa; {REPLACE_FUSED}; print(sdpa.is_enabled())"
    else:
        words += "Put these lines at the start of your program to use its plain formula instead:"
        code = (
            "import torch; torch.backends.cuda.enable_flash_sdp(False); "
            "torch.backends.cuda.enable_mem_efficient_sdp(False)"
        )
    return Step(words, (f"python -c {quoted(facts, code)}",))


def _drop_in_step(found: DropIn) -> Step | None:
    """The step for a drop-in of another project. Checkouts are ignored, for lack of a version."""
    if found.kind not in {"another", "damaged"} or not found.version:
        return None
    what = (
        f"libraries that import {found.module} do not get these kernels: {found.folder} is "
        f"{found.distribution} {found.version} of another project"
        if found.kind == "another"
        else f"{found.distribution} {found.version} is installed without its module {found.module}"
    )
    return Step(
        f"{what}. For these kernels remove it with this command, then install {found.distribution} from this "
        "wheel's index",
        (f"{REMOVE_DROP_IN} {found.distribution}",),
    )


def _major(version: str) -> str:
    return version.split(".", maxsplit=1)[0]
