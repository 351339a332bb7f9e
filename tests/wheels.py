"""Small wheels for tests, good and bad: real zip files, real (if tiny) ELF files, real offload bundles.

The ELF files hold what the pipeline reads (header, dynamic section, dynamic symbols with versions, the device
code's section) and no code, so they cannot be loaded.
"""

import base64
import hashlib
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wheel_builder.audit.rules import Expectation
from wheel_builder.base.archs import known_archs
from wheel_builder.build.product import Product
from wheel_builder.build.sbom import FILE, Materials, sbom_text
from wheel_builder.files.library import LIBRARY
from wheel_builder.provenance.attest import write_provenance
from wheel_builder.provenance.provenance import LOCAL, Provenance, RunDetails

EM_X86_64, EM_AMDGPU = 62, 224
# With the flags "any" for sramecc and xnack where an arch has them.
E_FLAGS = {a.name: a.elf_machine | (0x500 if ":" in a.device_name else 0) for a in known_archs().values()}
ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")  # of these wheels, independent of the product's own
KERNELS = ("fa_fwd_bf16_d64", "fa_fwd_fp16_d64")
BASE_VERSION, ROCM, PLATFORM = "0.1.0", "7.2", "manylinux_2_28_x86_64"
VERSION = f"{BASE_VERSION}+rocm{ROCM}"
DIST_INFO = f"flash_attn_rocm-{VERSION}.dist-info"

MODULE = b"VALUE = 42\n"
README = b"A wheel for tests.\n"
# What the sources of these wheels would say.
PRODUCT = Product(
    files={"flash_attn_rocm/__init__.py": hashlib.sha256(MODULE).hexdigest()},
    licenses={},
    fields={
        "Name": ("flash-attn-rocm",),
        "Summary": ("a wheel for tests",),
        "Requires-Python": (">=3.10",),
        "Description-Content-Type": ("text/markdown",),
    },
    readme=README,
)
EXPECTATION = Expectation(
    kernels={arch: frozenset(KERNELS) for arch in ARCHS},
    rocm=ROCM,
    base_version=BASE_VERSION,
    platform_tag=PLATFORM,
    torch_floor="2.10",
    max_mib=1.0,
    torch_headers="2.13.0",
    product=PRODUCT,
)


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol; ``version`` only for undefined ones, like "GLIBC_2.14"."""

    name: str
    defined: bool = False
    weak: bool = False
    visibility: int = 0
    version: str = ""


@dataclass(frozen=True)
class ElfFile:
    """The content of a test ELF file; ``data`` encodes it."""

    machine: int = EM_X86_64
    flags: int = 0
    soname: str = ""
    needed: tuple[str, ...] = ()
    runpath: str = ""
    rpath: str = ""
    symbols: tuple[Symbol, ...] = ()
    sections: Mapping[str, bytes] = field(default_factory=dict)
    kind: int = 3
    load_flags: int = 4
    stack_flags: int | None = 6  # None: no PT_GNU_STACK

    @property
    def data(self) -> bytes:
        strings = _Strings()
        dynamic = [(1, strings.add(name)) for name in self.needed]
        dynamic += [
            (tag, strings.add(s)) for tag, s in ((14, self.soname), (15, self.rpath), (29, self.runpath)) if s
        ]
        symbols, versym, verneed, families = _symbol_tables(self.symbols, strings)
        tables = [  # name, type, link (index of .dynstr is 1), info, entry size, content
            (".dynstr", 3, 0, 0, 0, strings.data),
            (".dynsym", 11, 1, 1, 24, symbols),
            (".gnu.version", 0x6FFFFFFF, 2, 0, 2, versym),
            (".gnu.version_r", 0x6FFFFFFE, 1, families, 0, verneed),
            (".dynamic", 6, 1, 0, 16, self._dynamic(dynamic, strings, symbols)),
            *((name, 1, 0, 0, 0, content) for name, content in self.sections.items()),
        ]
        return self._assemble(tables)

    @property
    def _start(self) -> int:
        """Where sections begin: after the header, PT_LOAD, PT_DYNAMIC and PT_GNU_STACK."""
        return 64 + 56 * (2 + (self.stack_flags is not None))

    def _dynamic(self, tags: Sequence[tuple[int, int]], strings: "_Strings", symbols: bytes) -> bytes:
        # The file is loaded as it is, so addresses are offsets; the first section are the strings.
        after = self._start + -(-len(strings.data) // 8) * 8
        return b"".join(struct.pack("<QQ", *tag) for tag in [*tags, (5, self._start), (6, after), (0, 0)])

    def _segments(self, size: int, dynamic: tuple[int, int]) -> bytes:
        rows = [(1, self.load_flags, 0, size), (2, 6, *dynamic)]
        rows += [(0x6474E551, self.stack_flags, 0, 0)] if self.stack_flags is not None else []
        return b"".join(struct.pack("<IIQQQQQQ", k, f, at, at, at, n, n, 8) for k, f, at, n in rows)

    def _assemble(self, tables: Sequence[tuple[str, int, int, int, int, bytes]]) -> bytes:
        names = _Strings()
        body, headers, start, places = b"", [bytes(64)], self._start, {}
        for name, kind, link, info, entry, content in tables:
            headers.append(
                struct.pack(
                    "<IIQQQQIIQQ",
                    names.add(name),
                    kind,
                    0,
                    0,
                    start + len(body),
                    len(content),
                    link,
                    info,
                    8,
                    entry,
                )
            )
            places[name] = (start + len(body), len(content))
            body += content + bytes(-len(content) % 8)
        name_of_names = names.add(".shstrtab")
        headers.append(
            struct.pack("<IIQQQQIIQQ", name_of_names, 3, 0, 0, start + len(body), len(names.data), 0, 0, 1, 0)
        )
        body += names.data + bytes(-len(names.data) % 8)
        ident = (
            b"\x7fELF\x02\x01\x01" + (b"\x40\x04" if self.machine == EM_AMDGPU else b"\x00\x00") + bytes(7)
        )
        header = struct.pack(
            "<HHIQQQIHHHHHH",
            self.kind,
            self.machine,
            1,
            0,
            64,
            start + len(body),
            self.flags,
            64,
            56,
            (start - 64) // 56,
            64,
            len(headers),
            len(headers) - 1,
        )
        segments = self._segments(start + len(body), places[".dynamic"])
        return ident + header + segments + body + b"".join(headers)


class _Strings:
    def __init__(self) -> None:
        self.data = b"\0"

    def add(self, text: str) -> int:
        self.data += text.encode() + b"\0"
        return len(self.data) - len(text.encode()) - 1


def _symbol_tables(symbols: Sequence[Symbol], strings: _Strings) -> tuple[bytes, bytes, bytes, int]:
    versions = {
        v: number for number, v in enumerate(sorted({s.version for s in symbols if s.version}), start=2)
    }
    table, versym = bytes(24), struct.pack("<H", 0)
    for symbol in symbols:
        info = (2 if symbol.weak else 1) << 4 | 1
        table += struct.pack(
            "<IBBHQQ", strings.add(symbol.name), info, symbol.visibility, 7 * symbol.defined, 0, 0
        )
        versym += struct.pack("<H", versions.get(symbol.version, 1))
    auxiliaries = [
        struct.pack("<IHHII", 0, 0, number, strings.add(version), 16 * (number - 1 < len(versions)))
        for version, number in versions.items()
    ]
    if not versions:
        return table, versym, b"", 0
    verneed = struct.pack("<HHIII", 1, len(versions), strings.add("libc.so.6"), 16, 0)
    return table, versym, verneed + b"".join(auxiliaries), 1


def code_object(arch: str, kernels: Sequence[str], *, flags: int | None = None) -> bytes:
    """A code object for ``arch`` with ``kernels``; protected symbols, as the compiler makes them."""
    symbols = tuple(Symbol(f"{k}{end}", defined=True, visibility=3) for k in kernels for end in ("", ".kd"))
    return ElfFile(
        machine=EM_AMDGPU,
        flags=E_FLAGS[arch] if flags is None else flags,
        symbols=symbols,
        sections={".comment": b"clang version 22.1.8\0", ".rodata": _incompressible(arch, *kernels)},
    ).data


def _incompressible(*names: str) -> bytes:
    """As dense as machine code: the audit refuses what unpacks to many times its size."""
    return b"".join(hashlib.sha256(f"{names} {i}".encode()).digest() for i in range(16))


def bundle(code_objects: Mapping[str, bytes]) -> bytes:
    """An uncompressed offload bundle: an empty host entry, then one entry per arch."""
    contents = {"host-x86_64-unknown-linux-gnu-": b""}
    contents |= {f"hipv4-amdgcn-amd-amdhsa--{arch}": data for arch, data in code_objects.items()}
    table, offset = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(contents)), 4096
    for name, data in contents.items():
        table += struct.pack("<QQQ", offset, len(data), len(name)) + name.encode()
        offset += -(-len(data) // 4096) * 4096
    return padded(padded(table) + b"".join(padded(data) for data in contents.values()))


def padded(data: bytes) -> bytes:
    """``data`` filled up with zeros to a multiple of 4096."""
    return data + bytes(-len(data) % 4096)


def fatbin(archs: Sequence[str] = ARCHS, kernels: Sequence[str] = KERNELS) -> bytes:
    """One bundle per kernel, each with a code object for every arch."""
    return b"".join(bundle({arch: code_object(arch, [kernel]) for arch in archs}) for kernel in kernels)


GOOD_LIBRARY = ElfFile(
    soname="libflash_attn_rocm.so",
    needed=("libtorch.so", "libc.so.6", "ld-linux-x86-64.so.2"),
    symbols=(
        Symbol("memcpy", version="GLIBC_2.14"),
        Symbol("__tls_get_addr", version="GLIBC_2.3"),
        Symbol("torch_library_impl"),
        Symbol("aoti_torch_get_data_ptr"),
        Symbol("aoti_torch_get_current_cuda_stream", weak=True),
        Symbol("hipModuleLoadData", weak=True),
        Symbol("hidden_helper", defined=True, visibility=2),
    ),
    sections={".hip_fatbin": fatbin()},
)


def library(**changes: object) -> bytes:
    """The good host library with ``changes`` to its fields."""
    return replace(GOOD_LIBRARY, **changes).data


def library_with(*symbols: Symbol) -> bytes:
    """The good host library with further symbols."""
    return library(symbols=GOOD_LIBRARY.symbols + symbols)


MATERIALS = Materials(
    version=VERSION,
    sources="5" * 64,
    system="Debian GNU/Linux forky/sid",
    packages={"clang-22": "1:22.1.8-3", "hipcc": "7.2.4+dfsg-1~exp1", "bash": "5.3-4"},
    zig="0.17.0",
    libcxx="22.1.8",
    torch=EXPECTATION.torch_headers,
    torch_sha256="7" * 64,
)
# The builder image's facts, as in its manifest.
BUILDER_FACTS = {
    "ref": "builder", "image_id": "sha256:1", "python_tag": "cp314-cp314", "os": MATERIALS.system,
    "packages": MATERIALS.packages, "python_packages": {"ziglang": MATERIALS.zig}, "libcxx": MATERIALS.libcxx,
}  # fmt: skip
SBOM = f"{DIST_INFO}/sboms/{FILE}"
METADATA = f"""\
Metadata-Version: 2.4
Name: flash-attn-rocm
Version: {VERSION}
Summary: a wheel for tests
Requires-Python: >=3.10
Description-Content-Type: text/markdown

A wheel for tests.
"""
WHEEL = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: py3-none-{PLATFORM}\n"


def good_files() -> dict[str, bytes]:
    """The files of a good wheel, without RECORD."""
    return {
        "flash_attn_rocm/__init__.py": MODULE,
        LIBRARY: GOOD_LIBRARY.data,
        f"{DIST_INFO}/METADATA": METADATA.encode(),
        f"{DIST_INFO}/WHEEL": WHEEL.encode(),
        SBOM: sbom_text(MATERIALS).encode(),
    }


def write_wheel(
    folder: Path,
    files: Mapping[str, bytes] | None = None,
    *,
    name: str = f"flash_attn_rocm-{VERSION}-py3-none-{PLATFORM}.whl",
    record: bytes | None = None,
) -> Path:
    """Write a wheel with ``files`` and, unless one is given, a correct RECORD."""
    files = good_files() if files is None else files
    dist_info = "-".join(name.split("-")[:2]) + ".dist-info"
    path = folder / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, data in files.items():
            archive.writestr(zipfile.ZipInfo(inside), data, zipfile.ZIP_DEFLATED)
        text = record_text(files, dist_info) if record is None else record
        archive.writestr(zipfile.ZipInfo(f"{dist_info}/RECORD"), text)
    return path


def record_text(files: Mapping[str, bytes], dist_info: str = DIST_INFO) -> bytes:
    """A correct RECORD for ``files``."""
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    return "".join([*rows, f"{dist_info}/RECORD,,\n"]).encode()


def write_statement(wheel: Path, /, **changes: object) -> Path:
    """Write a statement beside ``wheel`` that names it, and its record when there is one; its path."""
    found = Provenance(
        wheel=wheel.name,
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        rocm=ROCM,
        archs=ARCHS,
        version=VERSION,
        parameters={},
        dependencies=(),
        byproducts=(),
        run=RunDetails(LOCAL, "2026-11-21T10:00:00Z"),
    )
    return write_provenance(wheel, replace(found, **changes))


def project_wheel(
    folder: Path, name: str, version: str, *, module: bytes = b"VALUE = 42\n", requires: str = ">=3.8"
) -> Path:
    """A small pure-Python wheel of any project that pip can install."""
    module_name = name.replace("-", "_")
    dist_info = f"{module_name}-{version}.dist-info"
    metadata = METADATA.replace("flash-attn-rocm", name).replace(VERSION, version).replace(">=3.10", requires)
    files = {
        f"{module_name}/__init__.py": module,
        f"{dist_info}/METADATA": metadata.encode(),
        f"{dist_info}/WHEEL": WHEEL.replace("false", "true").replace(PLATFORM, "any").encode(),
    }
    return write_wheel(folder, files, name=f"{module_name}-{version}-py3-none-any.whl")
