"""Hazards: dependencies without a hardware interlock, so code must keep two instructions apart.

The compiler does so, except around inline assembly, which it does not analyse. An emulator cannot see a
mistake. Every path through a kernel is checked, loops included.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from wheel_builder.machine_code.disassembly.kernels import Instruction, Kernel
from wheel_builder.machine_code.static_checks import cdna, rdna
from wheel_builder.machine_code.static_checks.findings import Finding
from wheel_builder.machine_code.static_checks.pairs import Need, Pair, Reach, Rules, pairs_after, steps_of
from wheel_builder.machine_code.static_checks.rdna1 import unsafe_on_rdna1
from wheel_builder.machine_code.static_checks.scalar_reads import stale_scalar_reads
from wheel_builder.tables.archs import arch_named

CHECK = "hazards"


@dataclass(frozen=True)
class Target:
    """The rules of an ISA and their reach, and two checks without distances.

    The checks are of a single matrix instruction, and of paths.
    """

    rules: Rules
    reach: Reach
    fault: Callable[[Instruction], str]
    along_paths: Callable[[Kernel], Iterator[str]] = lambda _: iter(())


# Makers of the rules named in isas.toml, from the clocks of the ISA's matrix instructions.
RULES: Mapping[str, Callable[[Mapping[str, int]], Target]] = {
    "cdna0": lambda _: Target(cdna.cdna0, Reach(cdna.REACH_OTHERS, others=cdna.REACH_OTHERS), rdna.no_matrix),
    "cdna1": lambda clocks: Target(
        cdna.cdna1(clocks), Reach(cdna.REACH_CDNA1, others=cdna.REACH_OTHERS), cdna.mfma_fault(clocks)
    ),
    "cdna2": lambda clocks: Target(
        cdna.cdna2(clocks), Reach(cdna.REACH_CDNA2, others=cdna.REACH_OTHERS), cdna.mfma_fault(clocks)
    ),
    "cdna3": lambda clocks: Target(
        cdna.cdna3(clocks), Reach(cdna.REACH_CDNA3, others=cdna.REACH_OTHERS), cdna.mfma_fault(clocks)
    ),
    "cdna4": lambda clocks: Target(
        cdna.cdna4(clocks), Reach(cdna.REACH_CDNA4, others=cdna.REACH_OTHERS), cdna.mfma_fault(clocks)
    ),
    "rdna1": lambda _: Target(rdna.rdna2, Reach(0), rdna.no_matrix, unsafe_on_rdna1),
    "rdna2": lambda _: Target(rdna.rdna2, Reach(0), rdna.no_matrix),
    "rdna3": lambda _: Target(
        rdna.rdna3, Reach(valus=rdna.REACH_RDNA3, others=rdna.REACH_OTHERS), rdna.wmma_fault
    ),
    "rdna3_5": lambda _: Target(
        rdna.rdna3_5, Reach(valus=rdna.REACH_RDNA3_5, others=rdna.REACH_OTHERS), rdna.wmma_fault
    ),
    "rdna4": lambda _: Target(
        rdna.rdna3_5,
        Reach(valus=rdna.REACH_RDNA3_5, others=rdna.REACH_OTHERS),
        rdna.wmma_fault,
        stale_scalar_reads,
    ),
}


@cache
def target_of(arch: str) -> Target:
    """The rules of an arch. Raises ``ArchError`` for an arch missing from the table."""
    isa = arch_named(arch).isa
    return RULES[isa.hazards.rules](isa.matrix_clocks)


def check_hazards(arch: str, kernel: Kernel) -> tuple[Finding, ...]:
    """Every dependency in ``kernel`` with too small a distance on some path, and the smallest distance found.

    Raises ``ArchError`` for an unknown arch, and ``DeviceCodeError`` for paths it cannot follow.
    """
    target = target_of(arch)
    texts = [*_faults(target, kernel), *_too_close(target, kernel), *target.along_paths(kernel)]
    return tuple(Finding(CHECK, arch, kernel.name, text) for text in texts)


def _faults(target: Target, kernel: Kernel) -> Iterator[str]:
    for number in kernel.reached:
        instruction = kernel.instructions[number]
        if instruction.first.is_matrix and (fault := target.fault(instruction)):
            yield f"{instruction}: {fault}"


def _too_close(target: Target, kernel: Kernel) -> list[str]:
    worst: dict[tuple[int, int, str], tuple[int, str]] = {}
    for pair, need in _needs(target, kernel):
        found, key = need.found(pair.distance), (pair.second.address, pair.first.address, need.how)
        if found < need.required and (key not in worst or found < worst[key][0]):
            worst[key] = found, _words(pair, need)
    return [text for _, (_, text) in sorted(worst.items())]


def _needs(target: Target, kernel: Kernel) -> Iterator[tuple[Pair, Need]]:
    steps = steps_of(kernel)
    for number in kernel.reached:
        for pair in pairs_after(kernel, steps, number, target.reach):
            yield from ((pair, need) for need in target.rules(pair))


def _words(pair: Pair, need: Need) -> str:
    return (
        f"{pair.second} {need.how} {pair.first}: needs {need.required} {need.unit} between them, "
        f"has {need.found(pair.distance)} on the shortest path"
    )
