"""Error messages explained in docs/troubleshooting.md exist in the source, with … for variable parts."""

import ast
import inspect
import re

import pytest
from pip._internal.resolution.resolvelib import factory

from tests.conftest import CHECKOUT
from wheel_builder.build.shim import FOLDERS

PAGE = CHECKOUT / "docs/troubleshooting.md"
PYTHON = ("kernels/python/flash_attn_rocm", *FOLDERS, "wheel_builder")
CPP = ("kernels/host", "kernels/bindings")
VARIES = "…"
LITERAL = r'"((?:[^"\\\n]|\\.)*)"'


def quoted(page):
    return re.findall(r"^### `(.*)`$", page, re.MULTILINE)


def in_python(text):
    """Every text of a module, with … for values."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else VARIES for part in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%s", VARIES, node.value)


def in_cpp(text):
    """Every text of a file: adjacent literals are one text, including those with a value between them."""
    text = re.sub(r'"\s*\n?\s*"', "", text)
    text = re.sub(r'"\s*\+[^";]*\+\s*"', VARIES, text)
    yield from (found.replace("\\n", "\n") for found in re.findall(LITERAL, text))


@pytest.fixture(scope="module")
def texts():
    files = [file for folder in PYTHON for file in sorted((CHECKOUT / folder).rglob("*.py"))]
    found = {text for file in files for text in in_python(file.read_text(encoding="utf-8"))}
    found |= {
        text
        for folder in CPP
        for file in (CHECKOUT / folder).rglob("*.[ch]pp")
        for text in in_cpp(file.read_text())
    }
    return found | set(in_python(inspect.getsource(factory)))


def is_said(message, texts):
    words = message.strip(f"{VARIES} ")
    assert len(words) >= 15, "too short to search for"
    return any(words in text for text in texts)


@pytest.mark.parametrize("message", quoted(PAGE.read_text(encoding="utf-8")))
def test_a_message_is_one_of_ours(message, texts):
    assert is_said(message, texts)


def test_a_message_that_nobody_says_would_be_found(texts):
    assert is_said("this PyTorch is a … build, which cannot use AMD GPUs", texts)
    assert not is_said("this PyTorch is a … build, which cannot use an AMD GPU at all", texts)
    assert not is_said("this PyTorch is a CUDA build, which cannot use AMD GPUs", texts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'throw Error(1, "no " + op + " kernel for " + dtype + ": this wheel has " + more);',
            "no … kernel for …: this wheel has ",
        ),
        ('f("no HIP runtime "\n   "in this process");', "no HIP runtime in this process"),
    ],
)
def test_texts_of_cpp_are_read(text, message):
    assert message in set(in_cpp(text))
