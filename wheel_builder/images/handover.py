"""Stages' results passed between machines, from one job of a workflow to another.

    <folder>/<stage>-<key>.tar      a result's folder, as stored
    <folder>/image-<id>.tar         the result's container image, as saved by the engine

Names identify the content, so folders of several jobs can be merged, and a folder can be cached.
A taken result counts as done: the stage finds it in the store.
"""

import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from wheel_builder.base.errors import StoreError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store
from wheel_builder.images import docker

IMAGE_PREFIX = "image-sha256-"
AGAIN = "download the artefacts of the job again, or let this job make the results itself"


def give(
    results: Iterable[Artifact], folder: Path, *, taken: Sequence[Path] = (), log: Path, run: Runner = run
) -> list[Path]:
    """Put ``results``, and the images that they name, into ``folder``. Returns the new files.

    Skips results in ``folder`` or in one of the folders ``taken``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    added: list[Path] = []
    for result in results:
        name = f"{result.manifest['stage']}-{result.key}.tar"
        if not _have(name, [folder, *taken]):
            added.append(_pack(result, folder / name))
        if (image := str(result.facts.get("image_id", ""))) and "ref" in result.facts:
            name = f"image-{image.replace(':', '-')}.tar"
            if not _have(name, [folder, *taken]):
                docker.save(str(result.facts["ref"]), folder / name, log=log, run=run)
                added.append(folder / name)
    return added


def take(folder: Path, store: Store, *, log: Path, run: Runner = run) -> list[str]:
    """Put the files of ``give`` in ``folder`` into the store and the engine. Returns their names.

    An empty or missing folder is fine. Raises ``StoreError`` for any other kind of file.
    """
    files = sorted(folder.glob("*.tar"))
    for file in files:
        if file.name.startswith(IMAGE_PREFIX):
            docker.load(file, log=log, run=run)
        else:
            _unpack(file, store)
    return [file.name for file in files]


def holds_images(folders: Iterable[Path]) -> bool:
    """Whether taking these folders needs a container engine."""
    return any(True for folder in folders for _ in folder.glob(f"{IMAGE_PREFIX}*.tar"))


def _have(name: str, folders: Iterable[Path]) -> bool:
    return any((folder / name).is_file() for folder in folders)


def _pack(result: Artifact, file: Path) -> Path:
    aside = file.with_name(f".{file.name}")
    with tarfile.open(aside, "w") as archive:
        archive.add(result.path, arcname=result.key)
    return aside.replace(file)


def _unpack(file: Path, store: Store) -> None:
    stage, _, key = file.stem.rpartition("-")
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-taken-") as aside:
        try:
            with tarfile.open(file, "r:") as archive:
                # Refuses absolute names, .., links out of the folder, and devices.
                archive.extractall(aside, filter="data")
        except (tarfile.TarError, OSError) as error:
            message = f"{file}: cannot be taken: {error}"
            raise StoreError(message, advice=AGAIN) from error
        found = sorted(path.name for path in Path(aside).iterdir())
        if found != [key]:
            message = f"{file}: expected one folder {key}, found {', '.join(found) or 'nothing'}"
            raise StoreError(message, advice=AGAIN)
        store.adopt(stage, Path(aside) / key)


def copy_wheels(results: Iterable[Path], folder: Path) -> list[Path]:
    """Copy the wheels of results' folders, with their records and statements, to ``folder``. Returns the
    wheels."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [file for result in results for file in sorted(result.glob("*.whl*"))]
    copies = [Path(shutil.copy2(file, folder)) for file in files]
    return [copy for copy in copies if copy.suffix == ".whl"]
