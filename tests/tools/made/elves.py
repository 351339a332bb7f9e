"""Small ELF files for tests, laid out as by lld: shared objects for x86-64, and code objects for AMD GPUs.

They have the linker's parts: program headers, dynamic table, hash table, versions, kernel descriptors and
metadata.  Their code does nothing.  ``Edit`` makes hostile ones of these, and of real ones.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from wheel_builder.tables.archs import arch_named, code_of, known_gpus

EM_X86_64, EM_AMDGPU = 62, 224
# By a device's features, the flags "any" for them.
ANY = {"": 0, "xnack-": 0x100, "sramecc+:xnack-": 0x500}
E_FLAGS = {g.name: g.elf_machine | ANY[g.device_name.partition(":")[2]] for g in known_gpus().values()}
PAGE = 4096
BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
S_ENDPGM = bytes.fromhex("000081bf")
NOT_LOADED = (".comment",)
HEADER_FIELDS = (
    "ident", "kind", "machine", "version", "entry", "segments_at", "sections_at", "flags", "header_bytes",
    "segment_bytes", "segment_count", "section_bytes", "section_count", "names_index",
)  # fmt: skip
ALLOC, WRITE, EXEC = 2, 1, 4


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol. ``version``, like "GLIBC_2.14", is for undefined ones only."""

    name: str
    defined: bool = False
    weak: bool = False
    visibility: int = 0
    version: str = ""
    place: tuple[str, int, int] = (".text", 0, 0)  # section, offset in it and size
    kind: int = 1


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    content: bytes
    link: str = ""
    info: int = 0
    flags: int = ALLOC
    entry: int = 0
    alignment: int = 8


@dataclass(frozen=True)
class ElfFile:
    """The content of a test ELF file. ``data`` encodes it.

    ``sections`` are loaded read-only, except those ignored by linkers.
    """

    machine: int = EM_X86_64
    flags: int = 0
    soname: str = ""
    needed: tuple[str, ...] = ()
    runpath: str = ""
    rpath: str = ""
    symbols: tuple[Symbol, ...] = ()
    sections: Mapping[str, bytes] = field(default_factory=dict)
    text: bytes = b"\xc3"
    kind: int = 3
    text_flags: int = 5
    stack_flags: int | None = 6  # None: PT_GNU_STACK is missing
    metadata: bytes = b""

    @cached_property
    def data(self) -> bytes:
        return _Linked(self).data


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        self.data += text.encode() + b"\0"
        return len(self.data) - len(text.encode()) - 1


class _Linked:
    """One file while it is laid out: first all sizes, then all addresses, then the content."""

    def __init__(self, file: ElfFile) -> None:
        self.file, self.strings = file, _Strings()
        # Symbols in the hash table come last.
        self.symbols = sorted(file.symbols, key=lambda symbol: symbol.defined)
        self.names = [self.strings.add(symbol.name) for symbol in self.symbols]
        texts = [(1, name) for name in file.needed]
        texts += [(t, s) for t, s in ((14, file.soname), (15, file.rpath), (29, file.runpath)) if s]
        self.tags = [(tag, self.strings.add(text)) for tag, text in texts]
        self.versym, self.verneed = self._versions()
        self.kinds = [6, 1, 1, 1, 2, 0x6474E552]
        self.kinds += [0x6474E551] if file.stack_flags is not None else []
        self.kinds += [4] if file.metadata else []
        self.parts = self._sections()
        self.offsets, self.addresses = self._places()

    @property
    def data(self) -> bytes:
        shown = _Strings()
        rows, body = [bytes(64)], b""
        start = 64 + 56 * len(self.kinds)
        for part in (*self._filled(), _Section(".shstrtab", 3, b"", flags=0, alignment=1)):
            name = shown.add(part.name)
            content = shown.data if part.name == ".shstrtab" else part.content
            offset = self.offsets[part.name]
            body += bytes(offset - start - len(body)) + content
            place = (self.addresses.get(part.name, 0), offset, len(content))
            link = self._index(part.link) if part.link else 0
            tail = (link, part.info, part.alignment, part.entry)
            rows.append(struct.pack("<IIQQQQIIQQ", name, part.kind, part.flags, *place, *tail))
        body += bytes(-(start + len(body)) % 8)
        return self._header(start + len(body), len(rows)) + self._segments() + body + b"".join(rows)

    def _index(self, name: str) -> int:
        return 1 + [part.name for part in self.parts].index(name)

    def _sections(self) -> list[_Section]:
        """In file order. Contents that depend on addresses are zeros."""
        own, count = self.file.sections, 1 + len(self.symbols)
        defined = sum(symbol.defined for symbol in self.symbols)
        versions = [
            _Section(".gnu.version", 0x6FFFFFFF, self.versym, ".dynsym", entry=2),
            _Section(".gnu.version_r", 0x6FFFFFFE, self.verneed, ".dynstr", info=1),
        ]
        notes = [_Section(".note", 7, _note(self.file.metadata))] if self.file.metadata else []
        return [
            *notes,
            _Section(".dynsym", 11, bytes(24 * count), ".dynstr", info=1, entry=24),
            *(versions if self.verneed else []),
            _Section(".gnu.hash", 0x6FFFFFF6, bytes(16 + 8 + 4 + 4 * defined), ".dynsym"),
            _Section(".dynstr", 3, self.strings.data),
            *(_Section(name, 1, content) for name, content in own.items() if name not in NOT_LOADED),
            _Section(".text", 1, self._text({}), flags=ALLOC | EXEC),
            _Section(
                ".dynamic", 6, bytes(16 * len(self._tags({}))), ".dynstr", flags=ALLOC | WRITE, entry=16
            ),
            *(_Section(name, 1, content, flags=0) for name, content in own.items() if name in NOT_LOADED),
        ]

    def _places(self) -> tuple[dict[str, int], dict[str, int]]:
        """Offsets and addresses: each segment is a page higher in memory than in the file."""
        at, offsets, addresses = 64 + 56 * len(self.kinds), {}, {}
        higher = {".text": PAGE, ".dynamic": 2 * PAGE}
        for part in self.parts:
            at += -at % 8
            offsets[part.name] = at
            if part.flags & ALLOC:
                addresses[part.name] = at + higher.get(part.name, 0)
            at += len(part.content)
        return {**offsets, ".shstrtab": at}, addresses

    def _filled(self) -> list[_Section]:
        contents = {
            ".dynsym": self._symbol_table(), ".gnu.hash": self._hash_table(),
            ".text": self._text(self.addresses), ".dynamic": self._dynamic(),
        }  # fmt: skip
        return [
            _Section(**{**vars(part), "content": contents.get(part.name, part.content)})
            for part in self.parts
        ]

    def _tags(self, places: Mapping[str, int]) -> list[tuple[int, int]]:
        found = [(5, places.get(".dynstr", 0)), (10, len(self.strings.data)), (6, places.get(".dynsym", 0))]
        found += [(11, 24), (0x6FFFFEF5, places.get(".gnu.hash", 0))]
        if self.file.machine != EM_AMDGPU:
            found += [(30, 8), (0x6FFFFFFB, 1)]
        if self.verneed:
            found += [(0x6FFFFFF0, places.get(".gnu.version", 0))]
            found += [(0x6FFFFFFE, places.get(".gnu.version_r", 0)), (0x6FFFFFFF, 1)]
        return [*self.tags, *found, (0, 0)]

    def _dynamic(self) -> bytes:
        return b"".join(struct.pack("<QQ", *tag) for tag in self._tags(self.addresses))

    def _text(self, places: Mapping[str, int]) -> bytes:
        """The code. It takes the address of each bundle (lea rax, [rip + distance])."""
        bundles = self.file.sections.get(".hip_fatbin", b"")
        code = b""
        for start in range(0, len(bundles), PAGE):
            if bundles.startswith((BUNDLE, b"CCOB"), start):
                target = places.get(".hip_fatbin", 0) + start
                code += b"\x48\x8d\x05" + struct.pack("<i", target - places.get(".text", 0) - len(code) - 7)
        return code + self.file.text

    def _symbol_table(self) -> bytes:
        table = bytes(24)
        for symbol, name in zip(self.symbols, self.names, strict=True):
            info = (2 if symbol.weak else 1) << 4 | symbol.kind
            section, offset, size = symbol.place
            place = (self._index(section), self.addresses[section] + offset, size)
            table += struct.pack(
                "<IBBHQQ", name, info, symbol.visibility, *(place if symbol.defined else (0, 0, 0))
            )
        return table

    def _hash_table(self) -> bytes:
        names = [symbol.name for symbol in self.symbols if symbol.defined]
        return gnu_hash_table(names, 1 + len(self.symbols) - len(names))

    def _versions(self) -> tuple[bytes, bytes]:
        """A number for each symbol, and libc.so.6 with the required versions. Empty if there are none."""
        numbers = {
            v: n for n, v in enumerate(sorted({s.version for s in self.symbols if s.version}), start=2)
        }
        if not numbers:
            return b"", b""
        versym = [0, *(numbers.get(symbol.version, 1) for symbol in self.symbols)]
        needs = struct.pack("<HHIII", 1, len(numbers), self._needed("libc.so.6"), 16, 0)
        for version, number in numbers.items():
            following = 16 if number - 1 < len(numbers) else 0
            needs += struct.pack(
                "<IHHII", _elf_hash(version), 0, number, self.strings.add(version), following
            )
        return struct.pack(f"<{len(versym)}H", *versym), needs

    def _needed(self, name: str) -> int:
        before = self.strings.data.find(b"\0" + name.encode() + b"\0")
        return before + 1 if before >= 0 else self.strings.add(name)

    def _header(self, sections_at: int, count: int) -> bytes:
        system = b"\x40\x04" if self.file.machine == EM_AMDGPU else b"\0\0"
        numbers = (self.file.kind, self.file.machine, 1, 0, 64, sections_at, self.file.flags)
        sizes = (64, 56, len(self.kinds), 64, count, count - 1)
        return b"\x7fELF\x02\x01\x01" + system + bytes(7) + struct.pack("<HHIQQQIHHHHHH", *numbers, *sizes)

    def _segments(self) -> bytes:
        sizes = {part.name: len(part.content) for part in self.parts}
        text, table = self.offsets[".text"], self.offsets[".dynamic"]
        read_only = max(self.offsets[n] + sizes[n] for n, a in self.addresses.items() if a < text + PAGE)
        at = self.addresses[".dynamic"]
        rows = {  # flags, offset, address, bytes in the file and in memory, alignment
            6: (4, 64, 64, 56 * len(self.kinds), 56 * len(self.kinds), 8),
            2: (6, table, at, sizes[".dynamic"], sizes[".dynamic"], 8),
            0x6474E552: (4, table, at, sizes[".dynamic"], -at % PAGE, 1),
            0x6474E551: (self.file.stack_flags, 0, 0, 0, 0, 0),
        }
        if self.file.metadata:
            rows[4] = (4, *[self.offsets[".note"]] * 2, *[sizes[".note"]] * 2, 4)
        loads = iter((
            (4, 0, 0, read_only, read_only, PAGE),
            (self.file.text_flags, text, text + PAGE, sizes[".text"], sizes[".text"], PAGE),
            (6, table, at, sizes[".dynamic"], -at % PAGE, PAGE),
        ))  # fmt: skip
        table_rows = ((kind, *(next(loads) if kind == 1 else rows[kind])) for kind in self.kinds)
        return b"".join(
            struct.pack("<IIQQQQQQ", k, f, o, a, a, n, m, s) for k, f, o, a, n, m, s in table_rows
        )


def gnu_hash_table(names: Sequence[str], first: int) -> bytes:
    """A table with one bucket for symbols with these names, from the symbol with the number ``first`` on."""
    hashes, bloom = [_gnu_hash(name) for name in names], 0
    for value in hashes:
        bloom |= 1 << value % 64 | 1 << (value >> 26) % 64
    chains = [value & ~1 for value in hashes[:-1]] + [value | 1 for value in hashes[-1:]]
    return struct.pack(f"<4IQI{len(chains)}I", 1, first, 1, 26, bloom, first if hashes else 0, *chains)


def _gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = value * 33 + byte & 0xFFFFFFFF
    return value


def _elf_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value


def _note(metadata: bytes) -> bytes:
    padded = metadata + bytes(-len(metadata) % 4)
    return struct.pack("<3I8s", 7, len(metadata), 32, b"AMDGPU") + padded


def packed(value: object) -> bytes:
    """MessagePack of small maps, lists, texts and numbers."""
    if isinstance(value, Mapping):
        return (
            bytes([0xDF])
            + struct.pack(">I", len(value))
            + b"".join(packed(v) for kv in value.items() for v in kv)
        )
    if isinstance(value, list):
        return bytes([0xDD]) + struct.pack(">I", len(value)) + b"".join(map(packed, value))
    if isinstance(value, str):
        short = len(value) < 32  # their length is in the first byte, like the compiler's
        head = bytes([0xA0 | len(value)]) if short else bytes([0xDA]) + struct.pack(">H", len(value))
        return head + value.encode()
    assert isinstance(value, int)
    return bytes([0xCE]) + struct.pack(">I", value)


def metadata_of(arch: str, kernels: Sequence[str], **changes: object) -> dict[str, object]:
    """The compiler's metadata for the kernels of ``code_object``, with ``changes`` to its keys."""
    wave = arch_named(code_of(arch)).isa.wave
    taken = {
        ".group_segment_fixed_size": 1024, ".private_segment_fixed_size": 0, ".kernarg_segment_size": 64,
        ".max_flat_workgroup_size": 256, ".wavefront_size": wave, ".vgpr_count": 138, ".sgpr_count": 65,
        ".vgpr_spill_count": 0, ".sgpr_spill_count": 0, ".uses_dynamic_stack": False,
    }  # fmt: skip
    taken |= {} if wave == 64 else {".workgroup_processor_mode": 1}
    taken |= changes
    rows: list[object] = [{".name": name, ".symbol": f"{name}.kd", **taken} for name in kernels]
    return {"amdhsa.kernels": rows, "amdhsa.target": f"amdgcn-amd-amdhsa--{arch}", "amdhsa.version": [1, 2]}


def code_object(
    arch: str,
    kernels: Sequence[str],
    *,
    metadata: Mapping[str, object] | None = None,
    noise: bytes = b"",
    **changes: object,
) -> bytes:
    """A code object for ``arch`` with ``kernels``. Symbols are protected, like the compiler's."""
    names = list(kernels)
    symbols = [Symbol(k, True, visibility=3, place=(".text", 4 * n, 4), kind=2) for n, k in enumerate(names)]
    symbols += [
        Symbol(f"{k}.kd", True, visibility=3, place=(".rodata", 64 * n, 64)) for n, k in enumerate(names)
    ]
    said = metadata_of(arch, names) if metadata is None else metadata
    fields = {
        "machine": EM_AMDGPU, "flags": E_FLAGS[arch], "symbols": tuple(symbols), "metadata": packed(said),
        "text": S_ENDPGM * len(names) + noise,
    }  # fmt: skip

    def linked(places: Mapping[str, int]) -> _Linked:
        offset = places.get(".text", 0) - places.get(".rodata", 0)
        properties = 1 << 10 if arch_named(code_of(arch)).isa.wave == 32 else 0
        descriptors = b"".join(
            struct.pack("<III4xq20xIIIHH4x", 1024, 0, 64, offset - 60 * n, 0, 0, 0, properties, 0)
            for n in range(len(names))
        )
        sections = {".comment": b"clang version 22.1.8\0", ".rodata": descriptors}
        return _Linked(ElfFile(**{**fields, "sections": sections, **changes}))  # type: ignore[arg-type]

    return linked(linked({}).addresses).data


class Edit:
    """An ELF file with headers changed in place. ``data`` is the result."""

    HEADER = ("<16sHHIQQQIHHHHHH", " ".join(HEADER_FIELDS))
    SEGMENT = ("<IIQQQQQQ", "kind flags offset address physical file_bytes memory_bytes alignment")
    SECTION = ("<IIQQQQIIQQ", "name_at kind flags address offset size link info alignment entry_bytes")
    TAG = ("<QQ", "kind value")
    SYMBOL = ("<IBBHQQ", "name_at info other section value size")
    RELOCATION = ("<QQq", "address info addend")

    def __init__(self, data: bytes) -> None:
        self.bytes = bytearray(data)

    @property
    def data(self) -> bytes:
        return bytes(self.bytes)

    def read(self, at: int, form: tuple[str, str]) -> dict[str, int]:
        return dict(zip(form[1].split(), struct.unpack_from(form[0], self.bytes, at), strict=True))

    def write(self, at: int, form: tuple[str, str], **fields: int) -> "Edit":
        struct.pack_into(form[0], self.bytes, at, *(self.read(at, form) | fields).values())
        return self

    def header(self, **fields: int) -> "Edit":
        return self.write(0, self.HEADER, **fields)

    def segment_places(self, kind: int) -> list[int]:
        head = self.read(0, self.HEADER)
        places = [head["segments_at"] + 56 * number for number in range(head["segment_count"])]
        return [at for at in places if self.read(at, self.SEGMENT)["kind"] == kind]

    def segment(self, of_kind: int, number: int = 0, /, **fields: int) -> "Edit":
        """Change the segment with this number among those of its kind."""
        return self.write(self.segment_places(of_kind)[number], self.SEGMENT, **fields)

    def section_place(self, name: str) -> int:
        head = self.read(0, self.HEADER)
        places = [head["sections_at"] + 64 * number for number in range(head["section_count"])]
        names = self.read(places[head["names_index"]], self.SECTION)["offset"]
        for at in places:
            start = names + self.read(at, self.SECTION)["name_at"]
            if self.bytes[start : self.bytes.index(0, start)].decode() == name:
                return at
        raise KeyError(name)

    def of_section(self, name: str) -> dict[str, int]:
        return self.read(self.section_place(name), self.SECTION)

    def section(self, name: str, /, **fields: int) -> "Edit":
        return self.write(self.section_place(name), self.SECTION, **fields)

    def rows(self, name: str, form: tuple[str, str]) -> list[int]:
        """The places of a section's rows in the file."""
        place = self.of_section(name)
        return list(range(place["offset"], place["offset"] + place["size"], struct.calcsize(form[0])))

    def tag(self, kind: int, /, **fields: int) -> "Edit":
        """Change the first dynamic tag of a kind."""
        rows = (at for at in self.rows(".dynamic", self.TAG) if self.read(at, self.TAG)["kind"] == kind)
        return self.write(next(rows), self.TAG, **fields)

    def content(self, name: str, offset: int, data: bytes) -> "Edit":
        """Overwrite bytes of a section."""
        at = self.of_section(name)["offset"] + offset
        self.bytes[at : at + len(data)] = data
        return self
