"""The script installs the Python tools first, also for --help."""

import subprocess

import pytest

from wheel_builder.cli.options import ROOT


@pytest.mark.parametrize("words", [["plan"], ["--help"]])
def test_a_command_gets_its_tools(words, tmp_path):
    (tmp_path / "scripts").mkdir()
    script, venv = tmp_path / "scripts/wheel-builder", tmp_path / "scripts/venv"
    script.write_text((ROOT / "scripts/wheel-builder").read_text())
    venv.write_text("#!/bin/sh\necho asked for $1 >&2\nexit 20\n")
    for program in (script, venv):
        program.chmod(0o755)
    done = subprocess.run([script, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (20, "asked for wheel_builder/requirements.txt\n")
