"""Names libraries import from flash_attn: the distribution flash-attn has all of them."""

import io
import json
import shutil
import tarfile

import pytest

from tests.conftest import CHECKOUT
from tests.installed.drop_in import imports
from tests.installed.drop_in.imports import absent, main, names_of, python_files, uses_of
from tests.tools.made.wheels import project_wheel

UPSTREAM = {"flash_attn", "flash_attn.", "flash_attn.models", "flash_attn.models.", "flash_attn.models.GPT"}


@pytest.fixture(scope="module")
def ours():
    return names_of(python_files(imports.SHIM))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import flash_attn", "flash_attn"),
        ("import flash_attn.bert_padding as b\nb.pad_input(x)", "flash_attn.bert_padding.pad_input"),
        ("import flash_attn_2_cuda as c\nclass A:\n  f = c.fwd", "flash_attn_2_cuda.fwd"),
        ("def f():\n  from flash_attn.ops.rms_norm import rms_norm as r", "flash_attn.ops.rms_norm.rms_norm"),
        ("try:\n  from flash_attn import a\nexcept ImportError:\n  a = None", "flash_attn.a"),
        ("from flash_attn import bert_padding as b\nb.f.apply()", "flash_attn.bert_padding.f.apply"),
        ("import torch\ntorch.ops.flash_attn.f(x)", "torch.ops.flash_attn.f"),
        ("m = importlib.import_module('flash_attn.layers.rotary')", "flash_attn.layers.rotary"),
        ("from flash_attn.bert_padding import *", "flash_attn.bert_padding"),
        ("if a:\n  import b as c\nelse:\n  import flash_attn_2_cuda as c\nc.bwd", "flash_attn_2_cuda.bwd"),
        ("from flash_attn.cute import flash_attn_func", "flash_attn.cute.flash_attn_func"),
        ("import flash_attn_interface as three\nthree.f", "flash_attn_interface.f"),
        ("from sageattention.core import sageattn", "sageattention.core.sageattn"),
    ],
)  # fmt: skip
def test_imports_and_uses_are_found(text, found):
    assert found in uses_of(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "from .flash_attn import flash_attn_func",
        "from . import flash_attn\nflash_attn.func",
        "import flash_attn_rocm",
        "import flash_attn_3x\nname = 'flash_attn.layers'",
        "# import flash_attn",
        "import sageattn3",
    ],
)
def test_what_is_no_use_of_flash_attn(text):
    assert uses_of(text.encode()) == set()


@pytest.mark.parametrize(
    "name",
    [
        "flash_attn", "flash_attn.__version__", "flash_attn.__file__", "flash_attn.flash_attn_func",
        "flash_attn.flash_attn_interface.flash_attn_gpu.fwd", "flash_attn.bert_padding.rearrange",
        "flash_attn.flash_attn_interface._flash_attn_forward._init_fn", "flash_attn_2_cuda.varlen_bwd",
        "torch.ops.flash_attn._flash_attn_varlen_backward", "flash_attn.layers.rotary.ApplyRotaryEmb.apply",
    ],
)  # fmt: skip
def test_what_is_there(name, ours):
    assert absent({name}, ours, UPSTREAM) == {"missing": [], "gone": []}


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("flash_attn.models.GPT", "missing"),
        ("flash_attn.models.GPT.forward", "missing"),
        ("flash_attn.flash_attention.FlashMHA", "gone"),
        ("flash_attn.flash_attn_unpadded_func", "gone"),
        ("flash_attn.bert_padding.repeat", "gone"),
        ("flash_attn_2_cuda.fwd_v3", "gone"),
        ("torch.ops.flash_attn.other", "gone"),
    ],
)
def test_what_is_not_there(name, where, ours):
    assert absent({name}, ours, UPSTREAM) == {"missing": [], "gone": []} | {where: [name]}


@pytest.fixture
def scan(monkeypatch, tmp_path, capsys):
    """``scan(text)``: the exit code, the output and the new pins for a wheel and an sdist of it."""
    monkeypatch.setattr(imports, "upstream_names", lambda: UPSTREAM)
    monkeypatch.setattr(imports, "PINNED", CHECKOUT / "build" / "never-written.json")

    def run(text, *options):
        wheel = project_wheel(tmp_path, "user", "1.0", module=text)
        sdist = tmp_path / "packed-2.0.tar.gz"
        with tarfile.open(sdist, "w:gz") as archive:
            member = tarfile.TarInfo("packed-2.0/packed.py")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
        return main([*options, str(wheel), str(sdist)]), capsys.readouterr().out

    return run


def test_the_command_names_what_is_missing(scan):
    code, said = scan(b"from flash_attn.models import GPT\nfrom flash_attn import gone, flash_attn_func\n")
    assert code == 1
    for library in ("user 1.0", "packed 2.0"):
        assert f"{library}: 3 names, 1 missing\n  missing: flash_attn.models.GPT\n" in said
    assert "  neither here nor in upstream's release: flash_attn.gone" in said


def test_the_command_is_content_where_nothing_is_missing(scan):
    code, said = scan(b"from flash_attn import flash_attn_func\nimport flash_attn_interface\n")
    assert code == 0
    assert "user 1.0: 1 names, 0 missing\n  of another distribution: flash_attn_interface" in said


def test_a_file_that_is_no_python_of_this_version_is_named(scan):
    _, said = scan(b"import flash_attn\nprint 'two'\n")
    assert "user 1.0: 0 names, 0 missing\n  not read, no Python of this version: user/__init__.py" in said
    assert "  not read, no Python of this version: packed-2.0/packed.py" in said


def test_pinned_rows_are_what_is_printed(scan, monkeypatch, tmp_path):
    monkeypatch.setattr(imports, "PINNED", tmp_path / "imports.json")
    monkeypatch.setattr(imports, "CHECKOUT", tmp_path)
    scan(b"from flash_attn import flash_attn_func\n", "--pin")
    rows = json.loads((tmp_path / "imports.json").read_text())
    scan(b"import torch\n", "--pin")
    assert json.loads((tmp_path / "imports.json").read_text()) == []
    assert [(row["library"], row["uses"]) for row in rows] == [
        ("packed", ["flash_attn.flash_attn_func"]), ("user", ["flash_attn.flash_attn_func"])
    ]  # fmt: skip


@pytest.mark.parametrize("row", json.loads(imports.PINNED.read_text()), ids=lambda row: row["library"])
def test_released_libraries_find_what_they_import(row, ours):
    """From upstream's release: 10 libraries lacked something, OpenRLHF and verl `rearrange`."""
    found = absent(set(row["uses"]), ours, set())
    assert row["missing"] == []
    assert found["gone"] == row["gone"]


@pytest.mark.parametrize("module", ["bert_padding.py", "ops/triton/layer_norm.py"])
def test_a_module_less_is_noticed(module, tmp_path):
    copy = tmp_path / "shim"
    shutil.copytree(imports.SHIM, copy)
    (copy / "flash_attn" / module).unlink()
    names = names_of(python_files(copy))
    rows = json.loads(imports.PINNED.read_text())
    assert any(absent(set(row["uses"]), names, set())["gone"] != row["gone"] for row in rows)
