"""Rules for section headers: each section is loaded from its own place, with no gaps between sections."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from wheel_builder.files.binaries.elfimage import (
    PF_W,
    PF_X,
    PT_GNU_EH_FRAME,
    PT_NOTE,
    PT_TLS,
    SHF_EXECINSTR,
    SHF_TLS,
    SHF_WRITE,
    SHT_DYNAMIC,
    SHT_DYNSYM,
    SHT_FINI_ARRAY,
    SHT_GNU_HASH,
    SHT_HASH,
    SHT_INIT_ARRAY,
    SHT_NOBITS,
    SHT_NOTE,
    SHT_NULL,
    SHT_PROGBITS,
    SHT_RELA,
    SHT_STRTAB,
    SHT_SYMTAB,
    SHT_VERNEED,
    SHT_VERSYM,
    Image,
    Section,
    Segment,
)

MOST_SECTIONS, PAGE = 128, 4096
HEADER_BYTES, SEGMENT_BYTES, SECTION_BYTES = 64, 56, 64
SHT_X86_64_UNWIND = 0x70000001
KINDS = frozenset({
    SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM,
    SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_GNU_HASH, SHT_VERNEED, SHT_VERSYM, SHT_X86_64_UNWIND,
})  # fmt: skip
TRAP = 0xCC  # linkers fill gaps in x86-64 code with it
# Segments other than PT_LOAD consist of these sections.
OF_SEGMENTS = {PT_NOTE: SHT_NOTE, PT_GNU_EH_FRAME: ".eh_frame_hdr"}


def section_problems(image: Image) -> tuple[str, ...]:
    """Differences between section headers and the loaded bytes."""
    if not 0 < len(image.sections) <= MOST_SECTIONS:
        return (f"it has {len(image.sections)} sections, expected 1 to {MOST_SECTIONS}",)
    return (
        *_kind_problems(image),
        *_mapping_problems(image),
        *_end_problems(image),
        *_thread_problems(image),
        *_segment_problems(image),
        *_gap_problems(image),
    )


def _kind_problems(image: Image) -> Iterator[str]:
    if any(image.sections[0]):
        yield "section 0 is not empty"
    for number, section in enumerate(image.sections[1:], start=1):
        if section.kind not in KINDS:
            yield f"section {image.names[number]} is of kind {section.kind:#x}, which is not expected here"
    for name, count in Counter(image.names[1:]).items():
        if count > 1:
            yield f"{count} sections are called {name}"


def _mapping_problems(image: Image) -> Iterator[str]:
    for name, section in zip(image.names, image.sections, strict=True):
        if section.offset + section.file_bytes > len(image.data):
            yield f"section {name} has {section.size} bytes at {section.offset}, which are not in the file"
        elif section.in_memory and not (section.flags & SHF_TLS and section.kind == SHT_NOBITS):
            yield from _load_problems(image, name, section)
        elif not section.in_memory and section.kind != SHT_NULL and section.address:
            yield f"section {name} has the address {section.address:#x}, and is not loaded"


def _load_problems(image: Image, name: str, section: Section) -> Iterator[str]:
    load = image.load_of(section.address, max(section.size, 1)) or image.load_of(section.address, 0)
    if load is None or not load.holds(section.address, section.size):
        yield f"section {name} is not loaded: no PT_LOAD has {section.size} bytes at {section.address:#x}"
        return
    if section.kind == SHT_NOBITS:
        if section.address < load.file_end:
            yield f"section {name} is not zeros: it is loaded from the file"
    elif image.offset_of(section.address, section.size) != section.offset:
        place = load.offset + section.address - load.address
        yield f"section {name} is at byte {section.offset} and loaded from byte {place}"
    access = bool(section.flags & SHF_WRITE), bool(section.flags & SHF_EXECINSTR)
    if section.size and access != (bool(load.flags & PF_W), bool(load.flags & PF_X)):
        yield f"section {name} is loaded with other rights than its flags {section.flags:#x} say"


def _end_problems(image: Image) -> Iterator[str]:
    """A PT_LOAD ends with its last section, or with that section's page. So do its bytes from the file."""
    for load in image.loads:
        held = [s for s in image.sections if s.in_memory and load.holds(s.address, s.size)]
        last = max((s.address + s.size for s in held), default=0)
        filled = max((s.address + s.size for s in held if s.kind != SHT_NOBITS), default=load.address)
        if load.file_end != filled:
            yield f"{load.file_bytes} bytes are loaded at {load.address:#x}, its sections end at {filled:#x}"
        if load.end not in (last, -(-last // PAGE) * PAGE):
            yield f"what is loaded at {load.address:#x} ends at {load.end:#x}, its last section at {last:#x}"


def _thread_problems(image: Image) -> Iterator[str]:
    """PT_TLS consists of the thread-local sections, in a row, the ones with content first."""
    threads = [section for section in image.sections if section.flags & SHF_TLS and section.in_memory]
    segments = image.of_kind(PT_TLS)
    if bool(threads) != bool(segments):
        yield f"it has {len(threads)} sections of variables of threads, and {len(segments)} PT_TLS"
    if not threads or not segments:
        return
    filled = [section for section in threads if section.kind != SHT_NOBITS]
    first, last = threads[0], threads[-1]
    expected = Segment(
        PT_TLS, segments[0].flags, first.offset, first.address, first.address,
        filled[-1].address + filled[-1].size - first.address if filled else 0,
        last.address + last.size - first.address, max(section.alignment for section in threads),
    )  # fmt: skip
    if segments[0] != expected or threads[: len(filled)] != filled:
        yield "PT_TLS is not what the sections of variables of threads say"


def _segment_problems(image: Image) -> Iterator[str]:
    for number, segment in enumerate(image.segments):
        if segment.kind not in OF_SEGMENTS:
            continue
        wanted = OF_SEGMENTS[segment.kind]
        same = [
            section
            for name, section in zip(image.names, image.sections, strict=True)
            if wanted in (section.kind, name) and section.in_memory
        ]
        places = [(section.address, section.offset, section.size) for section in same]
        if places != [(segment.address, segment.offset, segment.file_bytes)]:
            yield f"segment {number} is not the section {wanted if wanted != SHT_NOTE else '.note'}"


def _gap_problems(image: Image) -> Iterator[str]:
    """Every byte belongs to one part of the file, or fills up."""
    parts = sorted(_parts(image))
    for (_, end, before), (start, _, after) in pairwise(parts):
        if start < end:
            yield f"{after} lies over {before}"
        elif not _is_padding(image, end, start):
            yield f"the {start - end} bytes between {before} and {after} are not padding"
    if (end := parts[-1][1]) != len(image.data):
        yield f"{len(image.data) - end} bytes follow {parts[-1][2]}, the last part of the file"


def _parts(image: Image) -> Iterator[tuple[int, int, str]]:
    """First byte, end and name of everything in the file."""
    header = image.header
    yield 0, HEADER_BYTES, "the header"
    yield header.segments_at, header.segments_at + SEGMENT_BYTES * len(image.segments), "the program headers"
    yield header.sections_at, header.sections_at + SECTION_BYTES * len(image.sections), "the section headers"
    for name, section in zip(image.names, image.sections, strict=True):
        if section.file_bytes:
            yield section.offset, section.offset + section.size, f"section {name}"


def _is_padding(image: Image, start: int, end: int) -> bool:
    gap = image.data[start:end]
    code = any(
        load.flags & PF_X and load.offset <= start and end <= load.offset + load.file_bytes
        for load in image.loads
    )
    return not gap.strip(b"\0") or (code and not gap.strip(bytes([TRAP])))
