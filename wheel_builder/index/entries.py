"""Reading an index's data about one file: its record, and the mark of a yanked file.

Both are untrusted. Text that pages cannot show is refused on writing and on reading.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from packaging.version import Version
from pydantic import TypeAdapter, ValidationError

from wheel_builder.base.errors import PublishError
from wheel_builder.base.strict_json import read_json
from wheel_builder.base.words import line_problem, visible
from wheel_builder.files.wheels.sidecars import ATTACHMENTS, RECORD_SUFFIX, VARIANTS_SUFFIX, YANK_SUFFIX
from wheel_builder.files.wheels.variant import SCHEMA, value_problems
from wheel_builder.index.offers import variants_of
from wheel_builder.index.simple.pages import Entry, Record, Variants
from wheel_builder.matrix.model import PUBLIC, VERSION

ROCM_VERSION = re.compile(VERSION)
# The name of a folder of wheels: a ROCm version or the public wheel.
HOME = re.compile(f"{PUBLIC}|{VERSION}")
# Each has pages of its own. This is more than there will be.
MOST_SERVED = 50
SHA256 = re.compile(r"[0-9a-f]{64}")
YANK_AGAIN = "remove this file, then yank the wheel once more with a reason of plain text"

T = TypeVar("T")


@dataclass(frozen=True)
class Later:
    """A further yank of the same file."""

    reason: str
    time: str


@dataclass(frozen=True)
class Mark:
    """The mark of a yanked file: reason and time (ISO 8601). ``later`` has the reasons of further yanks."""

    reason: str
    time: str
    later: tuple[Later, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        return (self.reason, *(each.reason for each in self.later))

    def to_json(self) -> dict[str, Any]:
        """JSON. An empty ``later`` is left out, so that version 0.1.0 can read it."""
        return {name: value for name, value in asdict(self).items() if value}


def with_reason(mark: Mark | None, reason: str, time: str) -> Mark:
    """``mark`` with another reason at its end, unchanged if it has the reason already."""
    if mark is None:
        return Mark(reason, time)
    return mark if reason in mark.reasons else replace(mark, later=(*mark.later, Later(reason, time)))


_RECORD = TypeAdapter(Record)
_MARK = TypeAdapter(Mark)
_VARIANTS = TypeAdapter(Variants)


def read_entry(path: Path) -> Entry:
    """The published file of a record, with its mark.

    Raises ``OSError`` or ``ValueError`` for the record. For the mark and the variants it raises
    ``PublishError`` with the remedy.
    """
    record = _strictly(_RECORD, path)
    if (record.project, f"{record.filename}{RECORD_SUFFIX}") != (path.parent.name, path.name):
        message = f"it is about {record.project}/{record.filename}"
        raise ValueError(message)
    _refuse(list(served_problems(record.serves)))
    if unknown := sorted(record.attachments.keys() - ATTACHMENTS.keys()):
        message = f"attachments has {unknown[0]!r}, expected some of {', '.join(ATTACHMENTS)}"
        raise ValueError(message)
    Version(record.version)
    _refuse(list(text_problems(record)))
    mark = path.with_name(record.filename + YANK_SUFFIX)
    variants = path.with_name(record.filename + VARIANTS_SUFFIX)
    return Entry(
        record,
        "; ".join(read_mark(mark).reasons) if mark.exists() else None,
        variants=read_variants(variants, record) if variants.exists() else None,
    )


def served_problems(serves: Sequence[str]) -> Iterator[str]:
    """Problems of the further ROCm versions that a file is offered for."""
    if len(serves) > MOST_SERVED:
        yield f"serves has {len(serves)} ROCm versions, expected at most {MOST_SERVED}"
        return
    strange = dict.fromkeys(each for each in serves if not ROCM_VERSION.fullmatch(each))
    yield from (f"serves has {each!r}, expected ROCm versions such as 7.2" for each in strange)
    yield from (f"serves has {each!r} {n} times" for each, n in Counter(serves).items() if n > 1)


def text_problems(record: Record) -> Iterator[str]:
    """Texts of a record that pages cannot show."""
    texts = {"filename": record.filename, "version": record.version, "upload_time": record.upload_time}
    texts |= {"requires_python": record.requires_python} if record.requires_python else {}
    texts |= {f"verified.{arch}": shown for arch, shown in record.verified.items()}
    texts |= {f"verified, name {n}": arch for n, arch in enumerate(record.verified, 1)}
    yield from (f"{name}: {problem}" for name, text in texts.items() if (problem := line_problem(text)))


def read_mark(path: Path) -> Mark:
    """The mark of a yanked file. Raises ``PublishError`` with the remedy."""
    try:
        mark = _strictly(_MARK, path)
        _refuse([f"reason: {problem}" for problem in map(line_problem, mark.reasons) if problem])
    except (OSError, ValueError) as error:
        title = "the mark of a yanked file cannot be read"
        raise PublishError(title, [f"{path}: {title} ({in_words(error)}); {YANK_AGAIN}"]) from error
    return mark


def read_variants(path: Path, record: Record) -> Variants:
    """The index's data about the variants of a published wheel. Raises ``PublishError``."""
    try:
        found = _strictly(_VARIANTS, path)
        _refuse(list(_variants_problems(found, record)))
    except (OSError, ValueError) as error:
        title = "what the index says of a wheel's variants cannot be read"
        raise PublishError(title, [f"{path}: {title} ({in_words(error)})"]) from error
    return found


def _variants_problems(found: Variants, record: Record) -> Iterator[str]:
    labels = variants_of(record)
    if found.schema != SCHEMA:
        yield f"schema is {visible(found.schema)}, expected {SCHEMA}"
    if problem := line_problem(found.upload_time):
        yield f"upload_time: {problem}"
    if found.wheels.keys() != labels.keys():
        said = ", ".join(map(visible, found.wheels)) or "none"
        yield f"wheels has {said}, expected {', '.join(labels)}"
    yield from value_problems(sorted(record.verified))
    for label, made in found.wheels.items():
        if not SHA256.fullmatch(made.sha256) or made.size <= 0:
            yield f"wheels.{visible(label)}: expected the sha256 and the size of a file"


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ValueError("; ".join(problems))


def _strictly(form: TypeAdapter[T], path: Path) -> T:
    data = path.read_bytes()
    read_json(data)
    return form.validate_json(data, strict=True, extra="forbid")


def in_words(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    found = (
        (".".join(map(str, one["loc"])), one["msg"])
        for one in error.errors(include_url=False, include_input=False)
    )
    return "; ".join(f"{where}: {what}" if where else what for where, what in found)
