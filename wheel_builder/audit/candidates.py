"""The audit of a distribution of candidates: its files follow from its list, its code is that of the list.

The file is untrusted. Every size is bounded before anything is unpacked.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wheel_builder.audit.contents import some
from wheel_builder.audit.loading import content_problems
from wheel_builder.base.errors import AuditError, ElfError, FatbinError, WheelFileError
from wheel_builder.base.plain import MIB
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.compressed import compressed_bundles, read_packed
from wheel_builder.files.device.fatbin import CodeObject, kernels, machine_arch
from wheel_builder.files.wheels.candidates import MAX_MIB, file_name, files_of, package_of
from wheel_builder.files.wheels.wheelfile import WheelFile, read_wheel
from wheel_builder.matrix.tuned.candidates import (
    FILE,
    Candidates,
    KernelCandidates,
    distributions,
    parse_candidates,
)

MOST_CODE = MIB  # bytes of a code object: five times the largest one of a wheel
MOST_UNPACKED_MIB = 16  # of a kernel's bundle
ADVICE = "make it again: scripts/wheel-builder tuning-wheel; do not install this file"


@dataclass(frozen=True)
class Opened:
    """A distribution that passed. ``codes`` are code objects by kernel and row."""

    wheel: WheelFile
    listed: Candidates
    codes: Mapping[str, Mapping[str, bytes]]

    @property
    def digests(self) -> dict[str, dict[str, str]]:
        """The sha256 of each code object, by kernel and row."""
        return {
            name: {row: candidate.sha256 for row, candidate in kernel.candidates.items()}
            for name, kernel in self.listed.kernels.items()
        }


def audit_candidates(path: Path) -> Opened:
    """Read and check a distribution. Raises ``AuditError`` with all problems."""
    try:
        wheel = read_wheel(path, max_mib=MAX_MIB)
    except WheelFileError as error:
        raise _refusal(path, error.problems) from error
    return audited(wheel)


def audited(wheel: WheelFile) -> Opened:
    """``audit_candidates`` of a wheel in memory."""
    path = wheel.path
    if (arch := distributions().get(wheel.name)) is None:
        known = ", ".join(distributions())
        raise _refusal(path, [f"name: no arch has the distribution {wheel.name}; expected one of {known}"])
    if wheel.size > MAX_MIB * MIB:
        raise _refusal(path, [f"size: found {wheel.size} bytes; expected at most {MAX_MIB:g} MiB"])
    try:
        listed = parse_candidates(wheel.files.get(f"{package_of(arch)}/{FILE}", b""))
    except ValueError as error:
        raise _refusal(path, [f"{FILE}: {error}"]) from error
    problems = [*_list_problems(wheel, listed, arch)]
    codes: dict[str, Mapping[str, bytes]] = {}
    for name, kernel in () if problems else listed.kernels.items():
        data = wheel.files[f"{package_of(arch)}/{kernel.code.file}"]
        try:
            codes[name] = _codes(kernel, data)
        except (ElfError, FatbinError, ValueError) as error:
            problems.append(f"{name}: {error}")
        else:
            problems += (f"{name}: {each}" for each in _code_problems(arch, name, codes[name]))
    if problems:
        raise _refusal(path, problems)
    return Opened(wheel, listed, codes)


def _list_problems(wheel: WheelFile, listed: Candidates, arch: str) -> Iterator[str]:
    if listed.arch != arch:
        yield f"{FILE}: it is for {listed.arch}; expected {arch}, as the name of the wheel"
    elif file_name(listed) != wheel.path.name:
        yield f"{FILE}: it is for flash-attn-rocm {listed.wheel.version}; expected {wheel.version}"
    else:
        bundles = {
            name: wheel.files.get(f"{package_of(arch)}/{kernel.code.file}", b"")
            for name, kernel in listed.kernels.items()
        }
        yield from _file_problems(wheel.files, files_of(listed, bundles))


def _file_problems(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> Iterator[str]:
    """Files that are extra, missing, or not those that the list asks for."""
    if extra := found.keys() - expected.keys():
        yield f"contents: found {some([*extra])}; expected only the list, its bundles and what describes them"
    if missing := expected.keys() - found.keys():
        yield f"contents: found no {some([*missing])}; expected every file of the list"
    changed = {name for name in found.keys() & expected.keys() if found[name] != expected[name]}
    if changed:
        yield f"contents: found {some([*changed])} with another content; expected what follows from {FILE}"


def _codes(kernel: KernelCandidates, data: bytes) -> Mapping[str, bytes]:
    """The code objects of a bundle by row. Raises ``ValueError`` unless they are those of the list."""
    said = kernel.code.bytes, kernel.code.sha256
    if (found := (len(data), hashlib.sha256(data).hexdigest())) != said:
        message = (
            f"{kernel.code.file} has {found[0]} bytes with sha256 {found[1]}; expected {said[0]}, {said[1]}"
        )
        raise ValueError(message)
    compressed_bundles(data, MOST_UNPACKED_MIB)  # refuses what would unpack to more
    codes, rows = read_packed(data), sorted(kernel.candidates)
    if len(codes) != len(rows):
        message = f"{kernel.code.file} has {len(codes)} code objects; expected {len(rows)}"
        raise ValueError(message)
    return {row: _code(row, kernel, code) for row, code in zip(rows, codes, strict=True)}


def _code(row: str, kernel: KernelCandidates, code: CodeObject) -> bytes:
    if len(code.data) > MOST_CODE:
        message = f"row {row} has a code object of {len(code.data)} bytes; expected at most {MOST_CODE}"
        raise ValueError(message)
    digest, expected = hashlib.sha256(code.data).hexdigest(), kernel.candidates[row].sha256
    if digest != expected:
        message = f"row {row} has a code object with sha256 {digest}; expected {expected}"
        raise ValueError(message)
    return code.data


def _code_problems(arch: str, name: str, codes: Mapping[str, bytes]) -> Iterator[str]:
    """Code for another arch, of another kernel, or whose metadata contradicts it."""
    for row, data in codes.items():
        elf = read_elf(data)
        if (compiled := machine_arch(elf)) != arch:
            yield f"row {row} is compiled for {compiled}; expected {arch}"
            continue
        if (held := kernels(elf)) != {name}:
            yield f"row {row} has the kernels {some(held) or 'none'}; expected {name} alone"
        yield from (f"row {row}: {problem}" for problem in content_problems([CodeObject(arch, data)]))


def _refusal(path: Path, problems: list[str] | tuple[str, ...]) -> AuditError:
    count = f"{len(problems)} problem" + ("s" if len(problems) > 1 else "")
    return AuditError(f"{path.name} is refused by the audit: {count}", problems, advice=ADVICE)
