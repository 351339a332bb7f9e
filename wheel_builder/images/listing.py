"""Code objects as text: what ``llvm-objdump -d`` and ``llvm-readelf`` print of them, stored by content.

In: code objects, and an image (or a folder) with the LLVM tools.  Out: ``<n>.s`` and ``<n>.notes`` each.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import ElfError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store
from wheel_builder.files.elf import read_elf
from wheel_builder.files.fatbin import CodeObject, machine_arch
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in

STAGE = "listing"
SCRIPT = """
set -eu
cd "$1"; shift
number=0
for arch in "$@"; do
    "$FA_LLVM/llvm-objdump" -d --mcpu="$arch" "$number.hsaco" > "$number.s"
    # On RDNA 4 LLVM's own compiler takes 16-bit operands as low halves of registers, Triton's as
    # either half.
    if grep -q "^[[:space:]]*[.]long" "$number.s"; then
        "$FA_LLVM/llvm-objdump" -d --mcpu="$arch" --mattr=+real-true16 "$number.hsaco" > "$number.s"
    fi
    "$FA_LLVM/llvm-readelf" --notes --symbols --wide "$number.hsaco" > "$number.notes"
    number=$((number + 1))
done
"""


@dataclass(frozen=True)
class Tools:
    """LLVM in the builder image called ``image``, or in ``folder`` of this machine.

    ``identity`` tells versions apart.
    """

    identity: str
    image: str = ""
    folder: str = ""


@dataclass(frozen=True)
class Listing:
    """One code object's disassembly and notes, and the arch it is for ("gfx942", no features)."""

    arch: str
    disassembly: str
    notes: str


def tools_in(image: Artifact) -> Tools:
    """The LLVM of a builder image."""
    return Tools(identity=image.facts["image_id"], image=image.facts["ref"])


def tools_at(folder: Path, *, run: Runner = run) -> Tools:
    """The LLVM of this machine in ``folder``; raises ``ToolMissingError`` when it is not there."""
    version = run([folder / "llvm-objdump", "--version"]).stdout
    return Tools(identity=version, folder=str(folder))


def list_code(
    objects: Sequence[CodeObject], *, tools: Tools, store: Store, log: Path, run: Runner = run
) -> tuple[Listing, ...]:
    """The text of ``objects`` in their order; raises ``CommandFailedError`` when a tool cannot read one."""
    archs = [code.gfx for code in objects]
    digests = [hashlib.sha256(code.data).hexdigest() for code in objects]
    inputs = {"tools": tools.identity, "script": SCRIPT, "archs": archs, "objects": digests}

    def make(out: Path) -> Mapping[str, Any]:
        files = [out / f"{number}.hsaco" for number in range(len(objects))]
        for file, code in zip(files, objects, strict=True):
            file.write_bytes(code.data)
        _run(archs, out, tools=tools, log=log, run=run)
        for file in files:
            file.unlink()
        return {"objects": len(objects)}

    made = store.get_or_make(STAGE, inputs, make)
    texts = ((_text(made, number, "s"), _text(made, number, "notes")) for number in range(len(objects)))
    return tuple(Listing(arch, *text) for arch, text in zip(archs, texts, strict=True))


def disassemble(data: bytes, *, tools: Tools, store: Store, log: Path, run: Runner = run) -> str:
    """The disassembly of one code object, for the arch that its ELF header names."""
    code = CodeObject(machine_arch(read_elf(data)), data)
    return list_code([code], tools=tools, store=store, log=log, run=run)[0].disassembly


def _run(archs: Sequence[str], out: Path, *, tools: Tools, log: Path, run: Runner) -> None:
    if tools.image:
        argv, mounts = ["sh", "-c", SCRIPT, "sh", "/out", *archs], [Mount(out, "/out", writable=True)]
        with open_to_all(out):
            run_in(tools.image, argv, mounts=mounts, user=NOBODY, log=log, run=run)
    else:
        env = {**os.environ, "FA_LLVM": tools.folder}
        run(["sh", "-c", SCRIPT, "sh", str(out), *archs], log=log, env=env)


def _text(made: Artifact, number: int, suffix: str) -> str:
    """Symbols of a hostile code object may be any bytes, and LLVM prints them as they are."""
    try:
        return (made.path / f"{number}.{suffix}").read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.end].rpartition(b"\n")[2][-80:]
        message = f"code object {number + 1} has a name that is not UTF-8: {line!r}"
        raise ElfError(message, advice="compile it again: compilers write names in UTF-8") from error
