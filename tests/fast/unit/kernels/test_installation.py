"""``doctor --files``: the installed files against the wheel's list."""

import hashlib
import importlib.metadata
from base64 import urlsafe_b64encode

import pytest

from tests.fast.unit.kernels.test_screens import package  # noqa: F401 - a fixture
from tests.tools.made.wheels import library

FILES = {"flash_attn_rocm/a.py": b"a = 1\n", "flash_attn_rocm/_C/libflash_attn_rocm.so": library()}


@pytest.fixture
def installed(package, tmp_path, monkeypatch):  # noqa: F811
    """The module, and a folder with an installed distribution."""
    module = package("diagnosis.installation")
    info = tmp_path / "flash_attn_rocm-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: flash-attn-rocm\nVersion: 1\n")
    rows = ["flash_attn_rocm-1.dist-info/RECORD,,", "flash_attn_rocm/__pycache__/a.pyc,,"]
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
        digest = urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(content)}")
    (info / "RECORD").write_text("\n".join(rows))
    distribution = importlib.metadata.Distribution.at(info)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: distribution)
    monkeypatch.setattr(module, "LIBRARY", tmp_path / "flash_attn_rocm/_C/libflash_attn_rocm.so")
    return module, tmp_path


def test_the_wheels_files(installed):
    """Without PyTorch the library loads as far as libtorch.so."""
    module, _ = installed
    assert [*module.problems()] == []


def test_what_is_missing_or_changed(installed):
    module, folder = installed
    (folder / "flash_attn_rocm/a.py").write_text("a = 2\n")
    (folder / "flash_attn_rocm/_C/libflash_attn_rocm.so").unlink()
    changed, missing, unloadable = module.problems()
    assert changed == f"{folder}/flash_attn_rocm/a.py is not the wheel's"
    assert missing == f"{module.LIBRARY} is missing"
    assert unloadable.startswith(f"{module.LIBRARY} does not load: ")


def test_a_library_that_is_cut_off(installed):
    module, _ = installed
    module.LIBRARY.write_bytes(FILES["flash_attn_rocm/_C/libflash_attn_rocm.so"][:100])
    changed, unloadable = module.problems()
    assert changed == f"{module.LIBRARY} is not the wheel's"
    assert "does not load: " in unloadable


@pytest.mark.parametrize("name", ["RECORD", "."])
def test_a_checkout_has_no_list(installed, name, monkeypatch):
    module, folder = installed

    def missing(_):
        raise importlib.metadata.PackageNotFoundError

    if name == ".":
        monkeypatch.setattr(importlib.metadata, "distribution", missing)
    (folder / "flash_attn_rocm-1.dist-info/RECORD").unlink()
    assert [*module.problems()] == ["flash-attn-rocm is not installed, or without a list of its files"]
