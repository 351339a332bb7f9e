"""Open the finished wheel and refuse any difference from the plan."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wheel_builder.audit.rules import (
    PURE_RULES,
    RULES,
    WINDOWS_RULES,
    Device,
    Expectation,
    Finding,
    PureExpectation,
    Subject,
    dotted,
    torch_floor,
)
from wheel_builder.base.errors import AuditError, ElfError, FatbinError, PeError, WheelFileError
from wheel_builder.files.binaries import elf
from wheel_builder.files.binaries.pe import read_pe
from wheel_builder.files.device import fatbin
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.library import WINDOWS_LIBRARY, device_code, dll_code_objects, library_of
from wheel_builder.files.wheels import wheelfile
from wheel_builder.files.wheels.wheelfile import WheelFile
from wheel_builder.tables.archs import served_by


@dataclass(frozen=True)
class AuditReport:
    """A wheel that passed: its contents, and the rules it passed.

    ``kernels`` and ``code_bytes`` are by arch of machine code. ``gpus`` are the GPUs that run it.
    """

    wheel: str
    sha256: str
    size: int
    version: str
    tag: str
    kernels: Mapping[str, Sequence[str]]
    gpus: Mapping[str, Sequence[str]]
    code_bytes: Mapping[str, int]
    needed: Sequence[str]  # SONAMEs, or DLLs
    glibc: str  # empty for Windows
    torch: str
    rules: Sequence[str]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"


def audit_wheel(wheel: Path, expectation: Expectation) -> AuditReport:
    """Check ``wheel`` against every rule. Raises ``AuditError`` with all violations.

    A wheel that cannot be opened safely is refused for that alone (rule "archive"), as its apparent content
    is unreliable.
    """
    content = _read(wheel, expectation.max_mib)
    opened, rules = (open_windows, WINDOWS_RULES) if expectation.for_windows else (open_subject, RULES)
    subject = opened(content)
    problems = [
        _line(name, finding) for name, rule in rules.items() for finding in rule(subject, expectation)
    ]
    if problems:
        raise _refusal(wheel, problems)
    return _report(subject, expectation, tuple(rules))


@dataclass(frozen=True)
class PureReport:
    """A wheel without a library that passed, and the rules it passed."""

    wheel: str
    sha256: str
    size: int
    version: str
    tag: str
    rules: Sequence[str]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"


def audit_pure_wheel(wheel: Path, expectation: PureExpectation) -> PureReport:
    """``audit_wheel`` for a wheel of only Python files."""
    content = _read(wheel, expectation.max_mib)
    subject = Subject(content, None, (), ())
    problems = [
        _line(name, finding) for name, rule in PURE_RULES.items() for finding in rule(subject, expectation)
    ]
    if problems:
        raise _refusal(wheel, problems)
    return PureReport(
        wheel=wheel.name,
        sha256=content.sha256,
        size=content.size,
        version=expectation.version,
        tag=expectation.tag,
        rules=("archive", *PURE_RULES),
    )


def _read(wheel: Path, max_mib: float) -> WheelFile:
    try:
        return wheelfile.read_wheel(wheel, max_mib=max_mib)
    except WheelFileError as error:
        problems = [_line("archive", Finding(p, "a plain, safe wheel", error.advice)) for p in error.problems]
        raise _refusal(wheel, problems) from error


def open_subject(wheel: WheelFile) -> Subject:
    """Read the library and its code objects. Unreadable parts become faults."""
    library: elf.Elf | None = None
    try:
        library = elf.read_elf(library_of(wheel))
        devices = tuple(map(_device, device_code(wheel)))
    except (ElfError, FatbinError) as error:
        fault = Finding(error.message, "a host library with device code", error.advice)
        return Subject(wheel, library, (), (fault,))
    return Subject(wheel, library, devices, ())


def open_windows(wheel: WheelFile) -> Subject:
    """``open_subject`` of a wheel for Windows."""
    dll = None
    try:
        dll = read_pe(library_of(wheel, WINDOWS_LIBRARY))
        devices = tuple(map(_device, dll_code_objects(dll)))
    except (ElfError, FatbinError, PeError) as error:
        fault = Finding(error.message, "a host library with device code", error.advice)
        return Subject(wheel, None, (), (fault,), dll)
    return Subject(wheel, None, devices, (), dll)


def _device(code: CodeObject) -> Device:
    try:
        return Device(code, elf.read_elf(code.data))
    except ElfError as error:
        message = f"the code object for {code.arch}: {error.message}"
        raise FatbinError(message, advice=error.advice) from error


def _report(subject: Subject, expectation: Expectation, rules: tuple[str, ...]) -> AuditReport:
    library, dll = subject.library, subject.dll
    archs = sorted(expectation.kernels)
    by_arch = {arch: [d for d in subject.devices if d.code.arch == arch] for arch in archs}
    return AuditReport(
        wheel=subject.wheel.path.name,
        sha256=subject.wheel.sha256,
        size=subject.wheel.size,
        version=expectation.version,
        tag=expectation.tag,
        kernels={a: sorted(k for d in ds for k in fatbin.kernels(d.elf)) for a, ds in by_arch.items()},
        gpus={arch: served_by(arch) for arch in archs},
        code_bytes={arch: sum(len(d.code.data) for d in ds) for arch, ds in by_arch.items()},
        needed=sorted(library.needed if library else dll.imports if dll else ()),
        glibc=dotted(elf.max_version(library, "GLIBC")) if library else "",
        torch=torch_floor(subject),
        rules=("archive", *rules),
    )


def _line(rule: str, finding: Finding) -> str:
    return f"{rule}: found {finding.found}; expected {finding.expected}; {finding.advice}"


def _refusal(wheel: Path, problems: list[str]) -> AuditError:
    count = f"{len(problems)} problem" + ("s" if len(problems) > 1 else "")
    title = f"{wheel.name} is refused by the audit: {count}"
    return AuditError(
        title, problems, advice="nothing is published from a refused wheel; put these right, build again"
    )
