"""Build a published wheel again from its provenance statement, and compare bit for bit.

The commit's own pipeline runs, in a git worktree of the commit. From this checkout it uses only the stored
builder image, and no compiler cache. If the engine has the statement's image, it is used. Otherwise one is
built with the statement's package versions, as far as the archives still have them.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, RebuildError
from wheel_builder.base.process import Runner, run
from wheel_builder.build.source import git_of
from wheel_builder.files.difference import first_difference
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_wheel
from wheel_builder.images.docker import inspect_image
from wheel_builder.matrix.model import LINUX
from wheel_builder.provenance.provenance import IMAGE, SOURCE, Provenance, read_provenance
from wheel_builder.provenance.records import provenance_path
from wheel_builder.provenance.standing import commit_problem

# Stored by content and checked on reading, so they are not fetched again.
FETCHED = ("torch-headers", "builder-wheels", "zstd")
NAMED = 6
# A package in a list of matrix.yaml, with optional quotes and version.
WORD = re.compile(r"""(?P<quote>["']?)(?P<name>[a-z0-9][a-z0-9+.-]+)(=[^\s,"'\]]+)?(?P=quote)""")


@dataclass(frozen=True)
class Rebuilt:
    """A wheel that was reproduced bit for bit. ``image`` describes the image in words."""

    wheel: str
    sha256: str
    commit: str
    image: str


def rebuild(wheel: Path, checkout: Path, *, jobs: int, log: Path, run: Runner = run) -> Rebuilt:
    """Rebuild and compare. Raises ``RebuildError`` when this is impossible or the result differs."""
    found = read_provenance(provenance_path(wheel))
    old = read_wheel(wheel, max_mib=MAX_READ_MIB)
    if problems := list(obstacles(found, old, commit_problem(checkout, found.commit, run=run))):
        title = f"{wheel.name} cannot be built again from its statement"
        raise RebuildError(
            title, problems, advice="scripts/wheel-builder verify-provenance shows the matching parts"
        )
    with _worktree(checkout, found.commit, run) as tree:
        _provide_image(found, checkout, tree, run)
        new = read_wheel(_build(found, tree, jobs=jobs, log=log, run=run), max_mib=MAX_READ_MIB)
        used = _used_image(tree)
    if difference := first_difference(old, new):
        problems = [difference, *image_differences(found, used)]
        title = f"{wheel.name} built again from commit {found.commit} is another file: {new.sha256}"
        advice = "the first line is where it shows, the others are what the images have apart"
        raise RebuildError(title, problems, advice=advice)
    return Rebuilt(wheel.name, old.sha256, found.commit, image_words(found, used))


def obstacles(found: Provenance, wheel: WheelFile, of_commit: str) -> Iterator[str]:
    """Reasons why a rebuild would prove nothing. ``of_commit`` is the result of ``commit_problem``."""
    yield from found.subject_problems(wheel.path.name, wheel.sha256)
    source = found.dependency(SOURCE).annotations
    if source.dirty:
        changed = ", ".join(source.changed) or "unknown files"
        yield f"its sources differed from their commit: {changed}"
    if not found.commit:
        yield "the statement names no commit"
    elif of_commit:
        yield of_commit


def pin_packages(matrix: str, rocm: str, packages: Mapping[str, str]) -> str:
    """The text of matrix.yaml with the exact version of each package in the row of ``rocm``."""
    row = re.search(
        rf'^  - version: "{re.escape(rocm)}"$.*?(?=^  - |^\S|\Z)', matrix, re.MULTILINE | re.DOTALL
    )
    if row is None:
        return matrix

    def pinned(match: re.Match[str]) -> str:
        name = match["name"]
        return f'"{name}={packages[name]}"' if name in packages else match[0]

    lists = re.sub(r"(?<=: )\[[^\]]*\]", lambda found: WORD.sub(pinned, found[0]), row[0])
    return matrix[: row.start()] + lists + matrix[row.end() :]


def image_words(found: Provenance, used: Mapping[str, Any]) -> str:
    """The image of a rebuild, in words."""
    if used["image_id"] == _image_id(found):
        return f"the statement's own image, {used['image_id']}"
    differences = list(image_differences(found, used))
    if not differences:
        return "an image built anew, whose packages are all of the statement's versions"
    return (
        f"an image built anew, in which {len(differences)} packages differ: {'; '.join(differences[:NAMED])}"
    )


def image_differences(found: Provenance, used: Mapping[str, Any]) -> Iterator[str]:
    """Packages that differ between an image and the statement."""
    said = found.dependency(IMAGE).annotations.model_dump()
    for kind in ("packages", "python_packages"):
        was, now = said[kind], used.get(kind, {})
        for name in sorted(was.keys() | now.keys()):
            if was.get(name) != now.get(name):
                yield f"{name} was {was.get(name, 'not there')} and is {now.get(name, 'not there')}"


@contextmanager
def _worktree(checkout: Path, commit: str, run: Runner) -> Iterator[Path]:
    git = [*git_of(checkout), "worktree"]
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-rebuild-") as folder:
        tree = Path(folder) / "checkout"
        run([*git, "add", "--detach", tree, commit])
        try:
            yield tree
        finally:
            run([*git, "remove", "--force", tree])


def _image_id(found: Provenance) -> str:
    return f"sha256:{found.dependency(IMAGE).digest.get('sha256', '')}"


def _provide_image(found: Provenance, checkout: Path, tree: Path, run: Runner) -> None:
    """Give the worktree the statement's image, or pin its packages."""
    for name in FETCHED:
        if (checkout / "build" / name).is_dir():
            shutil.copytree(checkout / "build" / name, tree / "build" / name)
    image_id = _image_id(found)
    for manifest in _manifests(checkout / "build" / "image"):
        facts, key = manifest["facts"], manifest["key"]
        info = inspect_image(facts["ref"], run=run) if facts["image_id"] == image_id else None
        if info and info.id == image_id:
            shutil.copytree(checkout / "build" / "image" / key, tree / "build" / "image" / key)
            return
    matrix = tree / "matrix.yaml"
    matrix.write_text(
        pin_packages(matrix.read_text(encoding="utf-8"), found.rocm, found.packages), encoding="utf-8"
    )


def _build(found: Provenance, tree: Path, *, jobs: int, log: Path, run: Runner) -> Path:
    argv = [
        sys.executable,
        "-m",
        "wheel_builder",
        "wheel",
        "--rocm",
        found.selected,
        "--archs",
        ",".join(found.archs),
        # Older commits build for Linux only and lack the option.
        *(() if found.platform == LINUX else ("--platforms", found.platform)),
    ]
    try:
        run([*argv, "--jobs", str(jobs), "--no-cache", "--verbose"], cwd=tree, log=log)
    except CommandFailedError as error:
        title = f"commit {found.commit} does not build here"
        advice = "packages of the statement's versions may be gone from the archives: see its builder-image"
        raise RebuildError(title, [error.message], advice=advice) from error
    [wheel] = (tree / "build" / "wheel").glob("*/*.whl")
    return wheel


def _used_image(tree: Path) -> Mapping[str, Any]:
    """The facts of the image named in the new wheel's manifest."""
    [wheel] = _manifests(tree / "build" / "wheel")
    images: list[Mapping[str, Any]] = [found["facts"] for found in _manifests(tree / "build" / "image")]
    return next(facts for facts in images if facts["image_id"] == wheel["inputs"]["image"])


def _manifests(folder: Path) -> list[Mapping[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*/manifest.json"))]
