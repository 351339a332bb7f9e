from pathlib import Path

import pytest

from tests.tools.made.wheels import fatbin
from wheel_builder.base.errors import ElfError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Artifact, Store
from wheel_builder.files.device.fatbin import CodeObject, read_fatbin
from wheel_builder.machine_code.disassembly.listing import Tools, disassemble, list_code, tools_at, tools_in

OBJECTS = [CodeObject("gfx942:sramecc+:xnack-", b"one"), CodeObject("gfx908", b"two")]


class FakeTools:
    """Stands in for ``process.run``, the LLVM tools on this machine: prints a code object's own bytes."""

    def __init__(self, version="LLVM version 22.1"):
        self.version, self.calls = version, []

    def __call__(self, argv, *, log=None, env=None, cwd=None, check=True, advice=""):
        argv = [str(part) for part in argv]
        if argv[-1] == "--version":
            return Completed(self.version, 0)
        self.calls.append((argv, env))
        folder = Path(argv[4])
        for file in folder.glob("*.hsaco"):
            (folder / f"{file.stem}.s").write_text(f"code of {file.read_text(errors='replace')}")
        return Completed("", 0)


def listed(tools, store, run):
    return list_code(OBJECTS, tools=tools, store=store, log=store.root / "log", run=run)


def test_the_tools_of_this_machine(tmp_path):
    run = FakeTools()
    found = listed(tools_at(tmp_path / "llvm", run=run), Store(tmp_path), run)
    assert [(text.arch, text.disassembly, text.code) for text in found] == [
        ("gfx942", "code of one", b"one"),
        ("gfx908", "code of two", b"two"),
    ]
    ((argv, env),) = run.calls
    assert argv[-2:] == ["gfx942", "gfx908"]
    assert env["FA_LLVM"] == str(tmp_path / "llvm")


def test_a_code_object_is_disassembled_for_the_arch_that_it_names(tmp_path):
    run, [code, *_] = FakeTools(), read_fatbin(fatbin())
    text = disassemble(
        code.data, tools=tools_at(tmp_path, run=run), store=Store(tmp_path), log=tmp_path, run=run
    )
    assert text.startswith("code of ")
    assert run.calls[0][0][-1] == code.gfx


def test_a_name_that_is_not_utf8_is_refused_in_words(tmp_path):
    """``gate`` and ``perf`` ended in a UnicodeDecodeError."""

    def run(argv, **_):
        for name in ("0.s", "1.s"):
            (Path(argv[4]) / name).write_bytes(b"Disassembly:\n\n0000 <evil\xff_kernel>:\n")
        return Completed("", 0)

    with pytest.raises(ElfError, match="code object 1 has a name that is not UTF-8: b'0000 <evil") as caught:
        listed(Tools("LLVM", folder="llvm"), Store(tmp_path), run)
    assert caught.value.advice


def test_what_is_stored_is_not_listed_again(tmp_path):
    run = FakeTools()
    for _ in range(2):
        listed(tools_at(tmp_path, run=run), Store(tmp_path), run)
    assert len(run.calls) == 1
    assert not list(tmp_path.rglob("*.hsaco"))


def test_one_of_many_is_found_alone_and_only_the_missing_ones_are_listed(tmp_path):
    run, store = FakeTools(), Store(tmp_path)
    tools, kept = tools_at(tmp_path, run=run), {"store": store, "log": tmp_path / "log", "run": run}
    third = CodeObject("gfx1030", b"three")
    list_code([third, OBJECTS[0]], tools=tools, **kept)
    found = list_code([*OBJECTS, third, CodeObject("gfx908", b"one")], tools=tools, **kept)
    assert [text.disassembly for text in found] == [f"code of {x}" for x in ("one", "two", "three", "one")]
    assert [argv[5:] for argv, _ in run.calls] == [["gfx1030", "gfx942"], ["gfx908", "gfx908"]]
    list_code([OBJECTS[1]], tools=tools, **kept)
    assert len(run.calls) == 2


def test_another_version_of_the_tools_lists_again(tmp_path):
    store, old, new = Store(tmp_path), FakeTools(), FakeTools("LLVM version 22.2")
    listed(tools_at(tmp_path, run=old), store, old)
    listed(tools_at(tmp_path, run=new), store, new)
    assert len(new.calls) == 1


def test_the_tools_of_a_builder_image():
    tools = tools_in(Artifact(Path(), {"facts": {"ref": "builder:7.2", "image_id": "sha256:1"}}, reused=True))
    assert (tools.image, tools.identity, tools.folder) == ("builder:7.2", "sha256:1", "")
