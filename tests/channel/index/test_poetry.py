"""A project of Poetry, as docs/install.md shows it, takes the right wheel from the index."""

import re
import subprocess
import sys
import tomllib

import pytest
import uv

from tests.channel.index.conftest import serving
from tests.channel.index.test_install import NAME, NOW, for_platform
from tests.conftest import CHECKOUT
from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import project_wheel
from wheel_builder.base.store import sha256_file
from wheel_builder.index.publish import publish

# Answers as on Windows to everything installers ask Python. This is their only source.
AS_ON_WINDOWS = """\
import platform, sysconfig
platform.system = lambda: "Windows"
sysconfig.get_platform = lambda: "win-amd64"
"""


@pytest.fixture
def root(tmp_path):
    """An index with the public wheels of both platforms, and those of two ROCm versions for Linux."""
    tags = ("manylinux_2_17_x86_64", "win_amd64")
    public = [for_platform(tmp_path, tag, number) for number, tag in enumerate(tags, 1)]
    publish(public, tmp_path / "index", "public", catalogue=CATALOGUE, now=NOW)
    for rocm, number in (("6.4", 64), ("7.2", 72)):
        module = f"VALUE = {number}\n".encode()
        wheel = project_wheel(tmp_path, NAME, f"1.0+rocm{rocm}", module=module)
        publish([wheel], tmp_path / "index", rocm, catalogue=CATALOGUE, now=NOW)
    return tmp_path / "index"


def project(folder, address, requirement=NAME):
    """The page's project, with another requirement."""
    page = (CHECKOUT / "docs/install.md").read_text()
    [text] = [
        block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[tool.poetry]" in block
    ]
    for old, new in (
        ('"flash-attn-rocm"', f'"{requirement}"'), ("flash-attn-rocm =", f"{NAME} ="),
        ("<index>/public/simple", address),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "pyproject.toml").write_text(text)
    return folder


def install(folder, env, *, windows=False):
    """``poetry install`` into a new environment. Returns the contents of the installed module."""
    venv = folder / f"venv-{'windows' if windows else 'linux'}"
    subprocess.run(
        [uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, venv], env=env, check=True
    )
    [packages] = venv.glob("lib/*/site-packages")
    if windows:
        (packages / "sitecustomize.py").write_text(AS_ON_WINDOWS)
    command = [sys.executable, "-m", "poetry", "install", "--no-interaction"]
    env = {name: value for name, value in env.items() if not name.startswith("POETRY_")}
    done = subprocess.run(
        command, cwd=folder, env=env | {"VIRTUAL_ENV": str(venv)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (packages / "flash_attn_demo/__init__.py").read_text()


def locked(folder):
    [package] = tomllib.loads((folder / "poetry.lock").read_text())["package"]
    return package["version"], {each["file"]: each["hash"] for each in package["files"]}


def test_both_platforms_install_their_own_wheel_from_one_lock_file(root, clean_env, tmp_path):
    with serving(root) as (url, asked):
        folder = project(tmp_path / "project", f"{url}/public/simple")
        assert install(folder, clean_env) == "VALUE = 1\n"
        lock = (folder / "poetry.lock").read_bytes()
        paths = [path for path, _ in asked]
        assert install(folder, clean_env, windows=True) == "VALUE = 2\n"
    assert (folder / "poetry.lock").read_bytes() == lock
    wheels = (root / "public/simple" / NAME).glob("*.whl")
    assert locked(folder) == ("1.0", {wheel.name: f"sha256:{sha256_file(wheel)}" for wheel in wheels})
    assert [path.rpartition(".")[2] for path in paths[1:]] == ["metadata", "whl"], "one METADATA for both"


@pytest.mark.parametrize(
    ("simple", "requirement", "version"),
    [
        ("simple", NAME, "7.2"),
        ("simple", f"{NAME}==1.0+rocm6.4", "6.4"),
        ("rocm7.2/simple", f"{NAME}==1.0", "7.2"),
    ],
)
def test_of_the_public_wheel_and_those_of_rocm_versions(
    root, clean_env, tmp_path, simple, requirement, version
):
    """As with pip, a local version is above the public one and matches a requirement without a label."""
    with serving(root) as (url, _):
        folder = project(tmp_path / "project", f"{url}/{simple}", requirement)
        assert install(folder, clean_env) == f"VALUE = {version.replace('.', '')}\n"
    name = f"flash_attn_demo-1.0+rocm{version}-py3-none-any.whl"
    digest = sha256_file(root / f"rocm{version}" / "simple" / NAME / name)
    assert locked(folder) == (f"1.0+rocm{version}", {name: f"sha256:{digest}"})
