"""Put finished wheels where users get them: the static index, or any upload server through twine."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from wheel_builder import index
from wheel_builder.errors import CommandFailedError, PublishError, WheelFileError
from wheel_builder.index import NewFile
from wheel_builder.process import Runner, run
from wheel_builder.wheelfile import WheelFile, read_metadata, read_wheel

# The audit holds the budget; this only bounds what is read into memory.
MAX_READ_MIB = 64.0


@dataclass(frozen=True)
class Published:
    """``simple`` is the folder that ``--index-url`` names; ``added`` and ``unchanged`` are file names."""

    simple: Path
    added: tuple[str, ...]
    unchanged: tuple[str, ...]


def publish(wheels: Sequence[Path], index_root: Path, rocm: str, *, now: datetime) -> Published:
    """Add ``wheels`` to the index of ROCm ``rocm`` below ``index_root``; ``now`` is their upload time.

    A file that is there with the same content stays as it is.  Raises ``PublishError``, before
    anything is changed, when a name is taken by another content or a wheel is not fit to be listed.
    """
    files = _read_all(wheels, rocm)
    folder = index.folder_of(index_root, rocm)
    simple = folder / "simple"
    with index.locked(folder):
        _refuse_other_content(simple, files)
        simple.mkdir(parents=True, exist_ok=True)
        index.remove_parts(simple)
        added = {file.filename for file in files if index.add_file(simple, file, now)}
        index.write_pages(simple)
    names = [file.filename for file in files]
    return Published(simple, tuple(n for n in names if n in added), tuple(n for n in names if n not in added))


def upload(wheels: Sequence[Path], repository_url: str, *, log: Path, run: Runner = run) -> None:
    """Check all ``wheels`` with twine, then upload all to ``repository_url``; all twine says goes to ``log``.

    Credentials come from twine's own places: TWINE_USERNAME and TWINE_PASSWORD, a keyring, .pypirc.
    Raises ``PublishError``.
    """
    _refuse_credentials(repository_url)
    twine = [sys.executable, "-m", "twine"]
    try:
        run([*twine, "check", "--strict", *wheels], log=log)
    except CommandFailedError as error:
        title = "twine check refuses the wheels; nothing was uploaded"
        raise PublishError(title, [error.message], advice="put METADATA and the readme right") from error
    # Only --verbose shows the server's words, which tell a duplicate from other refusals.
    options = ["--verbose", "--non-interactive", "--disable-progress-bar", "--repository-url", repository_url]
    try:
        run([*twine, "upload", *options, *wheels], log=log)
    except CommandFailedError as error:
        raise _upload_error(error, repository_url) from error


def _read_all(wheels: Sequence[Path], rocm: str) -> tuple[NewFile, ...]:
    files: dict[str, NewFile] = {}
    problems = []
    for path in wheels:
        try:
            wheel = read_wheel(path, max_mib=MAX_READ_MIB)
            file = _new_file(wheel)
        except WheelFileError as error:
            problems += [f"{path.name}: {problem}" for problem in error.problems]
            continue
        problems += _misplaced(wheel, rocm)
        if files.setdefault(file.filename, file) != file:
            problems.append(f"{path.name}: given twice, with different content")
    if problems:
        title = f"nothing was published to the index of ROCm {rocm}"
        raise PublishError(title, problems, advice="publish wheels that the audit let pass")
    return tuple(files.values())


def _new_file(wheel: WheelFile) -> NewFile:
    metadata = read_metadata(wheel)
    if (canonicalize_name(metadata.name), metadata.version) != (wheel.name, wheel.version):
        problem = f"METADATA is about {metadata.name} {metadata.version}"
        raise WheelFileError(wheel.path.name, [problem], advice="build the wheel again")
    return NewFile(
        filename=wheel.path.name,
        project=wheel.name,
        version=str(wheel.version),
        requires_python=str(metadata.requires_python or ""),
        data=wheel.data,
        metadata=wheel.metadata_bytes,
    )


def _misplaced(wheel: WheelFile, rocm: str) -> list[str]:
    label = wheel.version.local or ""
    if not label.startswith("rocm") or label == f"rocm{rocm}":
        return []
    return [f"{wheel.path.name}: it is for {label}, but this is the index of rocm{rocm}"]


def _refuse_other_content(simple: Path, files: Sequence[NewFile]) -> None:
    projects = index.read_projects(simple)
    known = {e.record.filename: e.record for entries in projects.values() for e in entries}
    problems = [
        f"{file.filename} is published since {record.upload_time} with sha256 {record.sha256}; "
        f"the new file has {file.sha256}"
        for file in files
        if (record := known.get(file.filename)) and record.sha256 != file.sha256
    ]
    if problems:
        title = "a published file never changes; nothing was published"
        raise PublishError(title, problems, advice="raise the version in pyproject.toml and build again")


def _refuse_credentials(url: str) -> None:
    parts = urlsplit(url)
    if parts.username or parts.password:
        problem = f"the URL of {parts.hostname} holds credentials, which commands and logs would show"
        advice = "take them out of the URL; set TWINE_USERNAME and TWINE_PASSWORD instead"
        title = "nothing was uploaded"
        raise PublishError(title, [problem], advice=advice)


def _upload_error(error: CommandFailedError, url: str) -> PublishError:
    # twine breaks its lines at the terminal's width.
    output = re.sub(r"[\s|]+", " ", error.message)
    if "409 Conflict" in output or "already exists" in output:
        title = f"{url} already has one of these files; a published file never changes"
        advice = "raise the version in pyproject.toml and build again, or leave out what is there"
    elif "401 Unauthorized" in output or "403 Forbidden" in output:
        title = f"{url} does not accept the credentials"
        advice = "set TWINE_USERNAME and TWINE_PASSWORD"
    else:
        title = f"twine could not upload to {url}"
        advice = "the lines above are twine's; files before the failing one may be there already"
    return PublishError(title, [error.message], advice=advice)
