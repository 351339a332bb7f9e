"""The first difference between two wheels that should be equal: the member and its section. Pure."""

import io
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain

from wheel_builder.base.errors import ElfError, FatbinError
from wheel_builder.files.binaries import elf
from wheel_builder.files.binaries.elfimage import SHT_NOBITS, read_image
from wheel_builder.files.device import fatbin
from wheel_builder.files.device.library import code_objects
from wheel_builder.files.wheels.wheelfile import WheelFile

STAMPS: dict[str, Callable[[zipfile.ZipInfo], object]] = {
    "time": lambda entry: entry.date_time,
    "mode": lambda entry: entry.external_attr,
    "compression": lambda entry: (entry.compress_type, entry.compress_size),
}


def first_difference(one: WheelFile, other: WheelFile) -> str | None:
    """The first difference in words, in the archive's order, None if the files are equal."""
    return None if one.data == other.data else next(_differences(one, other))


def _differences(one: WheelFile, other: WheelFile) -> Iterator[str]:
    for name in one.files:
        if name not in other.files:
            yield f"{name} is missing in the new wheel"
        elif one.files[name] != other.files[name] and not name.endswith("/RECORD"):
            yield f"{name}: {member_difference(one.files[name], other.files[name])}"
    yield from (f"{name} is only in the new wheel" for name in other.files if name not in one.files)
    # RECORD follows from the other members. It is compared last.
    for name in one.files:
        if name.endswith("/RECORD") and one.files[name] != other.files[name]:
            yield f"{name}: {byte_difference(one.files[name], other.files[name])}"
    yield from _archive_differences(one.data, other.data)


def member_difference(one: bytes, other: bytes) -> str:
    """Where two files differ: the section of an ELF file, the line of a text file, else the byte."""
    try:
        if one.startswith(elf.MAGIC) and other.startswith(elf.MAGIC):
            return _elf_difference(one, other)
        mine, yours = one.decode().splitlines(), other.decode().splitlines()
    except (UnicodeDecodeError, ElfError, FatbinError):
        return byte_difference(one, other)
    number = next(
        (n for n, (a, b) in enumerate(zip(mine, yours, strict=False)) if a != b), min(len(mine), len(yours))
    )
    was, now = (lines[number] if number < len(lines) else "nothing" for lines in (mine, yours))
    return f"line {number + 1} was {was.strip()[:200]!r} and is {now.strip()[:200]!r}"


def byte_difference(one: bytes, other: bytes) -> str:
    """The first byte that differs."""
    at = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return f"byte {at} of {len(one)} differs" + (
        f"; the new one has {len(other)}" if len(one) != len(other) else ""
    )


def _elf_difference(one: bytes, other: bytes) -> str:
    # Device code first: other sections may only differ because it does.
    mine, yours = (elf.section_bytes(data, fatbin.SECTION) for data in (one, other))
    if mine is not None and yours is not None and mine != yours:
        return f"section {fatbin.SECTION}: {_device_difference(one, other) or byte_difference(mine, yours)}"
    mine_by_name, yours_by_name = _sections(one), _sections(other)
    for name in chain(mine_by_name, (n for n in yours_by_name if n not in mine_by_name)):
        was, now = mine_by_name.get(name), yours_by_name.get(name)
        if was is None or now is None:
            return f"section {name} is only in the {'new' if was is None else 'old'} file"
        if was != now:
            return f"section {name}: {byte_difference(was, now)}"
    return f"headers, or what is between sections: {byte_difference(one, other)}"


def _device_difference(one: bytes, other: bytes) -> str:
    """The first code object that differs between two libraries, empty if all are equal."""
    mine, yours = _kernels(one), _kernels(other)
    for key in mine:
        arch, kernel = key
        if key not in yours:
            return f"{kernel} for {arch} is missing"
        if mine[key] != yours[key]:
            return f"{kernel} for {arch}: {member_difference(mine[key], yours[key])}"
    if extra := [key for key in yours if key not in mine]:
        return f"{extra[0][1]} for {extra[0][0]} is new"
    return ""


def _kernels(library: bytes) -> dict[tuple[str, str], bytes]:
    codes = code_objects(library)
    return {(c.arch, ",".join(fatbin.kernels(elf.read_elf(c.data)))): c.data for c in codes}


def _sections(data: bytes) -> dict[str, bytes]:
    image = read_image(data)
    found = zip(image.names, image.sections, strict=True)
    return {name: image.content(section) for name, section in found if name and section.kind != SHT_NOBITS}


def _archive_differences(one: bytes, other: bytes) -> Iterator[str]:
    with zipfile.ZipFile(io.BytesIO(one)) as first, zipfile.ZipFile(io.BytesIO(other)) as second:
        mine, yours = first.infolist(), second.infolist()
    if [entry.filename for entry in mine] != [entry.filename for entry in yours]:
        yield "the same files in another order"
    for was, now in zip(mine, yours, strict=False):
        for what, of in STAMPS.items():
            if of(was) != of(now):
                yield f"{was.filename}: its {what} in the archive was {of(was)} and is {of(now)}"
    yield f"the archive's structure: {byte_difference(one, other)}"
