"""What an LDS instruction costs, from the addresses of its lanes: at the banks, and at the port.

The LDS has 32 banks of a dword and serves a wave in phases, each of some lanes.  Lanes of a phase that need
different dwords of one bank conflict: each further dword is one more clock.  Lanes that read the same dword
do not.

Where the phases come from: measured for reads on an MI300X (gfx942) and a Radeon PRO W7900 (gfx1100), by
amd-shark-ai's docs/empirical-lds; writes of 128 bits on gfx942 by ROCm's documentation of Composable Kernel
(lds_bank_conflicts); on gfx1100 writes are assumed to go in contiguous phases.  Nobody measured gfx908 and
gfx1030: they are modelled under their relative's order and under a contiguous one.

Costs at the port: on gfx9 a fit to latencies of 64 reads of one wave of an MI300X (4 clocks and 4 a dword,
1.65 a conflict); on RDNA inferred from a Radeon RX 9070 XT (2 a phase, 1.2 a conflict).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from wheel_builder.base.archs import Port, arch_named
from wheel_builder.perf import cost

BANKS = 32
DWORD = 4
PORTS = 2  # of a compute unit: a pair of SIMDs on gfx9, a SIMD on RDNA
STORES = re.compile(r"ds_(write|store)")
ADDS_UP = re.compile(r"ds_(add|sub|rsub|inc|dec|min|max|and|or|xor|cmpst|wrxchg|storexchg)")
STRIDE_64 = re.compile(r"st(ride)?64")

Lanes = tuple[int, ...]
Phases = Mapping[int, tuple[Lanes, ...]]  # by dwords of a lane's access

MEASURED = "measured"  # on this arch or on its relative
CONTIGUOUS = "contiguous"


def _contiguous(wave: int) -> Phases:
    """As many lanes at a time as need every bank once."""
    sizes = {dwords: BANKS // dwords for dwords in (1, 2, 4)}
    return {
        dwords: tuple(tuple(range(first, first + size)) for first in range(0, wave, size))
        for dwords, size in sizes.items()
    }


def _measured(wave: int) -> Phases:
    """The measured order: of 32 lanes, four at 128 bits go together with four of the other half."""
    pairs = [(first + a, first + b) for first in range(0, wave, 32) for a, b in CROSSED]
    quads = tuple((*range(a, a + 4), *range(b, b + 4)) for a, b in pairs)
    return {**_contiguous(wave), 4: quads}


CROSSED = ((0, 20), (4, 16), (8, 28), (12, 24))


@dataclass(frozen=True)
class Charge:
    """One execution: clocks at the banks and at its port, and the conflicts among them.

    ``ways``: the most dwords that a phase needs of one bank; 1 is no conflict.
    """

    banks: int
    port: float
    extra: int
    ways: int


@dataclass(frozen=True)
class Access:
    """One execution of the LDS instruction at ``address`` by a wave; ``active`` is EXEC, ``lanes`` the
    address register of every lane.
    """

    address: int
    active: int
    offsets: tuple[int, int]
    lanes: tuple[int, ...]


HEAD = 5  # words before the addresses in a run's record


def accesses(words: Sequence[int], program: Sequence[tuple[int, str]], wave: int) -> Iterator[Access]:
    """The LDS instructions in one wave's record (emulator/core/wave.hpp) of a run of ``program``, in
    order.
    """
    size = HEAD + wave
    for begin in range(0, len(words), size):
        index, low, high, first, second = words[begin : begin + HEAD]
        lanes = tuple(words[begin + HEAD : begin + size])
        yield Access(program[index][0], low | high << 32, (first, second), lanes)


def orders(arch: str) -> tuple[str, ...]:
    """The orders of phases to model an arch under, the first for the figures; raises ``ArchError``."""
    return arch_named(arch).isa.lds.phases


def charge(arch: str, order: str, mnemonic: str, access: Access) -> Charge:
    """What one execution costs.  Raises ``PerfError`` for a mnemonic of unknown width."""
    isa = arch_named(arch).isa
    dwords, count = cost.lds_shape(mnemonic)
    phases = phases_of(order, isa.wave, store=STORES.match(mnemonic) is not None)[dwords]
    found = [0] * len(phases) * count
    if not cost.LDS_LANE.match(mnemonic):  # those exchange data between lanes, without the banks
        places = _places(mnemonic, dwords * DWORD, count, access)
        shared = ADDS_UP.match(mnemonic) is None
        found = [_ways(lanes, place, dwords, shared=shared) for place in places for lanes in phases]
    extra = sum(max(ways - 1, 0) for ways in found)
    return Charge(
        banks=len(found) + extra,
        port=_port(isa.lds.port, dwords * count, len(found), extra),
        extra=extra,
        ways=max(found),
    )


@cache
def phases_of(order: str, wave: int, *, store: bool) -> Phases:
    """The phases of a wave: stores' are contiguous under every order."""
    return _contiguous(wave) if store or order == CONTIGUOUS else _measured(wave)


def _places(mnemonic: str, size: int, count: int, access: Access) -> list[dict[int, int]]:
    """By lane, the byte address of each of the instruction's accesses, for active lanes."""
    lanes = [lane for lane in range(len(access.lanes)) if access.active >> lane & 1]
    unit = size * (64 if STRIDE_64.search(mnemonic) else 1) if count > 1 else 1
    offsets = [offset * unit for offset in access.offsets[:count]]
    return [{lane: access.lanes[lane] + offset for lane in lanes} for offset in offsets]


def _ways(lanes: Lanes, place: Mapping[int, int], dwords: int, *, shared: bool) -> int:
    """The most different dwords that one phase needs of a bank; unless ``shared``, each lane's is another."""
    needed: list[set[tuple[int, int]]] = [set() for _ in range(BANKS)]
    for lane in lanes:
        if lane in place:
            first = place[lane] // DWORD
            for dword in range(first, first + dwords):
                needed[dword % BANKS].add((dword, 0 if shared else lane))
    return max(map(len, needed))


def _port(port: Port, dwords: int, phases: int, conflicts: int) -> float:
    return port.fixed + port.dword * dwords + port.phase * phases + port.conflict * conflicts
