"""--help needs no Python tools and installs none; it built a .venv first."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from wheel_builder.cli.commands import NAMES
from wheel_builder.cli.main import main
from wheel_builder.cli.options import ROOT

BARE = ("kernels", "matrix.yaml", "pyproject.toml", "wheel_builder")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout without .venv, and a Python that has no packages; scripts/venv says that it was asked."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in BARE:
        (folder / name).symlink_to(ROOT / name)
    (folder / "scripts").mkdir()
    (folder / "scripts/wheel-builder").write_text((ROOT / "scripts/wheel-builder").read_text())
    (folder / "scripts/venv").write_text("#!/bin/sh\necho asked for $1 >&2\nexit 20\n")
    (folder / "bin").mkdir()
    bare = Path(sys.base_prefix) / "bin/python3"
    (folder / "bin/python3").write_text(f'#!/bin/sh\nexec {bare} -S -B "$@"\n')
    for program in ("scripts/wheel-builder", "scripts/venv", "bin/python3"):
        (folder / program).chmod(0o755)
    return folder


def typed(checkout, *words):
    path = f"{checkout / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        [checkout / "scripts/wheel-builder", *words],
        cwd=checkout, env={**os.environ, "PATH": path, "COLUMNS": "100"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", [[], ["--help"], *([name, "--help"] for name in NAMES)], ids=" ".join)
def test_help_is_the_same_without_the_tools(checkout, words, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    with suppress(SystemExit):
        main(words)
    done = typed(checkout, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == capsys.readouterr().out
    assert not (checkout / ".venv").exists()


def test_a_command_still_gets_its_tools(checkout):
    done = typed(checkout, "plan")
    assert (done.returncode, done.stderr) == (20, "asked for wheel_builder/requirements.txt\n")


def test_an_old_python_is_not_asked_for_help(checkout):
    python = checkout / "bin/python3"
    before = python.read_text()
    python.write_text("#!/bin/sh\nexit 1\n")
    try:
        assert typed(checkout, "plan", "--help").stderr == "asked for wheel_builder/requirements.txt\n"
    finally:
        python.write_text(before)


def test_the_tools_that_help_goes_without_are_no_others(checkout):
    """What is not stood in for is said to be missing, with what installs it."""
    code = (
        "import sys; from wheel_builder.cli import help; help.TOOLS = (); sys.argv[1:] = ['plan', '--help'];"
        "sys.exit(help.main())"
    )
    done = subprocess.run(
        [checkout / "bin/python3", "-c", code], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 13
    assert "the Python tools are not installed" in done.stderr
