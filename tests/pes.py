"""Small DLLs for tests, laid out as by lld: tables and sections, and no code that does anything."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

CODE, DATA, READ, WRITE, EXECUTE = 0x20, 0x40, 0x40000000, 0x80000000, 0x20000000
PE_AT, HEADERS = 0x80, 0x400
OPTIONAL_AT = PE_AT + 24
SECTIONS_AT = OPTIONAL_AT + 112 + 16 * 8
IMPORTS = {
    "torch_cpu.dll": ("aoti_torch_get_sizes", "torch_library_impl"),
    "KERNEL32.dll": ("GetModuleHandleA", "GetProcAddress"),
    "api-ms-win-crt-heap-l1-1-0.dll": ("free", "malloc"),
}
EXPORTS = ("fa_gpus",)


@dataclass(frozen=True)
class Dll:
    """What the file holds; ``extra`` are sections after .rdata, each with its bytes and flags."""

    imports: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: IMPORTS)
    exports: tuple[str, ...] = EXPORTS
    name: str = "flash_attn_rocm.dll"
    extra: tuple[tuple[str, bytes, int], ...] = ((".hip_fat", b"__CLANG_OFFLOAD_BUNDLE__", DATA | READ),)
    characteristics: int = 0x2022
    dll_characteristics: int = 0x160
    overlay: bytes = b""

    @property
    def data(self) -> bytes:
        text = (".text", b"\xc3" * 16, CODE | READ | EXECUTE)
        tables, places = self._tables(0x2000)
        sections = [text, (".rdata", tables, DATA | READ), *self.extra]
        directories = [places["export"], places["import"], *[(0, 0)] * 14]
        headers, bodies, address, at = b"", b"", 0x1000, HEADERS
        for name, content, flags in sections:
            size = len(content) + -len(content) % 512
            headers += struct.pack(
                "<8sIIIIIIHHI", name.encode(), len(content), address, size, at, 0, 0, 0, 0, flags
            )
            bodies += content.ljust(size, b"\0")
            address, at = address + len(content) + -len(content) % 4096, at + size
        optional = struct.pack(
            "<HBBIIIIIQIIHHHHHHIIIIHHQQQQII", 0x20B, 14, 0, 512, 0, 0, 0x1000, 0x1000, 0x180000000, 4096, 512,
            6, 0, 0, 0, 6, 0, 0, address, HEADERS, 0, 3, self.dll_characteristics, 1 << 20, 4096, 1 << 20,
            4096, 0, 16,
        )  # fmt: skip
        optional += b"".join(struct.pack("<II", *place) for place in directories)
        machine = struct.pack("<HHIIIHH", 0x8664, len(sections), 0, 0, 0, len(optional), self.characteristics)
        dos = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", PE_AT)
        start = dos.ljust(PE_AT, b"\0") + b"PE\0\0" + machine + optional + headers
        return start.ljust(HEADERS, b"\0") + bodies + self.overlay

    def _tables(self, base: int) -> tuple[bytes, dict[str, tuple[int, int]]]:
        """.rdata at the address ``base``, and where its tables are."""
        table = bytearray(20 * (len(self.imports) + 1))
        entries = []
        for dll, names in self.imports.items():
            at = {name: base + _add(table, struct.pack("<H", 0) + name.encode() + b"\0") for name in names}
            lists = struct.pack(f"<{len(names) + 1}Q", *at.values(), 0)
            lookup, addresses = base + _add(table, lists), base + _add(table, lists)
            entries.append((lookup, 0, 0, base + _add(table, dll.encode() + b"\0"), addresses))
        for number, entry in enumerate(entries):
            table[20 * number : 20 * number + 20] = struct.pack("<5I", *entry)
        names = [base + _add(table, name.encode() + b"\0") for name in self.exports]
        own, count = base + _add(table, self.name.encode() + b"\0"), len(names)
        functions = base + _add(table, struct.pack(f"<{count}I", *[0x1000] * count))
        listed = base + _add(table, struct.pack(f"<{count}I", *names))
        numbers = base + _add(table, struct.pack(f"<{count}H", *range(count)))
        exports = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, own, 1, count, count, functions, listed, numbers)
        places = {"import": (base, 20 * (len(entries) + 1)), "export": (base + _add(table, exports), 40)}
        return bytes(table), places


def _add(table: bytearray, data: bytes) -> int:
    table += bytes(-len(table) % 8)
    at = len(table)
    table += data
    return at


def changed(data: bytes, at: int, form: str, value: int) -> bytes:
    """``data`` with a number at ``at`` replaced."""
    new = struct.pack(form, value)
    return data[:at] + new + data[at + len(new) :]
