"""The wheel contents that sources define, read without building a wheel."""

import hashlib
import shutil

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.checkouts import copy_sources
from wheel_builder.base.errors import AuditError
from wheel_builder.build.product import read_product


@pytest.fixture
def checkout(tmp_path):
    copy_sources(tmp_path)
    return tmp_path


def test_files_are_those_of_the_package(checkout):
    before = read_product(checkout)
    assert before == read_product(CHECKOUT)
    assert "flash_attn_rocm/py.typed" in before.files
    names = ("LICENSE", "kernels/build/zstd_license.txt")
    assert before.licenses == {n: hashlib.sha256((CHECKOUT / n).read_bytes()).hexdigest() for n in names}
    package = checkout / "kernels/python/flash_attn_rocm"
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__/a.pyc").touch()
    assert read_product(checkout) == before
    (package / "new").mkdir()
    (package / "new/module.py").write_bytes(b"1")
    added = read_product(checkout).files.items() - before.files.items()
    assert added == {("flash_attn_rocm/new/module.py", hashlib.sha256(b"1").hexdigest())}


def test_files_of_other_folders_are_those_that_are_named(checkout):
    before = read_product(CHECKOUT / "shim3").files
    assert before["flash_attn_interface.py"] == digest(CHECKOUT / "shim3/flash_attn_interface.py")
    shutil.copytree(CHECKOUT / "shim3", checkout / "shim3")
    (checkout / "shim3/flash_attn_interface.py").write_bytes(b"1")
    assert (
        read_product(checkout / "shim3").files["flash_attn_interface.py"] == hashlib.sha256(b"1").hexdigest()
    )


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_fields_are_those_of_pyproject(checkout):
    project = checkout / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    assert "Requires-Dist" not in read_product(checkout).fields
    project.write_text(text.replace("dependencies = []", 'dependencies = ["b>=1", "a"]'), encoding="utf-8")
    assert read_product(checkout).fields["Requires-Dist"] == ("a", "b>=1")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "dependencies = []",
            "dependencies = []\nscripts = {a = 'b'}",
            "ValueError: project.scripts is not known",
        ),
        ("dependencies = []", 'dependencies = ["a b c"]', "InvalidRequirement: "),
        ('readme = "kernels/python/README.md"', 'readme = "none.md"', "FileNotFoundError: "),
        ("kernels/python/flash_attn_rocm", "kernels/none", "ValueError: kernels/none is not a folder"),
        (
            "[tool.hatch.build.targets.wheel.hooks",
            '[tool.hatch.build.targets.wheel.force-include]\n"../a.py" = "a.py"\n[tool.hatch.a',
            "ValueError: ../a.py is not in the checkout",
        ),
        ("[project]", "[project", "TOMLDecodeError: "),
    ],
)
def test_what_is_not_known_here_is_not_passed_over(checkout, old, new, words):
    project = checkout / "pyproject.toml"
    project.write_text(project.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(AuditError) as caught:
        read_product(checkout)
    assert caught.value.problems[0].startswith(words)
    assert "wheel_builder/build/product.py" in caught.value.advice


def test_addresses_are_headers_of_metadata(checkout):
    text = (checkout / "pyproject.toml").read_text()
    urls = 'urls = {Repository = "https://host/r", Issues = "https://host/i"}'
    (checkout / "pyproject.toml").write_text(text.replace("dependencies = []", f"dependencies = []\n{urls}"))
    found = read_product(checkout).fields["Project-URL"]
    assert found == ("Issues, https://host/i", "Repository, https://host/r")
