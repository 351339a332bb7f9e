"""``scripts/wheel-builder emulate``: one kernel at chosen shapes, its numbers, instructions and findings."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wheel_builder.base.errors import EmulatorError, FindingsError
from wheel_builder.base.store import Store
from wheel_builder.machine_code.disassembly.listing import Tools, disassemble
from wheel_builder.machine_code.emulator.attention import (
    Case,
    Difference,
    Numbers,
    compare,
    make_call,
    run_call,
)
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.emulator.coverage import summary
from wheel_builder.machine_code.emulator.machine import Machine, Options, Result
from wheel_builder.machine_code.emulator.sources import code_object
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import Workgroup, workgroup_of

NOT_A_GPU = "executed on an ISA emulator, not run on hardware"


@dataclass(frozen=True)
class Workshop:
    """The tools of emulation: core, store, builder image, log folder."""

    core: Core
    store: Store
    tools: Tools
    logs: Path


@dataclass(frozen=True)
class Emulated:
    """A finished run of one case. ``passed``: the numbers keep the rule, and the findings are empty."""

    arch: str
    case: Case
    result: Result
    numbers: Numbers | None

    @property
    def passed(self) -> bool:
        return not self.problems()

    def problems(self) -> list[str]:
        """All problems of the run."""
        stopped = [f"it stopped: {self.result.error}"] if self.result.error else []
        first = self.numbers.first if self.numbers else None
        wrong = [f"first difference: {_difference(first)}"] if first else []
        return [*stopped, *wrong, *map(str, self.result.findings)]

    def raise_unless_passed(self) -> None:
        """Raise ``FindingsError`` with all problems, if any."""
        if problems := self.problems():
            title = f"{self.case.kernel} on {self.arch} did not pass"
            advice = (
                "run it again with the same seed: it does the same; findings name function and instruction"
            )
            raise FindingsError(title, problems, advice=advice)


def emulate(source: Path, arch: str, case: Case, options: Options, workshop: Workshop) -> Emulated:
    """Run the forward kernel of ``case`` for ``arch`` out of a wheel, bundle or code object.

    Raises ``EmulatorError`` for a missing kernel or an unimplemented instruction. Wrong numbers and findings
    are part of the result.
    """
    machine = open_machine(code_object(source, case.kernel, arch), case.kernel, workshop)
    call = make_call(case)
    result = run_call(machine, call, forward_workgroup(arch, case), options)
    return Emulated(arch, case, result, None if result.error else compare(call))


def forward_workgroup(arch: str, case: Case) -> Workgroup:
    """The workgroup of the case's kernel. Raises ``TileError`` for a missing kernel."""
    return workgroup_of(arch_named(arch), case.op, case.dtype, case.head_dim)


def open_machine(data: bytes, name: str, workshop: Workshop) -> Machine:
    """Load a code object. Raises ``EmulatorError`` with its unimplemented instructions."""
    log = workshop.logs / "emulator-disassembly.log"
    text = disassemble(data, tools=workshop.tools, store=workshop.store, log=log)
    machine = Machine(workshop.core, data, text)
    if machine.missing:
        message = "\n  - ".join([f"{name}: the emulator does not have", *summary(machine.missing)])
        raise EmulatorError(message, advice="implement them in wheel_builder/machine_code/emulator/core")
    return machine


def report(emulated: Emulated) -> str:
    """The text printed by the command."""
    return "\n".join(_lines(emulated))


def _lines(emulated: Emulated) -> Iterator[str]:
    case, result = emulated.case, emulated.result
    shape = (
        f"batch {case.batch}, seqlen {case.seqlen_q} x {case.seqlen_k}, heads {case.nheads}/{case.nheads_k}"
    )
    yield f"{case.kernel} on {emulated.arch}: {shape}{', causal' if case.causal else ''} ({NOT_A_GPU})"
    if emulated.numbers:
        yield from _number_lines(emulated.numbers)
    yield f"  {result.executed:,} wave-instructions"
    yield from (f"  {count:>14,} {kind}" for kind, count in result.by_class().items())
    yield "  passed" if emulated.passed else "  FAILED"


def _number_lines(numbers: Numbers) -> Iterator[str]:
    share = numbers.out_error / numbers.out_allowed
    rule = f"the rule allows {numbers.out_allowed:.3e}, {share:.0%} of it used"
    yield f"  out: worst error {numbers.out_error:.3e} against float64; {rule}"
    yield f"  lse: worst error {numbers.lse_error:.3e} against float64"
    yield f"  first difference: {_difference(numbers.first) if numbers.first else 'none'}"


def _difference(difference: Difference) -> str:
    place = f"{difference.what}{list(difference.index)}"
    return f"{place} is {difference.found!r}, expected {difference.expected!r} +- {difference.allowed:.3e}"
