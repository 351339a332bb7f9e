"""Small wheels for tests, good and bad: real zip files, real (if tiny) ELF files, real offload bundles."""

import base64
import hashlib
import lzma
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.tools.made import elves
from tests.tools.made.elves import ElfFile, Symbol
from wheel_builder.audit.rules import Expectation
from wheel_builder.build.product import Product
from wheel_builder.build.sbom import FILE, Materials, sbom_text
from wheel_builder.build.zstd import Zstd
from wheel_builder.files.device.fatbin import read_fatbin
from wheel_builder.files.device.library import LIBRARY
from wheel_builder.files.device.packing import packed
from wheel_builder.images.sdist import Sdist
from wheel_builder.provenance.attest import write_provenance
from wheel_builder.provenance.provenance import LOCAL, Provenance, RunDetails

ARCHS = ("gfx908", "gfx942", "gfx1030", "gfx1100")  # of these wheels, independent of the product's own
KERNELS = ("fa_fwd_bf16_d64", "fa_fwd_fp16_d64")
BASE_VERSION, ROCM, PLATFORM = "0.1.0", "7.2", "manylinux_2_28_x86_64"
VERSION = f"{BASE_VERSION}+rocm{ROCM}"
DIST_INFO = f"flash_attn_rocm-{VERSION}.dist-info"

MODULE = b"VALUE = 42\n"
README = b"A wheel for tests.\n"
# The content of these wheels' sources.
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


def code_object(arch: str, kernels: Sequence[str], **changes: object) -> bytes:
    """A code object as dense as machine code: the audit refuses highly compressible files."""
    noise = b"".join(hashlib.sha256(f"{arch, *kernels} {i}".encode()).digest() for i in range(16))
    return elves.code_object(arch, kernels, noise=noise, **changes)


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


def uncompressed(archs: Sequence[str] = ARCHS, kernels: Sequence[str] = KERNELS) -> bytes:
    """One bundle per kernel, each with a code object for every arch, as clang alone makes them."""
    return b"".join(bundle({arch: code_object(arch, [kernel]) for arch in archs}) for kernel in kernels)


def fatbin(archs: Sequence[str] = ARCHS, kernels: Sequence[str] = KERNELS) -> bytes:
    """A compressed bundle per arch, each with a code object for every kernel."""
    return b"".join(of_arch(arch, *(code_object(arch, [kernel]) for kernel in kernels)) for arch in archs)


def of_arch(arch: str, *codes: bytes) -> bytes:
    """A compressed bundle of these code objects."""
    return padded(packed(arch, {str(number): code for number, code in enumerate(codes)}))


def of_each(codes: Mapping[str, bytes]) -> bytes:
    """A compressed bundle per arch, each with one code object."""
    return b"".join(of_arch(arch, code) for arch, code in codes.items())


REAL = Path(__file__).parents[2] / "data" / "fatbin" / "two_instances.xz"


def real_bundles() -> dict[str, bytes]:
    """A compressed bundle per arch, of code objects from a real compiler (tests/data/fatbin)."""
    codes: dict[str, list[bytes]] = {}
    for code in read_fatbin(lzma.decompress(REAL.read_bytes())):
        codes.setdefault(code.arch, []).append(code.data)
    return {arch: of_arch(arch, *each) for arch, each in codes.items()}


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
    zstd=Zstd("1.5.7", Sdist("zstandard", "0.25.0", "3" * 64), {"zstd.c": "4" * 64}),
)
# The builder image's facts, as in its manifest.
BUILDER_FACTS = {
    "ref": "builder", "image_id": f"sha256:{'1' * 64}", "python_tag": "cp314-cp314", "os": MATERIALS.system,
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
    """The files of a good wheel, except RECORD."""
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
            archive.writestr(zipfile.ZipInfo(inside), data, zipfile.ZIP_DEFLATED, compresslevel=1)
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
    """Write a statement for ``wheel`` and its record, if there is one, into its folder. Returns its path."""
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
    folder: Path,
    name: str,
    version: str,
    *,
    module: bytes = b"VALUE = 42\n",
    requires: str = ">=3.8",
    build: str = "",
) -> Path:
    """A small pure-Python wheel of any project, installable by pip."""
    module_name = name.replace("-", "_")
    dist_info = f"{module_name}-{version}.dist-info"
    metadata = METADATA.replace("flash-attn-rocm", name).replace(VERSION, version).replace(">=3.10", requires)
    files = {
        f"{module_name}/__init__.py": module,
        f"{dist_info}/METADATA": metadata.encode(),
        f"{dist_info}/WHEEL": WHEEL.replace("false", "true").replace(PLATFORM, "any").encode(),
    }
    if build:
        files[f"{dist_info}/WHEEL"] += f"Build: {build}\n".encode()
    numbered = f"{version}-{build}" if build else version
    return write_wheel(folder, files, name=f"{module_name}-{numbered}-py3-none-any.whl")
