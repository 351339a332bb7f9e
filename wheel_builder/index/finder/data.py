"""The page's content: each ROCm version with its wheel and GPUs, or the reason if it has none."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from packaging.version import Version

from wheel_builder.index.simple.pages import Entry
from wheel_builder.matrix.catalogue import Catalogue, Gpu
from wheel_builder.matrix.model import PROJECT, PUBLIC, WINDOWS, platform_of
from wheel_builder.matrix.tuned.candidates import distributions

SCHEMA = 2


@dataclass(frozen=True)
class Wheel:
    """A published wheel for the ROCm version ``rocm``, or ``PUBLIC``.

    ``built_with`` is its compiler's version. ``serves`` are all its versions. ``url`` and the values of
    ``attachments`` are relative to the page. ``yanked`` is None unless withdrawn.
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
    built_with: str
    platform: str

    @classmethod
    def of(cls, entry: Entry, rocm: str, suffixes: Mapping[str, str], built_with: str = "") -> "Wheel":
        """From an entry whose ``folder`` is relative to the page. ``built_with`` defaults to ``rocm``."""
        record = entry.record
        return cls(
            filename=record.filename,
            project=record.project,
            version=record.version,
            rocm=rocm,
            serves=tuple(dict.fromkeys((*(() if rocm == PUBLIC else (rocm,)), *record.serves))),
            url=entry.url,
            size=record.size,
            sha256=record.sha256,
            upload_time=record.upload_time,
            yanked=entry.yanked,
            verified=dict(record.verified),
            built_with=built_with or rocm,
            platform=platform_of(record.filename),
            attachments={kind: entry.url + quote(suffixes[kind]) for kind in sorted(record.attachments)},
        )


@dataclass(frozen=True)
class Finder:
    """The page's content. ``drop_ins`` are the distributions like flash-attn in the index.

    ``candidates`` are the distributions of candidates for kernels, which ``tune`` times.
    """

    catalogue: Catalogue
    wheels: tuple[Wheel, ...]
    drop_ins: tuple[str, ...] = ()
    candidates: tuple[Wheel, ...] = ()

    def candidates_of(self, wheel: Wheel) -> tuple[Wheel, ...]:
        """Those that belong to a wheel, except withdrawn ones."""
        mine = (each for each in self.candidates if each.version == wheel.version)
        return tuple(each for each in mine if each.yanked is None)

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}


@dataclass(frozen=True)
class Offer:
    """The best wheel for one ROCm version, or in ``reason`` why there is none.

    ``rocm`` is ``WINDOWS`` for Windows, where one wheel serves every ROCm version.
    """

    rocm: str
    wheel: Wheel | None
    reason: str = ""

    @property
    def name(self) -> str:
        return "Windows" if self.rocm == WINDOWS else f"ROCm {self.rocm}"


def make_finder(catalogue: Catalogue, wheels: Iterable[Wheel], *, drop_ins: Iterable[str] = ()) -> Finder:
    """The product's wheels and their candidates, oldest first. An index may hold other projects too."""
    in_order = sorted(wheels, key=lambda w: (Version(w.version), w.filename))
    ours = tuple(wheel for wheel in in_order if wheel.project == PROJECT)
    candidates = tuple(wheel for wheel in in_order if wheel.project in distributions())
    return Finder(catalogue, ours, tuple(sorted(drop_ins)), candidates)


def offers(finder: Finder) -> tuple[Offer, ...]:
    """Every ROCm version in the catalogue, and every one that a wheel serves or served.

    Versions with a wheel of their own come first, then others with a wheel, then the rest, the newest first
    in each group.
    """
    catalogue = finder.catalogue
    known = {rocm for wheel in finder.wheels for rocm in wheel.serves}
    known |= {
        *catalogue.built_rocm,
        *(each.version for each in catalogue.missing_rocm),
        *catalogue.public_rocm,
    }
    found = [_offer(finder, rocm) for rocm in sorted(known, key=Version, reverse=True)]
    return tuple(
        sorted(found, key=lambda offer: (offer.wheel is None, offer.rocm not in catalogue.built_rocm))
    )


def windows_offer(finder: Finder) -> Offer:
    """The offer for Windows."""
    wheels = [wheel for wheel in finder.wheels if wheel.platform == WINDOWS]
    if usable := [wheel for wheel in wheels if wheel.yanked is None]:
        return Offer(WINDOWS, usable[-1])
    reason = _withdrawn(wheels[-1]) if wheels else "this index does not have its wheel yet"
    return Offer(WINDOWS, None, reason)


def best_wheel(finder: Finder, rocm: str) -> Wheel | None:
    """The newest wheel for a runtime, preferably built with its ROCm version."""
    return _best((wheel for wheel in finder.wheels if wheel.yanked is None), rocm)


def lack(gpu: Gpu, offer: Offer) -> str:
    """Why a GPU gets no kernels with a ROCm version, or ``""``."""
    if gpu.reason or offer.wheel is None:
        return gpu.reason or offer.reason
    if why := dict(gpu.not_with).get(offer.rocm):
        return why
    if gpu.arch not in offer.wheel.verified:
        return f"the wheel for {offer.name} has no verification record for {gpu.arch}"
    return ""


def _offer(finder: Finder, rocm: str) -> Offer:
    if wheel := best_wheel(finder, rocm):
        return Offer(rocm, wheel)
    if withdrawn := _best(finder.wheels, rocm):
        return Offer(rocm, None, _withdrawn(withdrawn))
    missing = {each.version: each.reason for each in finder.catalogue.missing_rocm}
    built = "its wheel is built" if rocm in finder.catalogue.built_rocm else "the public wheel serves it"
    return Offer(rocm, None, missing.get(rocm, f"{built}, but this index does not have it yet"))


def _withdrawn(wheel: Wheel) -> str:
    why = f" ({wheel.yanked})" if wheel.yanked else ", without a reason"
    return f"its wheel, {wheel.filename}, was withdrawn{why}"


def _best(wheels: Iterable[Wheel], rocm: str) -> Wheel | None:
    offered = [wheel for wheel in wheels if rocm in wheel.serves and wheel.platform != WINDOWS]
    return max(offered, key=lambda w: (Version(Version(w.version).public), w.rocm == rocm), default=None)


def _too_old(floor: str) -> str:
    return (
        f"the wheel needs torch {floor} or newer; on Windows AMD's own wheels for ROCm 7.2 have torch 2.9, "
        f"and TheRock's have {floor} and later"
    )


def torch_notes(finder: Finder) -> tuple[tuple[str, bool, str], ...]:
    """The torch releases to choose from: name, whether wheels import with it, and the evidence."""
    torch = finder.catalogue.torch
    floor, tested = Version(torch.floor), Version(torch.tested)
    ran = f"the wheel's tests were run with the CPU build of torch {tested}"
    not_run = (
        f"not run with this torch: the wheel uses only torch {torch.floor}'s stable ABI, which newer "
        "releases promise to keep"
    )
    latest = f"{tested.major}.{tested.minor}"
    between = (f"{floor.major}.{minor}" for minor in range(tested.minor - 1, floor.minor - 1, -1))
    return (
        (latest, True, ran),
        *((release, True, not_run) for release in between),
        (f"newer than {latest}", True, not_run),
        (f"older than {torch.floor}", False, _too_old(torch.floor)),
    )
