"""The text of llvm-objdump is kept, and what it cannot read is named."""

import pytest

from wheel_builder.emulator.disassembly import disassemble
from wheel_builder.errors import CommandFailedError, EmulatorError
from wheel_builder.store import Store


class FakeLlvm:
    identity = "one"

    def __init__(self, answer="\ts_endpgm\n"):
        self.answer, self.asked = answer, 0

    def objdump(self, code_object, *options):
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_text_is_made_once(tmp_path):
    code, llvm = tmp_path / "k.co", FakeLlvm()
    code.write_bytes(b"code")
    texts = {disassemble(code, llvm, Store(tmp_path / "build")) for _ in range(2)}
    assert (texts, llvm.asked) == ({"\ts_endpgm\n"}, 1)


def test_what_cannot_be_read_is_named(tmp_path):
    code = tmp_path / "k.co"
    code.write_bytes(b"junk")
    with pytest.raises(EmulatorError, match=r"k\.co: cannot be disassembled\nnot recognised"):
        disassemble(code, FakeLlvm(CommandFailedError("not recognised")), Store(tmp_path / "build"))
