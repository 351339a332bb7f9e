"""What an LDS instruction costs, from the addresses of its lanes: at the banks, and at the port.

The LDS has banks of a dword (``lds.banks`` of kernels/tables/isas.toml) and serves a wave in phases, each of
some lanes.  Lanes of a phase that need different dwords of one bank conflict: each further dword is one more
clock.  Lanes that read the same dword do not.

Where the phases come from: measured for reads on an MI300X (gfx942) and a Radeon PRO W7900 (gfx1100), by
amd-shark-ai's docs/empirical-lds; writes of 128 bits on gfx942 by ROCm's documentation of Composable Kernel
(lds_bank_conflicts); on gfx1100 writes are assumed to go in contiguous phases.  Nobody measured gfx908 and
gfx1030: they are modelled under their relative's order and under a contiguous one.  A Radeon RX 9070 XT
(gfx1201) reads in contiguous phases, as amd-shark-ai's docs/empirical-lds has it.  The phases with 64 banks
are amd-shark-ai's of an MI350X; ROCm's rocroller says that writes and 32-bit reads use 32 banks there.

Costs at the port: on gfx9 a fit to latencies of 64 reads of one wave of an MI300X (4 clocks and 4 a dword,
1.65 a conflict), on gfx950 with half of that for each dword read, inferred from rocroller's model; on RDNA
inferred from a Radeon RX 9070 XT (2 a phase, 1.2 a conflict).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from wheel_builder.extras.perf.model import cost
from wheel_builder.tables.archs import Port, arch_named

DWORD = 4
PORTS = 2  # of a compute unit: a pair of SIMDs on gfx9, a SIMD on RDNA
STORES = re.compile(r"ds_(write|store)")
ADDS_UP = re.compile(r"ds_(add|sub|rsub|inc|dec|min|max|and|or|xor|cmpst|wrxchg|storexchg)")
STRIDE_64 = re.compile(r"st(ride)?64")

Lanes = tuple[int, ...]
Phases = Mapping[int, tuple[Lanes, ...]]  # by dwords of a lane's access

MEASURED = "measured"  # on this arch or on its relative
CONTIGUOUS = "contiguous"


def _contiguous(wave: int, banks: int) -> Phases:
    """As many lanes at a time as need every bank once."""
    sizes = {dwords: banks // dwords for dwords in (1, 2, 4)}
    return {
        dwords: tuple(tuple(range(first, first + size)) for first in range(0, wave, size))
        for dwords, size in sizes.items()
    }


def _measured(wave: int, banks: int) -> Phases:
    """The measured order: at 128 bits, lanes of both halves of 32 go together."""
    phases = (
        tuple(first + lane for lane in lanes) for first in range(0, wave, 32) for lanes in CROSSED[banks]
    )
    return {**_contiguous(wave, banks), 4: tuple(phases)}


# The phases of 32 lanes, by banks.
CROSSED: Mapping[int, tuple[Lanes, ...]] = {
    32: (
        (*range(4), *range(20, 24)),
        (*range(4, 8), *range(16, 20)),
        (*range(8, 12), *range(28, 32)),
        (*range(12, 16), *range(24, 28)),
    ),
    64: ((*range(4), *range(12, 16), *range(20, 28)), (*range(4, 12), *range(16, 20), *range(28, 32))),
}


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
    """The LDS instructions in one wave's record (emulator/core/run/wave.hpp) of a run of ``program``, in
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
    store, shared = STORES.match(mnemonic) is not None, ADDS_UP.match(mnemonic) is None
    banks = isa.lds.banks if dwords > 1 and shared and not store else isa.lds.narrow_banks
    phases = phases_of(order, isa.wave, banks, store=store)[dwords]
    found = [0] * len(phases) * count
    if not cost.LDS_LANE.match(mnemonic):  # those exchange data between lanes, without the banks
        places = _places(mnemonic, dwords * DWORD, count, access)
        each = ((lanes, place) for place in places for lanes in phases)
        found = [_ways(*both, dwords, banks, shared=shared) for both in each]
    extra = sum(max(ways - 1, 0) for ways in found)
    return Charge(
        banks=len(found) + extra,
        port=_port(isa.lds.port, dwords * count, len(found), extra, store=store),
        extra=extra,
        ways=max(found),
    )


@cache
def phases_of(order: str, wave: int, banks: int, *, store: bool) -> Phases:
    """The phases of a wave: stores' are contiguous under every order."""
    return (_contiguous if store or order == CONTIGUOUS else _measured)(wave, banks)


def _places(mnemonic: str, size: int, count: int, access: Access) -> list[dict[int, int]]:
    """By lane, the byte address of each of the instruction's accesses, for active lanes."""
    lanes = [lane for lane in range(len(access.lanes)) if access.active >> lane & 1]
    unit = size * (64 if STRIDE_64.search(mnemonic) else 1) if count > 1 else 1
    offsets = [offset * unit for offset in access.offsets[:count]]
    return [{lane: access.lanes[lane] + offset for lane in lanes} for offset in offsets]


def _ways(lanes: Lanes, place: Mapping[int, int], dwords: int, banks: int, *, shared: bool) -> int:
    """The most different dwords that one phase needs of a bank; unless ``shared``, each lane's is another."""
    needed: list[set[tuple[int, int]]] = [set() for _ in range(banks)]
    for lane in lanes:
        if lane in place:
            first = place[lane] // DWORD
            for dword in range(first, first + dwords):
                needed[dword % banks].add((dword, 0 if shared else lane))
    return max(map(len, needed))


def _port(port: Port, dwords: int, phases: int, conflicts: int, *, store: bool) -> float:
    each = port.stored if store else port.dword
    return port.fixed + each * dwords + port.phase * phases + port.conflict * conflicts
