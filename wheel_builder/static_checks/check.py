"""All static checks over the code objects of a finished wheel."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Store
from wheel_builder.files.library import device_code
from wheel_builder.files.wheelfile import read_wheel
from wheel_builder.images.listing import Listing, Tools, list_code
from wheel_builder.static_checks import golden
from wheel_builder.static_checks.disassembly import Kernel, parse_disassembly
from wheel_builder.static_checks.findings import Finding
from wheel_builder.static_checks.golden import Archs, Entry, Reviewed
from wheel_builder.static_checks.hardware import occupancy
from wheel_builder.static_checks.hazards import check_hazards
from wheel_builder.static_checks.matrix_use import check_matrix_use, matrix_instructions
from wheel_builder.static_checks.resources import Resources, parse_notes
from wheel_builder.static_checks.scratch import check_scratch
from wheel_builder.static_checks.waits import check_waits


@dataclass(frozen=True)
class Report:
    """What the checks found; ``rocm`` what the wheel was built with, ``taken`` what each kernel takes."""

    rocm: str
    taken: Archs
    findings: tuple[Finding, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings for which a wheel is refused."""
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
            matrix=matrix_instructions(self.kernel).total(),
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

    Raises ``WheelFileError``, ``ElfError`` or ``FatbinError`` for a wheel that cannot be read or has no
    device code, and ``DeviceCodeError`` for code that the checks cannot interpret.
    """
    content = read_wheel(wheel, max_mib=max_mib)
    listings = list_code(device_code(content), tools=tools, store=store, log=log, run=run)
    known = golden.parse_golden((checkout / golden.GOLDEN).read_text(encoding="utf-8"))
    return check_listings(listings, rocm=rocm, reviewed=known.get(rocm, {}))


def check_listings(listings: Sequence[Listing], *, rocm: str, reviewed: Reviewed) -> Report:
    """Run every check on the text of code objects; ``reviewed`` is the golden file's part for ``rocm``."""
    check = partial(check_listing, reviewed=reviewed)
    with ProcessPoolExecutor() as pool:
        checked = [each for found in pool.map(check, listings) for each in found]
    taken: dict[str, dict[str, Entry]] = {}
    for each in checked:
        taken.setdefault(each.arch, {})[each.name] = each.entry
    findings = [finding for each in checked for finding in each.findings]
    return Report(rocm, taken, (*findings, *golden.differences(reviewed, taken)))


def check_listing(listing: Listing, *, reviewed: Reviewed) -> list[Checked]:
    """Run the checks that need only this code object; arguments as for ``check_listings``."""
    checked = []
    for subject in _subjects(listing):
        arch, kernel = subject.arch, subject.kernel
        findings = [*check_hazards(arch, kernel), *check_waits(arch, kernel), *check_matrix_use(arch, kernel)]
        expected = reviewed.get(arch, {}).get(kernel.name)
        findings += check_scratch(arch, kernel) if expected is None or not expected.scratch_bytes else ()
        checked.append(Checked(arch, kernel.name, subject.entry, tuple(findings)))
    return checked


def update_golden(checkout: Path, report: Report) -> None:
    """Write what the wheel's kernels take into the golden file."""
    path = checkout / golden.GOLDEN
    known = golden.parse_golden(path.read_text(encoding="utf-8") if path.is_file() else "")
    path.write_text(golden.updated(known, report.rocm, report.taken), encoding="utf-8")


def _subjects(listing: Listing) -> list[_Subject]:
    """The kernels of a code object; code outside all kernels is refused, as no check would see it."""
    functions, resources = parse_disassembly(listing.disassembly), parse_notes(listing.notes)
    if {function.name for function in functions} != set(resources):
        found = ", ".join(sorted(function.name for function in functions))
        title = f"the functions of a code object for {listing.arch} are not its kernels"
        raise DeviceCodeError(title, [f"found {found}; expected {', '.join(sorted(resources))}"])
    return [_Subject(listing.arch, function, resources[function.name]) for function in functions]
