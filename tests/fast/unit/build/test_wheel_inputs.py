"""A wheel's key covers exactly the wheel's inputs: the list is compared with the files really read."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.checkouts import copy_sources
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Artifact, Store
from wheel_builder.build import wheel
from wheel_builder.build.wheel_inputs import FILE, read_inputs, sources_digest
from wheel_builder.files.device.packing import SETTINGS
from wheel_builder.matrix.model import Job, Package, Rocm

JOB = Job(Rocm("7.2", "debian", "debian:sid-slim", "/usr/lib/llvm-22/bin", ("gfx908",)), ("gfx908",))
PACKAGE = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_28_x86_64", 12)
FACTS = {
    "ref": "builder:7.2", "image_id": "sha256:1", "python_tag": "cp314-cp314", "libcxx": "21.1.0",
    "os": "Debian GNU/Linux", "packages": {"clang-22": "1:22.1.8-3"},
    "python_packages": {"ziglang": "0.17.0"},
}  # fmt: skip
IMAGE = Artifact(None, {"key": "k", "facts": FACTS}, reused=True)
# Files of tiles are also included by a macro (call/every_tile.hpp).
INCLUDE = re.compile(r'^#(?:include|define FA_TILES_\w+) "(.+)"$', re.MULTILINE)


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "checkout"
    copy_sources(root)
    return root


def device_code(folder, code=b"elf", seconds="1.5"):
    folder.mkdir(exist_ok=True)
    (folder / "fa_fwd_fp16_d64.hsaco").write_bytes(code)
    (folder / "resources.json").write_text(seconds)
    files = {"fa_fwd_fp16_d64.hsaco": code.hex(), "resources.json": seconds}
    return Artifact(folder, {"key": "c", "files": files, "facts": {"arch": "gfx908"}}, reused=True)


def zstd(folder):
    folder.mkdir(exist_ok=True)
    for name in ("zstd.c", "zstd.h"):
        (folder / name).touch()
    return folder


def built(checkout, *, package=PACKAGE, cache=None, **code):
    """The stored wheel, and the files given to cibuildwheel."""
    given = []

    def run(argv, *, cwd=None, **_):
        if "cibuildwheel" in argv:
            given.extend(str(file.relative_to(cwd)) for file in cwd.rglob("*") if file.is_file())
            (Path(argv[argv.index("--output-dir") + 1]) / "a-1-py3-none-any.whl").touch()
        return Completed("", 0)

    stored = wheel.build_wheel(
        JOB, package, image=IMAGE, device_code=[device_code(checkout.parent / "code", **code)],
        zstd=zstd(checkout.parent / "zstd"), checkout=checkout, store=Store(checkout.parent / "build"),
        log=checkout.parent / "log", cache=cache, run=run,
    )  # fmt: skip
    return stored, given


def append(file, text="\n# changed\n"):
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(text)


@pytest.mark.parametrize(
    "name",
    [
        "README.md", "kernels/README.md", "matrix.yaml", "wheel_builder/index/finder/finder.css",
        "wheel_builder/index/simple/serve.py", "wheel_builder/build/wheel.py",
        "wheel_builder/requirements.txt", "kernels/device/forward/forward.hpp",
        "kernels/host/__pycache__/a.pyc", "kernels/tables/gpus.toml",
    ],
)  # fmt: skip
def test_what_is_not_in_a_wheel_does_not_build_it_again(checkout, name):
    first, _ = built(checkout)
    append(checkout / name)
    again, given = built(checkout)
    assert (again.key, again.reused, given) == (first.key, True, [])


@pytest.mark.parametrize(
    "name",
    [
        "LICENSE", "kernels/build/hatch_build.py", "kernels/build/zig_flags.txt",
        "kernels/host/calls/fwd.cpp",
        "kernels/host/new.cpp", "kernels/bindings/torch_ops.cpp", "kernels/device/arch/gfx.hpp",
        "kernels/python/flash_attn_rocm/__init__.py", "kernels/python/README.md",
        "kernels/generated/table.toml", "kernels/build/instances/bundle.py", "wheel_builder/build/repair.py",
        "wheel_builder/files/foreign.py", "wheel_builder/base/process.py",
        "kernels/python/flash_attn_rocm/suite/corpus.json",
    ],
)  # fmt: skip
def test_what_is_in_a_wheel_builds_it_again(checkout, name):
    first, _ = built(checkout)
    append(checkout / name)
    again, given = built(checkout)
    assert again.key != first.key
    assert name in given


@pytest.mark.parametrize("setting", SETTINGS)
def test_another_packer_of_device_code_builds_it_again(checkout, monkeypatch, setting):
    first, _ = built(checkout)
    monkeypatch.setitem(SETTINGS, setting, "another")
    assert built(checkout)[0].key != first.key


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("\n[tool.ruff.lint.pylint]\nmax-args = 5\n", True),
        ("\n# a comment\n", True),
        ('\n[project.urls]\nhome = "https://localhost"\n', False),
        ("\n[tool.hatch.build]\nreproducible = false\n", False),
        ('\n[tool.cibuildwheel.linux]\nbuild-verbosity = "1"\n', False),
    ],
)
def test_of_the_projects_file_only_what_a_build_reads_counts(checkout, text, same):
    first, _ = built(checkout)
    append(checkout / "pyproject.toml", text)
    assert (built(checkout)[0].key == first.key) == same


def test_what_the_build_is_told_is_in_the_key(checkout, tmp_path, monkeypatch):
    first, _ = built(checkout)
    other = Package("2.10", "2.13.0", "0" * 64, "manylinux_2_34_x86_64", 12)
    headers = Package("2.10", "2.14.0", "1" * 64, "manylinux_2_28_x86_64", 12)
    assert len({built(checkout, package=package)[0].key for package in (PACKAGE, other, headers)}) == 3
    assert built(checkout, cache=tmp_path / "cache")[0].key == first.key
    monkeypatch.setattr(wheel.metadata, "version", lambda _: "99.0")
    assert built(checkout)[0].key != first.key


def test_device_code_counts_and_not_how_long_it_took(checkout):
    first, given = built(checkout)
    assert built(checkout, seconds="2.5")[0].key == first.key
    assert built(checkout, code=b"other")[0].key != first.key
    assert "device/gfx908/fa_fwd_fp16_d64.hsaco" in given
    assert not [name for name in given if "resources.json" in name]


def test_the_digest_of_the_sbom_is_the_keys(checkout):
    """Otherwise a stored wheel could hold the SBOM of other sources."""
    found = built(checkout)[0].manifest["inputs"]
    assert found["sources"] == sources_digest(checkout, read_inputs(checkout))


def test_the_builds_container_gets_what_the_list_names(checkout):
    named = {"pyproject.toml", "flash-attn-rocm.cdx.json", "device/gfx908/fa_fwd_fp16_d64.hsaco"}
    named |= {"bundled/gfx908.hipfb", "zstd/zstd.c", "zstd/zstd.h"}
    named |= {str(file.relative_to(checkout)) for file in listed(checkout)}
    assert set(built(checkout)[1]) == named


def listed(checkout):
    for path in (checkout / source for source in read_inputs(checkout).sources):
        yield from [path] if path.is_file() else (file for file in path.rglob("*") if file.is_file())


def below(names, start):
    return {name for name in names if name.startswith(start)}


def repair_imports(checkout, tmp_path):
    """The files of wheel_builder imported by the repair's module. Only packaging is installed."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "packaging").symlink_to(Path(find_spec("packaging").origin).parent)
    code = (
        f"import sys; sys.path[:0] = {[str(checkout), str(packages)]}\n"
        "import wheel_builder.build.repair\n"
        "ours = [m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'wheel_builder']\n"
        "print(*ours, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {str(Path(file).relative_to(checkout)) for file in done.stdout.splitlines()}


def test_repair_needs_the_modules_of_the_list_and_no_other(checkout, tmp_path):
    listed = below(read_inputs(CHECKOUT).sources, "wheel_builder/")
    assert repair_imports(checkout, tmp_path) == listed


@pytest.mark.parametrize("line", ["import pydantic", "from wheel_builder.base.store import Store"])
def test_an_import_that_the_builder_image_lacks_would_be_seen(checkout, tmp_path, line):
    append(checkout / "wheel_builder/files/foreign.py", f"\n{line}\n")
    with pytest.raises(AssertionError, match="ModuleNotFoundError"):
        repair_imports(checkout, tmp_path)


def test_repair_runs_where_nothing_else_is(checkout, tmp_path):
    argv = [
        sys.executable,
        "-m",
        "wheel_builder.build.repair",
        "a.whl",
        "out",
        "--plat",
        "manylinux_2_28_x86_64",
    ]
    done = subprocess.run(argv, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 33
    assert done.stderr == (
        "error: a.whl: the wheel to repair does not exist\n"
        "  next: build it first; cibuildwheel passes it as {wheel}\n"
    )


def included_headers(checkout):
    """Headers of device code and generated files that the host library includes, directly or not."""
    kernels = checkout / "kernels"
    host = [*(kernels / "host").rglob("*"), *(kernels / "bindings").rglob("*")]
    todo, seen = [file for file in host if file.is_file()], set()
    while todo:
        found = {kernels / name for name in INCLUDE.findall(todo.pop().read_text(encoding="utf-8"))}
        todo += (new := {file for file in found if file.is_file()} - seen)
        seen |= new
    return headers_in(str(file.relative_to(checkout)) for file in seen)


def headers_in(names):
    return {name for name in names if name.startswith(("kernels/device/", "kernels/generated/"))}


def files_of_bundle(checkout, tmp_path):
    """The files below ``checkout`` opened while joining the archs' code objects."""
    device = tmp_path / "device"
    instances = checkout / "kernels/build/instances"
    code = f"""
import runpy, sys
sys.path.insert(0, {str(instances)!r})
from generate import TABLE, load_table, served
from pathlib import Path
folder = Path({str(device)!r}, "gfx908")
folder.mkdir(parents=True)
for instance in served(load_table(TABLE), ["gfx908"]):
    (folder / f"{{instance.name}}.hsaco").write_text("clang version 22.1")
sys.addaudithook(lambda event, args: event == "open" and print(args[0]))
for name in ("generate", "build"):
    sys.modules.pop(name, None)
sys.argv = ["bundle.py", "--device", {str(device)!r}, "--out", {str(tmp_path / "out")!r}]
runpy.run_path({str(instances / "bundle.py")!r}, run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    opened = {os.path.relpath(line, checkout) for line in done.stdout.splitlines() if line.startswith("/")}
    # Python looks for compiled modules first.
    return {name for name in opened if "__pycache__" not in name}


def files_below(names):
    """The files with these names or in folders with these names."""
    paths = [CHECKOUT / name for name in names]
    files = [file for path in paths for file in (path.iterdir() if path.is_dir() else [path])]
    return {str(file.relative_to(CHECKOUT)) for file in files}


def test_the_list_has_the_headers_and_scripts_that_are_read(checkout, tmp_path):
    opened, sources = files_of_bundle(checkout, tmp_path), read_inputs(CHECKOUT).sources
    for folder in ("kernels/build/instances/", "kernels/tables/"):
        assert below(sources, folder) == below(opened, folder)
    assert files_below(headers_in(sources)) == included_headers(CHECKOUT) | headers_in(opened)


def test_a_header_that_the_list_lacks_would_be_seen(tmp_path):
    for name in ("host", "bindings", "device", "generated"):
        shutil.copytree(CHECKOUT / "kernels" / name, tmp_path / "kernels" / name)
    append(tmp_path / "kernels/host/types/error.hpp", '\n#include "device/masks/mask.hpp"\n')
    more = included_headers(tmp_path) - set(read_inputs(CHECKOUT).sources)
    assert "kernels/device/masks/mask.hpp" in more


def test_the_list_names_each_path_once_and_in_the_checkout():
    found = tomllib.loads((CHECKOUT / FILE).read_text(encoding="utf-8"))
    assert len(set(found["sources"])) == len(found["sources"])
    assert all((CHECKOUT / name).exists() for name in found["sources"])
