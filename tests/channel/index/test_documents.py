"""The commands of docs/ for installing from an index, unchanged, with a small wheel of our name."""

import re
import subprocess
import sys
import tomllib

import pytest
import uv

from tests.channel.index.conftest import serving
from tests.channel.index.test_install import NOW
from tests.channel.page.conftest import product_wheel
from tests.conftest import CHECKOUT
from tests.tools.commands import shown
from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import write_statement
from wheel_builder.base.store import sha256_file
from wheel_builder.index.publish import publish
from wheel_builder.provenance.records import write_record

PAGE = (CHECKOUT / "docs/install.md").read_text()
PROGRAMS = {
    "pip": f"{sys.executable} -m pip", "python": sys.executable, "uv": uv.find_uv_bin(),
    "sha256sum": "sha256sum", "curl": "curl",
}  # fmt: skip
TARGET = "--target installed"  # instead of the tests' environment
COMMANDS = (
    "python -m pip install --require-hashes --requirement requirements.txt --index-url <index>/public/simple",
    "uv pip install flash-attn-rocm --index-url <index>/public/simple",
    "pip download --no-deps flash-attn-rocm --index-url <index>/public/simple",
    "curl --fail --remote-name <index>/public/simple/flash-attn-rocm/WHEEL.verification.json",
    "curl --fail --remote-name <index>/public/simple/flash-attn-rocm/WHEEL.provenance.json",
    "sha256sum WHEEL",
)


@pytest.fixture
def wheel(tmp_path):
    made = product_wheel(tmp_path, "0.1.0")
    write_record(made, {"sha256": sha256_file(made), "archs": {}})
    write_statement(made)
    return made


@pytest.fixture
def address(tmp_path, wheel):
    publish([wheel], tmp_path / "index", "public", catalogue=CATALOGUE, now=NOW)
    with serving(tmp_path / "index") as (url, _):
        yield url


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_does_what_the_page_says(line, wheel, address, clean_env, tmp_path):
    assert line in shown()
    [hashed] = re.findall(r"^flash-attn-rocm==.* --hash=sha256:<the hash>$", PAGE, re.MULTILINE)
    digest = sha256_file(wheel)
    (tmp_path / "requirements.txt").write_text(hashed.replace("<the hash>", digest))
    program, _, rest = line.replace("<index>", address).replace("WHEEL", wheel.name).partition(" ")
    (elsewhere := tmp_path / "elsewhere").mkdir()
    where = TARGET if " install " in line else ""
    for_uv = f"--python {sys.executable}" if program == "uv" else ""
    done = subprocess.run(
        ["bash", "-c", f"{PROGRAMS[program]} {rest} {where} {for_uv}"],
        cwd=elsewhere if program == "curl" else tmp_path,
        env=clean_env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    if where:
        assert (tmp_path / "installed" / "flash_attn_rocm-0.1.0.dist-info").is_dir()
    elif program == "sha256sum":
        assert digest in done.stdout
        [record] = (tmp_path / "index").rglob("*.record.json")
        assert digest in record.read_text()
    elif program == "curl":
        name = rest.rpartition("/")[2]
        assert (elsewhere / name).read_bytes() == (tmp_path / name).read_bytes()
    else:
        assert wheel.name in done.stdout


def test_a_project_of_uv_takes_the_wheel_from_this_index_only(address, clean_env, tmp_path):
    [project] = [block for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "[tool.uv]" in block]
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(project.replace("<index>", address))
    command = [uv.find_uv_bin(), "lock", "--python", sys.executable]
    del clean_env["UV_NO_CONFIG"]  # the project is configuration
    done = subprocess.run(command, cwd=folder, env=clean_env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    locked = tomllib.loads((folder / "uv.lock").read_text())["package"]
    [ours] = [package for package in locked if package["name"] == "flash-attn-rocm"]
    assert ours["source"] == {"registry": f"{address}/public/simple"}
