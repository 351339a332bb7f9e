"""The signatures in the wheel's tests are those of the published source distribution."""

import ast
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT

TABLE = CHECKOUT / "tests/wheel/signatures.json"


def signatures(source):
    """``name`` or ``name=default`` of every parameter of the public functions in the text of the module."""
    functions = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]
    return {each.name: parameters(each.args) for each in functions if each.name.startswith("flash_attn_")}


def parameters(arguments):
    assert not [*arguments.posonlyargs, *arguments.kwonlyargs]
    assert arguments.vararg is arguments.kwarg is None
    required = len(arguments.args) - len(arguments.defaults)
    defaults = [""] * required + [f"={ast.unparse(default)}" for default in arguments.defaults]
    return [each.arg + default for each, default in zip(arguments.args, defaults, strict=True)]


@pytest.fixture
def published(tmp_path):
    """The module of upstream's source distribution, which pip unpacks and which is not built.

    For the metadata pip runs its setup.py, which may fail because it needs PyTorch; the unpacked files stay.
    """
    version = json.loads(TABLE.read_text())["flash_attn"]
    argv = [
        sys.executable, "-m", "pip", "download", "--no-clean", "--no-deps", "--no-binary=:all:",
        "--no-build-isolation", f"--dest={tmp_path}", f"flash-attn=={version}",
    ]  # fmt: skip
    done = subprocess.run(
        argv, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    found = [*tmp_path.glob("*/*/flash_attn/flash_attn_interface.py")]
    assert len(found) == 1, done.stdout + done.stderr
    return found[0].read_text()


@pytest.mark.full
def test_the_table_is_what_was_published(published):
    assert json.loads(TABLE.read_text())["functions"] == signatures(published)
