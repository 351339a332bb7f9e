"""Publish finished wheels: to the static index, or to any upload server through twine."""

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from packaging.version import Version

from wheel_builder.base.durable import remove_parts
from wheel_builder.base.errors import CommandFailedError, PublishError, WheelFileError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.words import listed
from wheel_builder.build.shim import FOLDERS
from wheel_builder.build.shim import NAMES as SHIM_NAMES
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, read_wheel
from wheel_builder.index import folder, local, mates, owners
from wheel_builder.index.entries import HOME
from wheel_builder.index.folder import NewFile
from wheel_builder.index.incoming import described, misplaced
from wheel_builder.index.variants import with_variants
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.model import wheel_words

NEW_VERSION = (
    f"raise the version in pyproject.toml, or the build number in that of {listed(FOLDERS, 'or')}, and build "
    "again"
)
ONE_VERSION = (
    "build all platforms' wheels of a version from one commit, or raise the version in pyproject.toml"
)
YANK = "yank each of them (scripts/wheel-builder yank FILE --rocm V --reason TEXT), then publish again"


@dataclass(frozen=True)
class Published:
    """``simple`` is the folder for ``--index-url``. The others are file names.

    ``replaced`` are files of ``added`` that a local index had with different content.
    """

    simple: Path
    added: tuple[str, ...]
    unchanged: tuple[str, ...]
    replaced: tuple[str, ...] = ()


def publish(
    wheels: Sequence[Path],
    index_root: Path,
    rocm: str,
    *,
    catalogue: Catalogue,
    now: datetime,
    to_others: bool = True,
    variants: bool = False,
) -> Published:
    """``publish_all`` for wheels of one ROCm version."""
    published = publish_all(
        {rocm: wheels}, index_root, catalogue=catalogue, now=now, to_others=to_others, variants=variants
    )
    return published[rocm]


def publish_all(
    wheels: Mapping[str, Sequence[Path]],
    index_root: Path,
    *,
    catalogue: Catalogue,
    now: datetime,
    to_others: bool = True,
    variants: bool = False,
) -> Mapping[str, Published]:
    """Add ``wheels``, by ROCm version, to their indexes below ``index_root``. ``now`` is their upload
    time.

    The verification record and the provenance statement of a wheel are published with it. With ``variants``,
    its variants for installers that choose by GPU are published too, also for wheels already there. A file
    with equal content stays. Raises ``PublishError``: before any change if a name has other content or a
    wheel cannot be listed, later if the disk fails.

    With ``to_others`` false the index is local (``local.py``): new content replaces earlier content of the
    same name. A public index is refused then, and a local one otherwise.
    """
    files = _read_all(wheels)
    every = [file for group in files.values() for file in group]
    with folder.changing(index_root):
        if to_others:
            local.refuse_local(index_root)
        else:
            local.begin(index_root)
        replaced = frozenset() if to_others else local.replaced(index_root, every)
        new = [mates.of_file(file) for file in every]
        kept = [one for one in mates.in_index(index_root, new) if one.filename not in replaced]
        unlike = mates.conflicts(new, kept)
        if not to_others:  # older wheels of other platforms go, too, and the candidates of what goes
            replaced, unlike = replaced | unlike.keys(), {}
            replaced |= owners.strangers(index_root, every, replaced)
        _refuse_conflicts({**unlike, **mates.conflicts(new, new)})
        _refuse_other_content(index_root, [file for file in every if file.filename not in replaced])
        _refuse_what_installers_pass_over(index_root, every)
        owners.refuse_strangers(index_root, every, replaced)
        if variants:
            files = with_variants(files, folder.read_contents(index_root), replaced)
        remove_parts(index_root)
        local.withdraw(index_root, replaced, catalogue)
        published = {rocm: _add(group, index_root, rocm, now, replaced) for rocm, group in files.items()}
        folder.write_pages(index_root, catalogue)
    return published


def _add(
    files: Sequence[NewFile], index_root: Path, rocm: str, now: datetime, replaced: Collection[str]
) -> Published:
    simple = folder.simple_of(index_root, rocm)
    added = {file.filename: folder.add_file(simple, file, now) for file in files}
    return Published(
        simple,
        tuple(name for name, new in added.items() if new),
        tuple(name for name, new in added.items() if not new),
        tuple(name for name in added if name in replaced),
    )


def upload(wheels: Sequence[Path], repository_url: str, *, log: Path, run: Runner = run) -> None:
    """Check all ``wheels`` with twine, then upload all to ``repository_url``. The output of twine goes to
    ``log``.

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
    # Only --verbose shows the server's message, which tells a duplicate from other refusals.
    options = ["--verbose", "--non-interactive", "--disable-progress-bar", "--repository-url", repository_url]
    try:
        run([*twine, "upload", *options, *wheels], log=log)
    except CommandFailedError as error:
        raise _upload_error(error, repository_url) from error


def _read_all(wheels: Mapping[str, Sequence[Path]]) -> Mapping[str, tuple[NewFile, ...]]:
    known: dict[str, NewFile] = {}
    files: dict[str, dict[str, NewFile]] = {rocm: {} for rocm in wheels}
    problems = [
        f"{rocm!r} is no ROCm version, expected one such as 7.2"
        for rocm in wheels
        if not HOME.fullmatch(rocm)
    ]
    for rocm, path in [(rocm, path) for rocm, paths in wheels.items() for path in paths]:
        try:
            wheel = read_wheel(path, max_mib=MAX_READ_MIB)
            file, found = described(wheel)
        except WheelFileError as error:
            problems += [f"{path.name}: {problem}" for problem in error.problems]
            continue
        problems += [f"{path.name}: {problem}" for problem in (*found, *misplaced(wheel, rocm))]
        files[rocm][file.filename] = file
        if known.setdefault(file.filename, file) != file:
            problems.append(f"{path.name}: given twice, with different content")
    if problems:
        title = f"nothing was published to the index of {', '.join(map(wheel_words, wheels))}"
        raise PublishError(title, problems, advice="publish wheels that passed the audit")
    return {rocm: tuple(group.values()) for rocm, group in files.items()}


def _refuse_other_content(root: Path, files: Sequence[NewFile]) -> None:
    # Over all ROCm versions: the root offers every file under its one name.
    contents = folder.read_contents(root)
    known = {
        entry.record.filename: entry.record
        for projects in contents.values()
        for entries in projects.values()
        for entry in entries
    }
    yanked = {
        entry.record.filename: entry.yanked
        for projects in contents.values()
        for entries in projects.values()
        for entry in entries
        if entry.yanked is not None
    }
    if again := [f"{f.filename} is yanked: {yanked[f.filename]}" for f in files if f.filename in yanked]:
        title = "a yanked file is not published again; nothing was published"
        raise PublishError(title, again, advice=NEW_VERSION)
    problems = [
        f"{file.filename} is published since {record.upload_time} with sha256 {record.sha256}; "
        f"the new file has {file.sha256}"
        for file in files
        if (record := known.get(file.filename)) and record.sha256 != file.sha256
    ]
    if problems:
        title = "a published file never changes; nothing was published"
        raise PublishError(title, problems, advice=NEW_VERSION)


def _refuse_conflicts(unlike: Mapping[str, Sequence[str]]) -> None:
    if problems := list(dict.fromkeys(problem for why in unlike.values() for problem in why)):
        title = "the wheels of one version have to be of the same sources; nothing was published"
        raise PublishError(title, problems, advice=ONE_VERSION)


def _refuse_what_installers_pass_over(root: Path, files: Sequence[NewFile]) -> None:
    # Among equal public versions, installers rank a local label above none.
    new = {(file.project, file.version) for file in files if file.project in SHIM_NAMES}
    above = [
        f"the index of {wheel_words(rocm)} offers {entry.record.filename}, which installers take instead"
        for rocm, projects in folder.read_contents(root).items()
        for project, entries in projects.items()
        for entry in entries
        if entry.yanked is None and _is_labelled(project, Version(entry.record.version), new)
    ]
    if above:
        names = " or ".join(sorted({name for name, _ in new}))
        title = f"installers would never choose this {names}; nothing was published"
        raise PublishError(title, above, advice=YANK)


def _is_labelled(project: str, version: Version, public: Collection[tuple[str, str]]) -> bool:
    return version.local is not None and (project, version.public) in public


def _refuse_credentials(url: str) -> None:
    parts = urlsplit(url)
    if parts.username or parts.password:
        problem = f"the URL of {parts.hostname} holds credentials, which commands and logs would show"
        advice = "take them out of the URL; set TWINE_USERNAME and TWINE_PASSWORD instead"
        title = "nothing was uploaded"
        raise PublishError(title, [problem], advice=advice)


def _upload_error(error: CommandFailedError, url: str) -> PublishError:
    # twine wraps its lines at the terminal's width.
    output = re.sub(r"[\s|]+", " ", error.message)
    if "409 Conflict" in output or "already exists" in output:
        title = f"{url} already has one of these files; a published file never changes"
        advice = "raise the version in pyproject.toml and build again, or omit published files"
    elif "401 Unauthorized" in output or "403 Forbidden" in output:
        title = f"{url} does not accept the credentials"
        advice = "set TWINE_USERNAME and TWINE_PASSWORD"
    else:
        title = f"twine could not upload to {url}"
        advice = "the lines above are twine's; files before the failing one may be there already"
    return PublishError(title, [error.message], advice=advice)
