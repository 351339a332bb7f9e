"""``code-objects``: the list for comparing two states of the kernels."""

import pytest

from wheel_builder.cli.commands.wheels import code_objects
from wheel_builder.cli.main import main
from wheel_builder.pipeline.steps import Steps

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "fa_fwd.hsaco").write_bytes(b"abc")
    (tmp_path / "fa_append.hsaco").touch()
    (tmp_path / "resources.json").write_text("{}")
    return tmp_path


def test_a_line_per_code_object_by_rocm_version_and_arch(folder, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(code_objects, "made_until", lambda stage, *_: asked.append(stage) or [folder] * 2)
    assert main(["code-objects", "--rocm", "7.2,6.4", "--archs", "gfx942"]) == 0
    assert asked == ["device-code"]
    assert capsys.readouterr().out.splitlines() == [
        f"{digest}  {rocm}/gfx942/{name}.hsaco"
        for rocm in ("rocm7.2", "rocm6.4")
        for name, digest in (("fa_append", EMPTY), ("fa_fwd", ABC))
    ]


def test_a_dry_run_says_what_it_would_compile(monkeypatch, capsys):
    monkeypatch.setattr(Steps, "run", lambda *_args, **_named: pytest.fail("it ran"))
    assert main(["code-objects", "--rocm", "7.2", "--archs", "gfx942", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "[3/3] rocm7.2 device code gfx942"
