"""Code objects as text: output of ``llvm-objdump -d``, stored by content.

In: code objects, and an image with the LLVM tools. Out: ``text.s`` of each.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import ElfError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.fatbin import CodeObject, machine_arch
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in

STAGE = "listing"
TEXT = "text.s"
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
    number=$((number + 1))
done
"""


@dataclass(frozen=True)
class Tools:
    """LLVM in the builder image called ``image``. ``identity`` tells versions apart."""

    identity: str
    image: str


@dataclass(frozen=True)
class Listing:
    """One code object, its disassembly, and its arch ("gfx942", no features)."""

    arch: str
    disassembly: str
    code: bytes


def tools_in(image: Artifact) -> Tools:
    """The LLVM of a builder image."""
    return Tools(identity=image.facts["image_id"], image=image.facts["ref"])


def list_code(
    objects: Sequence[CodeObject], *, tools: Tools, store: Store, log: Path, run: Runner = run
) -> tuple[Listing, ...]:
    """The text of ``objects`` in their order. Raises ``CommandFailedError`` for an unreadable one.

    Each is stored by itself, so the text of one kernel of a listed wheel is found too. The tools run once for
    all missing ones.
    """
    keys = [_key(code, tools) for code in objects]
    with tempfile.TemporaryDirectory(prefix=f"flash-attn-rocm-{STAGE}-") as folder:
        listed: dict[int, Path] = {}

        def make(number: int, out: Path) -> Mapping[str, Any]:
            if not listed:
                later = range(number + 1, len(objects))
                missing = [number, *(n for n in later if store.find(STAGE, keys[n]) is None)]
                _run([objects[n] for n in missing], Path(folder), tools=tools, log=log, run=run)
                listed.update((n, Path(folder, str(place))) for place, n in enumerate(missing))
            shutil.copyfile(listed[number].with_suffix(".s"), out / TEXT)
            return {}

        made = [store.get_or_make(STAGE, key, partial(make, n)) for n, key in enumerate(keys)]
    texts = (_text(each, number) for number, each in enumerate(made))
    return tuple(Listing(code.gfx, text, code.data) for code, text in zip(objects, texts, strict=True))


def _key(code: CodeObject, tools: Tools) -> Mapping[str, str]:
    digest = hashlib.sha256(code.data).hexdigest()
    return {"tools": tools.identity, "script": SCRIPT, "arch": code.gfx, "object": digest}


def disassemble(data: bytes, *, tools: Tools, store: Store, log: Path, run: Runner = run) -> str:
    """The disassembly of one code object, for the arch in its ELF header."""
    code = CodeObject(machine_arch(read_elf(data)), data)
    return list_code([code], tools=tools, store=store, log=log, run=run)[0].disassembly


def _run(objects: Sequence[CodeObject], out: Path, *, tools: Tools, log: Path, run: Runner) -> None:
    for number, code in enumerate(objects):
        (out / f"{number}.hsaco").write_bytes(code.data)
    archs = [code.gfx for code in objects]
    argv, mounts = ["sh", "-c", SCRIPT, "sh", "/out", *archs], [Mount(out, "/out", writable=True)]
    with open_to_all(out):
        run_in(tools.image, argv, mounts=mounts, user=NOBODY, log=log, run=run)


def _text(made: Artifact, number: int) -> str:
    """Symbols of a hostile code object may be any bytes, and LLVM prints them as they are."""
    try:
        return (made.path / TEXT).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.end].rpartition(b"\n")[2][-80:]
        message = f"code object {number + 1} has a name that is not UTF-8: {line!r}"
        raise ElfError(message, advice="compile it again: compilers write names in UTF-8") from error
