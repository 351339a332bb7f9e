"""Results of stages, stored by the content of their inputs.

A stage's result is a folder ``<root>/<stage>/<key>`` with its files and ``manifest.json``. It is written
under a temporary name, then renamed. So a folder under its final name is complete, and an interrupted run
leaves only temporary folders.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import StoreError

MANIFEST = "manifest.json"
KEY_LENGTH = 16


@dataclass(frozen=True)
class Artifact:
    """A stage's stored result: its folder ``path``, and ``manifest``, the content of ``manifest.json``.

    ``manifest`` has ``stage``, ``key``, ``inputs``, ``files`` (name -> sha256) and ``facts`` (found by the
    stage: tool versions, times, sizes). ``reused`` is true when it was stored before this call.
    """

    path: Path
    manifest: Mapping[str, Any]
    reused: bool

    @property
    def key(self) -> str:
        return str(self.manifest["key"])

    @property
    def facts(self) -> Mapping[str, Any]:
        facts: Mapping[str, Any] = self.manifest["facts"]
        return facts


class Store:
    """All results of one checkout, under ``root`` (``build/`` by default).

    ``used`` collects every requested result.
    """

    def __init__(self, root: Path, used: list[Artifact] | None = None) -> None:
        self.root = root
        self.used = [] if used is None else used

    def find(self, stage: str, inputs: Mapping[str, Any]) -> Artifact | None:
        """The stored result for these inputs, or None."""
        path = self._folder(stage, inputs)
        if not (path / MANIFEST).is_file():
            return None
        return Artifact(path, _read_manifest(path), reused=True)

    def get_or_make(
        self,
        stage: str,
        inputs: Mapping[str, Any],
        make: Callable[[Path], Mapping[str, Any]],
    ) -> Artifact:
        """The stored result for these JSON-able inputs, made by ``make`` when missing.

        ``make`` fills the given empty folder and returns the facts for the manifest. Two processes with the
        same inputs wait for each other.
        """
        path = self._folder(stage, inputs)
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            result = self.find(stage, inputs) or self._make(path, stage, inputs, make)
        self.used.append(result)
        return result

    def adopt(self, stage: str, folder: Path) -> None:
        """Move in a result from another machine's store, unless this one has it.

        Raises ``StoreError`` when its files differ from its manifest, or when it belongs to another stage.
        """
        try:
            manifest = _read_manifest(folder)
            expected = key_of({"stage": stage, "inputs": manifest["inputs"]})
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            message = f"{folder.name}: no result of stage {stage}: {error}"
            raise StoreError(message, advice="give it again from where it was made") from error
        if folder.name != expected or manifest["key"] != expected:
            message = f"{folder.name}: no result of stage {stage}, whose name would be {expected}"
            raise StoreError(message, advice="give it again from where it was made")
        path = self.root / stage / expected
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            if not (path / MANIFEST).is_file():
                aside = path.with_name(f".{path.name}-taken")
                shutil.rmtree(aside, ignore_errors=True)
                shutil.copytree(folder, aside)
                aside.rename(path)

    def _make(
        self,
        path: Path,
        stage: str,
        inputs: Mapping[str, Any],
        make: Callable[[Path], Mapping[str, Any]],
    ) -> Artifact:
        for stale in path.parent.glob(f".{path.name}-*"):
            shutil.rmtree(stale)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        aside.chmod(0o755)
        try:
            facts = make(aside)
            manifest = {
                "stage": stage,
                "key": path.name,
                "inputs": inputs,
                "files": {name: sha256_file(aside / name) for name in _file_names(aside)},
                "facts": facts,
            }
            text = json.dumps(manifest, indent=2, sort_keys=True)
            (aside / MANIFEST).write_text(text + "\n", encoding="utf-8")
            aside.rename(path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return Artifact(path, json.loads(text), reused=False)

    def _folder(self, stage: str, inputs: Mapping[str, Any]) -> Path:
        return self.root / stage / key_of({"stage": stage, "inputs": inputs})


def key_of(value: Mapping[str, Any], *, length: int = KEY_LENGTH) -> str:
    """A short name for a JSON-able value. Equal values have equal names. ``length`` 64 is a whole sha256."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def sha256_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_tree(root: Path, paths: Iterable[Path]) -> str:
    """One digest over files and folders below ``root``: names, contents and run bits."""
    digest = hashlib.sha256()
    for file in sorted({f for path in paths for f in walk_files(path)}):
        mode = "x" if os.access(file, os.X_OK) else "-"
        name = file.relative_to(root).as_posix()
        digest.update(f"{name}\0{mode}\0{sha256_file(file)}\n".encode())
    return digest.hexdigest()


def walk_files(path: Path) -> Iterator[Path]:
    """A file, or a folder's files, Python's caches excluded. Raises ``StoreError`` for a missing path."""
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from (f for f in path.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    else:
        message = f"{path}: not there, but it is an input of a stage"
        raise StoreError(message, advice="restore it: git status shows what is missing")


def _file_names(folder: Path) -> list[str]:
    return sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file())


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    broken = [
        name
        for name, digest in manifest["files"].items()
        if not (path / name).is_file() or sha256_file(path / name) != digest
    ]
    if broken:
        message = f"{path}: {', '.join(broken)} differ from what the manifest recorded"
        raise StoreError(message, advice=f"remove the folder and run again: rm -r {path}")
    return manifest


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file ``path``, whose folder exists."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
