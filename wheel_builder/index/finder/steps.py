"""The steps in order for a ROCm version: PyTorch, its ROCm version, the wheel, doctor, the drop-in. Pure."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from wheel_builder.build.shim import SHIMS, Shim
from wheel_builder.index.finder.data import Wheel
from wheel_builder.matrix import model
from wheel_builder.matrix.model import PROJECT, simple_below
from wheel_builder.matrix.tuned.candidates import distributions
from wheel_builder.tables.archs import served_by
from wheel_builder.tables.package import package_module

INDEX = "INDEX"  # in commands; the script puts the page's address there
TOOLS = ("pip", "uv")
LINUX, WSL2, WINDOWS, DOCKER = SYSTEMS = ("Linux", "WSL2", "Windows", "Docker")
SELECTOR = "https://pytorch.org/get-started/locally/"
# pytorch.org has no builds for ROCm on Windows, or for ROCm 7.14 and later. AMD has.
AMD_BUILDS = BUILDS_FOR_WINDOWS = "https://github.com/ROCm/TheRock/blob/main/RELEASES.md"
OF_THE_ROCK = (
    "for ROCm on Windows (AMD's own wheels for ROCm 7.2 have PyTorch 2.9, which is too old, and pytorch.org "
    "has none for Windows)"
)
PYTORCH_INDEX = "https://download.pytorch.org/whl/rocm"  # followed by a version built by pytorch.org
OF_PYTORCH = ("6.4", "7.0", "7.1", "7.2")
# AMD's builds of PyTorch have a package of kernels per arch. The script puts the GPU's arch here.
ARCH = "GFX"
WSL_LIST = (
    "https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/compatibility/compatibilityrad/wsl/"
    "wsl_compatibility.html"
)
INSTALL = {"pip": "pip install", "uv": "uv pip install"}
REMOVE = {"pip": "pip uninstall --yes torch", "uv": "uv pip uninstall torch"}
MAKE_ENVIRONMENT = {"pip": "python3 -m venv rocm-fa", "uv": "uv venv rocm-fa"}
MAKE_ENVIRONMENT_ON_WINDOWS = {"pip": "py -m venv rocm-fa", "uv": "uv venv rocm-fa"}
ENTER, ENTER_ON_WINDOWS = ". rocm-fa/bin/activate", r"rocm-fa\Scripts\activate"
ENVIRONMENT = (
    "Make a virtual environment and activate it, unless you are in one: the system's Python refuses "
    "packages (PEP 668)"
)
REMOVED = "Remove an installed PyTorch: a CPU or CUDA build, or a build for another ROCm version"
IF_NONE = "None means a CPU or CUDA build: remove it and repeat the step before"
# Groups by number: the image lacks the group "render", and its number differs between machines.
DEVICES = (
    "--device /dev/kfd --device /dev/dri "
    "--group-add $(stat -c %g /dev/kfd) --group-add $(stat -c %g /dev/dri/renderD128)"
)
MAKE_IMAGE = 'scripts/wheel-builder runtime-image --for-gpu --torch-index "$TORCH_INDEX"'
VERSION = 'python -c "import torch; print(torch.version.hip)"'
DOCTOR = f"python -m {PROJECT.replace('-', '_')} doctor"
TUNE = f"python -m {PROJECT.replace('-', '_')} tune --apply"
TUNED = (
    "Optional: time other divisions of the work of kernels on your GPU, and use faster ones. Each was "
    "executed on an ISA emulator, none on hardware"
)
NOTHING_COMPILED = (
    "Make the image once, in a checkout of the project. It contains the published wheel, without compiling, "
    "and PyTorch for ROCm from TORCH_INDEX. The last command refuses any PyTorch without GPU access"
)
FOR_WSL = (
    "On Windows install AMD's driver with WSL support, and in the Linux distribution AMD's ROCm for WSL. "
    "The GPU's device file there is /dev/dxg instead of /dev/kfd"
)


NOT_OWN = (
    "Install a PyTorch that was built for this GPU, {} or newer. PyTorch's own builds for ROCm have no "
    "kernels for it, and no setting gives it those of another GPU. AMD's page lists previews"
)
NO_IMAGE = (
    "This image takes PyTorch's own builds for ROCm, which have no kernels for this GPU. Choose Linux for "
    "its steps"
)


@dataclass(frozen=True)
class Step:
    """An instruction with an optional command. ``link`` is an address with its words.

    ``systems`` and ``tools`` limit the step to some users. ``own`` limits it to GPUs with kernels in
    PyTorch's own builds (True), or to the others (False). ``packaged`` limits it to GPUs with a package in
    AMD's builds of PyTorch (True), or to the others (False). None means all. ``gpus`` limits it to these.
    """

    words: str
    command: str = ""
    link: str = ""
    systems: tuple[str, ...] = (LINUX, WSL2)
    tools: tuple[str, ...] = TOOLS
    packaged: bool | None = None
    own: bool | None = None
    optional: bool = False
    gpus: tuple[str, ...] = ()


@cache
def amds_index() -> str:
    """The index of AMD's builds of PyTorch, as the doctor has it."""
    return str(package_module("machine.torch_devices").AMD_INDEX)


def steps(
    rocm: str,
    wheel: Wheel,
    *,
    drop_ins: Collection[str],
    torch_floor: str,
    candidates: Sequence[Wheel] = (),
) -> tuple[Step, ...]:
    """All steps, for all systems and tools. ``drop_ins`` are the SHIMS in the index.

    ``candidates`` are the distributions that belong to the wheel.
    """
    shims = [shim for shim in SHIMS if shim.name in drop_ins]
    if wheel.platform == model.WINDOWS:
        return (*_on_windows(wheel, shims, torch_floor), *_tuned(model.PUBLIC, candidates, WINDOWS))
    here = (*_on_linux(rocm, wheel, shims, torch_floor), *_tuned(rocm, candidates, LINUX, WSL2))
    return (*here, *_in_docker(rocm, wheel, shims))


def _tuned(rocm: str, candidates: Sequence[Wheel], *systems: str) -> Iterator[Step]:
    """The distributions of candidates, each for the GPUs that run the code of its arch."""
    for each in candidates:
        gpus = served_by(distributions()[each.project])
        for tool, install in INSTALL.items():
            line = f"{install} {each.project}=={each.version} --index-url {_simple(rocm)}\n{TUNE}"
            yield Step(TUNED, line, systems=systems, tools=(tool,), optional=True, gpus=gpus)


def _for_libraries(shim: Shim) -> str:
    users = f"code that imports {shim.modules}, for example {shim.users}"
    return f"Only for {users}: {shim.name}, pure Python"


def _on_linux(rocm: str, wheel: Wheel, shims: Sequence[Shim], torch_floor: str) -> Iterator[Step]:
    here = (LINUX, WSL2)
    yield Step(FOR_WSL, link=WSL_LIST, systems=(WSL2,))
    yield from _environment(MAKE_ENVIRONMENT, ENTER, here)
    if rocm in OF_PYTORCH:
        words = f"Install PyTorch {torch_floor} or newer for ROCm {rocm}; its page has other builds"
        for tool, install in INSTALL.items():
            line = f'{install} "torch>={torch_floor}" --index-url {PYTORCH_INDEX}{rocm}'
            yield Step(words, line, SELECTOR, here, (tool,), own=True)
        yield Step(NOT_OWN.format(torch_floor), link=AMD_BUILDS, systems=here, own=False)
    else:
        yield from _amds_torch(f"for ROCm {rocm}", torch_floor, here)
    begins = f"{rocm}…" if rocm in OF_PYTORCH else "7… (HIP's own)"
    yield Step(f"Print its ROCm version, {begins}. {IF_NONE}", VERSION)
    yield from _install(rocm, wheel, shims, *here)


def _environment(make: Mapping[str, str], enter: str, systems: tuple[str, ...]) -> Iterator[Step]:
    for tool, line in make.items():
        yield Step(ENVIRONMENT, f"{line}\n{enter}", systems=systems, tools=(tool,))
    for tool, line in REMOVE.items():
        yield Step(REMOVED, line, systems=systems, tools=(tool,))


def _amds_torch(what: str, torch_floor: str, systems: tuple[str, ...]) -> Iterator[Step]:
    """AMD's builds with their package per arch, or their page for a GPU that has no package there."""
    words = f"Install PyTorch {torch_floor} or newer {what} from AMD, with the package for this GPU's arch"
    for tool, install in INSTALL.items():
        line = f'{install} "torch[device-{ARCH}]>={torch_floor}" --index-url {amds_index()}'
        yield Step(words, line, systems=systems, tools=(tool,), packaged=True)
    none = (
        f"Install PyTorch {torch_floor} or newer {what}. AMD's releases have no package for this GPU; AMD's "
        "page lists previews with one"
    )
    yield Step(none, link=AMD_BUILDS, systems=systems, packaged=False)


def _on_windows(wheel: Wheel, shims: Sequence[Shim], torch_floor: str) -> Iterator[Step]:
    yield from _environment(MAKE_ENVIRONMENT_ON_WINDOWS, ENTER_ON_WINDOWS, (WINDOWS,))
    yield from _amds_torch(OF_THE_ROCK, torch_floor, (WINDOWS,))
    yield Step(f"Print its ROCm version. {IF_NONE}", VERSION, systems=(WINDOWS,))
    yield from _install(model.PUBLIC, wheel, shims, WINDOWS)


def _install(rocm: str, wheel: Wheel, shims: Sequence[Shim], *systems: str) -> Iterator[Step]:
    for tool, install in INSTALL.items():
        command = f"{install} {_requirement(rocm, wheel)}"
        yield Step("Install the wheel", command, systems=systems, tools=(tool,))
    yield Step("Check whether attention runs on your GPU; the output lists fixes", DOCTOR, systems=systems)
    for shim in shims:
        for tool, install in INSTALL.items():
            command = f"{install} {shim.name} --index-url {_simple(rocm)}"
            yield Step(_for_libraries(shim), command, systems=systems, tools=(tool,), optional=True)


def _in_docker(rocm: str, wheel: Wheel, shims: Sequence[Shim]) -> Iterator[Step]:
    image = f"rocm-fa:{wheel.built_with}"
    make = (
        f"export TORCH_INDEX={PYTORCH_INDEX}{wheel.built_with}",
        f"pip download --no-deps {_requirement(rocm, wheel)}",
        f"{MAKE_IMAGE} {shlex.quote(wheel.filename)}",
    )
    yield Step(NO_IMAGE, systems=(DOCKER,), own=False)
    yield Step(NOTHING_COMPILED, "\n".join(make), systems=(DOCKER,), own=True)
    run = f"docker run {DEVICES} {image}"
    yield Step("Print the ROCm version of its PyTorch", f"{run} {VERSION}", systems=(DOCKER,), own=True)
    yield Step(
        "Check whether attention runs on your GPU; the image has the wheel", run, systems=(DOCKER,), own=True
    )
    for shim in shims:
        install = f"RUN python -m pip install {shim.name} --index-url {_simple(rocm)}"
        lines = (f"FROM {image}", "USER 0", install, "USER 10001")
        yield Step(
            f"{_for_libraries(shim)}. A Dockerfile", "\n".join(lines), systems=(DOCKER,), optional=True
        )


def _requirement(rocm: str, wheel: Wheel) -> str:
    return f"{PROJECT}=={wheel.version} --index-url {_simple(rocm)}"


def _simple(rocm: str) -> str:
    return f"{INDEX}/{simple_below(rocm)}/"
