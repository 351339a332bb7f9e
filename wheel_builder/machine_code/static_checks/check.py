"""All static checks over the code objects of a finished wheel.

Findings of a code object are stored by its content. So a code object shared by wheels, or unchanged in a new
wheel, is checked once.
"""

import gc
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Store, key_of, sha256_tree
from wheel_builder.files.device.library import device_code
from wheel_builder.files.pycode import code_digest
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.machine_code.disassembly.blocks import longest_loop
from wheel_builder.machine_code.disassembly.kernels import Kernel, parse_disassembly
from wheel_builder.machine_code.disassembly.listing import Listing, Tools, list_code
from wheel_builder.machine_code.disassembly.occupancy import occupancy
from wheel_builder.machine_code.disassembly.resources import Resources, read_resources
from wheel_builder.machine_code.static_checks import golden
from wheel_builder.machine_code.static_checks.findings import Finding
from wheel_builder.machine_code.static_checks.golden import Archs, Entry, Reviewed
from wheel_builder.machine_code.static_checks.hazards import check_hazards
from wheel_builder.machine_code.static_checks.matrix_use import check_matrix_use, matrix_instructions
from wheel_builder.machine_code.static_checks.scratch import CHECK as SCRATCH
from wheel_builder.machine_code.static_checks.scratch import check_scratch
from wheel_builder.machine_code.static_checks.waits import check_waits
from wheel_builder.tables.archs import TABLES, arch_named

STAGE = "checked-code"
LOOPS = "loops"
MACHINE_CODE = Path(__file__).parents[1]
PROGRAMS = ("disassembly", "static_checks")


@dataclass(frozen=True)
class Report:
    """The findings. ``rocm``: the ROCm version of the build, ``taken``: the resources of each kernel."""

    rocm: str
    taken: Archs
    findings: tuple[Finding, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that refuse a wheel."""
        return tuple(finding for finding in self.findings if finding.fails)


@dataclass(frozen=True)
class _Subject:
    """A kernel of one arch: its code, its metadata, and its number of matrix instructions."""

    arch: str
    kernel: Kernel
    resources: Resources

    @property
    def entry(self) -> Entry:
        taken = self.resources
        return Entry(
            vgpr=taken.vgpr,
            agpr=taken.agpr,
            sgpr=taken.sgpr,
            vgpr_spills=taken.vgpr_spills,
            sgpr_spills=taken.sgpr_spills,
            scratch_bytes=taken.scratch_bytes,
            lds_bytes=taken.lds_bytes,
            code_bytes=taken.code_bytes,
            occupancy=occupancy(self.arch, taken),
            matrix=matrix_instructions(self.arch, self.kernel).total(),
        )


@dataclass(frozen=True)
class Checked:
    """One kernel for one arch: the checks' findings and its resources."""

    arch: str
    name: str
    entry: Entry
    findings: tuple[Finding, ...]


def check_wheel(
    wheel: Path,
    *,
    rocm: str,
    tools: Tools,
    checkout: Path,
    store: Store,
    max_mib: float,
    log: Path,
    run: Runner = run,
) -> Report:
    """Disassemble all code objects of ``wheel``, built with ``rocm``, and run every check over them.

    Raises ``WheelFileError``, ``ElfError`` or ``FatbinError`` for an unreadable wheel or one without device
    code, and ``DeviceCodeError`` for code the checks cannot interpret.
    """
    content = read_wheel(wheel, max_mib=max_mib)
    listings = list_code(device_code(content), tools=tools, store=store, log=log, run=run)
    known = golden.parse_golden((checkout / golden.GOLDEN).read_text(encoding="utf-8"))
    checked = _stored(listings, checkout=checkout, store=store)
    return _report(checked, rocm=rocm, reviewed=known.get(rocm, {}))


def check_listings(listings: Sequence[Listing], *, rocm: str, reviewed: Reviewed) -> Report:
    """Run every check on the text of code objects. ``reviewed`` is the golden file's part for ``rocm``."""
    checked = [each for listing in listings for each in check_listing(listing)]
    return _report(checked, rocm=rocm, reviewed=reviewed)


def check_listing(listing: Listing) -> list[Checked]:
    """Run the checks that need only this code object."""
    checked = []
    with _without_collector():
        for subject in _subjects(listing):
            arch, kernel = subject.arch, subject.kernel
            checks = (check_hazards, check_waits, check_matrix_use, check_scratch, check_loops)
            findings = (finding for check in checks for finding in check(arch, kernel))
            checked.append(Checked(arch, kernel.name, subject.entry, tuple(findings)))
    return checked


def check_loops(arch: str, kernel: Kernel) -> tuple[Finding, ...]:
    """A finding if the longest loop exceeds the instruction cache: it would be fetched anew in each round."""
    found, cache = longest_loop(kernel), arch_named(arch).model.instruction_cache
    if found <= cache:
        return ()
    return (
        Finding(LOOPS, arch, kernel.name, f"a loop has {found} bytes; the instruction cache has {cache}"),
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Run with Python's collector switched off.

    Objects here are free of cycles, and its search through every instruction takes a third of all time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def programs(checkout: Path) -> Mapping[str, str]:
    """The inputs of an answer besides the code: digests of the checks and of the tables of archs.

    Digests of the checks leave out docstrings and comments.
    """
    files = [(room, file) for room in PROGRAMS for file in (MACHINE_CODE / room).glob("*.py")]
    return {
        "checks": key_of({f"{room}/{file.name}": code_digest(file.read_bytes()) for room, file in files}),
        "archs": sha256_tree(checkout, [checkout / table for table in TABLES]),
    }


def _stored(listings: Sequence[Listing], *, checkout: Path, store: Store) -> list[Checked]:
    """``check_listing`` of all, from the store if available. The others run in parallel."""
    common = programs(checkout)
    keys = [{**common, "code": _digest(listing)} for listing in listings]
    missing = [n for n, key in enumerate(keys) if store.find(STAGE, key) is None]
    with ProcessPoolExecutor() as pool:
        found = dict(zip(missing, pool.map(check_listing, [listings[n] for n in missing]), strict=True))

    def facts(number: int, _out: Path) -> Mapping[str, Any]:
        return {"kernels": [asdict(each) for each in found[number]]}

    made = [store.get_or_make(STAGE, key, partial(facts, n)) for n, key in enumerate(keys)]
    return [_checked(kernel) for each in made for kernel in each.facts["kernels"]]


def _digest(listing: Listing) -> str:
    text = f"{listing.arch}\0{listing.disassembly}\0".encode()
    return hashlib.sha256(text + listing.code).hexdigest()


def _checked(kernel: Mapping[str, Any]) -> Checked:
    findings = tuple(Finding(**finding) for finding in kernel["findings"])
    return Checked(kernel["arch"], kernel["name"], Entry(**kernel["entry"]), findings)


def _report(checked: Iterable[Checked], *, rocm: str, reviewed: Reviewed) -> Report:
    """Apply the golden file to the findings: it may allow a kernel scratch memory."""
    taken: dict[str, dict[str, Entry]] = {}
    findings: list[Finding] = []
    for each in checked:
        taken.setdefault(each.arch, {})[each.name] = each.entry
        limits = reviewed.get(each.arch, {}).get(each.name)
        allowed = limits is not None and limits.scratch_bytes > 0
        findings += (finding for finding in each.findings if not (allowed and finding.check == SCRATCH))
    return Report(rocm, taken, (*findings, *golden.differences(reviewed, taken)))


def update_golden(checkout: Path, report: Report) -> None:
    """Write the resources of the wheel's kernels into the golden file."""
    path = checkout / golden.GOLDEN
    known = golden.parse_golden(path.read_text(encoding="utf-8") if path.is_file() else "")
    path.write_text(golden.updated(known, report.rocm, report.taken), encoding="utf-8")


def _subjects(listing: Listing) -> list[_Subject]:
    """The kernels of a code object. Code outside all kernels is refused: checks would miss it."""
    functions, resources = parse_disassembly(listing.disassembly), read_resources(listing.code)
    if {function.name for function in functions} != set(resources):
        found = ", ".join(sorted(function.name for function in functions))
        title = f"the functions of a code object for {listing.arch} are not its kernels"
        raise DeviceCodeError(title, [f"found {found}; expected {', '.join(sorted(resources))}"])
    return [_Subject(listing.arch, function, resources[function.name]) for function in functions]
