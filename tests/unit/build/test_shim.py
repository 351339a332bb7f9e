"""The distribution flash-attn: what libraries look for when they ask whether flash_attn is there."""

import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes

from tests.programs import CHECKOUT

SHIM = CHECKOUT / "shim"


def test_the_wheel_has_upstreams_name_and_modules(tmp_path):
    sources = tmp_path / "shim"
    shutil.copytree(SHIM, sources, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)
    [file] = (tmp_path / "dist").iterdir()
    assert file.name == "flash_attn-2.8.3+rocm1-py3-none-any.whl"
    with zipfile.ZipFile(file) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        metadata = message_from_bytes(wheel.read("flash_attn-2.8.3+rocm1.dist-info/METADATA"))
    assert metadata["Name"] == "flash-attn"  # transformers and diffusers compare this very name
    assert metadata.get_all("Requires-Dist") == ["flash-attn-rocm"]
    wanted = (f for f in (SHIM / "flash_attn").rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    assert sorted(names) == sorted(f.relative_to(SHIM).as_posix() for f in wanted)
    assert {"flash_attn/flash_attn_interface.py", "flash_attn/bert_padding.py"} < set(names)


def test_its_version_is_that_of_its_module():
    code = (SHIM / "flash_attn/__init__.py").read_text()
    project = (SHIM / "pyproject.toml").read_text()
    assert '__version__ = "2.8.3"' in code
    assert 'version = "2.8.3+rocm1"' in project
    assert "flash-attn==2.8.3+rocm1" in (SHIM / "README.md").read_text()
