"""Read-only view of an ELF file: needed libraries, exported and undefined symbols, as a loader finds them.

Input is untrusted: any bytes give an ``Elf`` or an ``ElfError``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from wheel_builder.base.errors import ElfError
from wheel_builder.files.binaries.elfdynamic import (
    DT_RPATH,
    DT_RUNPATH,
    DT_SONAME,
    STB_LOCAL,
    STB_WEAK,
    Dynamic,
    Symbol,
    read_dynamic,
)
from wheel_builder.files.binaries.elfimage import EM_AMDGPU, EM_X86_64, MAGIC, Image, Section, read_image

__all__ = ["MAGIC", "Elf", "Undefined", "max_version", "read_elf", "section_bytes"]
MACHINES = {EM_X86_64: "EM_X86_64", EM_AMDGPU: "EM_AMDGPU"}
STV_DEFAULT, STV_PROTECTED = 0, 3


@dataclass(frozen=True)
class Undefined:
    """A symbol provided by another library. ``version`` is like "GLIBC_2.14", or empty."""

    name: str
    version: str
    weak: bool


@dataclass(frozen=True)
class Elf:
    """``exported``: defined dynamic symbols visible to other libraries. ``runpath``: RPATH and RUNPATH."""

    machine: str
    flags: int
    soname: str
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    exported: tuple[str, ...]
    undefined: tuple[Undefined, ...]


@lru_cache(maxsize=1024)  # a wheel has hundreds of code objects, and several checks read them all
def read_elf(data: bytes) -> Elf:
    """Header, dynamic table and dynamic symbols of ``data``. An object file has only a header."""
    image = read_image(data)
    dynamic = read_dynamic(image)
    symbols = dynamic.symbols if dynamic else ()
    return Elf(
        machine=MACHINES.get(image.header.machine, f"EM_{image.header.machine}"),
        flags=image.header.flags,
        soname=dynamic.text(DT_SONAME) if dynamic else "",
        needed=dynamic.needed if dynamic else (),
        runpath=tuple(dynamic.text(tag) for tag in (DT_RPATH, DT_RUNPATH) if tag in dynamic.tags)
        if dynamic
        else (),
        exported=tuple(sorted(symbol.name for symbol in symbols if is_exported(symbol))),
        undefined=tuple(_undefined(dynamic)) if dynamic else (),
    )


def section_bytes(data: bytes, name: str) -> bytes | None:
    """The content of the one section called ``name``, or None.

    Raises ``ElfError`` when a loader maps other bytes at the section's address.
    """
    image = read_image(data)
    found = image.named(name)
    if not found:
        return None
    if len(found) > 1:
        message = f"{len(found)} sections are called {name}"
        raise ElfError(message, advice="link the file again so that they become one")
    content = image.content(found[0])
    _refuse_elsewhere(image, found[0], name)
    return content


def _refuse_elsewhere(image: Image, section: Section, name: str) -> None:
    if not (section.in_memory and image.loads and section.size):
        return
    if (offset := image.offset_of(section.address, section.size)) != section.offset:
        places = "nowhere" if offset is None else f"byte {offset}"
        message = f"section {name} is at byte {section.offset} of the file, and loaded from {places}"
        raise ElfError(message, advice="link the file again; what is read is not what is loaded")


def max_version(elf: Elf, family: str) -> tuple[int, ...]:
    """The newest version of ``family`` ("GLIBC") required by undefined symbols, or () without one."""
    versions = (
        u.version.removeprefix(f"{family}_") for u in elf.undefined if u.version.startswith(f"{family}_")
    )
    return max((_numbers(version) for version in versions), default=())


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    # GLIBC_PRIVATE is part of no release. It counts as newer than all of them.
    known = all(part.isdecimal() and len(part) < 6 for part in parts)
    return tuple(int(part) for part in parts) if known else (1 << 16,)


def _undefined(dynamic: Dynamic) -> Iterator[Undefined]:
    names = {version.number: version.name for version in dynamic.versions}
    indices = dynamic.symbol_versions or (0,) * len(dynamic.symbols)
    for symbol, index in zip(dynamic.symbols, indices, strict=True):
        if symbol.section == 0 and symbol.name:
            yield Undefined(symbol.name, names.get(index, ""), symbol.bind == STB_WEAK)


def is_exported(symbol: Symbol) -> bool:
    """Whether other libraries see it. They do see protected symbols, but cannot override them."""
    return (
        symbol.section != 0 and symbol.bind != STB_LOCAL and symbol.visibility in (STV_DEFAULT, STV_PROTECTED)
    )
