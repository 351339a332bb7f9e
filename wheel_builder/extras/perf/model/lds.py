"""The cost of an LDS instruction at the banks and at the port, from the addresses of its lanes.

The LDS has banks of a dword (``lds.banks`` of kernels/tables/isas.toml) and serves a wave in phases, each of
some lanes. Lanes of a phase conflict if they need different dwords of one bank: each further dword costs one
more clock. Lanes reading the same dword share it.

Sources of the phases. gfx942 (MI300X) and gfx1100 (Radeon PRO W7900): reads measured by amd-shark-ai's
docs/empirical-lds. gfx942: writes of 128 bits from ROCm's documentation of Composable Kernel
(lds_bank_conflicts). gfx1100: contiguous phases of writes are assumed. gfx908 and gfx1030 lack measurements:
they are modelled under their relative's order and under a contiguous one. gfx1201 (Radeon RX 9070 XT):
contiguous phases of reads, from amd-shark-ai's docs/empirical-lds. The phases with 64 banks were measured by
amd-shark-ai on an MI350X. By ROCm's rocroller, writes and 32-bit reads use 32 banks there.

Costs at the port: on gfx9 a fit to latencies of 64 reads of one wave of an MI300X (4 clocks and 4 a dword,
1.65 a conflict), on gfx950 with half of this for each dword read, inferred from rocroller's model. On RDNA
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
    """One execution: clocks at the banks and at its port, with its conflicts.

    ``ways``: the most dwords of one bank needed in a phase. 1: conflict-free.
    """

    banks: int
    port: float
    extra: int
    ways: int


@dataclass(frozen=True)
class Access:
    """One execution of the LDS instruction at ``address`` by a wave.

    ``active`` is EXEC, ``lanes`` the address register of every lane.
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
    """The orders of phases to model an arch under, the first for the figures. Raises ``ArchError``."""
    return arch_named(arch).isa.lds.phases


def charge(arch: str, order: str, mnemonic: str, access: Access) -> Charge:
    """The cost of one execution. Raises ``PerfError`` for a mnemonic of unknown width."""
    isa = arch_named(arch).isa
    dwords, count = cost.lds_shape(mnemonic)
    store, shared = STORES.match(mnemonic) is not None, ADDS_UP.match(mnemonic) is None
    banks = isa.lds.banks if dwords > 1 and shared and not store else isa.lds.narrow_banks
    phases = phases_of(order, isa.wave, banks, store=store)[dwords]
    found = [0] * len(phases) * count
    if not cost.LDS_LANE.match(mnemonic):  # those exchange data between lanes and bypass the banks
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
    """The most different dwords of a bank in one phase. With ``shared``, lanes share equal dwords."""
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
