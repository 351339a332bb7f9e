"""Read-only view of an ELF file: needed libraries, exported and undefined symbols.

Input is untrusted: whatever the bytes are, the answer is an ``Elf`` or an ``ElfError``.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from elftools.elf.dynamic import DynamicSection, DynamicTag
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import Section, Symbol, SymbolTableSection

from wheel_builder.base.errors import ElfError

MAGIC = b"\x7fELF"
VERNAUX_BYTES = 16  # the smallest version record: more of them than fit into the file mean a loop
VERSION_INDEX_MASK = 0x7FFF

T = TypeVar("T")


@dataclass(frozen=True)
class Undefined:
    """A symbol that another library has to provide; ``version`` like "GLIBC_2.14", or empty."""

    name: str
    version: str
    weak: bool


@dataclass(frozen=True)
class Elf:
    """``exported``: defined dynamic symbols that other libraries can see; ``runpath``: RPATH and RUNPATH."""

    machine: str
    flags: int
    soname: str
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    exported: tuple[str, ...]
    undefined: tuple[Undefined, ...]


@lru_cache(maxsize=1024)  # a wheel has hundreds of code objects, and several checks read them all
def read_elf(data: bytes) -> Elf:
    """Header, dynamic section and dynamic symbols of ``data``."""
    return _guarded(lambda: _read(ELFFile(io.BytesIO(data)), len(data)))


def section_bytes(data: bytes, name: str) -> bytes | None:
    """The content of the one section called ``name`` as it lies in the file; None when there is none."""
    return _guarded(lambda: _section_bytes(data, name))


def max_version(elf: Elf, family: str) -> tuple[int, ...]:
    """The newest version of ``family`` ("GLIBC") that undefined symbols require; () if they require none."""
    versions = (
        u.version.removeprefix(f"{family}_") for u in elf.undefined if u.version.startswith(f"{family}_")
    )
    return max((_numbers(version) for version in versions), default=())


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    # A private version (GLIBC_PRIVATE) is promised by no release: newer than all of them.
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else (1 << 16,)


def _guarded(read: Callable[[], T]) -> T:
    try:
        return read()
    except ElfError:
        raise
    # On damaged files pyelftools raises whatever its parsers happen to raise, AssertionError included.
    except Exception as error:
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        message = f"not a readable ELF file ({words})"
        raise ElfError(message, advice="build the file again; it is damaged or not an ELF file") from error


def _read(elf: ELFFile, size: int) -> Elf:
    sections = list(elf.iter_sections())
    tags = [tag for section in sections if isinstance(section, DynamicSection) for tag in section.iter_tags()]
    symbols = list(_symbols(sections, size))
    return Elf(
        machine=str(elf["e_machine"]),
        flags=int(elf["e_flags"]),
        soname=next(iter(_strings(tags, "DT_SONAME")), ""),
        needed=_strings(tags, "DT_NEEDED"),
        runpath=(*_strings(tags, "DT_RPATH"), *_strings(tags, "DT_RUNPATH")),
        exported=tuple(sorted(symbol.name for symbol, _ in symbols if _is_exported(symbol))),
        undefined=tuple(
            Undefined(symbol.name, version, symbol["st_info"]["bind"] == "STB_WEAK")
            for symbol, version in symbols
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name
        ),
    )


def _strings(tags: list[DynamicTag], kind: str) -> tuple[str, ...]:
    # pyelftools gives such a tag an attribute named after its kind.
    return tuple(str(getattr(t, kind.removeprefix("DT_").lower())) for t in tags if t.entry.d_tag == kind)


def _symbols(sections: Sequence[Section], size: int) -> Iterator[tuple[Symbol, str]]:
    """Dynamic symbols, each with the version it is bound to ("" for none)."""
    table = next((s for s in sections if s["sh_type"] == "SHT_DYNSYM"), None)
    if not isinstance(table, SymbolTableSection):
        return
    versions = _needed_versions(sections, size)
    indices = next((s for s in sections if isinstance(s, GNUVerSymSection)), None)
    for number, symbol in enumerate(table.iter_symbols()):
        index = indices.get_symbol(number)["ndx"] if indices else 0
        # pyelftools names the two reserved indices (local, global) instead of numbering them.
        yield symbol, versions.get(index & VERSION_INDEX_MASK, "") if isinstance(index, int) else ""


def _needed_versions(sections: Sequence[Section], size: int) -> dict[int, str]:
    names: dict[int, str] = {}
    seen = 0
    for section in sections:
        if not isinstance(section, GNUVerNeedSection):
            continue
        for _, auxiliaries in section.iter_versions():
            for auxiliary in auxiliaries:
                seen += 1
                if seen * VERNAUX_BYTES > size:
                    message = "its version records form a loop"
                    raise ElfError(message, advice="build the file again; it is damaged")
                names[auxiliary["vna_other"] & VERSION_INDEX_MASK] = auxiliary.name
    return names


def _is_exported(symbol: Symbol) -> bool:
    return (
        symbol["st_shndx"] != "SHN_UNDEF"
        and symbol["st_info"]["bind"] != "STB_LOCAL"
        # A protected symbol cannot be overridden, but other libraries see it.
        and symbol["st_other"]["visibility"] in ("STV_DEFAULT", "STV_PROTECTED")
    )


def _section_bytes(data: bytes, name: str) -> bytes | None:
    found = [s for s in ELFFile(io.BytesIO(data)).iter_sections() if s.name == name]
    if not found:
        return None
    if len(found) > 1:
        message = f"{len(found)} sections are called {name}"
        raise ElfError(message, advice="link the file again so that they become one")
    begin, size = found[0]["sh_offset"], found[0]["sh_size"]
    if found[0]["sh_type"] == "SHT_NOBITS" or begin + size > len(data):
        message = f"section {name} is not in the file ({size} bytes at {begin}, the file has {len(data)})"
        raise ElfError(message, advice="build the file again; it is damaged")
    return data[begin : begin + size]
