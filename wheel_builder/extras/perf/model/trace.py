"""The execution of one workgroup's waves in the form of the models: steps, and charges of the LDS."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.lds import Access, Charge, accesses, charge
from wheel_builder.extras.perf.model.steps import Step, charged, steps
from wheel_builder.machine_code.disassembly.kernels import Instruction, Kernel
from wheel_builder.machine_code.emulator.machine import Result
from wheel_builder.tables.archs import Timing, arch_named

INDEX = (1 << 24) - 1  # of the instruction in a run's record, with active lanes in the bits above

Charges = Mapping[Access, Charge]
Paths = Sequence[Sequence[Step]]


@dataclass(frozen=True)
class LdsUse:
    """An LDS instruction at ``offset`` bytes into its kernel, over all its executions by the workgroup.

    ``looped``: some wave executed it more than once.  ``ways`` is the worst execution's, ``extra`` the sum
    of all.
    """

    offset: int
    text: str
    executed: int
    looped: bool
    ways: int
    extra: int


@dataclass(frozen=True)
class Trace:
    """The executed addresses by wave. LDS instructions come with their access."""

    arch: str
    function: Kernel
    waves: Sequence[Sequence[tuple[int, Access | None]]]
    machine: Timing | None = None  # instead of the arch's own

    @cached_property
    def instructions(self) -> Mapping[int, Instruction]:
        return {instruction.address: instruction for instruction in self.function.instructions}

    @cached_property
    def accesses(self) -> Counter[Access]:
        """How often each was executed by the workgroup."""
        return Counter(access for wave in self.waves for _, access in wave if access)

    @cached_property
    def steps(self) -> Mapping[int, Step]:
        return steps(self.arch, self.function.instructions, self.machine)

    def charges(self, order: str) -> Charges:
        """The cost of each access. Raises ``PerfError`` for an instruction of unknown width."""
        names = {address: instruction.mnemonic for address, instruction in self.instructions.items()}
        return {access: charge(self.arch, order, names[access.address], access) for access in self.accesses}

    def uncharged(self) -> Paths:
        """The waves' steps with an LDS of ``lds_bytes`` a clock at any address."""
        return [[self.steps[address] for address, _ in wave] for wave in self.waves]

    def paths(self, charges: Charges, *, port: bool) -> Paths:
        """The waves' steps, with these clocks at the LDS's banks, and at its port too if wanted."""
        lds = {
            access: charged(self.steps[access.address], clocks, port=port)
            for access, clocks in charges.items()
        }
        return [[lds[access] if access else self.steps[address] for address, access in w] for w in self.waves]

    @property
    def looped_bytes(self) -> int:
        """Bytes of loop code: instructions executed more than once by some wave."""
        often = {address for wave in self.waves for address, times in _times(wave).items() if times > 1}
        places = [*self.instructions]
        return sum(after - place for place, after in pairwise(places) if place in often)

    def uses(self, charges: Charges) -> tuple[LdsUse, ...]:
        """Every executed LDS instruction, by address."""
        by_wave = [Counter(access.address for _, access in wave if access) for wave in self.waves]
        executed = sum(by_wave, Counter[int]())
        return tuple(
            LdsUse(
                offset=address - self.function.instructions[0].address,
                text=self.instructions[address].text,
                executed=executed[address],
                looped=any(wave[address] > 1 for wave in by_wave),
                ways=max(charges[access].ways for access in self.accesses if access.address == address),
                extra=sum(
                    charges[access].extra * count
                    for access, count in self.accesses.items()
                    if access.address == address
                ),
            )
            for address in sorted(executed)
        )


def _times(wave: Sequence[tuple[int, Access | None]]) -> Counter[int]:
    return Counter(address for address, _ in wave)


def trace_of(arch: str, function: Kernel, program: Sequence[tuple[int, str]], run: Result) -> Trace:
    """The trace in a recorded run of ``program``.

    Raises ``PerfError`` for an LDS instruction without addresses: it would seem free of conflicts.
    """
    wave, lds = arch_named(arch).isa.wave, _lds_addresses(function)
    waves = [
        list(_wave([program[word & INDEX][0] for word in executed], lds, accesses(words, program, wave)))
        for executed, words in zip(run.recorded, run.recorded_lds, strict=True)
    ]
    return Trace(arch, function, waves)


def _lds_addresses(function: Kernel) -> frozenset[int]:
    return frozenset(i.address for i in function.instructions if i.first.kind == "lds")


def _wave(
    executed: Sequence[int], lds: frozenset[int], recorded: Iterator[Access]
) -> Iterator[tuple[int, Access | None]]:
    """Both records together: they have the LDS instructions in the same order."""
    for address in executed:
        access = next(recorded, None) if address in lds else None
        if address in lds and (access is None or access.address != address):
            raise _torn(address)
        yield address, access
    if left := next(recorded, None):
        raise _torn(left.address)


def _torn(address: int) -> PerfError:
    title = "the record of LDS instructions does not fit the record of all"
    return PerfError(title, [f"at {address:#x}"], advice="correct record_lds in emulator/core/run/run.cpp")
