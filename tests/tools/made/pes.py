"""Small DLLs for tests, laid out as by lld: tables and sections, with empty code."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from wheel_builder.audit.dll_memory import STUB

CODE, DATA, READ, WRITE, EXECUTE = 0x20, 0x40, 0x40000000, 0x80000000, 0x20000000
DISCARDABLE = 0x2000000
PE_AT, HEADERS, BASE = 0x78, 0x400, 0x180000000
OPTIONAL_AT = PE_AT + 24
DIRECTORIES_AT = OPTIONAL_AT + 112
SECTIONS_AT = DIRECTORIES_AT + 16 * 8
IMPORTS = {
    "torch_cpu.dll": ("aoti_torch_get_sizes", "torch_library_impl"),
    "KERNEL32.dll": ("GetModuleHandleA", "GetProcAddress"),
    "api-ms-win-crt-heap-l1-1-0.dll": ("free", "malloc"),
}
EXPORTS = ("fa_gpus",)
# Addresses of functions: the entry point, shared with all exports, and two callbacks of threads.
FUNCTIONS = (0x1000, 0x1004, 0x1008)
TABLES = {"export": 0, "import": 1, "exception": 3, "relocation": 5, "tls": 9, "import address": 12}


@dataclass(frozen=True)
class Dll:
    """The file's content. ``extra`` are sections after .rdata, each with its bytes and flags.

    Unless it is ``bare``, sections for the loader's relocations and calls follow these.
    """

    imports: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: IMPORTS)
    exports: tuple[str, ...] = EXPORTS
    name: str = "flash_attn_rocm.dll"
    extra: tuple[tuple[str, bytes, int], ...] = ((".hip_fat", b"__CLANG_OFFLOAD_BUNDLE__", DATA | READ),)
    characteristics: int = 0x2022
    dll_characteristics: int = 0x160
    overlay: bytes = b""
    bare: bool = False

    @property
    def data(self) -> bytes:
        first, _ = self._sections({})
        addresses, address = {}, 0x1000
        for name, content, _ in first:
            addresses.setdefault(name, address)
            address += len(content) + -len(content) % 4096
        sections, places = self._sections(addresses)
        headers, bodies, at = b"", b"", HEADERS
        for name, content, flags in sections:
            size, place = len(content) + -len(content) % 512, addresses[name]
            headers += struct.pack(
                "<8sIIIIIIHHI", name.encode(), len(content), place, size, at, 0, 0, 0, 0, flags
            )
            bodies += content.ljust(size, b"\xcc" if flags & EXECUTE else b"\0")
            at += size
        optional = struct.pack(
            "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20B, 14, 0, 512, 0, 0, FUNCTIONS[0], 0x1000, BASE, 4096, 512,
            6, 0, 0, 0, 6, 0, 0, address, HEADERS, 0, 2, self.dll_characteristics, 1 << 20, 4096, 1 << 20,
            4096, 0, 16,
        )  # fmt: skip
        by_number = {TABLES[kind]: place for kind, place in places.items()}
        optional += b"".join(struct.pack("<II", *by_number.get(number, (0, 0))) for number in range(16))
        machine = struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0, 0, len(optional), self.characteristics)
        start = STUB + b"PE\0\0" + machine + optional + headers
        return start.ljust(HEADERS, b"\0") + bodies + self.overlay

    def _sections(
        self, at: Mapping[str, int]
    ) -> tuple[list[tuple[str, bytes, int]], dict[str, tuple[int, int]]]:
        """All sections, with their addresses from ``at``, and the places of tables."""
        tables, places, fields = self._tables(at)
        sections = [
            (".text", b"\xc3" * 16, CODE | READ | EXECUTE), (".rdata", tables, DATA | READ), *self.extra,
        ]  # fmt: skip
        if self.bare:
            return sections, places
        if ".data" not in {name for name, *_ in self.extra}:
            pointers = struct.pack("<Q", BASE + at.get(".rdata", 0)).ljust(64, b"\0")
            sections.append((".data", pointers, DATA | READ | WRITE))
            fields.append(at.get(".data", 0))
        unwind = places.pop("unwind")[0]
        functions = b"".join(struct.pack("<III", begin, begin + 1, unwind) for begin in FUNCTIONS)
        relocations = relocation_blocks(fields)
        sections += [
            (".pdata", functions, DATA | READ), (".tls", bytes(16), DATA | READ | WRITE),
            (".reloc", relocations, DATA | READ | DISCARDABLE),
        ]  # fmt: skip
        places["exception"] = (at.get(".pdata", 0), len(functions))
        places["relocation"] = (at.get(".reloc", 0), len(relocations))
        return sections, places

    def _tables(self, at: Mapping[str, int]) -> tuple[bytes, dict[str, tuple[int, int]], list[int]]:
        """.rdata, the addresses of its tables, and its relocated fields."""
        base = at.get(".rdata", 0)
        table = bytearray(20 * (len(self.imports) + 1))
        lists, lookups, dlls = [], [], []
        for dll, names in self.imports.items():
            hints = {name: base + _add(table, struct.pack("<H", 0) + name.encode() + b"\0") for name in names}
            lists.append(struct.pack(f"<{len(names) + 1}Q", *hints.values(), 0))
            lookups.append(base + _add(table, lists[-1]))
            dlls.append(base + _add(table, dll.encode() + b"\0"))
        filled = [base + _add(table, each) for each in lists]
        for number, (lookup, dll_at, addresses) in enumerate(zip(lookups, dlls, filled, strict=True)):
            table[20 * number : 20 * number + 20] = struct.pack("<5I", lookup, 0, 0, dll_at, addresses)
        places = {"import": (base, 20 * (len(lists) + 1)), "export": self._exports(table, base)}
        if self.bare:
            return bytes(table), places, []
        places["import address"] = (filled[0], sum(map(len, lists)))
        places["unwind"] = (base + _add(table, b"\1\0\0\0"), 4)
        callbacks = base + _add(table, struct.pack("<3Q", *(BASE + begin for begin in FUNCTIONS[1:]), 0))
        tls, data = at.get(".tls", 0), at.get(".data", 0)
        storage = struct.pack(
            "<QQQQII", BASE + tls, BASE + tls + 16, BASE + data + 32, BASE + callbacks, 0, 0x500000
        )
        places["tls"] = (base + _add(table, storage), 40)
        # A table of functions, as of a class, and a pointer to the image.
        others = base + _add(table, struct.pack("<3Q", BASE + FUNCTIONS[0], BASE + base, BASE))
        fields = [callbacks, callbacks + 8, *(places["tls"][0] + 8 * number for number in range(4))]
        return bytes(table), places, [*fields, others, others + 8, others + 16]

    def _exports(self, table: bytearray, base: int) -> tuple[int, int]:
        names = [base + _add(table, name.encode() + b"\0") for name in self.exports]
        own, count = base + _add(table, self.name.encode() + b"\0"), len(names)
        functions = base + _add(table, struct.pack(f"<{count}I", *[FUNCTIONS[0]] * count))
        listed = base + _add(table, struct.pack(f"<{count}I", *names))
        numbers = base + _add(table, struct.pack(f"<{count}H", *range(count)))
        exports = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, own, 1, count, count, functions, listed, numbers)
        return base + _add(table, exports), 40


def relocation_blocks(fields: list[int], kind: int = 10) -> bytes:
    """The base relocations of fields, a block for each page."""
    found = b""
    for page in sorted({each & ~4095 for each in fields}):
        entries = [kind << 12 | each & 4095 for each in sorted(fields) if each & ~4095 == page]
        entries += [0] * (len(entries) % 2)
        found += struct.pack(f"<II{len(entries)}H", page, 8 + 2 * len(entries), *entries)
    return found


def _add(table: bytearray, data: bytes) -> int:
    table += bytes(-len(table) % 8)
    at = len(table)
    table += data
    return at


def changed(data: bytes, at: int, form: str, value: int) -> bytes:
    """``data`` with a number at ``at`` replaced."""
    new = struct.pack(form, value)
    return data[:at] + new + data[at + len(new) :]
