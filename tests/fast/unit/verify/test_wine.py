"""Verifying a wheel for Windows with a fake engine: the executed archs, and the record's text."""

import json
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.fast.unit.build.test_stages import IMAGE, ROCM, FakeEngine, suite
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.store import Artifact, Store
from wheel_builder.machine_code.fake_hip.container import WINDOWS_LIBRARY
from wheel_builder.matrix.model import WINDOWS, Job, Public
from wheel_builder.verify.wine import HOW, NOT_EXECUTED, archs_under_wine, verify_under_wine

ARCHS = ("gfx1030", "gfx1100", "gfx1102", "gfx1201")
JOB = Job(ROCM, ARCHS, Public("7.2", ("7.2",)), WINDOWS)


def test_by_default_one_arch_of_each_matrix_unit_is_executed():
    assert archs_under_wine(ARCHS, full=False) == ("gfx1100", "gfx1201")
    assert archs_under_wine(("gfx1102", "gfx1100"), full=False) == ("gfx1102",)


def test_in_full_every_arch_is_and_so_is_a_wheel_without_matrix_units():
    assert archs_under_wine(ARCHS, full=True) == ARCHS
    assert archs_under_wine(("gfx1030",), full=False) == ("gfx1030",)
    assert archs_under_wine(("gfx906", "gfx1030", "gfx1100"), full=False) == ("gfx1100",)


def emulated(arch):
    facts = {
        "arch": arch, "how": "executed on an ISA emulator, not run on hardware", "findings": [],
        "tier": "release", "executed": {"sha256": "0" * 64}, "tests": {"passed": 9}, "checks": [], "seed": 1,
        "instances": {}, "launches": {"a": 2}, "wave_instructions": 7, "coverage": {},
    }  # fmt: skip
    return Artifact(path=None, manifest={"key": arch, "facts": facts}, reused=True)


def verify(tmp_path, engine, executed=("gfx1100", "gfx1201")):
    file = tmp_path / "a-1-py3-none-win_amd64.whl"
    file.write_bytes(b"wheel")
    (tmp_path / WINDOWS_LIBRARY).touch()
    part = Artifact(path=tmp_path, manifest={"key": "part", "facts": {}}, reused=True)
    facts = {"archs": {arch: {"kernel": {}} for arch in ARCHS}, "differences": []}
    static = Artifact(None, {"key": "s", "facts": facts}, reused=True)
    return verify_under_wine(
        file, {arch: emulated(arch) for arch in executed}, static=static, job=JOB,
        image=IMAGE, fake_hip=part, disassembly=part, checkout=CHECKOUT,
        store=Store(tmp_path / "build"), log=tmp_path / "log", run=engine,
    )  # fmt: skip


def passing(text):
    return FakeEngine(lambda argv, folders: (Path(folders["/out"]) / "junit.xml").write_text(text))


def test_the_record_says_that_it_was_wine_and_not_windows(tmp_path):
    engine = passing(suite())
    made = verify(tmp_path, engine)
    archs = made.facts["archs"]
    assert {arch: found["passed"] for arch, found in archs.items()} == {
        "gfx1030": False, "gfx1100": True, "gfx1102": False, "gfx1201": True,
    }  # fmt: skip
    assert archs["gfx1100"]["numerics"] == HOW == "executed under wine on an ISA emulator, not on Windows"
    assert archs["gfx1030"]["numerics"] == NOT_EXECUTED
    assert archs["gfx1201"]["runtimes"] == {WINDOWS: ["gfx1200", "gfx1201"]}
    assert "gfx1033" not in archs["gfx1030"]["runtimes"][WINDOWS]  # the Steam Deck
    assert "hardware" not in json.dumps(made.facts)
    assert made.facts["tests"] == {"tests/installed/windows": {"passed": 3}}
    assert made.facts["serves"] == []
    assert json.loads((made.path / "record.json").read_text()) == made.facts
    [command] = engine.commands
    assert command[command.index("--network") + 1] == "none"
    assert "PRELOAD=/fake_hip/amdhip64_7.dll" in command


def test_more_archs_make_another_record(tmp_path):
    engine = passing(suite())
    verify(tmp_path, engine)
    assert verify(tmp_path, engine).reused
    assert not verify(tmp_path, engine, executed=ARCHS).reused


@pytest.mark.parametrize("text", [suite(failures=1), suite(skipped=1), suite(tests=0)])
def test_a_failed_or_missing_test_leaves_no_record(tmp_path, text):
    with pytest.raises(VerifyError, match="did not all pass"):
        verify(tmp_path, passing(text))
    assert not list(tmp_path.glob("build/verify-wine/*/record.json"))
