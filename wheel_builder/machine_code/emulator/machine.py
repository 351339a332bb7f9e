"""Loaded code objects, launches and their results."""

import ctypes
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import EmulatorError, FindingsError
from wheel_builder.machine_code.emulator.binding import BufferRow, Core, LaunchRow, Waves
from wheel_builder.machine_code.emulator.memory import Memory

# As enum Check in core/checks/sanitize.hpp.  Bounds and endless loops are always checked.
CHECKS: Mapping[str, int] = {"uninit": 1, "race": 2, "barrier": 4, "align": 8}
ALL_CHECKS = tuple(CHECKS)


@dataclass(frozen=True)
class KernelArgument:
    """An explicit argument in the metadata. Offset and size in bytes of the argument segment."""

    name: str
    kind: str
    offset: int
    size: int


@dataclass(frozen=True)
class Kernel:
    """One kernel of a code object: sizes in bytes, counts of registers, threads of its largest workgroup."""

    name: str
    lds: int
    scratch: int
    kernarg: int
    wave_size: int
    vgprs: int
    agprs: int
    max_threads: int
    arguments: tuple[KernelArgument, ...]


@dataclass(frozen=True)
class Finding:
    """One error in a kernel, at its first occurrence. ``count`` is the number of occurrences.

    ``at`` is function symbol and offset, ``lane`` is within the wave, ``address`` the memory address or 0.
    """

    kind: str
    kernel: str
    at: str
    instruction: str
    group: tuple[int, int, int]
    wave: int
    lane: int
    address: int
    detail: str
    count: int

    def __str__(self) -> str:
        where = f"workgroup {self.group} wave {self.wave} lane {self.lane}"
        times = "" if self.count == 1 else f" ({self.count} times)"
        place = f"kernel {self.kernel} at {self.at}, '{self.instruction}', {where}"
        return f"{self.kind}: {self.detail}; address {self.address:#x}; {place}{times}"


@dataclass(frozen=True)
class Count:
    """Executions of one mnemonic: wave-instructions and active lanes over all of them."""

    kind: str
    executed: int
    lanes: int


@dataclass(frozen=True)
class Result:
    """A run: ``executed`` wave-instructions, findings, counts by mnemonic, why it stopped early (or "")."""

    executed: int
    findings: tuple[Finding, ...]
    counts: Mapping[str, Count]
    error: str
    recorded: Waves = ()
    recorded_lds: Waves = ()

    def by_class(self) -> dict[str, int]:
        """Wave-instructions by class (valu, trans, matrix, lds, vmem, ...), most frequent first."""
        total: dict[str, int] = {}
        for count in self.counts.values():
            total[count.kind] = total.get(count.kind, 0) + count.executed
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted({finding.kind for finding in self.findings}))

    def raise_on_findings(self) -> None:
        """Raise ``FindingsError`` with all findings, if any."""
        if self.findings:
            advice = "each names function, instruction and lane; run it again with the same seed"
            title = "the kernel is not sound"
            raise FindingsError(title, [str(finding) for finding in self.findings], advice=advice)


@dataclass(frozen=True)
class Launch:
    """A kernel's launch: ``grid`` in workgroups, ``block`` in threads, dynamic LDS in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int = 0


@dataclass(frozen=True)
class Options:
    """Options of a run. The same options give the same run.

    ``threads``: host threads for workgroups. It changes only the results of racing workgroups.
    ``max_instructions`` per wave: beyond it a loop counts as endless. ``max_seconds`` of processor time for
    the whole launch, over all threads, 0 for unlimited: beyond it the run stops with the finding
    ``time-limit``. ``only_group``: the index of the one workgroup to run, or -1. ``record`` records its
    waves. ``quantum``: the most instructions before another wave gets its turn. With 1 the waves go in step,
    with more in random order.
    """

    checks: tuple[str, ...] = ALL_CHECKS
    seed: int = 0
    threads: int = 1
    max_instructions: int = 1 << 26
    max_seconds: float = 600.0
    quantum: int = 256
    only_group: int = -1
    trace: bool = False
    record: bool = False


class Machine:
    """One code object, loaded and decoded.

    ``missing``: unimplemented instructions, with their places. ``mnemonics``: their count in the code.
    ``program``: address and text of every instruction. A run records indices into it.
    """

    def __init__(self, core: Core, code_object: bytes, disassembly: str) -> None:
        self._core, self._handle = core, core.load(code_object, disassembly)
        if not self._handle:
            raise EmulatorError(core.text(), advice="compile it for an arch that the emulator has")
        described: dict[str, Any] = json.loads(core.describe(self._handle))
        self.arch: str = described["arch"]
        self.kernels = {row["name"]: _kernel(row) for row in described["kernels"]}
        self.missing: tuple[str, ...] = tuple(described["missing"])
        self.mnemonics: Mapping[str, int] = described["mnemonics"]
        lines = (line.partition(" ") for line in core.program(self._handle).splitlines())
        self.program = tuple((int(address, 16), text) for address, _, text in lines)

    def __del__(self) -> None:
        if getattr(self, "_handle", 0):
            self._core.free(self._handle)

    def run(
        self,
        kernel: str,
        launch: Launch,
        kernarg: bytes,
        memory: Sequence[Memory],
        options: Options | None = None,
    ) -> Result:
        """Run a whole grid. ``memory`` is the kernel's accessible memory besides its own LDS and scratch.

        Findings are returned, not raised. ``Result.error`` is the reason of an early stop: an endless loop,
        an unimplemented instruction, a launch refused by the device.
        """
        options = options or Options()
        rows = (BufferRow * max(len(memory), 1))(*(_row(item) for item in memory))
        holder = ctypes.create_string_buffer(kernarg, max(len(kernarg), 1))
        row = _launch_row(kernel, launch, options)
        row.kernarg, row.kernarg_size = ctypes.addressof(holder), len(kernarg)
        row.buffers, row.buffer_count = rows, len(memory)
        answer = json.loads(self._core.run(self._handle, row))
        result = _result(answer)
        if not options.record:
            return result
        return replace(result, recorded=self._core.recorded(), recorded_lds=self._core.recorded_lds())


def load_machine(core: Core, code_object: Path, disassembly: str) -> Machine:
    """Load the code object in a file."""
    return Machine(core, code_object.read_bytes(), disassembly)


def _row(memory: Memory) -> BufferRow:
    return BufferRow(memory.address, memory.size, memory.name.encode(), memory.readonly, memory.initialised)


def _launch_row(kernel: str, launch: Launch, options: Options) -> LaunchRow:
    row = LaunchRow()
    row.kernel = kernel.encode()
    row.grid, row.block = launch.grid, launch.block
    row.dynamic_lds = launch.dynamic_lds
    row.checks = sum(CHECKS[name] for name in options.checks)
    row.threads, row.seed, row.quantum = options.threads, options.seed, options.quantum
    row.max_instructions, row.max_seconds = options.max_instructions, options.max_seconds
    row.only_group = options.only_group
    row.trace, row.record = options.trace, options.record
    return row


def _result(answer: dict[str, Any]) -> Result:
    findings = tuple(_finding(row) for row in answer["findings"])
    counts = {name: Count(row["class"], row["n"], row["lanes"]) for name, row in answer["counts"].items()}
    return Result(answer["executed"], findings, counts, answer["error"] or "")


def _kernel(row: dict[str, Any]) -> Kernel:
    arguments = tuple(KernelArgument(*argument) for argument in row.pop("arguments"))
    return Kernel(**row, arguments=arguments)


def _finding(row: dict[str, Any]) -> Finding:
    group = (row["group"][0], row["group"][1], row["group"][2])
    names = ("kind", "kernel", "at", "instruction", "wave", "lane", "address", "detail", "count")
    return Finding(group=group, **{name: row[name] for name in names})
