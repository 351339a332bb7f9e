"""Findings on each GPU: who has code for it, and settings for machines with different GPUs."""

import re
from collections.abc import Iterable, Sequence

from flash_attn_rocm.diagnosis.facts import HIDING, OVERRIDE, OVERRIDE_OF_NODE, Facts, Gpu
from flash_attn_rocm.diagnosis.shell import set_line, unset_line
from flash_attn_rocm.machine import override
from flash_attn_rocm.machine.requirements import REMOVE_TORCH, Step
from flash_attn_rocm.machine.torch_devices import AMD_INDEX
from flash_attn_rocm.values.rates import AMD_TORCH

BUILDS_OF_AMD = "python -m webbrowser https://github.com/ROCm/TheRock/blob/main/RELEASES.md"
GENERIC = "-generic"
# HIP reads the second variable if the first is unset, and numbers the visible GPUs from 0.
RENUMBERING = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def own_name(gpu: Gpu) -> str:
    """The GPU's arch without feature flags."""
    return gpu.arch.partition(":")[0]


def code_of(gpu: Gpu, facts: Facts) -> str:
    """The arch whose machine code the GPU runs, or its own arch if the wheel has no code for it."""
    return dict(facts.served).get(own_name(gpu), own_name(gpu))


def served(gpu: Gpu) -> bool:
    """Whether the wheel has kernels for it."""
    return any(not reason for _, reason in gpu.reasons)


def lacks_code(gpu: Gpu, facts: Facts) -> bool:
    """Whether PyTorch's own operations fail there: PyTorch lists its archs, and this one is missing."""
    return bool(facts.torch_archs) and not _built_for(own_name(gpu), facts.torch_archs)


def runs(gpu: Gpu, facts: Facts) -> bool:
    """Whether attention runs there: our kernels serve it, and PyTorch can compute on it."""
    return served(gpu) and not lacks_code(gpu, facts)


def hiding_variables(facts: Facts) -> dict[str, str]:
    """The set variables hiding GPUs from programs."""
    return {name: value for name, value in facts.environment if name in HIDING}


def unseen(facts: Facts) -> tuple[Gpu, ...]:
    """GPUs in the driver's list but missing from a non-empty list of PyTorch."""
    if not facts.gpus or any(not re.match("gfx", gpu.arch) for gpu in facts.gpus):
        return ()
    seen = [own_name(gpu) for gpu in facts.gpus]
    found = []
    for gpu in facts.driver_gpus:
        name = _said(gpu, facts)
        if name in seen:
            seen.remove(name)
        else:
            found.append(gpu)
    return tuple(found)


def override_steps(facts: Facts) -> list[Step]:
    """Steps for variables causing a wrong arch."""
    steps = []
    for name, value in facts.environment:
        node = OVERRIDE_OF_NODE.fullmatch(name)
        if name == OVERRIDE or node:
            words = _wrong_of_node(int(node[1]), value, facts) if node else _wrong_of_all(value, facts)
            steps += [Step(f"{name}={value} {words}", (unset_line(facts, name),))] if words else []
    return steps


def lacking_steps(facts: Facts) -> list[Step]:
    """A step for each arch missing in PyTorch's kernels."""
    groups: dict[str, list[Gpu]] = {}
    for gpu in facts.gpus:
        if lacks_code(gpu, facts):
            groups.setdefault(own_name(gpu), []).append(gpu)
    return [_lacking_step(name, gpus, facts) for name, gpus in groups.items()]


def hiding_step(facts: Facts) -> Step | None:
    """The step for machines where attention runs on some GPUs only: hide the others from programs."""
    good = [gpu for gpu in facts.gpus if runs(gpu, facts)]
    bad = [gpu for gpu in facts.gpus if not runs(gpu, facts)]
    if not good or not bad or facts.problems:
        return None
    names = ", ".join(f"GPU {gpu.index} ({own_name(gpu)})" for gpu in bad)
    first = " By default programs use GPU 0." if bad[0].index == 0 else ""
    return Step(
        f"attention runs on some GPUs of this machine only, and not on {names}.{first} With this, programs "
        "see only GPUs with attention, numbered from 0:",
        (_showing(good, facts),),
    )


def _lacking_step(name: str, gpus: Sequence[Gpu], facts: Facts) -> Step:
    numbers = ", ".join(str(gpu.index) for gpu in gpus)
    begin = (
        f"this PyTorch was built without kernels for {name} (GPU {numbers}), so its own operations fail "
        "there, usually with “invalid device function”, “device kernel image is invalid” or “Cannot read "
        "TensileLibrary”. "
    )
    if name in facts.torch_devices:
        words = "They are in a separate package, which is not installed; this installs it:"
        return Step(begin + words, (_install(f"torch[device-{name}]=={facts.torch.version}"),))
    if lines := _overriding(name, gpus, facts):
        code = code_of(gpus[0], facts)
        whom = "every GPU calls" if OVERRIDE in lines[0].replace("=", " ").split() else "it calls"
        words = f"With this {whom} itself {code}, in PyTorch and here; {name} runs its code:"
        return Step(begin + words, lines)
    if name in AMD_TORCH:
        words = "AMD's own build has them: the first command removes this build, the second installs AMD's"
        return Step(begin + words, (REMOVE_TORCH, _install(_device_extras(facts))))
    return Step(f"{begin}AMD's page lists builds with these kernels, including previews:", (BUILDS_OF_AMD,))


def _device_extras(facts: Facts) -> str:
    """The requirement of one PyTorch for all GPUs supported by AMD's build."""
    names = dict.fromkeys(own_name(gpu) for gpu in facts.gpus)
    return f"torch[{','.join(f'device-{name}' for name in names if name in AMD_TORCH)}]"


def _install(requirement: str) -> str:
    return f'python -m pip install --index-url {AMD_INDEX} "{requirement}"'


def _overriding(name: str, gpus: Sequence[Gpu], facts: Facts) -> tuple[str, ...]:
    """Lines making exactly these GPUs report the arch whose code they run, else empty."""
    code = code_of(gpus[0], facts)
    value = override.value_for(code)
    if facts.windows or code == name or code not in facts.torch_archs or not value:
        return ()
    if {code_of(gpu, facts) for gpu in (*facts.gpus, *facts.driver_gpus)} == {code}:
        return (set_line(facts, OVERRIDE, value),)
    nodes = [gpu.node for gpu in facts.driver_gpus if own_name(gpu) == name and gpu.node >= 0]
    return tuple(set_line(facts, f"{OVERRIDE}_{node}", value) for node in nodes)


def _showing(gpus: Iterable[Gpu], facts: Facts) -> str:
    """The line showing only these GPUs to programs, numbered by the set variable, else by PyTorch."""
    given = dict(facts.environment)
    name = next((each for each in RENUMBERING if given.get(each)), RENUMBERING[0])
    listed = [each.strip() for each in given.get(name, "").split(",")]
    numbers = [listed[gpu.index] if gpu.index < len(listed) and listed[0] else str(gpu.index) for gpu in gpus]
    return set_line(facts, name, ",".join(numbers))


def _built_for(name: str, archs: Iterable[str]) -> bool:
    """Whether one of ``archs`` covers ``name``. Family code ("gfx11-generic") covers its generation."""
    return any(arch == name or (arch.endswith(GENERIC) and _generation(arch) == name[3:-2]) for arch in archs)


def _generation(family: str) -> str:
    return family.removeprefix("gfx").split("-")[0]


def _said(gpu: Gpu, facts: Facts) -> str:
    """The runtime's name of a GPU in the driver's list."""
    given = dict(facts.environment)
    value = given.get(f"{OVERRIDE}_{gpu.node}", given.get(OVERRIDE, ""))
    return override.arch_of(value) or own_name(gpu)


def _fits(value: str, gpu: Gpu, facts: Facts) -> bool:
    return override.arch_of(value) in (own_name(gpu), code_of(gpu, facts))


def _wrong_of_all(value: str, facts: Facts) -> str:
    given = dict(facts.environment)
    there = [gpu for gpu in facts.driver_gpus if f"{OVERRIDE}_{gpu.node}" not in given]
    wrong = [gpu for gpu in there if not _fits(value, gpu, facts)]
    if facts.driver_gpus and not wrong:
        return ""
    real = ", ".join(dict.fromkeys(gpu.arch for gpu in there)) or "of unknown arch"
    return (
        f"makes every GPU report this arch, and they are {real}: kernels of another arch may fail or give "
        "wrong results"
    )


def _wrong_of_node(node: int, value: str, facts: Facts) -> str:
    gpus = {gpu.node: gpu for gpu in facts.driver_gpus if gpu.node >= 0}
    if not gpus or (node in gpus and _fits(value, gpus[node], facts)):
        return ""
    if node not in gpus:
        there = ", ".join(f"{number} ({gpu.arch})" for number, gpu in gpus.items())
        return f"is for node {node} of the driver, which is no GPU; GPUs are the nodes {there}"
    return (
        f"makes node {node} report this arch, and it is {gpus[node].arch}: kernels of another arch may fail "
        "or give wrong results"
    )
