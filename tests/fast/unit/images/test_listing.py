from pathlib import Path

import pytest

from tests.tools.made.wheels import uncompressed
from wheel_builder.base.errors import ElfError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Artifact, Store
from wheel_builder.files.device.fatbin import CodeObject, read_fatbin
from wheel_builder.machine_code.disassembly.listing import Tools, disassemble, list_code, tools_in

OBJECTS = [CodeObject("gfx942:sramecc+:xnack-", b"one"), CodeObject("gfx908", b"two")]


TOOLS = Tools("LLVM 22.1", image="builder:7.2")


class FakeTools:
    """Stands in for ``process.run``, the container with LLVM: prints a code object's own bytes."""

    def __init__(self):
        self.calls = []

    def __call__(self, argv, *, log=None, env=None, cwd=None, check=True, advice=""):
        argv = [str(part) for part in argv]
        self.calls.append(argv[argv.index("/out") + 1 :])
        for file in folder_of(argv).glob("*.hsaco"):
            file.with_suffix(".s").write_text(f"code of {file.read_text(errors='replace')}")
        return Completed("", 0)


def folder_of(argv):
    """The folder that a container writes to."""
    [mount] = (part for part in map(str, argv) if part.startswith("type=bind"))
    return Path(mount.split("source=")[1].split(",")[0])


def listed(store, run, tools=TOOLS):
    return list_code(OBJECTS, tools=tools, store=store, log=store.root / "log", run=run)


def test_code_objects_become_text(tmp_path):
    run = FakeTools()
    found = listed(Store(tmp_path), run)
    assert [(text.arch, text.disassembly, text.code) for text in found] == [
        ("gfx942", "code of one", b"one"),
        ("gfx908", "code of two", b"two"),
    ]
    assert run.calls == [["gfx942", "gfx908"]]


def test_a_code_object_is_disassembled_for_the_arch_that_it_names(tmp_path):
    run, [code, *_] = FakeTools(), read_fatbin(uncompressed())
    text = disassemble(code.data, tools=TOOLS, store=Store(tmp_path), log=tmp_path, run=run)
    assert text.startswith("code of ")
    assert run.calls == [[code.gfx]]


def test_a_name_that_is_not_utf8_is_refused_in_words(tmp_path):
    """``gate`` and ``perf`` ended in a UnicodeDecodeError."""

    def run(argv, **_):
        for name in ("0.s", "1.s"):
            (folder_of(argv) / name).write_bytes(b"Disassembly:\n\n0000 <evil\xff_kernel>:\n")
        return Completed("", 0)

    with pytest.raises(ElfError, match="code object 1 has a name that is not UTF-8: b'0000 <evil") as caught:
        listed(Store(tmp_path), run)
    assert caught.value.advice


def test_what_is_stored_is_not_listed_again(tmp_path):
    run = FakeTools()
    for _ in range(2):
        listed(Store(tmp_path), run)
    assert len(run.calls) == 1
    assert not list(tmp_path.rglob("*.hsaco"))


def test_one_of_many_is_found_alone_and_only_the_missing_ones_are_listed(tmp_path):
    run, store = FakeTools(), Store(tmp_path)
    kept = {"tools": TOOLS, "store": store, "log": tmp_path / "log", "run": run}
    third = CodeObject("gfx1030", b"three")
    list_code([third, OBJECTS[0]], **kept)
    found = list_code([*OBJECTS, third, CodeObject("gfx908", b"one")], **kept)
    assert [text.disassembly for text in found] == [f"code of {x}" for x in ("one", "two", "three", "one")]
    assert run.calls == [["gfx1030", "gfx942"], ["gfx908", "gfx908"]]
    list_code([OBJECTS[1]], **kept)
    assert len(run.calls) == 2


def test_another_version_of_the_tools_lists_again(tmp_path):
    store, new = Store(tmp_path), FakeTools()
    listed(store, FakeTools())
    listed(store, new, Tools("LLVM 22.2", image="builder:7.2"))
    assert len(new.calls) == 1


def test_the_tools_of_a_builder_image():
    tools = tools_in(Artifact(Path(), {"facts": {"ref": "builder:7.2", "image_id": "sha256:1"}}, reused=True))
    assert tools == Tools("sha256:1", image="builder:7.2")
