"""Tools that CONTRIBUTING types run with what a release installs, without packages that only tests have."""

import re
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT

# Imports of distributions that the pipeline's lock does not name fail, as in a .venv that a release made.
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
TYPED = re.findall(r"`(\S+) -m (tests\.[\w.]+)", (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("module", sorted({module for _, module in TYPED}))
def test_a_tool_starts_after_a_release(module):
    """``tests.mutation`` ended with "No module named 'pytest'", in the nightly workflow, too."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TESTS_PACKAGES, module],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: " in done.stdout


def test_tools_are_typed_with_the_python_that_has_their_packages():
    assert {python for python, _ in TYPED} == {".venv/bin/python"}
    assert {"tests.mutation", "tests.corpus", "tests.fake_hip.run_bench"} <= {module for _, module in TYPED}
