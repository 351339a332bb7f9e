"""The rules for a finished wheel, and their input values.

A rule is a function from the wheel's content (``Subject``) and the plan (``Expectation``, or
``PureExpectation`` for a wheel without a library) to findings. ``RULES`` and ``PURE_RULES`` name the rules.
All rules run, so all findings are reported at once.

torch-abi-audit provides the table of torch's stable functions, each with its first torch release.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

import torch_abi_audit
from packaging.version import Version

from wheel_builder.audit import sbom as sbom_check
from wheel_builder.audit.contents import BUILT, BUILT_FOR_WINDOWS, file_problems, metadata_problems, some
from wheel_builder.audit.dll import TORCH_DLL, dll_problems
from wheel_builder.audit.loading import bundle_problems, content_problems, layout_problems, soname_problems
from wheel_builder.base.errors import AuditError, ElfError, WheelFileError
from wheel_builder.base.plain import MIB
from wheel_builder.build.product import Product
from wheel_builder.files.binaries import elf, pe
from wheel_builder.files.binaries.elf import Elf, Undefined
from wheel_builder.files.binaries.pe import Pe
from wheel_builder.files.device import fatbin
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY, unused_bundles, unused_dll_bundles
from wheel_builder.files.foreign import is_foreign
from wheel_builder.files.wheels import wheelfile
from wheel_builder.files.wheels.wheelfile import WheelFile
from wheel_builder.matrix.model import WINDOWS_TAG
from wheel_builder.tables.archs import code_of

PACKAGE = "flash_attn_rocm"
TORCH_LIBRARY = "libtorch.so"
GLIBC_LIBRARIES = frozenset(
    {"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}
)
TORCH_SHIM = re.compile(r"(aoti_)?torch_\w+")
HIP_FUNCTION = re.compile(r"hip[A-Z]\w*")


class Planned(Protocol):
    """Expectations of any wheel. ``built`` are its files made by the build."""

    @property
    def package(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def tag(self) -> str: ...
    @property
    def purelib(self) -> str: ...
    @property
    def max_mib(self) -> float: ...
    @property
    def product(self) -> Product: ...
    @property
    def built(self) -> frozenset[str]: ...
    @property
    def library(self) -> str: ...


@dataclass(frozen=True)
class PureExpectation:
    """Expectations of a wheel with only Python files, for every machine."""

    package: str
    version: str
    max_mib: float
    product: Product
    tag: str = "py3-none-any"
    purelib: str = "true"
    built: frozenset[str] = frozenset()
    library: str = ""


@dataclass(frozen=True)
class Expectation:
    """The plan's promises.

    ``kernels`` maps each planned arch to the names of its kernels. ``base_version`` is the version without
    its local label. ``rocm`` gives the label. The public wheel has none. ``product`` is the sources' part of
    the wheel. ``needed`` are the allowed SONAMEs in the library's DT_NEEDED.
    """

    kernels: Mapping[str, frozenset[str]]
    rocm: str
    base_version: str
    platform_tag: str
    torch_floor: str
    max_mib: float
    torch_headers: str
    product: Product
    needed: frozenset[str] = GLIBC_LIBRARIES | {TORCH_LIBRARY}
    package: str = PACKAGE
    purelib: str = "false"

    @property
    def for_windows(self) -> bool:
        return self.platform_tag == WINDOWS_TAG

    @property
    def library(self) -> str:
        return WINDOWS_LIBRARY if self.for_windows else LIBRARY

    @property
    def built(self) -> frozenset[str]:
        return BUILT_FOR_WINDOWS if self.for_windows else BUILT

    @property
    def version(self) -> str:
        return f"{self.base_version}+rocm{self.rocm}" if self.rocm else self.base_version

    @property
    def tag(self) -> str:
        return f"py3-none-{self.platform_tag}"

    @property
    def glibc(self) -> tuple[int, int]:
        """The newest glibc allowed by the platform tag. Raises ``AuditError`` for any other kind of tag."""
        match = re.fullmatch(r"manylinux_(\d+)_(\d+)_\w+", self.platform_tag)
        if match is None:
            title = f"the planned platform tag {self.platform_tag!r} is not a manylinux tag"
            raise AuditError(title, (), advice="set platform_tag in matrix.yaml, like manylinux_2_28_x86_64")
        return int(match[1]), int(match[2])


@dataclass(frozen=True)
class Finding:
    """One difference from the plan."""

    found: str
    expected: str
    advice: str


@dataclass(frozen=True)
class Device:
    """A code object and its ELF."""

    code: CodeObject
    elf: Elf


@dataclass(frozen=True)
class Subject:
    """The wheel's content. Unreadable parts are empty: ``library`` None, ``devices`` (), the reason in
    ``faults``.

    In a wheel for Windows ``library`` is None, and ``dll`` is its library.
    """

    wheel: WheelFile
    library: Elf | None
    devices: tuple[Device, ...]
    faults: tuple[Finding, ...]
    dll: Pe | None = None

    @property
    def codes(self) -> tuple[CodeObject, ...]:
        return tuple(device.code for device in self.devices)


# Rules about the file as a whole


def readable(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """The library and its device code can be read."""
    yield from subject.faults


def file_name(subject: Subject, expectation: Planned) -> Iterator[Finding]:
    """The file's name says project, version and tag as planned."""
    build = [expectation.product.build] if expectation.product.build else []
    expected = "-".join([expectation.package, expectation.version, *build, expectation.tag]) + ".whl"
    if subject.wheel.path.name != expected:
        yield Finding(subject.wheel.path.name, expected, "repair with the planned tag; never rename a wheel")


def size(subject: Subject, expectation: Planned) -> Iterator[Finding]:
    """The file is within its budget."""
    if subject.wheel.size > expectation.max_mib * MIB:
        yield Finding(
            f"{subject.wheel.size / MIB:.2f} MiB",
            f"at most {expectation.max_mib:g} MiB",
            "find what grew (unzip -lv), or raise max_wheel_mib in matrix.yaml with a reason",
        )


def contents(subject: Subject, expectation: Planned) -> Iterator[Finding]:
    """The wheel has exactly the files of the sources, unchanged."""
    for found, expected in file_problems(subject.wheel, expectation.product, expectation.built):
        yield Finding(found, expected, "build the wheel again, from the sources of its commit")


def record(subject: Subject, _: Planned) -> Iterator[Finding]:
    """RECORD lists every file with its true hash and size."""
    for problem in wheelfile.record_problems(subject.wheel):
        yield Finding(
            problem, "RECORD as the files are", "something changed the wheel after its build: build again"
        )


def metadata(subject: Subject, expectation: Planned) -> Iterator[Finding]:
    """METADATA has the planned name and version, and METADATA and WHEEL match the sources."""
    try:
        found = wheelfile.read_metadata(subject.wheel)
    except WheelFileError as error:
        yield from (
            Finding(problem, "valid METADATA", "see [project] in pyproject.toml")
            for problem in error.problems
        )
        return
    if (expected := str(Version(expectation.version))) != str(found.version):
        yield Finding(f"Version: {found.version}", expected, "see [project] in pyproject.toml")
    for said, wanted in metadata_problems(subject.wheel, expectation.product):
        yield Finding(said, wanted, "see [project] in pyproject.toml; build the wheel again")


def sbom(subject: Subject, expectation: Expectation) -> Iterator[Finding]:
    """The SBOM exists, and agrees with the version, torch's headers and the code objects' compiler."""
    found = sbom_check.find(subject.wheel.files, subject.wheel.dist_info)
    if subject.faults:
        return  # the code objects are unreadable
    compilers = {release for device in subject.devices for release in fatbin.compilers(device.code.data)}
    for problem in sbom_check.sbom_problems(
        found, version=expectation.version, torch=expectation.torch_headers, compilers=compilers
    ):
        yield Finding(problem, "the SBOM that the wheel stage writes", "build the wheel again")


def wheel_tag(subject: Subject, expectation: Planned) -> Iterator[Finding]:
    """The WHEEL file has the planned tag, and is for one platform."""
    headers = wheelfile.wheel_headers(subject.wheel)
    for field, expected in {"Tag": (expectation.tag,), "Root-Is-Purelib": (expectation.purelib,)}.items():
        if headers.get(field, ()) != expected:
            found = ", ".join(headers.get(field, ())) or "nothing"
            yield Finding(
                f"WHEEL says {field}: {found}", expected[0], "build and repair again; auditwheel sets the tag"
            )


def foreign_libraries(subject: Subject, _: Planned) -> Iterator[Finding]:
    """The wheel contains no copy of a library of ROCm or torch."""
    for name, data in sorted(subject.wheel.files.items()):
        named = PurePosixPath(name).name
        soname = _soname(data)
        if is_foreign(named) or is_foreign(soname):
            known_as = f" (SONAME {soname})" if soname not in ("", named) else ""
            advice = "exclude its SONAME, with the version, in wheel_builder/files/foreign.py"
            yield Finding(f"{name}{known_as}", "no library of ROCm or torch", advice)


def only_library(subject: Subject, expectation: Planned) -> Iterator[Finding]:
    """The host library is the only compiled file. A pure wheel has none."""
    expected = f"{expectation.library} as the only compiled file" if expectation.library else "only text"
    for name, data in sorted(subject.wheel.files.items()):
        if data.startswith((elf.MAGIC, pe.MAGIC)) and name != expectation.library:
            yield Finding(name, expected, "link it statically, or leave it to the user")


def _soname(data: bytes) -> str:
    try:
        return elf.read_elf(data).soname if data.startswith(elf.MAGIC) else ""
    except ElfError:
        return ""  # only_library refuses it anyway


# Rules about the host library


def elf_layout(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """Library and code objects are loaded as they read, and ask a loader for nothing unusual."""
    library = subject.wheel.files.get(LIBRARY) if subject.library else None
    for problem in layout_problems(library, subject.codes):
        yield Finding(
            problem, "a shared object as the linker writes it", "link it again, with the flags of the build"
        )


def soname(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """The library's SONAME is its own."""
    for problem in soname_problems(subject.library.soname if subject.library else ""):
        yield Finding(problem, "none, or the library's own name", "link without -soname")


def needed(subject: Subject, expectation: Expectation) -> Iterator[Finding]:
    """The library needs only libtorch.so and glibc."""
    if subject.library is None:
        return
    expected = f"only {', '.join(sorted(expectation.needed))}"
    for soname in sorted(set(subject.library.needed) - expectation.needed):
        yield Finding(
            f"NEEDED {soname}", expected, "do not link it; HIP comes through libtorch's own closure"
        )
    if TORCH_LIBRARY not in subject.library.needed:
        yield Finding(f"no NEEDED {TORCH_LIBRARY}", "it is needed", "link with -Wl,--no-as-needed -ltorch")


def runpath(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """The library has no RPATH or RUNPATH."""
    for path in subject.library.runpath if subject.library else ():
        yield Finding(
            f"RPATH or RUNPATH {path}", "none", "link without -rpath: it could find a second HIP runtime"
        )


def exported(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """The library exports no symbol: loaded with RTLD_GLOBAL, it would shadow others."""
    if subject.library and (names := subject.library.exported):
        advice = "link with the version script that makes all symbols local"
        yield Finding(f"exported {some(names)}", "no exported symbol", advice)


def glibc(subject: Subject, expectation: Expectation) -> Iterator[Finding]:
    """All symbols exist in the glibc of the tag."""
    limit = expectation.glibc
    for symbol in _undefined(subject):
        alone = Elf("", 0, "", (), (), (), (symbol,))
        if elf.max_version(alone, "GLIBC") > limit:
            advice = "link with zig -target x86_64-linux-gnu." + ".".join(map(str, limit))
            yield Finding(f"{symbol.name}@{symbol.version}", f"at most GLIBC_{dotted(limit)}", advice)


def undefined(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """The library imports only glibc, torch's stable functions and, weakly, HIP."""
    expected = "symbols of glibc, torch's stable C functions, and weak hip functions"
    for symbol in _undefined(subject):
        if symbol.version.startswith("GLIBC_") or TORCH_SHIM.fullmatch(symbol.name):
            continue
        if HIP_FUNCTION.fullmatch(symbol.name):
            if not symbol.weak:
                advice = "declare it weak: without a ROCm torch the import would fail"
                yield Finding(f"{symbol.name}, not weak", expected, advice)
        else:
            name = f"{symbol.name}@{symbol.version}" if symbol.version else symbol.name
            yield Finding(name, expected, "link it statically, or use the stable function for it")


def torch_abi(subject: Subject, expectation: Expectation) -> Iterator[Finding]:
    """Every torch function used by the library exists in the oldest supported torch."""
    if subject.library is None and subject.dll is None:
        return
    used = _torch_functions(subject)
    if not used:
        advice = "the binding was not linked in"
        yield Finding("no function of torch", "the ops registered through the stable ABI", advice)
    # The tool answers for the newest of its symbols. One query per symbol names each offender.
    for name in used:
        version, _, unknown = torch_abi_audit.minimum_version((name,))
        advice = "set TORCH_TARGET_VERSION for that torch, or look the function up at run time"
        if unknown:
            yield Finding(
                f"{name}, which no known torch promises",
                f"functions of torch {expectation.torch_floor}",
                advice,
            )
        elif version and version[:2] > Version(expectation.torch_floor).release[:2]:
            found = f"{name}, new in torch {dotted(version)}"
            yield Finding(found, f"nothing newer than torch {expectation.torch_floor}", advice)


# Rules about the device code


def code_objects(subject: Subject, expectation: Expectation) -> Iterator[Finding]:
    """Each planned arch has exactly its planned kernels, each once, and there are no other archs."""
    if subject.faults:
        return
    held = Counter((d.code.arch, kernel) for d in subject.devices for kernel in fatbin.kernels(d.elf))
    archs = {d.code.arch for d in subject.devices}
    planned = ", ".join(sorted(expectation.kernels))
    for arch in sorted(expectation.kernels.keys() - archs):
        yield Finding(
            f"no code object for {arch}", planned, "build device code for it, or take it out of the plan"
        )
    for arch in sorted(archs - expectation.kernels.keys()):
        gfx = fatbin.gfx_of(arch)
        code = code_of(gfx)
        other = f"{arch} runs the code of {code}: bundle without it"
        advice = "plan the arch, or bundle without it" if code == gfx else other
        yield Finding(f"a code object for {arch}", planned, advice)
    for arch in sorted(archs & expectation.kernels.keys()):
        have, want = frozenset(k for a, k in held if a == arch), expectation.kernels[arch]
        if missing := want - have:
            yield Finding(
                f"{arch} lacks {some(missing)}", f"{len(want)} kernels", "see the device-code stage's log"
            )
        if extra := have - want:
            yield Finding(
                f"{arch} has {some(extra)}", f"{len(want)} planned kernels", "add it to the support table"
            )
    for (arch, kernel), count in sorted(held.items()):
        if count > 1:
            yield Finding(f"{kernel} for {arch} {count} times", "once", "one bundle for each instance")


def code_object_arch(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """Each code object is compiled for its bundle's arch, and holds a kernel."""
    for device in subject.devices:
        compiled_for, names = fatbin.machine_arch(device.elf), fatbin.kernels(device.elf)
        if compiled_for != device.code.gfx:
            found = f"{some(names)}: bundled as {device.code.arch}, compiled for {compiled_for}"
            yield Finding(found, "the same arch", "see how the device code was joined")
        if not names:
            advice = "an instance compiled to nothing: see its translation unit"
            yield Finding(
                f"a code object for {device.code.arch} without a kernel", "one kernel at least", advice
            )


def code_object_contents(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """Header, metadata and descriptors of each code object agree."""
    for problem in content_problems(subject.codes):
        yield Finding(problem, "what the compiler writes", "compile the device code again")


def bundles_used(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """The library launches the bundles read here: its code has the address of every bundle."""
    if subject.faults:
        return
    unused = unused_dll_bundles(subject.dll) if subject.dll else unused_bundles(subject.wheel.files[LIBRARY])
    for problem in bundle_problems(unused):
        yield Finding(problem, f"every bundle of {fatbin.SECTION} is used", "link the library again")


# Rules about the library for Windows


def dll(subject: Subject, _: Expectation) -> Iterator[Finding]:
    """Imports, exports, sections and protections match the lists, and no bytes follow the last section."""
    if subject.dll is None:
        return
    for problem in dll_problems(subject.dll, _torch_functions(subject)):
        yield Finding(f"{WINDOWS_LIBRARY}: {problem}", "a DLL as the linker writes it", "link it again")


Rule = Callable[[Subject, Expectation], Iterator[Finding]]
# Rules for every platform, for ELF libraries, and for either kind of library.
_OF_FILES: Mapping[str, Rule] = {
    "readable": readable,
    "file-name": file_name,
    "size": size,
    "contents": contents,
    "record": record,
    "metadata": metadata,
    "sbom": sbom,
    "wheel-tag": wheel_tag,
    "foreign-libraries": foreign_libraries,
    "only-library": only_library,
}
_OF_ELF: Mapping[str, Rule] = {
    "elf-layout": elf_layout,
    "soname": soname,
    "needed": needed,
    "runpath": runpath,
    "exported": exported,
    "glibc": glibc,
    "undefined": undefined,
}
_OF_CODE: Mapping[str, Rule] = {
    "torch-abi": torch_abi,
    "code-objects": code_objects,
    "code-object-arch": code_object_arch,
    "code-object-contents": code_object_contents,
    "bundles-used": bundles_used,
}
RULES: Mapping[str, Rule] = {**_OF_FILES, **_OF_ELF, **_OF_CODE}
WINDOWS_RULES: Mapping[str, Rule] = {**_OF_FILES, "dll": dll, **_OF_CODE}
PURE_RULES: Mapping[str, Callable[[Subject, Planned], Iterator[Finding]]] = {
    "file-name": file_name,
    "size": size,
    "contents": contents,
    "record": record,
    "metadata": metadata,
    "wheel-tag": wheel_tag,
    "foreign-libraries": foreign_libraries,
    "only-library": only_library,
}


def torch_floor(subject: Subject) -> str:
    """The oldest torch with all stable functions used by the library, empty when it uses none."""
    version, _, _ = torch_abi_audit.minimum_version(_torch_functions(subject))
    return dotted(version or ())


def _undefined(subject: Subject) -> tuple[Undefined, ...]:
    return subject.library.undefined if subject.library else ()


def _torch_functions(subject: Subject) -> tuple[str, ...]:
    names = (
        [*subject.dll.imports.get(TORCH_DLL, ())] if subject.dll else [s.name for s in _undefined(subject)]
    )
    return tuple(sorted(name for name in names if TORCH_SHIM.fullmatch(name)))


def dotted(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)
