"""The shims are released on their own: a rename of a private name here would break an installed one."""

import ast
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
FILES = sorted([*CHECKOUT.glob("shim/flash_attn*/**/*.py"), *CHECKOUT.glob("shim3/**/*.py")])


def private_names(source):
    """What a file takes of flash_attn_rocm that begins with an underscore."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flash_attn_rocm":
            names = [*(node.module or "").split("."), *(each.name for each in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for each in node.names for part in each.name.split(".")]
            names = names if "flash_attn_rocm" in names else []
        else:
            continue
        found += [name for name in names if name.startswith("_")]
    return found


def test_there_are_files():
    assert {"_forward.py", "_entry_points.py"} <= {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CHECKOUT)))
def test_no_shim_takes_private_names(file):
    assert private_names(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "from flash_attn_rocm.arguments.normal_form import pair",
        "from flash_attn_rocm import _rotary",
        "import flash_attn_rocm.arguments.normal_form",
    ],
)
def test_private_names_are_found(source):
    assert len(private_names(source)) == 1
