"""The golden file, each kernel's resources as last reviewed, and the differences from it.

One table per ROCm version and arch, one line per kernel.  ``updated`` rewrites it; the diff is for review.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.static_checks.findings import Finding

CHECK = "golden"
GOLDEN = Path("tests/device/golden/resources.toml")
HEADER = """\
# What each kernel takes of the hardware, per ROCm version (its compiler) and arch, as last reviewed.
# Rewritten by `--update`; the difference is for review.  The values are exact, but a wheel is refused
# only for fewer waves, more spills or more scratch memory: compilers move registers about a little.
#   vgpr       registers that a lane gets, AccVGPRs included where they come from the same file
#   occupancy  waves on a SIMD at most, by registers, LDS and workgroup size
#   matrix     matrix (on gfx1030: dot product) instructions in the code
"""


@dataclass(frozen=True)
class Entry:
    """One kernel: registers, spilled registers, bytes, waves per SIMD, and number of matrix instructions."""

    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    code_bytes: int
    occupancy: int
    matrix: int


Archs = Mapping[str, Mapping[str, Entry]]
MORE_IS_WORSE = ("vgpr_spills", "sgpr_spills", "scratch_bytes")


def parse_golden(text: str) -> Mapping[str, Archs]:
    """ROCm version -> arch -> kernel -> resources; raises ``DeviceCodeError`` with all that is wrong."""
    title, names = f"{GOLDEN.name} is not right", {field.name for field in fields(Entry)}
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DeviceCodeError(
            title, [str(error)], advice="restore it, or rewrite it with --update"
        ) from error
    problems = [
        f"{rocm} {arch} {kernel}: expected the keys {', '.join(sorted(names))}, each a whole number"
        for rocm, archs in table.items()
        for arch, kernels in archs.items()
        for kernel, entry in kernels.items()
        if set(entry) != names or not all(type(value) is int for value in entry.values())
    ]
    if problems:
        raise DeviceCodeError(title, problems, advice="restore it, or rewrite it with --update")
    return {
        rocm: {
            arch: {kernel: Entry(**entry) for kernel, entry in kernels.items()}
            for arch, kernels in archs.items()
        }
        for rocm, archs in table.items()
    }


def differences(golden: Archs, found: Archs) -> tuple[Finding, ...]:
    """The differences, for the archs in what was found; other archs of ``golden`` are ignored."""
    return tuple(
        finding
        for arch, kernels in sorted(found.items())
        for kernel in sorted(kernels.keys() | golden.get(arch, {}).keys())
        for finding in _differences(arch, kernel, golden.get(arch, {}).get(kernel), kernels.get(kernel))
    )


def updated(golden: Mapping[str, Archs], rocm: str, found: Archs) -> str:
    """The file's new text: what was found replaces the tables of the same version and arch."""
    everything = {**golden, rocm: {**golden.get(rocm, {}), **found}}
    lines = [HEADER]
    for version, archs in sorted(everything.items()):
        for arch, kernels in sorted(archs.items()):
            lines += [f'["{version}".{arch}]', *(_line(*row) for row in sorted(kernels.items())), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _line(kernel: str, entry: Entry) -> str:
    values = ", ".join(f"{key} = {value}" for key, value in asdict(entry).items())
    return f"{kernel} = {{{values}}}"


def _differences(arch: str, kernel: str, old: Entry | None, new: Entry | None) -> Iterator[Finding]:
    if old == new:
        return
    if old is None:
        text = "not in the golden file; look at what it takes and run with --update"
        yield Finding(CHECK, arch, kernel, text)
    elif new is None:
        yield Finding(CHECK, arch, kernel, "in the golden file, but there is no such kernel")
    else:
        yield Finding(CHECK, arch, kernel, _change(old, new), fails=_is_worse(old, new))


def _change(old: Entry, new: Entry) -> str:
    before, after = asdict(old), asdict(new)
    names = [name for name in before if before[name] != after[name] and name != "occupancy"]
    changes = ", ".join(f"{name} {before[name]} -> {after[name]}" for name in names)
    return f"{changes} (occupancy {old.occupancy} -> {new.occupancy})".lstrip()


def _is_worse(old: Entry, new: Entry) -> bool:
    before, after = asdict(old), asdict(new)
    return new.occupancy < old.occupancy or any(after[name] > before[name] for name in MORE_IS_WORSE)
