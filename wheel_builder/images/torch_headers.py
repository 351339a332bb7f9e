"""torch's stable headers: the only part of torch used to build the host library."""

import posixpath
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_tree
from wheel_builder.matrix.model import Package

INCLUDE = "torch/include/"
ROOTS = ("torch/csrc/stable/", "torch/headeronly/", "torch/csrc/inductor/aoti_torch/c/shim.h")
# All wheels of a release have equal headers, and every index has this wheel.
PYTHON, PLATFORM = "3.11", "manylinux_2_28_x86_64"
_INCLUDE_LINE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


def fetch_headers(
    package: Package, store: Store, *, index: str = "", logs: Path, run: Runner = run
) -> Artifact:
    """The headers below ``include/`` of the result's folder. Facts: sha256, files, bytes.

    Raises ``ImageError`` if their hash differs from the one in matrix.yaml.
    """
    inputs = {"torch": package.torch_headers, "sha256": package.torch_headers_sha256, "roots": ROOTS}

    def make(folder: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-torch-") as download:
            wheel = _download(package.torch_headers, Path(download), index, logs / "torch-headers.log", run)
            return extract_headers(wheel, folder / "include")

    return store.get_or_make("torch-headers", inputs, _checked(make, package))


def extract_headers(wheel: Path, into: Path) -> Mapping[str, Any]:
    """Write the stable headers, and the torch headers included by them, below ``into``."""
    with zipfile.ZipFile(wheel) as archive:
        known = {n.removeprefix(INCLUDE) for n in archive.namelist() if n.startswith(INCLUDE)}
        names = closure((n for n in known if n.startswith(ROOTS)), known, lambda n: archive.read(INCLUDE + n))
        for name in names:
            file = into / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(archive.read(INCLUDE + name))
    size = sum((into / name).stat().st_size for name in names)
    return {"wheel": wheel.name, "sha256": sha256_tree(into, [into]), "files": len(names), "bytes": size}


def closure(roots: Iterable[str], known: set[str], read: Callable[[str], bytes]) -> list[str]:
    """``roots`` and every header of ``known`` reached through #include lines, sorted."""
    found: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.add(name)
        for included in _INCLUDE_LINE.findall(read(name).decode()):
            beside = posixpath.normpath(posixpath.join(posixpath.dirname(name), included))
            todo += [path for path in (included, beside) if path in known]
    return sorted(found)


def _download(version: str, folder: Path, index: str, log: Path, run: Runner) -> Path:
    argv: list[str | Path] = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    argv += ["--dest", folder]
    argv += ["--python-version", PYTHON, "--platform", PLATFORM, "--disable-pip-version-check"]
    argv += ["--find-links" if index.startswith("/") else "--extra-index-url", index] if index else []
    advice = f"pip has to find torch {version} for Python {PYTHON}: pip config, or --torch-index URL"
    run([*argv, f"torch=={version}"], log=log, advice=advice)
    return next(folder.glob("torch-*.whl"))


def _checked(
    make: Callable[[Path], Mapping[str, Any]], package: Package
) -> Callable[[Path], Mapping[str, Any]]:
    def checked(folder: Path) -> Mapping[str, Any]:
        facts = make(folder)
        if facts["sha256"] != package.torch_headers_sha256:
            message = (
                f"the stable headers of {facts['wheel']} are not the expected ones of torch "
                f"{package.torch_headers}\n"
                f"  expected {package.torch_headers_sha256}\n  found    {facts['sha256']}"
            )
            advice = "compare the release with another index; if it is right, change torch_headers_sha256"
            raise ImageError(message, advice=f"{advice} in matrix.yaml")
        return facts

    return checked
