"""torch's stable headers, taken from a wheel made by the test."""

import zipfile
from pathlib import Path

import pytest

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Store
from wheel_builder.images.torch_headers import closure, extract_headers, fetch_headers
from wheel_builder.matrix.model import Package

FILES = {
    "torch/include/torch/csrc/stable/tensor.h": '#include <torch/headeronly/a.h>\n#include "beside.h"\n',
    "torch/include/torch/csrc/stable/beside.h": "#include <vector>\n#  include <c10/needed.h>\n",
    "torch/include/torch/headeronly/a.h": "// #include <c10/not_needed.h>\n",
    "torch/include/torch/csrc/inductor/aoti_torch/c/shim.h": "#pragma once\n",
    "torch/include/c10/needed.h": '#include "../c10/needed.h"\n',
    "torch/include/c10/not_needed.h": "",
    "torch/__init__.py": "",
}
EXPECTED = [
    "c10/needed.h",
    "torch/csrc/inductor/aoti_torch/c/shim.h",
    "torch/csrc/stable/beside.h",
    "torch/csrc/stable/tensor.h",
    "torch/headeronly/a.h",
]
NAME = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


def make_wheel(folder):
    with zipfile.ZipFile(folder / NAME, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    return folder / NAME


class FakePip:
    """``pip download`` that leaves the wheel in the given folder."""

    def __init__(self):
        self.commands = []

    def __call__(self, argv, **kwargs):
        argv = [str(part) for part in argv]
        self.commands.append(argv)
        make_wheel(Path(argv[argv.index("--dest") + 1]))
        return Completed("", 0)


def package(digest):
    return Package("2.10", "2.13.0", digest, "manylinux_2_28_x86_64", 12)


def test_headers_are_the_roots_and_all_they_include(tmp_path):
    include = tmp_path / "include"
    facts = extract_headers(make_wheel(tmp_path), include)
    found = sorted(file.relative_to(include).as_posix() for file in include.rglob("*.h"))
    assert found == EXPECTED
    assert (facts["files"], facts["wheel"]) == (5, NAME)


def test_headers_that_include_each_other_end():
    texts = {"a.h": b'#include "b.h"', "b.h": b'#include "a.h"'}
    assert closure(["a.h"], set(texts), texts.__getitem__) == ["a.h", "b.h"]


def test_the_digest_of_the_matrix_is_held_and_the_wheel_is_fetched_once(tmp_path):
    digest = extract_headers(make_wheel(tmp_path), tmp_path / "include")["sha256"]
    pip, store = FakePip(), Store(tmp_path / "build")
    first = fetch_headers(package(digest), store, logs=tmp_path, run=pip)
    assert (first.path / "include/torch/csrc/stable/tensor.h").is_file()
    assert fetch_headers(package(digest), store, logs=tmp_path, run=pip).reused
    [command] = pip.commands
    assert command[-1] == "torch==2.13.0"
    assert "--no-deps" in command
    assert "--extra-index-url" not in command


def test_an_index_is_asked_besides_pips_own_settings(tmp_path):
    pip = FakePip()
    with pytest.raises(ImageError):
        fetch_headers(package("0"), Store(tmp_path), index="https://cpu/simple", logs=tmp_path, run=pip)
    assert pip.commands[0][pip.commands[0].index("--extra-index-url") + 1] == "https://cpu/simple"


def test_other_headers_than_the_expected_are_refused_with_both_digests(tmp_path):
    digest = extract_headers(make_wheel(tmp_path), tmp_path / "include")["sha256"]
    store = Store(tmp_path / "build")
    with pytest.raises(ImageError) as caught:
        fetch_headers(package("f" * 64), store, logs=tmp_path, run=FakePip())
    text = str(caught.value)
    assert f"expected {'f' * 64}" in text
    assert f"found    {digest}" in text
    assert "change torch_headers_sha256 in matrix.yaml" in text
    assert not list(store.root.rglob("manifest.json"))
