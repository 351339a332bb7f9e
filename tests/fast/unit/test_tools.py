"""Tools on the developers' pages run with a release's packages, without packages of tests."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT

# Imports of distributions outside the pipeline's lock fail, as in the .venv of a release.
WITHOUT_TESTS_PACKAGES = """
import re, runpy, sys
from importlib.metadata import packages_distributions
from pathlib import Path

lock = Path("wheel_builder/requirements.txt").read_text()
locked = {name.replace("_", "-") for name in re.findall(r"^([\\w.-]+)==", lock, re.MULTILINE)}
missing = {
    name
    for name, owners in packages_distributions().items()
    if not locked & {owner.lower().replace("_", "-") for owner in owners}
}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

assert "pytest" in missing and "pydantic" not in missing
sys.meta_path.insert(0, Missing())
sys.path.insert(0, ".")
sys.argv = [sys.argv[1], "--help"]
runpy.run_module(sys.argv[0], run_name="__main__")
"""
PAGES = [CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs/dev").glob("*.md"))]
TYPED = [
    typed
    for page in PAGES
    for typed in re.findall(r"(?:`|^    )(\S+) -m (tests\.[\w.]+)", page.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("module", sorted({module for _, module in TYPED}))
def test_a_tool_starts_after_a_release(module):
    """``tests.tools.mutation`` ended with "No module named 'pytest'", also in the nightly workflow."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TESTS_PACKAGES, module],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: " in done.stdout


def test_tools_are_typed_with_the_python_that_has_their_packages():
    assert {python for python, _ in TYPED} == {".venv/bin/python"}
    assert {"tests.tools.mutation", "tests.tools.corpus", "tests.tools.run_bench"} <= {
        module for _, module in TYPED
    }


@pytest.mark.parametrize(
    ("options", "given"),
    [(["--fast", "-q"], "tests/fast -q"), (["tests/channel/page"], "tests/channel/page"), ([], "")],
)
def test_fast_tests_are_those_that_need_nothing(options, given, tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv/bin").mkdir(parents=True)
    shutil.copy(CHECKOUT / "scripts/test", tmp_path / "scripts")
    for name in ("scripts/venv", ".venv/bin/python"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
        (tmp_path / name).chmod(0o755)
    subprocess.run([tmp_path / "scripts/test", *options], check=True)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["tests/requirements.txt", f"-m pytest --numprocesses 2 {given}".rstrip()]
