"""The shims have their own releases: a renamed private name would break an installed one."""

import ast
from pathlib import Path

import pytest

from wheel_builder.build.shim import FOLDERS

CHECKOUT = Path(__file__).parents[4]
FILES = sorted(
    file for folder in FOLDERS for file in (CHECKOUT / folder).rglob("*.py") if file.name != "numbered.py"
)

PACKAGE = CHECKOUT / "kernels/python/flash_attn_rocm"
MODULES = {"flash_attn_interface", "interfaces", "pieces", "quantised", "raw", "sdpa", "transformers"}


def public_names():
    """The names available to ``from flash_attn_rocm import``."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [names] = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    ]
    return {*ast.literal_eval(names), *MODULES}


def private_names(source):
    """The private names of flash_attn_rocm used by a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            package, *modules = (node.module or "").split(".")
            names = [each.name for each in node.names]
            if package == "flash_attn_rocm" and modules:
                yield from (name for name in modules if name not in MODULES)
                yield from (name for name in names if name.startswith("_"))
            elif package == "flash_attn_rocm":
                yield from (name for name in names if name not in public_names())
        elif isinstance(node, ast.Import):
            for package, *modules in (each.name.split(".") for each in node.names):
                yield from (name for name in modules if package == "flash_attn_rocm" and name not in MODULES)


def test_there_are_files():
    assert {"_forward.py", "_entry_points.py", "_calls.py"} <= {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(CHECKOUT)))
def test_no_shim_takes_private_names(file):
    assert [*private_names(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "source",
    [
        "from flash_attn_rocm.arguments import pair",
        "from flash_attn_rocm.raw import _pair",
        "from flash_attn_rocm import rotary",
        "import flash_attn_rocm.arguments",
    ],
)
def test_private_names_are_found(source):
    assert len([*private_names(source)]) == 1
