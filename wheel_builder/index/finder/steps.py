"""The steps in order for a ROCm version: PyTorch, its ROCm version, the wheel, doctor, the drop-in; pure."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from wheel_builder.build.shim import SHIMS, Shim
from wheel_builder.index.finder.data import Wheel
from wheel_builder.matrix import model
from wheel_builder.matrix.model import PROJECT, simple_below

INDEX = "INDEX"  # in commands; the script puts the page's own address there
TOOLS = ("pip", "uv")
LINUX, WSL2, WINDOWS, DOCKER = SYSTEMS = ("Linux", "WSL2", "Windows", "Docker")
SELECTOR = "https://pytorch.org/get-started/locally/"
# pytorch.org has no builds for ROCm on Windows; AMD has.
BUILDS_FOR_WINDOWS = "https://github.com/ROCm/TheRock/blob/main/RELEASES.md"
INSTALL = {"pip": "pip install", "uv": "uv pip install"}
# Groups by number: the image has no group "render", and its number differs between machines.
DEVICES = (
    "--device /dev/kfd --device /dev/dri "
    "--group-add $(stat -c %g /dev/kfd) --group-add $(stat -c %g /dev/dri/renderD128)"
)
MAKE_IMAGE = 'scripts/wheel-builder runtime-image --for-gpu --torch-index "$TORCH_INDEX"'
VERSION = 'python -c "import torch; print(torch.version.hip)"'
DOCTOR = f"python -m {PROJECT.replace('-', '_')} doctor"
NOTHING_COMPILED = (
    "Make the image, once, from the published wheel; PyTorch for ROCm comes with it, and nothing of the "
    "wheel is compiled. Type this in a checkout of the project, where TORCH_INDEX is the address of "
    "PyTorch's ROCm builds, as PyTorch's installation page names it; with another build of PyTorch no "
    "image could use the GPU, and the second command refuses to make one"
)
FOR_WSL = (
    "On Windows install AMD's driver that supports WSL, and in the Linux distribution AMD's ROCm for WSL. "
    "The GPU is /dev/dxg there; /dev/kfd does not exist"
)


@dataclass(frozen=True)
class Step:
    """What to do, and the command to type, if any; ``link`` is an address with the words.

    ``systems`` and ``tools`` are those that it is for.
    """

    words: str
    command: str = ""
    link: str = ""
    systems: tuple[str, ...] = (LINUX, WSL2)
    tools: tuple[str, ...] = TOOLS


def steps(rocm: str, wheel: Wheel, *, drop_ins: Collection[str], torch_floor: str) -> tuple[Step, ...]:
    """All steps, those for other systems and tools among them; ``drop_ins``: what the index has of SHIMS."""
    shims = [shim for shim in SHIMS if shim.name in drop_ins]
    if wheel.platform == model.WINDOWS:
        return tuple(_on_windows(wheel, shims, torch_floor))
    return (*_on_linux(rocm, wheel, shims), *_in_docker(rocm, wheel, shims))


def _for_libraries(shim: Shim) -> str:
    users = f"code that imports {shim.modules}, such as transformers and diffusers"
    return f"Only for {users}: {shim.name}, pure Python"


def _on_linux(rocm: str, wheel: Wheel, shims: Sequence[Shim]) -> Iterator[Step]:
    yield Step(FOR_WSL, systems=(WSL2,))
    choose = f"Install PyTorch for ROCm {rocm}: its page gives the line to paste, for Linux, Pip and ROCm"
    yield Step(choose, link=SELECTOR)
    yield Step(
        f"See its ROCm version, which begins with {rocm}. None is a CPU or CUDA build: remove it first",
        VERSION,
    )
    yield from _install(rocm, wheel, shims, LINUX, WSL2)


def _on_windows(wheel: Wheel, shims: Sequence[Shim], torch_floor: str) -> Iterator[Step]:
    choose = (
        f"Install PyTorch {torch_floor} or newer for ROCm on Windows, of AMD's TheRock, as its page says. "
        "AMD's own wheels for ROCm 7.2 on Windows have PyTorch 2.9, which does not fit, and pytorch.org has "
        "none for Windows"
    )
    yield Step(choose, link=BUILDS_FOR_WINDOWS, systems=(WINDOWS,))
    yield Step(
        "See its ROCm version. None is a CPU or CUDA build: remove it first", VERSION, systems=(WINDOWS,)
    )
    yield from _install(model.PUBLIC, wheel, shims, WINDOWS)


def _install(rocm: str, wheel: Wheel, shims: Sequence[Shim], *systems: str) -> Iterator[Step]:
    for tool, install in INSTALL.items():
        command = f"{install} {_requirement(rocm, wheel)}"
        yield Step("Install the wheel", command, systems=systems, tools=(tool,))
    yield Step("See whether attention would run on your GPU, and what to do if not", DOCTOR, systems=systems)
    for shim in shims:
        for tool, install in INSTALL.items():
            command = f"{install} {shim.name} --index-url {_simple(rocm)}"
            yield Step(_for_libraries(shim), command, systems=systems, tools=(tool,))


def _in_docker(rocm: str, wheel: Wheel, shims: Sequence[Shim]) -> Iterator[Step]:
    image = f"rocm-fa:{wheel.built_with}"
    make = (
        f"pip download --no-deps {_requirement(rocm, wheel)}",
        f"{MAKE_IMAGE} {shlex.quote(wheel.filename)}",
    )
    yield Step(NOTHING_COMPILED, "\n".join(make), systems=(DOCKER,))
    run = f"docker run {DEVICES} {image}"
    yield Step("See the ROCm version of the PyTorch in it", f"{run} {VERSION}", systems=(DOCKER,))
    yield Step("The wheel is in it. See whether attention would run on your GPU", run, systems=(DOCKER,))
    for shim in shims:
        install = f"RUN python -m pip install {shim.name} --index-url {_simple(rocm)}"
        lines = (f"FROM {image}", "USER 0", install, "USER 10001")
        yield Step(f"{_for_libraries(shim)}. A Dockerfile", "\n".join(lines), systems=(DOCKER,))


def _requirement(rocm: str, wheel: Wheel) -> str:
    return f"{PROJECT}=={wheel.version} --index-url {_simple(rocm)}"


def _simple(rocm: str) -> str:
    return f"{INDEX}/{simple_below(rocm)}/"
