"""Which llvm-objdump is used, and that its text is kept."""

from pathlib import Path

import pytest

from wheel_builder.emulator.disassembly import ImageLlvm, LocalLlvm, disassemble, llvm_of
from wheel_builder.errors import CommandFailedError, EmulatorError
from wheel_builder.store import Store

IMAGE = ImageLlvm("builder:1", "sha256:1", "/llvm/bin")


class FakeLlvm:
    identity = "one"

    def __init__(self, answer="\ts_endpgm\n"):
        self.answer, self.asked = answer, 0

    def objdump(self, code_object, *options):
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_folder_in_the_environment_goes_before_the_image():
    assert llvm_of(IMAGE, {"FA_LLVM": "/llvm"}) == LocalLlvm(Path("/llvm"))
    assert llvm_of(IMAGE, {}) is IMAGE


def test_without_either_it_says_what_to_set():
    with pytest.raises(EmulatorError) as caught:
        llvm_of(None, {})
    assert "set FA_LLVM to a folder" in str(caught.value)


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
