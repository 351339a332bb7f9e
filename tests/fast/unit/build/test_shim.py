"""The drop-ins, such as flash-attn: everything libraries look for to detect them."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes

import pytest
from packaging.requirements import Requirement

from tests.tools.made.wheels import library, write_wheel
from tests.tools.programs import CHECKOUT
from wheel_builder.audit.rules import PureExpectation
from wheel_builder.audit.stage import audit_pure_wheel
from wheel_builder.base.errors import AuditError
from wheel_builder.build.product import read_product
from wheel_builder.build.shim import (
    FLASH_ATTN,
    FLASH_ATTN_3,
    SAGEATTENTION,
    SHIMS,
    shim_of,
    wheel_name,
)
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.tables.package import package_module

SHIM = CHECKOUT / FLASH_ATTN.folder
NAME = "flash_attn-2.8.3-3-py3-none-any.whl"
DIST_INFO = "flash_attn-2.8.3.dist-info"
# The wheel of each, and some of its content.
EXPECTED = {
    FLASH_ATTN: (NAME, {"flash_attn/bert_padding.py", "flash_attn_2_cuda/__init__.py"}),
    FLASH_ATTN_3: (
        "flash_attn_3-3.0.0-4-py3-none-any.whl", {"flash_attn_interface.py", "flash_attn_3/_C.py"},
    ),
    SAGEATTENTION: ("sageattention-2.2.0-1-py3-none-any.whl", {"sageattention/core.py"}),
}  # fmt: skip
each_shim = pytest.mark.parametrize("shim", SHIMS, ids=[shim.name for shim in SHIMS])


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of each, built in folders side by side: some use a link as back end."""
    folder, found = tmp_path_factory.mktemp("shims"), {}
    for shim in SHIMS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / shim.folder, folder / shim.folder, symlinks=True, ignore=ignored)
    for shim in SHIMS:
        out = folder / f"{shim.folder}-built"
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
        subprocess.run(command, cwd=folder / shim.folder, check=True, capture_output=True)
        [found[shim]] = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def built(wheels):
    return wheels[FLASH_ATTN]


def audit(wheel, shim=FLASH_ATTN):
    product = read_product(CHECKOUT / shim.folder)
    return audit_pure_wheel(wheel, PureExpectation(shim.package, product.version, 0.25, product))


def test_every_distribution_is_expected():
    assert set(EXPECTED) == set(SHIMS)


@each_shim
def test_the_wheel_has_upstreams_name_and_modules(wheels, shim):
    sources, (file, some) = CHECKOUT / shim.folder, EXPECTED[shim]
    assert wheels[shim].name == file
    with zipfile.ZipFile(wheels[shim]) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(wheel.read(metadata))
    assert metadata["Name"] == shim.name  # transformers and diffusers compare this very name
    wanted = (f for f in sources.glob("*/**/*") if f.is_file() and "__pycache__" not in f.parts)
    wanted = {f.relative_to(sources).as_posix() for f in (*wanted, *sources.glob("*.py"))}
    assert sorted(names) == sorted(wanted - {"numbered.py"})
    assert some < set(names)


@each_shim
def test_it_requires_this_release_of_the_kernels_and_no_other(shim):
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    own = tomllib.loads((CHECKOUT / shim.folder / "pyproject.toml").read_text())["project"]
    required = Requirement(own["dependencies"][0])
    assert required.name == "flash-attn-rocm"
    base = project["tool"]["flash-attn-rocm"]["version"]
    assert required.specifier.contains(f"{base}+rocm7.2"), (
        "raise the requirement, and the build number with it"
    )
    assert not required.specifier.contains("99.0.0")


@each_shim
def test_its_version_and_licence_are_those_of_other_files(shim):
    sources = CHECKOUT / shim.folder
    version = read_product(sources).version
    assert f'__version__ = "{version}"' in (sources / shim.package / "__init__.py").read_text()
    assert (sources / "LICENSE").read_bytes() == (CHECKOUT / "LICENSE").read_bytes()


def test_the_doctor_knows_each():
    known = package_module("machine.drop_in").DISTRIBUTIONS
    assert {name: row.module for name, row in known.items()} == {shim.name: shim.modules for shim in SHIMS}


def test_the_version_of_flash_attn_is_that_of_upstreams_release():
    assert read_product(SHIM).version == load_matrix(CHECKOUT / "matrix.yaml").upstream.version


@each_shim
def test_the_wheel_passes_its_audit(wheels, shim):
    report = audit(wheels[shim], shim)
    assert (report.wheel, report.tag) == (EXPECTED[shim][0], "py3-none-any")
    assert report.version == read_product(CHECKOUT / shim.folder).version
    assert "only-library" in report.rules


@pytest.mark.parametrize(
    ("name", "shim"),
    [
        ("flash_attn-2.8.3-3-py3-none-any.whl", FLASH_ATTN),
        ("flash_attn-2.8.3+rocm1-py3-none-any.whl", FLASH_ATTN),
        ("flash_attn_3-3.0.0-4-py3-none-any.whl", FLASH_ATTN_3),
        ("sageattention-2.2.0-1-py3-none-any.whl", SAGEATTENTION),
        ("sageattention_other-1-py3-none-any.whl", None),
        ("flash_attn_rocm-0.1.0+rocm7.2-py3-none-manylinux_2_28_x86_64.whl", None),
        ("flash_attn_30-1-py3-none-any.whl", None),
    ],
)
def test_a_wheel_is_known_by_its_name(name, shim, tmp_path):
    assert shim_of(tmp_path / name) is shim


def systems(pyproject):
    classifiers = tomllib.loads(pyproject.read_text())["project"]["classifiers"]
    return [name for name in classifiers if name.startswith("Operating System :: ")]


@each_shim
def test_it_names_the_systems_that_have_a_wheel_of_flash_attn_rocm(shim, wheels):
    """It is pure Python and works on all systems of flash_attn_rocm."""
    expected = systems(CHECKOUT / "pyproject.toml")
    assert systems(CHECKOUT / shim.folder / "pyproject.toml") == expected
    with zipfile.ZipFile(wheels[shim]) as archive:
        [metadata] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        said = archive.read(metadata).decode()
    assert [line for line in said.splitlines() if "Operating System" in line] == [
        f"Classifier: {name}" for name in expected
    ]


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
        (
            "metadata: found METADATA says Requires-Dist: flash-attn-rocm>=0.1.0; "
            "expected flash-attn-rocm~=0.1.0"
        ),
    ),
    "another version": (
        lambda files: (
            files | {f"{DIST_INFO}/METADATA": files[f"{DIST_INFO}/METADATA"].replace(b"2.8.3", b"2.9", 1)}
        ),
        "metadata: found Version: 2.9; expected 2.8.3",
    ),
    "another build number": (
        lambda files: (
            files | {f"{DIST_INFO}/WHEEL": files[f"{DIST_INFO}/WHEEL"].replace(b"Build: 3", b"Build: 4")}
        ),
        "metadata: found WHEEL says Build: 4; expected 3",
    ),
    "no build number": (
        lambda files: files | {f"{DIST_INFO}/WHEEL": files[f"{DIST_INFO}/WHEEL"].replace(b"Build: 3\n", b"")},
        "metadata: found WHEEL says Build: nothing; expected 3",
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


@each_shim
def test_the_stage_expects_the_name_that_the_back_end_gives(wheels, shim):
    assert wheel_name(shim, CHECKOUT) == wheels[shim].name


@pytest.mark.parametrize("other", ["-3-py3-none-linux_x86_64", "-4-py3-none-any", "-py3-none-any"])
def test_another_name_is_refused(built, tmp_path, other):
    renamed = tmp_path / NAME.replace("-3-py3-none-any", other)
    shutil.copy(built, renamed)
    with pytest.raises(AuditError, match=rf"file-name: found {renamed.name.replace('+', '.')}; expected"):
        audit(renamed)
