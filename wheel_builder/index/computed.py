"""Contradictions between an index and its wheels: every computable value of a record is computed again."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from wheel_builder.audit.stage import open_subject, open_windows
from wheel_builder.base.errors import ProvenanceError, WheelFileError
from wheel_builder.base.words import visible
from wheel_builder.files.device.library import for_windows
from wheel_builder.files.wheels.sidecars import ATTACHMENTS, RECORD_SUFFIX
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_wheel
from wheel_builder.index.folder import NewFile, beside, time_text
from wheel_builder.index.incoming import described, misplaced
from wheel_builder.index.simple.pages import Entry
from wheel_builder.matrix.model import PROJECT
from wheel_builder.provenance.check import statement_contradictions
from wheel_builder.provenance.provenance import parse_provenance
from wheel_builder.provenance.verification import read_verification

MOST_SHOWN = 200  # characters of a value


def contradictions(path: Path, entry: Entry, rocm: str, ours: Collection[str] | None) -> Iterator[str]:
    """Differences of the record of the published wheel ``path`` from the wheel and its files.

    Their hashes are already checked against the record. If ``ours`` names the projects of the index, others
    are faults, and each wheel needs a verification record and a statement.
    """
    record = entry.record
    if ours is not None and record.project not in ours:
        yield f"{path}: {record.project} is no project of this index, which are {', '.join(sorted(ours))}"
        return
    try:
        wheel = read_wheel(path, max_mib=MAX_READ_MIB)
        file, problems = described(wheel)
    except WheelFileError as error:
        yield from (f"{path}: {problem}" for problem in error.problems)
        return
    yield from (f"{path}: {problem}" for problem in (*problems, *misplaced(wheel, rocm)))
    if ours is not None:
        missing = sorted(ATTACHMENTS.keys() - file.attachments.keys())
        yield from (f"{path}: no {kind} was published with it" for kind in missing)
    yield from (f"{beside(path, RECORD_SUFFIX)}: {problem}" for problem in _differences(entry, file))
    if record.project == PROJECT:
        yield from (f"{path}: {problem}" for problem in _of_device_code(wheel, file))


def _differences(entry: Entry, file: NewFile) -> Iterator[str]:
    record = entry.record
    said, computed = asdict(record), asdict(file.to_record(datetime.now(UTC)))
    for name, expected in computed.items():
        if name != "upload_time" and said[name] != expected:
            found, right = _unlike(said[name], expected)
            yield f"it says {name} {found}, but by the wheel and the files beside it this is {right}"
    yield from _time_problems("upload_time", record.upload_time)
    if entry.variants:
        yield from _time_problems("upload_time of variants", entry.variants.upload_time)


def _time_problems(name: str, text: str) -> Iterator[str]:
    """Installers can leave out files newer than a given day, so the time must be readable."""
    try:
        time = datetime.fromisoformat(text)
        plain = time_text(time) == text
    except (ValueError, TypeError):
        plain = False
    if not plain:
        yield f"its {name} {_shown(text)} is no time such as {time_text(datetime(2026, 1, 2, tzinfo=UTC))}"
    elif time > (now := datetime.now(UTC)):
        yield f"its {name} {text} is in the future; now it is {time_text(now)}"


def _of_device_code(wheel: WheelFile, file: NewFile) -> Iterator[str]:
    """Claims of record and statement about code missing in the wheel."""
    opened = open_windows if for_windows(wheel) else open_subject
    held = frozenset(device.code.arch for device in opened(wheel).devices)
    try:
        if text := file.attachments.get("verification"):
            strange = sorted(read_verification(text).archs.keys() - held)
            yield from (
                f"its verification record is about {visible(arch)}, whose code it lacks" for arch in strange
            )
        if text := file.attachments.get("provenance"):
            found = parse_provenance(text, wheel.path.name)
            yield from statement_contradictions(found, wheel, held)
    except (ValueError, ProvenanceError):
        return  # reported by ``described``


def _unlike(said: object, expected: object) -> tuple[str, str]:
    """Two unlike values in words, for mappings only the differences."""
    if isinstance(said, Mapping) and isinstance(expected, Mapping):
        names = [one for one in {**said, **expected} if said.get(one) != expected.get(one)]
        said, expected = ({one: each[one] for one in names if one in each} for each in (said, expected))
    return _shown(said), _shown(expected)


def _shown(value: object) -> str:
    text = visible(str(value or "nothing"))
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
