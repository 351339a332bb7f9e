"""Distributions of candidates in an index: each belongs to the wheel of its version that is beside it.

Candidates replace kernels of one library. So they are published with this library, and never without it.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from wheel_builder.base.errors import PublishError, WheelBuilderError
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY, device_code, for_windows, library_of
from wheel_builder.files.wheels.candidates import package_of
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, open_wheel, read_wheel
from wheel_builder.index.folder import NewFile, read_contents, simple_of
from wheel_builder.matrix.model import PROJECT, PUBLIC
from wheel_builder.matrix.tuned.candidates import FILE, Candidates, distributions, parse_candidates
from wheel_builder.provenance.reported_wheel import row_ids

TITLE = "candidates belong to one wheel; nothing was published"
ADVICE = (
    "publish them with their wheel, or after it; make them for a published one: "
    "scripts/wheel-builder tuning-wheel --arch A --wheel WHEEL"
)


@dataclass(frozen=True)
class Owner:
    """A wheel that candidates may belong to: the digest of its library, and the archs of its code."""

    wheel: WheelFile
    library: str
    archs: frozenset[str]


def refuse_strangers(root: Path, files: Sequence[NewFile], without: Collection[str] = ()) -> None:
    """Raise ``PublishError`` for candidates whose wheel is neither in ``files`` nor in the index.

    Also for published ones that a wheel of ``files`` contradicts. ``without`` names files of the index that
    ``files`` replace.
    """
    listed = {file.filename: _candidates(_opened(file)) for file in files if file.project in distributions()}
    for wheel, found in _published_candidates(root, _versions(files)):
        if found and wheel.path.name not in (*listed, *without):
            listed[wheel.path.name] = found
    versions = {each.wheel.version for each in listed.values()}
    owners = _owners_with(root, files, versions, without) if versions else []
    problems = [
        f"{name}: {problem}" for name, each in listed.items() for problem in problems_of(each, owners)
    ]
    if problems:
        raise PublishError(TITLE, problems, advice=ADVICE)


def strangers(root: Path, files: Sequence[NewFile], without: Collection[str]) -> frozenset[str]:
    """The candidates of a local index that do not belong to the wheels there with ``files``."""
    every = {
        wheel.path.name: found
        for wheel, found in _published_candidates(root, _versions(files))
        if wheel.path.name not in without
    }
    versions = {each.wheel.version for each in every.values() if each}
    owners = _owners_with(root, files, versions, without) if versions else []
    return frozenset(name for name, each in every.items() if each is None or any(problems_of(each, owners)))


def newest_wheels(root: Path) -> tuple[Path, ...]:
    """The wheels of the newest public version for all systems. Raises ``PublishError`` without any."""
    entries = read_contents(root).get(PUBLIC, {}).get(PROJECT, ())
    good = [entry.record for entry in entries if entry.yanked is None]
    if not good:
        title = f"{root} has no public wheel of {PROJECT}"
        raise PublishError(title, ["expected one that is not yanked"], advice="publish one, or name its file")
    newest = max(Version(record.version) for record in good)
    folder = simple_of(root, PUBLIC) / PROJECT
    return tuple(folder / each.filename for each in good if Version(each.version) == newest)


def _versions(files: Sequence[NewFile]) -> frozenset[str]:
    return frozenset(file.version for file in files if file.project == PROJECT)


def _owners_with(
    root: Path, files: Sequence[NewFile], versions: Collection[str], without: Collection[str]
) -> list[Owner]:
    """The owners of these versions in ``files``, and in the index without those that go."""
    own = (file for file in files if file.project == PROJECT and file.version in versions)
    found = [*_owners_of(map(_opened, own))]
    known = {owner.wheel.path.name for owner in found}
    return [*found, *_owners_of(_published(root, versions, {*known, *without}))]


def faults(root: Path) -> Iterator[str]:
    """Published candidates that do not belong to their wheel, in words."""
    every = [(wheel.path, found) for wheel, found in _published_candidates(root) if found]
    for version in dict.fromkeys(listed.wheel.version for _, listed in every):
        owners = [*_owners_of(_published(root, {version}, (), yanked=True))]
        for path, listed in every:
            if listed.wheel.version == version:
                yield from (f"{path}: {problem}" for problem in problems_of(listed, owners))


def problems_of(listed: Candidates, owners: Iterable[Owner]) -> Iterator[str]:
    """Why candidates belong to none of their version's wheels, or contradict one of them."""
    of = [owner for owner in owners if str(owner.wheel.version) == listed.wheel.version]
    mine = [owner for owner in of if owner.library in listed.wheel.libraries]
    if not of:
        yield f"they are for {PROJECT} {listed.wheel.version}, which is neither named nor in the index"
    for owner in of:
        if owner not in mine and listed.arch in owner.archs:
            expected = " or ".join(listed.wheel.libraries)
            said = f"its library has sha256 {owner.library}, they are for {expected}"
            yield f"they do not belong to {owner.wheel.path.name}: {said}"
    for owner in mine:
        yield from (f"{owner.wheel.path.name} {problem}" for problem in _row_problems(listed, owner))


def _row_problems(listed: Candidates, owner: Owner) -> Iterator[str]:
    if listed.arch not in owner.archs:
        yield f"has no code for {listed.arch}"
        return
    ids = row_ids(owner.wheel, listed.arch)
    for name, kernel in sorted(listed.kernels.items()):
        if kernel.shipped not in ids.get(name, ()):
            rows = ", ".join(ids.get(name, ())) or "none"
            yield f"has the rows {rows} of {name}; they are compared with {kernel.shipped}"


def _owners_of(wheels: Iterable[WheelFile]) -> Iterator[Owner]:
    for wheel in wheels:
        try:
            library = library_of(wheel, WINDOWS_LIBRARY if for_windows(wheel) else LIBRARY)
            archs = frozenset(code.gfx for code in device_code(wheel))
        except WheelBuilderError:
            continue  # no wheel of ours
        yield Owner(wheel, hashlib.sha256(library).hexdigest(), archs)


def _published(
    root: Path, versions: Collection[str], without: Collection[str], *, yanked: bool = False
) -> Iterator[WheelFile]:
    """This project's published wheels of these versions."""
    for path, version, mark in _entries(root, PROJECT):
        if version in versions and path.name not in without and (yanked or mark is None):
            yield from _readable(path)


def _published_candidates(
    root: Path, versions: Collection[str] | None = None
) -> Iterator[tuple[WheelFile, Candidates | None]]:
    """Those of these versions. None: no list. The audit says why."""
    for name in distributions():
        for path, version, _ in _entries(root, name):
            for wheel in _readable(path) if versions is None or version in versions else ():
                try:
                    yield wheel, _candidates(wheel)
                except ValueError:
                    yield wheel, None


def _readable(path: Path) -> Iterator[WheelFile]:
    """A published wheel, unless it is damaged: ``index verify`` reports it."""
    with suppress(WheelBuilderError):
        yield read_wheel(path, max_mib=MAX_READ_MIB)


def _entries(root: Path, project: str) -> Iterator[tuple[Path, str, str | None]]:
    """Path, version and reason of withdrawal of a project's published files."""
    for home, projects in read_contents(root).items():
        for entry in projects.get(project, ()):
            path = simple_of(root, home) / project / entry.record.filename
            yield path, entry.record.version, entry.yanked


def _opened(file: NewFile) -> WheelFile:
    return open_wheel(Path(file.filename), file.data, max_mib=MAX_READ_MIB)


def _candidates(wheel: WheelFile) -> Candidates:
    """Raises ``ValueError``."""
    return parse_candidates(wheel.files.get(f"{package_of(distributions()[wheel.name])}/{FILE}", b""))
