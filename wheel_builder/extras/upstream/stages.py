"""Upstream's kernels as stages: sources, an object for each kernel and arch, and the library of an arch.

In: the source distribution and a builder image. Out: results in the store, reusable on every machine. Every
object passes the gate before it is stored. The stages are independent of Python and torch. All code of
upstream runs in containers, as an unprivileged user with networking off.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, GateError, UpstreamError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file
from wheel_builder.extras.upstream.gate import Checked, check_listing
from wheel_builder.extras.upstream.recipe import (
    CK,
    DIRECTIONS,
    GENERATOR,
    GENERATOR_OPTIONS,
    HOST_ONLY,
    compile_options,
)
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.library import code_objects
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in
from wheel_builder.machine_code.disassembly.listing import list_code, tools_in

SCRIPT = Path(__file__).with_name("in_container.py")
INSIDE = "/run/in_container.py"
OBJECT, COST, LIBRARY = "kernel.o", "cost.json", "libflash_attn_ck.so"
STAGE = "upstream-object"
QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/out"}


@dataclass(frozen=True)
class Workshop:
    """Where upstream's kernels are made: a builder image, the store, and the folder of LLVM in the image."""

    image: Artifact
    llvm: str
    store: Store
    log: Path
    run: Runner = run

    def inside(self, argv: Sequence[str], out: Path, *mounts: Mount) -> None:
        """Run ``argv`` in the builder image. ``out`` is its only writable folder, at ``/out``.

        Its output stays out of the log, which parallel runs share.
        """
        every = [Mount(SCRIPT, INSIDE), Mount(out, "/out", writable=True), *mounts]
        with open_to_all(out):
            run_in(self.image.facts["ref"], argv, mounts=every, env=QUIET, user=NOBODY, run=self.run)


def make_sources(sdist: Artifact, shop: Workshop) -> Artifact:
    """CK's sources in ``ck`` and the generated ones in ``kernels``. Fact: ``kernels``, their names."""
    recipe = [CK, GENERATOR, ",".join(DIRECTIONS), *GENERATOR_OPTIONS]
    inputs = {
        "image": shop.image.facts["image_id"], "sdist": sdist.manifest["files"], "recipe": recipe,
        "script": sha256_file(SCRIPT),
    }  # fmt: skip

    def make(out: Path) -> Mapping[str, Any]:
        argv = ["python3", INSIDE, "generate", "/sdist.tar.gz", "/out", *recipe]
        shop.inside(argv, out, Mount(sdist.path / sdist.facts["file"], "/sdist.tar.gz"))
        return {"kernels": sorted(file.stem for file in (out / "kernels").glob("*.cpp"))}

    return shop.store.get_or_make("upstream-sources", inputs, make)


def make_object(
    name: str, arch: str, sources: Artifact, shop: Workshop, *, added: Sequence[str] = (), limit: int = 0
) -> Artifact:
    """One generated kernel, compiled for one arch with the recipe's flags and those ``added``.

    Facts: ``name``, ``arch``, ``cpu_seconds``, ``peak_mib``, ``code_bytes`` (of the code object), ``kernels``
    (matrix instructions by symbol). A compiler may take at most ``limit`` CPU-seconds (0: unlimited). Raises
    ``UpstreamError`` for a compiler error, ``GateError`` for missing matrix products.
    """
    options = [*compile_options(arch, "/sources/ck"), *added]
    inputs = {"image": shop.image.facts["image_id"], "sources": sources.key, "kernel": name, "flags": options}

    def make(out: Path) -> Mapping[str, Any]:
        command = [f"{shop.llvm}/clang++", *options, "-c", f"/sources/kernels/{name}.cpp"]
        argv = ["python3", INSIDE, "compile", f"/out/{COST}", str(limit), *command, "-o", f"/out/{OBJECT}"]
        try:
            shop.inside(argv, out, Mount(sources.path, "/sources"))
        except CommandFailedError as error:
            title = f"{name} does not compile for {arch}"
            raise UpstreamError(title, [error.message]) from error
        cost = json.loads((out / COST).read_text(encoding="ascii"))
        codes = code_objects((out / OBJECT).read_bytes())
        found = {kernel.symbol: kernel.found for kernel in gated(name, codes, shop)}
        size = sum(len(code.data) for code in codes)
        return {"name": name, "arch": arch, **cost, "code_bytes": size, "kernels": found}

    return shop.store.get_or_make(STAGE, inputs, make)


def gated(name: str, codes: Sequence[CodeObject], shop: Workshop) -> list[Checked]:
    """The kernels of an object. Raises ``GateError`` for refused ones."""
    listings = list_code(codes, tools=tools_in(shop.image), store=shop.store, log=shop.log, run=shop.run)
    found = [kernel for listing in listings for kernel in check_listing(listing)]
    refuse(name, found)
    return found


def refuse(name: str, found: Sequence[Checked]) -> None:
    """Raise ``GateError`` with all problems of an object's kernels."""
    problems = [kernel.problem for kernel in found if kernel.problem]
    if not found and not HOST_ONLY.fullmatch(name):
        problems = ["it has no kernel of CK's attention"]
    if problems:
        title = f"the gate refuses {name}"
        raise GateError(title, problems, advice="leave its arch out: CK has no kernels for it")


def link(arch: str, objects: Sequence[Artifact], shop: Workshop) -> Artifact:
    """The shared library of one arch's objects. Fact: ``kernels``, its number of code objects."""
    inputs = {
        "image": shop.image.facts["image_id"], "arch": arch, "objects": sorted(one.key for one in objects)
    }  # fmt: skip

    def make(out: Path) -> Mapping[str, Any]:
        link_objects(objects, out, LIBRARY, shop)
        return {"arch": arch, "kernels": _counted(out / LIBRARY, objects)}

    return shop.store.get_or_make("upstream-library", inputs, make)


def link_objects(
    objects: Sequence[Artifact],
    out: Path,
    file: str,
    shop: Workshop,
    *,
    also: Sequence[str] = (),
    options: Sequence[str] = (),
    mounts: Sequence[Mount] = (),
) -> None:
    """Link kernels' objects, and the files ``also``, to the shared library ``file`` in ``out``.

    Thousands of paths are longer than a command line may be, so the linker reads them from a file.
    """
    ordered = sorted(objects, key=lambda one: str(one.facts["name"]))
    lines = [*also, *(f"/objects/{one.key}/{OBJECT}" for one in ordered)]
    (out / "objects.rsp").write_text("\n".join(lines) + "\n", encoding="ascii")
    command = [f"{shop.llvm}/clang++", "-shared", "-fuse-ld=lld", "-Wl,--build-id=none"]
    command += ["@/out/objects.rsp", *options, "-o", f"/out/{file}"]
    shop.inside(command, out, Mount(shop.store.root / STAGE, "/objects"), *mounts)


def _counted(library: Path, objects: Sequence[Artifact]) -> int:
    """The number of linked code objects: one for each object with kernels."""
    found = len(code_objects(library.read_bytes()))
    expected = sum(1 for one in objects if one.facts["kernels"])
    if found != expected:
        title = "the linked library does not hold what was linked"
        raise UpstreamError(title, [f"expected {expected} code objects, found {found}"])
    return found
