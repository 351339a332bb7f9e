"""Rules for an ELF file's header and program headers: a plain shared object for glibc."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from wheel_builder.files.binaries.elfimage import (
    EM_AMDGPU,
    EM_X86_64,
    IDENT,
    PF_R,
    PF_W,
    PF_X,
    PT_DYNAMIC,
    PT_GNU_EH_FRAME,
    PT_GNU_RELRO,
    PT_GNU_STACK,
    PT_LOAD,
    PT_NOTE,
    PT_PHDR,
    PT_TLS,
    Image,
    Segment,
)

ET_DYN = 3
PAGE = 4096
# The rest of e_ident: OS ABI, ABI version, padding. AMDGPU: code object versions 5 and 6.
IDENTS = {EM_X86_64: (bytes(9),), EM_AMDGPU: (b"\x40\x03" + bytes(7), b"\x40\x04" + bytes(7))}
SEGMENT_BYTES = 56
MOST_ZEROS = 16 << 20  # memory without bytes in the file
MOST_TLS = 1 << 20
# The allowed number of segments of each kind. Other kinds are refused.
KINDS = {
    EM_X86_64: {
        PT_PHDR: (0, 1), PT_LOAD: (1, 16), PT_DYNAMIC: (1, 1), PT_TLS: (0, 1),
        PT_GNU_EH_FRAME: (0, 1), PT_GNU_STACK: (1, 1), PT_GNU_RELRO: (1, 1),
    },
    EM_AMDGPU: {
        PT_PHDR: (0, 1), PT_LOAD: (1, 16), PT_DYNAMIC: (1, 1), PT_NOTE: (1, 1),
        PT_GNU_STACK: (1, 1), PT_GNU_RELRO: (1, 1),
    },
}  # fmt: skip
NAMES = {
    PT_LOAD: "PT_LOAD", PT_DYNAMIC: "PT_DYNAMIC", PT_NOTE: "PT_NOTE", PT_PHDR: "PT_PHDR", PT_TLS: "PT_TLS",
    PT_GNU_EH_FRAME: "PT_GNU_EH_FRAME", PT_GNU_STACK: "PT_GNU_STACK", PT_GNU_RELRO: "PT_GNU_RELRO",
}  # fmt: skip
ACCESS = (PF_R, PF_R | PF_X, PF_R | PF_W)


def segment_problems(image: Image, machine: int) -> tuple[str, ...]:
    """Differences of the header and program headers from a shared object for ``machine``."""
    if found := tuple(_header_problems(image, machine)):
        return found
    return (
        *_kind_problems(image, machine),
        *_load_problems(image),
        *_order_problems(image),
        *_place_problems(image),
        *_stack_problems(image),
        *_relro_problems(image),
        *_tls_problems(image),
    )


def _header_problems(image: Image, machine: int) -> Iterator[str]:
    header = image.header
    if header.kind != ET_DYN:
        yield f"its type is {header.kind}, expected {ET_DYN} (a shared object)"
    if header.machine != machine:
        yield f"its machine is {header.machine}, expected {machine}"
    elif header.ident[len(IDENT) :] not in IDENTS[machine]:
        yield f"its header names another system: {header.ident.hex()}"
    if header.version != 1 or header.entry != 0 or header.header_bytes != 64:
        found = f"version {header.version}, entry {header.entry:#x}, {header.header_bytes} bytes"
        yield f"its header has {found}, expected version 1, no entry, 64 bytes"
    if machine == EM_X86_64 and header.flags:
        yield f"its header has flags {header.flags:#x}, expected none"


def _kind_problems(image: Image, machine: int) -> Iterator[str]:
    counts, known = Counter(segment.kind for segment in image.segments), KINDS[machine]
    for kind in sorted(counts.keys() - known.keys()):
        yield f"it has a segment of kind {kind:#x}, expected only {', '.join(NAMES[k] for k in known)}"
    for kind, (least, most) in known.items():
        if not least <= counts[kind] <= most:
            expected = f"{least}" if least == most else f"{least} to {most}"
            yield f"it has {counts[kind]} {NAMES[kind]}, expected {expected}"


def _load_problems(image: Image) -> Iterator[str]:
    for number, one in enumerate(image.segments):
        if one.offset + one.file_bytes > len(image.data) or one.file_bytes > one.memory_bytes:
            yield f"segment {number} has {one.file_bytes} bytes at {one.offset}, which are not in the file"
        if one.kind != PT_LOAD:
            continue
        if one.flags & PF_W and one.flags & PF_X:
            yield f"segment {number} is loaded writable and executable"
        elif one.flags not in ACCESS:
            yield f"segment {number} is loaded with flags {one.flags:#x}, expected R, RX or RW"
        if one.memory_bytes != one.file_bytes and not one.flags & PF_W:
            yield f"segment {number} has zeros behind its bytes from the file, which nothing could change"
        if one.alignment != PAGE or (one.address - one.offset) % PAGE:
            yield f"segment {number} is aligned to {one.alignment}, expected {PAGE} in file and memory"


def _order_problems(image: Image) -> Iterator[str]:
    loads = image.loads
    if not loads or loads[0].offset or loads[0].address:
        yield "what is loaded first is not the beginning of the file, at address 0"
    elif _headers_end(image) > loads[0].file_bytes:
        yield "its program headers are not loaded"
    for before, one in pairwise(loads):
        if one.address // PAGE <= (before.address + max(before.memory_bytes, 1) - 1) // PAGE:
            yield f"what is loaded at {one.address:#x} lies over what is loaded at {before.address:#x}"
    zeros = max((one.end for one in loads), default=0) - len(image.data)
    if zeros > MOST_ZEROS:
        yield f"it takes {zeros} bytes more of addresses than the file has, at most {MOST_ZEROS} are allowed"


def _headers_end(image: Image) -> int:
    return image.header.segments_at + SEGMENT_BYTES * len(image.segments)


def _place_problems(image: Image) -> Iterator[str]:
    """A loader goes by addresses, other programs by offsets. Both must lead to the same bytes."""
    for number, one in enumerate(image.segments):
        if one.physical != one.address and one.kind != PT_GNU_STACK:
            yield f"segment {number} has the physical address {one.physical:#x}, expected {one.address:#x}"
        if one.kind in (PT_LOAD, PT_GNU_STACK) or not one.file_bytes:
            continue
        if image.offset_of(one.address, one.file_bytes) != one.offset:
            yield f"segment {number} ({NAMES.get(one.kind, one.kind)}) is not loaded from where it lies"
        if one.kind not in (PT_TLS, PT_GNU_RELRO) and one.file_bytes != one.memory_bytes:
            yield f"segment {number} ({NAMES.get(one.kind, one.kind)}) has {one.memory_bytes} bytes of memory"
    for one in image.of_kind(PT_PHDR):
        if (one.offset, one.file_bytes) != (image.header.segments_at, SEGMENT_BYTES * len(image.segments)):
            yield "PT_PHDR is not the table of program headers"


def _stack_problems(image: Image) -> Iterator[str]:
    for one in image.of_kind(PT_GNU_STACK):
        if one.flags & PF_X:
            yield "it asks for an executable stack"
        elif one[1:7] != (PF_R | PF_W, 0, 0, 0, 0, 0):
            yield "PT_GNU_STACK is more than a request for a stack that is read and written"


def _relro_problems(image: Image) -> Iterator[str]:
    """RELRO data is written during loading and read-only afterwards. It is a PT_LOAD of its own."""
    for one in image.of_kind(PT_GNU_RELRO):
        load = image.load_of(one.address, max(one.memory_bytes, 1))
        if load is None or load.flags != PF_R | PF_W or _extent(load) != _extent(one) or one.end % PAGE:
            yield f"PT_GNU_RELRO at {one.address:#x} does not protect a writable PT_LOAD, whole pages of it"
        elif not all(load.holds(d.address, d.memory_bytes) for d in image.of_kind(PT_DYNAMIC)):
            yield "PT_GNU_RELRO does not protect the dynamic table"


def _extent(one: Segment) -> tuple[int, ...]:
    return one[2:7]


def _tls_problems(image: Image) -> Iterator[str]:
    for one in image.of_kind(PT_TLS):
        alignment = one.alignment
        if alignment not in (1, 2, 4, 8, 16, 32, 64) or one.address % alignment:
            yield f"PT_TLS at {one.address:#x} is aligned to {alignment}, expected a power of two up to 64"
        if not 0 < one.memory_bytes <= MOST_TLS:
            yield f"PT_TLS has {one.memory_bytes} bytes, expected 1 to {MOST_TLS}"
