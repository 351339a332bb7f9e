"""What the stages that make images share: the build's context, the stored result, the check's words."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wheel_builder import docker
from wheel_builder.errors import CommandFailedError, ImageError
from wheel_builder.process import Runner, run
from wheel_builder.store import Artifact, Store, key_of, sha256_file
from wheel_builder.wheel_files import DOCKERFILES

NOBODY = "65534:65534"
PYTHON_PACKAGES = ("python3-venv", "ca-certificates")


def stored_image(
    stage: str,
    inputs: Mapping[str, Any],
    store: Store,
    make: Callable[[Path], Mapping[str, Any]],
    *,
    run: Runner = run,
) -> Artifact:
    """``store.get_or_make`` for a stage whose real result is in the engine: made again when gone there.

    ``make`` returns facts with ``ref`` and ``image_id``.
    """
    found = store.find(stage, inputs)
    if found and not _in_engine(found, run):
        shutil.rmtree(found.path)
    return store.get_or_make(stage, inputs, make)


def file_digests(names: Sequence[str]) -> Mapping[str, str]:
    """The sha256 of files in ``dockerfiles/``, for a stage's inputs."""
    return {name: sha256_file(DOCKERFILES / name) for name in names}


@contextmanager
def context(names: Sequence[str]) -> Iterator[Path]:
    """A folder with copies of files in ``dockerfiles/``, to be filled and built from."""
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-context-") as folder:
        for name in names:
            shutil.copy(DOCKERFILES / name, folder)
        yield Path(folder)


def tag_of(inputs: Mapping[str, Any]) -> str:
    """What tells images of different inputs apart in a tag."""
    return key_of(inputs)[:12]


def package_groups(groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Packages per suite as install_packages.sh takes them; an empty suite is the image's own."""
    return " ".join(f"{suite}:{','.join(names)}" for suite, names in groups if names)


@contextmanager
def explained(what: str, log: Path) -> Iterator[None]:
    """Turn a failed command into an ``ImageError`` that begins with ``what``."""
    try:
        yield
    except CommandFailedError as error:
        message = f"{what}\n{error.message}"
        raise ImageError(message, advice=error.advice or f"read the log: {log}") from error


def run_check(ref: str, argv: Sequence[str], what: str, *, log: Path, run: Runner = run) -> None:
    """Run an image's own check in it, without network and rights; raises ``ImageError`` with its words."""
    done = docker.run_in(ref, argv, user=NOBODY, log=log, check=False, run=run)
    if done.returncode != 0:
        found = [line for line in done.stdout.splitlines() if line.startswith(f"{argv[0]}:")]
        message = "\n".join([f"{what} is not fit for use", *(f"  - {line}" for line in found)])
        raise ImageError(message, advice=f"correct the packages in matrix.yaml or the Dockerfile; log: {log}")


def describe(ref: str, *, log: Path, run: Runner = run) -> Mapping[str, Any]:
    """``ref``, ``image_id``, ``os`` and ``packages`` (name -> exact version) of a finished image."""
    info = docker.inspect_image(ref, run=run)
    if info is None:
        message = f"{ref}: the engine does not have the image that was just built"
        raise ImageError(message, advice="is another process removing images? then run again")
    query = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n"]
    lines = docker.run_in(ref, query, user=NOBODY, log=log, run=run).stdout.splitlines()
    release = docker.run_in(ref, ["cat", "/etc/os-release"], user=NOBODY, log=log, run=run).stdout
    return {
        "ref": ref,
        "image_id": info.id,
        "os": os_name(release),
        "packages": dict(line.split() for line in lines),
    }


def os_name(release: str) -> str:
    """PRETTY_NAME of an os-release file."""
    lines = (line.partition("=") for line in release.splitlines())
    return next((value.strip('"') for name, _, value in lines if name == "PRETTY_NAME"), "unknown")


def link_tree(source: Path, into: Path) -> None:
    """Copy a folder, by hard links where the file system allows it."""
    shutil.copytree(source, into, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _in_engine(artifact: Artifact, run: Runner) -> bool:
    info = docker.inspect_image(artifact.facts["ref"], run=run)
    return info is not None and info.id == artifact.facts["image_id"]
