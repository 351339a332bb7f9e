"""Type checkers accept users' code that works at run time, and report errors in the rest.

By issue 26 both rejected ``flash_attn_func(q, k, v).sum()`` and ``window_size=[3, 0]``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.build.shim import FOLDERS

HERE = CHECKOUT / "tests/fast/unit/kernels/types"
SAMPLE = HERE / "sample.py"
ROOTS = [str(CHECKOUT / name) for name in ("kernels/python", *FOLDERS, "tests/fast/unit/kernels/types")]
IGNORED = "  # type: ignore\n"
WRONG = '    flash_attn_func(x, x, x, window_size="12")'
RIGHT = "    flash_attn_func(x, x, x, window_size=[3, 0])"
PLANTED = {f"{WRONG}{IGNORED}": f"{WRONG}\n", f"{RIGHT}\n": f"{RIGHT}{IGNORED}"}


def mypy(sample, folder):
    options = ["--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={folder / 'cache'}"]
    return run([sys.executable, "-m", "mypy", *options, str(sample)], MYPYPATH=os.pathsep.join(ROOTS))


def pyright(sample, folder):
    config = {
        "include": [str(sample)], "extraPaths": ROOTS, "typeCheckingMode": "strict",
        "pythonVersion": "3.11", "reportUnnecessaryTypeIgnoreComment": "error",
    }  # fmt: skip
    file = folder / "pyrightconfig.json"
    file.write_text(json.dumps(config))
    return run([sys.executable, "-m", "basedpyright", "-p", str(file), "--pythonpath", sys.executable])


def run(argv, **environment):
    done = subprocess.run(
        argv, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_what_users_write_is_accepted(checker, tmp_path):
    status, said = checker(SAMPLE, tmp_path)
    assert status == 0, said


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_both_see_every_line(checker, tmp_path):
    """Only a wrong line without its ignore, and a right one with an ignore, are errors."""
    text = SAMPLE.read_text()
    for line, other in PLANTED.items():
        assert line in text
        text = text.replace(line, other)
    (tmp_path / "sample.py").write_text(text)
    status, said = checker(tmp_path / "sample.py", tmp_path)
    wrong = {number for number, line in enumerate(text.splitlines(), 1) if f"{line}\n" in PLANTED.values()}
    assert status == 1
    found = {
        int(words.split(":")[1])
        for words in said.splitlines()
        if "error" in words and Path(words.split(":")[0].strip()).name == "sample.py"
    }
    assert found == wrong, said
