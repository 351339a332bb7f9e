"""The distribution flash-attn: what libraries look for when they ask whether flash_attn is there."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes

import pytest
from packaging.requirements import Requirement

from tests.programs import CHECKOUT
from tests.wheels import library, write_wheel
from wheel_builder.audit.rules import PureExpectation
from wheel_builder.audit.stage import audit_pure_wheel
from wheel_builder.base.errors import AuditError
from wheel_builder.build.product import read_product
from wheel_builder.build.shim import wheel_name
from wheel_builder.matrix.reading import load_matrix

SHIM = CHECKOUT / "shim"
NAME = "flash_attn-2.8.3-2-py3-none-any.whl"
DIST_INFO = "flash_attn-2.8.3.dist-info"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim")
    sources = folder / "shim"
    shutil.copytree(SHIM, sources, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)
    [file] = folder.glob("*.whl")
    return file


def audit(wheel):
    product = read_product(SHIM)
    return audit_pure_wheel(wheel, PureExpectation("flash_attn", product.version, 0.25, product))


def test_the_wheel_has_upstreams_name_and_modules(built):
    assert built.name == NAME
    with zipfile.ZipFile(built) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        metadata = message_from_bytes(wheel.read(f"{DIST_INFO}/METADATA"))
    assert metadata["Name"] == "flash-attn"  # transformers and diffusers compare this very name
    wanted = (f for f in SHIM.glob("flash_attn*/**/*") if f.is_file() and "__pycache__" not in f.parts)
    assert sorted(names) == sorted(f.relative_to(SHIM).as_posix() for f in wanted)
    assert {"flash_attn/bert_padding.py", "flash_attn_2_cuda/__init__.py"} < set(names)


def test_it_requires_this_release_of_the_kernels_and_no_other():
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    own = tomllib.loads((SHIM / "pyproject.toml").read_text())["project"]
    required = Requirement(own["dependencies"][0])
    assert required.name == "flash-attn-rocm"
    base = project["tool"]["flash-attn-rocm"]["version"]
    assert required.specifier.contains(f"{base}+rocm7.2"), "raise the requirement, and the build number with it"
    assert not required.specifier.contains("99.0.0")


def test_its_version_and_licence_are_those_of_other_files():
    version = read_product(SHIM).version
    assert f'__version__ = "{version}"' in (SHIM / "flash_attn/__init__.py").read_text()
    assert version == load_matrix(CHECKOUT / "matrix.yaml").upstream.version
    assert (SHIM / "LICENSE").read_bytes() == (CHECKOUT / "LICENSE").read_bytes()


def test_the_wheel_passes_its_audit(built):
    report = audit(built)
    assert (report.wheel, report.version, report.tag) == (NAME, "2.8.3", "py3-none-any")
    assert "only-library" in report.rules


def without_hidden(files):
    return {name: data for name, data in files.items() if not name.endswith("/RECORD")}


CHANGES = {
    "a changed module": (
        lambda files: files | {"flash_attn/__init__.py": b"import os\n"},
        "contents: found flash_attn/__init__.py, which its sources have with another content",
    ),
    "a file more": (
        lambda files: files | {"flash_attn/more.py": b""},
        "contents: found flash_attn/more.py; expected only files that its sources have and what describes",
    ),
    "a startup file": (
        lambda files: files | {"flash_attn.pth": b"import os"},
        "contents: found flash_attn.pth",
    ),
    "a library": (
        lambda files: files | {"flash_attn/a.so": library()},
        "only-library: found flash_attn/a.so; expected only text",
    ),
    "a module less": (
        lambda files: {name: data for name, data in files.items() if name != "flash_attn/bert_padding.py"},
        "contents: found no flash_attn/bert_padding.py",
    ),
    "another requirement": (
        lambda files: files | {f"{DIST_INFO}/METADATA": files[f"{DIST_INFO}/METADATA"].replace(b"~=", b">=")},
        "metadata: found METADATA says Requires-Dist: flash-attn-rocm>=0.1.0; expected flash-attn-rocm~=0.1.0",
    ),
    "another version": (
        lambda files: files | {f"{DIST_INFO}/METADATA": files[f"{DIST_INFO}/METADATA"].replace(b"2.8.3", b"2.9", 1)},
        "metadata: found Version: 2.9; expected 2.8.3",
    ),
    "another build number": (
        lambda files: files | {f"{DIST_INFO}/WHEEL": files[f"{DIST_INFO}/WHEEL"].replace(b"Build: 2", b"Build: 3")},
        "metadata: found WHEEL says Build: 3; expected 2",
    ),
    "no build number": (
        lambda files: files | {f"{DIST_INFO}/WHEEL": files[f"{DIST_INFO}/WHEEL"].replace(b"Build: 2\n", b"")},
        "metadata: found WHEEL says Build: nothing; expected 2",
    ),
    "one platform": (
        lambda files: files | {f"{DIST_INFO}/WHEEL": files[f"{DIST_INFO}/WHEEL"].replace(b"true", b"false")},
        "wheel-tag: found WHEEL says Root-Is-Purelib: false; expected true",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_audit_refuses_what_its_sources_do_not_have(name, built, tmp_path):
    change, finding = CHANGES[name]
    with zipfile.ZipFile(built) as archive:
        files = {each: archive.read(each) for each in archive.namelist()}
    wheel = write_wheel(tmp_path, change(without_hidden(files)), name=NAME)
    with pytest.raises(AuditError) as caught:
        audit(wheel)
    assert any(problem.startswith(finding) for problem in caught.value.problems), caught.value.problems


def test_the_stage_expects_the_name_that_the_back_end_gives(built):
    assert wheel_name(CHECKOUT) == built.name == NAME


@pytest.mark.parametrize("other", ["-2-py3-none-linux_x86_64", "-3-py3-none-any", "-py3-none-any"])
def test_another_name_is_refused(built, tmp_path, other):
    renamed = tmp_path / NAME.replace("-2-py3-none-any", other)
    shutil.copy(built, renamed)
    with pytest.raises(AuditError, match=rf"file-name: found {renamed.name.replace('+', '.')}; expected"):
        audit(renamed)
