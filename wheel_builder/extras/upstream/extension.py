"""Upstream's extension module and wheel: its host part, compiled against a ROCm build of PyTorch.

hipified sources -> an object for each -> linked with the kernels' objects of an arch -> wheel

The kernels are the same for every Python and PyTorch. Only this module's results depend on them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, UpstreamError
from wheel_builder.base.store import Artifact, sha256_file
from wheel_builder.extras.upstream.recipe import HOST, HOST_FLAGS, MODULE, compile_options
from wheel_builder.extras.upstream.stages import COST, INSIDE, OBJECT, SCRIPT, Workshop, link_objects
from wheel_builder.extras.upstream.torch import INCLUDE, LINKED
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.library import code_objects
from wheel_builder.images.docker import Mount

HOST_STAGE = "upstream-host-object"
# A kernel of CK or the choice of one, by its mangled function name.
KERNEL = re.compile(r"_Z\d+fmha_")
SHOWN = 3  # of thousands of names


def refusal(*, torch_index: str, pattern: str, rocm: str) -> str:
    """Why upstream's extension is refused, or empty if it can be built."""
    if not torch_index:
        reason = (
            "its host part is compiled against a ROCm build of PyTorch; give --torch-index an index or a "
            f"folder of PyTorch's wheels for ROCm {rocm}"
        )
    elif pattern != "*":
        reason = f"it takes all kernels, not only {pattern!r}"
    else:
        return ""
    return (
        f"not built: upstream's extension module {MODULE} and its wheel; {reason}. "
        "Built: the library of kernels, gated and linked, which every Python and PyTorch can share"
    )


def make_host_sources(sdist: Artifact, torch: Artifact, shop: Workshop) -> Artifact:
    """Upstream's host part, translated by PyTorch's hipify. Fact: ``sources``, its files."""
    inputs = {
        "image": shop.image.facts["image_id"], "sdist": sdist.manifest["files"], "torch": torch.key,
        "script": sha256_file(SCRIPT),
    }  # fmt: skip

    def make(out: Path) -> Mapping[str, Any]:
        argv = ["python3", INSIDE, "hipify", "/sdist.tar.gz", "/out", HOST, "/torch/utils"]
        mounts = (Mount(sdist.path / sdist.facts["file"], "/sdist.tar.gz"), Mount(torch.path, "/torch"))
        shop.inside(argv, out, *mounts)
        return {"sources": sorted(file.stem for file in out.glob("*.hip"))}

    return shop.store.get_or_make("upstream-host-sources", inputs, make)


def host_options(arch: str, python_include: str) -> list[str]:
    """The compiler's options for a file of the host part."""
    includes = ("/torch/include", "/torch/include/torch/csrc/api/include", python_include, INCLUDE)
    return [*compile_options(arch, "/sources/ck"), *HOST_FLAGS, *(f"-I{folder}" for folder in includes)]


def make_host_object(
    name: str, arch: str, host: Artifact, sources: Artifact, torch: Artifact, shop: Workshop
) -> Artifact:
    """One file of the host part. Facts: ``name``, ``arch``, ``cpu_seconds``, ``peak_mib``, ``code_objects``.

    ``shop`` works in the image for extensions. Raises ``UpstreamError`` for a compiler error.
    """
    options = host_options(arch, shop.image.facts["python"]["include"])
    inputs = {
        "image": shop.image.facts["image_id"], "host": host.key, "sources": sources.key, "torch": torch.key,
        "file": name, "flags": options,
    }  # fmt: skip

    def make(out: Path) -> Mapping[str, Any]:
        command = [f"{shop.llvm}/clang++", *options, "-c", f"/host/{name}.hip", "-o", f"/out/{OBJECT}"]
        argv = ["python3", INSIDE, "compile", f"/out/{COST}", "0", *command]
        mounts = (Mount(sources.path, "/sources"), Mount(host.path, "/host"), Mount(torch.path, "/torch"))
        try:
            shop.inside(argv, out, *mounts)
        except CommandFailedError as error:
            title = f"upstream's {name} does not compile against PyTorch {torch.facts['version']}"
            raise UpstreamError(title, [error.message], advice="try another release: --torch") from error
        cost = json.loads((out / COST).read_text(encoding="ascii"))
        count = len(code_objects((out / OBJECT).read_bytes()))
        return {"name": name, "arch": arch, **cost, "code_objects": count}

    return shop.store.get_or_make(HOST_STAGE, inputs, make)


def link_extension(
    arch: str, objects: Sequence[Artifact], host: Sequence[Artifact], torch: Artifact, shop: Workshop
) -> Artifact:
    """The extension module of one arch. Facts: ``file``, ``kernels`` (code objects)."""
    file = MODULE + shop.image.facts["python"]["suffix"]
    inputs = {
        "image": shop.image.facts["image_id"], "arch": arch, "torch": torch.key,
        "objects": sorted(one.key for one in objects), "host": sorted(one.key for one in host),
    }  # fmt: skip

    def make(out: Path) -> Mapping[str, Any]:
        lines = [f"/host/{one.key}/{OBJECT}" for one in host]
        # Unused libraries are linked too. Python imports torch first, and torch loads its own dependencies.
        libraries = ["-Wl,--no-as-needed", "-L/torch/lib", *(f"-l{name}" for name in LINKED)]
        libraries += ["-L/opt/rocm/lib", "-lamdhip64"]
        mounts = (Mount(shop.store.root / HOST_STAGE, "/host"), Mount(torch.path, "/torch"))
        link_objects(objects, out, file, shop, also=lines, options=libraries, mounts=mounts)
        expected = sum(1 for one in objects if one.facts["kernels"]) + sum(
            one.facts["code_objects"] for one in host
        )
        refuse_incomplete(out / file, expected)
        return {"arch": arch, "file": file, "kernels": expected}

    return shop.store.get_or_make("upstream-extension", inputs, make)


def refuse_incomplete(library: Path, expected: int) -> None:
    """Raise ``UpstreamError`` for an extension with missing kernels, or unfit for import by Python."""
    data = library.read_bytes()
    elf, found = read_elf(data), len(code_objects(data))
    problems = []
    if found != expected:
        problems.append(f"expected {expected} code objects, found {found}")
    if missing := sorted(symbol.name for symbol in elf.undefined if KERNEL.match(symbol.name)):
        shown = ", ".join(missing[:SHOWN])
        problems.append(f"{len(missing)} functions of kernels are in no object, such as {shown}")
    if f"PyInit_{MODULE}" not in elf.exported:
        problems.append(f"it has no PyInit_{MODULE}, so Python could not import it")
    if problems:
        title = "upstream's extension is not complete"
        raise UpstreamError(
            title, problems, advice="link the objects of all shards: --take each of their folders"
        )


def make_wheel(
    version: str, rocm: str, sdist: Artifact, torch: Artifact, made: Artifact, shop: Workshop
) -> Artifact:
    """Upstream's package with the extension in it. Fact: ``wheel``, its file name.

    Its version names its requirements: ``2.8.3+rocm7.2.torch2.13.gfx942``.
    """
    release = ".".join(torch.facts["version"].split(".")[:2])
    full = f"{version}+rocm{rocm}.torch{release}.{made.facts['arch']}"
    tag = shop.image.facts["python"]["tag"]
    inputs = {
        "image": shop.image.facts["image_id"], "sdist": sdist.manifest["files"], "extension": made.key,
        "version": full, "script": sha256_file(SCRIPT),
    }  # fmt: skip

    def make(out: Path) -> Mapping[str, Any]:
        inside = f"/extension/{made.facts['file']}"
        # The builder image's own tools: the wheel's target Python lacks hatchling.
        argv = ["/opt/python/cp39-cp39/bin/python", INSIDE, "pack", "/sdist.tar.gz", "/out", inside]
        argv += [made.facts["file"], full, f"{tag}-{tag}-linux_x86_64"]
        mounts = (Mount(sdist.path / sdist.facts["file"], "/sdist.tar.gz"), Mount(made.path, "/extension"))
        shop.inside(argv, out, *mounts)
        names = [file.name for file in out.glob("*.whl")]
        return {"wheel": names[0]}

    return shop.store.get_or_make("upstream-wheel", inputs, make)
