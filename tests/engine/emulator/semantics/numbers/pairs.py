"""Two halves in one register."""

from tests.engine.emulator.semantics.numbers import exact
from tests.engine.emulator.semantics.numbers.operands import PAIR_B16, PAIR_F16, Kind

E16 = exact.F16


def pair(low, high):
    return low & 0xFFFF | (high & 0xFFFF) << 16


P = PAIR_F16


def each(function, *words):
    low = function(*(w & 0xFFFF for w in words))
    return pair(low, function(*(w >> 16 for w in words)))


def nans_alike(x, f=E16):
    """Packed results compare with one pattern for all NaNs of a half."""
    return each(lambda h: f.nan if f.is_nan(h) else h, x)


class Pair(Kind):
    """Two halves in a register."""

    def canonical(self, x):
        return nans_alike(x)


class PairBf16(Kind):
    """Two bf16 numbers in a register."""

    def canonical(self, x):
        return nans_alike(x, exact.BF16)


PF = Pair("2xf16", 32, PAIR_F16.edges)
PB = PairBf16("2xbf16", 32, PAIR_B16.edges)
