"""The toolchain's disassembly of a code object, kept in the store by content.

LLVM's own decoder is used instead of one of ours: encodings differ on each arch, its text does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wheel_builder.docker import Mount, caller, run_in
from wheel_builder.errors import CommandFailedError, EmulatorError
from wheel_builder.process import Runner, run
from wheel_builder.store import Store, key_of, sha256_file

STAGE = "disassembly"
TEXT = "disassembly.s"
OPTIONS = ("--disassemble",)


class Llvm(Protocol):
    """Where llvm-objdump is; ``identity`` changes when the program does."""

    @property
    def identity(self) -> str: ...

    def objdump(self, code_object: Path, *options: str) -> str: ...


@dataclass(frozen=True)
class ImageLlvm:
    """The LLVM tools in a builder image: its name, its id, and the folder inside."""

    ref: str
    image_id: str
    folder: str
    run: Runner = run

    @property
    def identity(self) -> str:
        return f"{self.image_id} {self.folder}"

    def objdump(self, code_object: Path, *options: str) -> str:
        argv = [f"{self.folder}/llvm-objdump", *options, "/in.co"]
        mounts = [Mount(code_object, "/in.co")]
        return run_in(self.ref, argv, mounts=mounts, user=caller(), run=self.run).stdout


def disassemble(code_object: Path, llvm: Llvm, store: Store) -> str:
    """What llvm-objdump prints for the code object; the arch is read from the file by LLVM itself.

    Raises ``EmulatorError`` for a file that it cannot read.
    """
    inputs = {"code": sha256_file(code_object), "llvm": key_of({"it": llvm.identity}), "options": OPTIONS}

    def make(out: Path) -> Mapping[str, int]:
        try:
            text = llvm.objdump(code_object, *OPTIONS)
        except CommandFailedError as error:
            message = f"{code_object.name}: cannot be disassembled\n{error.message}"
            raise EmulatorError(message, advice="is it a code object, and not an offload bundle?") from error
        (out / TEXT).write_text(text, encoding="utf-8")
        return {"lines": text.count("\n")}

    return (store.get_or_make(STAGE, inputs, make).path / TEXT).read_text(encoding="utf-8")
