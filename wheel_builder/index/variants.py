"""Variants of the index's wheels (PEP 825): making them at publishing, and checking them later.

An installer that supports variants takes the one for the machine's GPU, or else the fallback ``null``. Every
other installer ignores these names and takes the wheel itself. A variant follows only from its wheel and the
GPUs in the wheel's record. It is published, yanked and withdrawn with its wheel.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

from wheel_builder.base.errors import PublishError, WheelFileError
from wheel_builder.build.shim import NAMES as SHIM_NAMES
from wheel_builder.files.wheels.variant import (
    FILE,
    make_variant,
    value_problems,
    variant_name,
    variant_problems,
    variants_text,
)
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, open_wheel, read_wheel
from wheel_builder.index.folder import NewFile, sha256
from wheel_builder.index.offers import Contents, variants_of
from wheel_builder.index.simple.pages import Entry, Record
from wheel_builder.matrix.tuned.candidates import distributions

TITLE = "no variants can be made of these wheels; nothing was published"
ADVICE = "publish them without --variants, or follow each line and publish again"


def with_variants(
    files: Mapping[str, Iterable[NewFile]], contents: Contents, replaced: Collection[str]
) -> Mapping[str, tuple[NewFile, ...]]:
    """``files``, by ROCm version, with the variants of those with kernels.

    ``contents`` is the index so far, ``replaced`` are the names of files that will leave it. Raises
    ``PublishError`` for a wheel whose record names no GPUs or unusable ones, for two wheels of a version that
    give one label to different GPUs, and for variants already published in another form.
    """
    known = {entry.record.filename: entry for entry in _entries(contents, replaced)}
    problems: list[str] = []
    found = {
        rocm: tuple(_made(file, known.get(file.filename), problems) for file in group)
        for rocm, group in files.items()
    }
    new = (file.to_record(datetime.now(UTC)) for group in found.values() for file in group if file.variants)
    published = [entry.record for entry in known.values() if entry.variants]
    problems += conflicts({record.filename: record for record in (*new, *published)}.values())
    if problems:
        raise PublishError(TITLE, problems, advice=ADVICE)
    return found


def conflicts(records: Iterable[Record]) -> list[str]:
    """Wheels of one version that give one label to different GPUs, which PEP 825 forbids."""
    return [
        f"{one.filename} and {other.filename} would have the label {label} for different GPUs, of one version"
        for one, other in combinations(sorted(records, key=lambda record: record.filename), 2)
        if (one.project, one.version) == (other.project, other.version)
        for label in variants_of(one).keys() & variants_of(other).keys()
        if variants_of(one)[label] != variants_of(other)[label]
    ]


def faults(path: Path, entry: Entry) -> Iterator[str]:
    """Differences of the published variants of the wheel ``path`` from new ones.

    Files whose content differs from the index's hash are skipped here.
    """
    try:
        wheel = read_wheel(path, max_mib=MAX_READ_MIB)
    except WheelFileError:
        return
    if entry.variants is None or wheel.sha256 != entry.record.sha256:
        return
    for label, gpus in variants_of(entry.record).items():
        variant = path.with_name(variant_name(path.name, label))
        data = variant.read_bytes() if variant.is_file() else b""
        if sha256(data) == entry.variants.wheels[label].sha256:
            problems = variant_problems(wheel, data, variants_text({label: gpus}))
            yield from (f"{variant}: it is not {path.name} with {FILE}: {problem}" for problem in problems)


def _made(file: NewFile, published: Entry | None, problems: list[str]) -> NewFile:
    if file.project in SHIM_NAMES or file.project in distributions():
        return file  # no library: they need the wheel of a GPU's variant
    record = published.record if published else file.to_record(datetime.now(UTC))
    wheel = open_wheel(Path(file.filename), file.data, max_mib=MAX_READ_MIB)
    mine = list(value_problems(sorted(record.verified)))
    if f"{wheel.dist_info}/{FILE}" in wheel.files:
        mine.append(f"it has {FILE} already")
    if mine:
        problems += [f"{file.filename}: {problem}" for problem in mine]
        return file
    texts = {label: variants_text({label: gpus}) for label, gpus in variants_of(record).items()}
    made = {label: make_variant(wheel, text) for label, text in texts.items()}
    for label, data in made.items():
        name = variant_name(file.filename, label)
        problems += [f"{name}: {problem}" for problem in variant_problems(wheel, data, texts[label])]
        if published and published.variants and published.variants.wheels[label].sha256 != sha256(data):
            said = published.variants.wheels[label].sha256
            problems.append(f"{name} is published with sha256 {said}, but would have {sha256(data)} now")
    return replace(file, verified=record.verified, variants=made)


def _entries(contents: Contents, without: Collection[str]) -> Iterator[Entry]:
    for projects in contents.values():
        for entries in projects.values():
            yield from (entry for entry in entries if entry.record.filename not in without)
