"""What the page says: for each GPU and ROCm version its wheel and what was verified, or why there is none."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from packaging.version import Version

from wheel_builder.index.pages import Entry
from wheel_builder.matrix.catalogue import Catalogue, Gpu
from wheel_builder.matrix.model import PROJECT

SCHEMA = 1


@dataclass(frozen=True)
class Wheel:
    """A published wheel; ``rocm`` is what it was built with, ``serves`` under which runtimes it is offered.

    ``url`` and the values of ``attachments`` are relative to the page.  ``yanked`` is None unless withdrawn.
    """

    filename: str
    project: str
    version: str
    rocm: str
    serves: tuple[str, ...]
    url: str
    size: int
    sha256: str
    upload_time: str
    yanked: str | None
    verified: Mapping[str, str]
    attachments: Mapping[str, str]

    @classmethod
    def of(cls, entry: Entry, rocm: str, suffixes: Mapping[str, str]) -> "Wheel":
        """From an entry whose ``folder`` is relative to the page."""
        record = entry.record
        return cls(
            filename=record.filename,
            project=record.project,
            version=record.version,
            rocm=rocm,
            serves=tuple(dict.fromkeys((rocm, *record.serves))),
            url=entry.url,
            size=record.size,
            sha256=record.sha256,
            upload_time=record.upload_time,
            yanked=entry.yanked,
            verified=dict(record.verified),
            attachments={kind: entry.url + quote(suffixes[kind]) for kind in sorted(record.attachments)},
        )


@dataclass(frozen=True)
class Finder:
    """Everything that the page shows."""

    catalogue: Catalogue
    wheels: tuple[Wheel, ...]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The ROCm versions that some wheel serves, newest first."""
        found = {rocm for wheel in self.wheels if wheel.yanked is None for rocm in wheel.serves}
        return tuple(sorted(found, key=Version, reverse=True))

    @property
    def unserved_rocm(self) -> tuple[tuple[str, str], ...]:
        """The ROCm versions that no wheel serves, and why."""
        missing = self.catalogue.missing_rocm
        return tuple((each.version, each.reason) for each in missing if each.version not in self.runtimes)


@dataclass(frozen=True)
class Answer:
    """One row: with a ``wheel``, ``text`` says what was shown of it; without one, why there is none.

    ``rocm`` is empty where the answer is the same for every ROCm version.
    """

    gpu: Gpu
    rocm: str
    wheel: Wheel | None
    text: str


def make_finder(catalogue: Catalogue, wheels: Iterable[Wheel]) -> Finder:
    """The product's wheels, oldest first; an index may hold other projects too."""
    ours = (wheel for wheel in wheels if wheel.project == PROJECT)
    return Finder(catalogue, tuple(sorted(ours, key=lambda w: (Version(w.version), w.filename))))


def answers(finder: Finder) -> tuple[Answer, ...]:
    """Every row, in the catalogue's order and newest ROCm version first."""
    return tuple(answer for gpu in finder.catalogue.gpus for answer in _of_gpu(finder, gpu))


def best_wheel(finder: Finder, rocm: str) -> Wheel | None:
    """The newest wheel for a runtime; one built with that ROCm version is preferred."""
    offered = [wheel for wheel in finder.wheels if rocm in wheel.serves and wheel.yanked is None]
    return max(offered, key=lambda w: (Version(Version(w.version).public), w.rocm == rocm), default=None)


def _of_gpu(finder: Finder, gpu: Gpu) -> Iterator[Answer]:
    if gpu.reason:
        yield Answer(gpu, "", None, gpu.reason)
    elif not finder.runtimes:
        yield Answer(gpu, "", None, "no wheel was published yet")
    else:
        yield from (_answer(finder, gpu, rocm) for rocm in finder.runtimes)


def _answer(finder: Finder, gpu: Gpu, rocm: str) -> Answer:
    wheel = best_wheel(finder, rocm)
    if wheel is None or gpu.arch not in wheel.verified:
        return Answer(
            gpu, rocm, None, f"no record says that the wheel for ROCm {rocm} was verified for {gpu.arch}"
        )
    return Answer(gpu, rocm, wheel, wheel.verified[gpu.arch])


def torch_notes(finder: Finder) -> tuple[tuple[str, bool, str], ...]:
    """The torch releases to choose from: name, whether wheels import with it, and what that rests on."""
    torch = finder.catalogue.torch
    floor, tested = Version(torch.floor), Version(torch.tested)
    ran = f"the wheel's tests were run with the CPU build of torch {tested}"
    not_run = (
        f"not run with this torch: the wheel asks only for what torch {torch.floor}'s stable ABI has, "
        "which newer releases promise to keep"
    )
    latest = f"{tested.major}.{tested.minor}"
    between = (f"{floor.major}.{minor}" for minor in range(tested.minor - 1, floor.minor - 1, -1))
    return (
        (latest, True, ran),
        *((release, True, not_run) for release in between),
        (f"newer than {latest}", True, not_run),
        (f"older than {torch.floor}", False, f"the wheel needs torch {torch.floor} or newer"),
    )
