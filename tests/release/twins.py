"""Twins of a wheel and of a checkout: everything outside the key of an emulated suite is different."""

import ast
import functools
import shutil

from tests.tools.made.device import with_code
from tests.tools.made.wheels import write_wheel
from wheel_builder.files.device.library import LIBRARY
from wheel_builder.files.pycode import DEFINITIONS
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.machine_code.fake_hip.container import CONTROL, SHARED
from wheel_builder.verify.coverage import REASONS
from wheel_builder.verify.numerics import TESTS
from wheel_builder.verify.seen import PACKAGE

WORDS = "Words that nobody wrote:\n    FA_FULL=1, import os; q: (batch, seqlen)"


def twin_wheel(wheel, arch, folder):
    """A copy of ``wheel`` with other words, and 0xff in all code objects of other archs."""
    content = read_wheel(wheel, max_mib=64)
    files = {
        name: with_other_words(data) if name.startswith(PACKAGE) and name.endswith(".py") else data
        for name, data in content.files.items()
    }
    for name in files:
        own = name.removeprefix(f"{content.dist_info}/")
        if own == "METADATA":
            files[name] = files[name].partition(b"\n\n")[0] + b"\n\nAnother description.\n"
        elif own.startswith(("sboms/", "licenses/")):
            files[name] = b"{}"
    files[LIBRARY] = without_other_archs(files[LIBRARY], arch)
    del files[f"{content.dist_info}/RECORD"]
    return write_wheel(folder, files, name=wheel.name)


def without_other_archs(library, arch, edit=lambda code: code.data):
    """The library with ``edit(code)`` for the arch's code objects, and 0xff in those of all others."""
    return with_code(library, lambda code: edit(code) if code.gfx == arch else b"\xff" * len(code.data))


def twin_checkout(checkout, folder):
    """The suite's inputs from ``checkout``, with other words."""
    for path in (TESTS, CONTROL, REASONS, *SHARED):
        source = checkout / path
        for file in [source] if source.is_file() else [f for f in source.rglob("*") if f.is_file()]:
            if "__pycache__" in file.parts:
                continue
            to = folder / file.relative_to(checkout)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, to)
            if file.suffix == ".py":
                to.write_bytes(with_other_words(file.read_bytes()))
    return folder


@functools.cache  # of the package, for every arch's twin
def with_other_words(data):
    """Python with another layout, no comments, and other docstrings except for those used by decorators."""
    tree = ast.parse(data)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, *DEFINITIONS)) or getattr(node, "decorator_list", []):
            continue
        if ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant(WORDS))
    return ast.unparse(tree).encode() + b"\n"
