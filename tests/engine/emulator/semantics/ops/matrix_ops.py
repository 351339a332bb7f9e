"""MFMA and WMMA: register layouts from the published tables, values against exact arithmetic.

Three kinds of values.  Small integers: every partial sum is exact, so any order of additions gives equal
bits, and a wrong layout shows.  Powers of two and specials (infinities, NaN, denormals, signed zeros). Random
values: the hardware's rounding between products is unpublished. A result may differ from the exact sum by one
f32 rounding for each product and one for the accumulator.
"""

import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tests.engine.emulator.semantics.machine import LANES, Data, Snippet
from tests.engine.emulator.semantics.numbers.exact import BF16, F16, F32, INF, Format
from tests.engine.emulator.semantics.table import Case, spread
from wheel_builder.tables.archs import arch_named


@dataclass(frozen=True)
class Layout:
    """The matrix element of each lane and element of a matrix instruction.

    ``a(lane, e)`` is (block, i, k) of a lane's element e, ``b(lane, e)`` (block, j, k), ``d(lane, g)``
    (block, i, j) of register g.  Sources hold ``per_lane`` elements: two to a register, or one for f32.
    """

    m: int
    k: int
    blocks: int
    per_lane: int
    registers: int
    a: Callable[[int, int], tuple[int, int, int]]
    b: Callable[[int, int], tuple[int, int, int]]
    d: Callable[[int, int], tuple[int, int, int]]


def mfma16(k, blocks=1):
    """16x16: q = lane / 16 counts groups of k, or blocks."""
    per = 4 if blocks == 4 else k // 4
    if blocks == 1:

        def source(lane, e):
            return 0, lane % 16, per * (lane // 16) + e

        def result(lane, g):
            return 0, 4 * (lane // 16) + g, lane % 16

        return Layout(16, k, 1, per, 4, source, source, result)

    def source(lane, e):
        return lane // 16, lane % 16, e

    def result(lane, g):
        return g // 4, 4 * (lane // 16) + g % 4, lane % 16

    return Layout(16, k, 4, k, 16, source, source, result)


def mfma32(k, blocks=1):
    if blocks == 1:
        per = k // 2

        def source(lane, e):
            return 0, lane % 32, per * (lane // 32) + e
    else:
        per = k

        def source(lane, e):
            return lane // 32, lane % 32, e

    def result(lane, g):
        block, g = divmod(g, 16)
        return block, 8 * (g // 4) + 4 * (lane // 32) + g % 4, lane % 32

    return Layout(32, k, blocks, per, 16 * blocks, source, source, result)


def mfma4(k):
    def source(lane, e):
        return lane // 4, lane % 4, e

    def result(lane, g):
        return lane // 4, g, lane % 4

    return Layout(4, k, 16, k, 4, source, source, result)


def wmma32():
    """Wave32: lanes l and l + 16 hold equal rows of A and columns of B."""

    def source(lane, e):
        return 0, lane % 16, e

    def result(lane, g):
        return 0, 2 * g + lane // 16, lane % 16

    return Layout(16, 16, 1, 16, 8, source, source, result)


def wmma_split():
    """Wave32 of RDNA 4: of each eight k, lanes 0 to 15 hold the first four, and of D its upper rows."""

    def source(lane, e):
        return 0, lane % 16, 8 * (e // 4) + 4 * (lane // 16) + e % 4

    def result(lane, g):
        return 0, 8 * (lane // 16) + g, lane % 16

    return Layout(16, 16, 1, 8, 8, source, source, result)


@dataclass(frozen=True)
class Matrix:
    """An instruction. ``half`` is the format of a half-width result, in the low halves of the registers."""

    names: str
    layout: Layout
    format: Format
    half: Format | None = None


def small_integers(f, rng):
    return lambda: f.round(Fraction(rng.randint(-8, 8)))


def special(f, rng):
    values = (0, f.sign, f.round(1), f.round(-2), 1, 1 << f.mantissa_bits, f.inf, f.inf | f.sign, f.nan)
    weights = (10, 10, 10, 10, 4, 4, 0.4, 0.4, 0.3)
    return lambda: rng.choices(values, weights)[0]


def any_number(f, rng):
    return lambda: f.round(Fraction(rng.uniform(-4, 4)))


def source_words(layout, f, matrix, place, lanes):
    """Registers of A or B: every lane's elements, packed."""
    per_word = 1 if f is F32 else 2
    words = [[0] * lanes for _ in range(layout.per_lane // per_word)]
    for lane in range(lanes):
        for e in range(layout.per_lane):
            words[e // per_word][lane] |= matrix[place(lane, e)] << 16 * (e % per_word)
    return words


def parsed(f, x):
    """(value, or None if it is finite; sign; integer; exponent): see ``Format.parts``."""
    special = x & f.inf == f.inf
    return f.value(x) if special else None, f.negative(x), *((0, 0) if special else f.parts(x))


@dataclass(frozen=True)
class Sum:
    """An exact sum: ``bits`` rounded to the result's format.

    The sum and its magnitudes are in units of 2^exponent.
    """

    bits: int
    total: int
    size: int
    exponent: int


def exact_sum(out, row, column, c):
    """c + the products of ``row`` and ``column``. All are parsed numbers."""
    special, products, zeros_negative = 0.0, [], True
    for (v, negative_v, m, e), (w, negative_w, n, g) in zip(row, column, strict=True):
        negative = negative_v != negative_w
        if v is None and w is None:
            products.append((m * n, e + g))
            zeros_negative = zeros_negative and negative and not m * n
        else:
            # the factor of an infinity: itself special, or nonzero
            nan = v != v or w != w or (v is None and not m) or (w is None and not n)
            special += float("nan") if nan else -INF if negative else INF
    v, negative, m, e = parsed(out, c)
    special += v or 0.0
    products.append((m, e))
    zeros_negative = zeros_negative and negative and not m
    low = min(e for _, e in products)
    total = sum(m << e - low for m, e in products)
    size = sum(abs(m) << e - low for m, e in products)
    if special != 0:
        return Sum(out.round(special), 0, 0, 0)
    return Sum(out.round_parts(total, low, negative_zero=zeros_negative), total, size, low)


def close(op, got, want, *, flushes):
    """Whether ``got`` may be the result.  ``flushes``: a denormal is zero."""
    out = op.half or F32
    if flushes and got != out.flushed(got):
        return False
    if want.bits & out.inf == out.inf:
        return out.is_nan(got) if out.is_nan(want.bits) else got == want.bits
    if got & out.inf == out.inf:
        return False
    whole, exponent = out.parts(got)
    low = min(exponent, want.exponent - 64, -200)  # everything below is an integer in these units
    up = want.exponent - low
    # A rounding per product and one for the accumulator, each half an ulp of at most the sum of magnitudes,
    # or the smallest denormal.
    slack = (op.layout.k + 1) * ((want.size << up - F32.mantissa_bits - 1) + (1 << -149 - low))
    slack += 1 << -126 - low if flushes else 0
    if op.half:
        smallest = 1 - out.bias - out.mantissa_bits
        slack += (abs(want.total) << up - out.mantissa_bits - 1) + (1 << smallest - low)
    return abs((whole << exponent - low) - (want.total << up)) <= slack


# Registers of A, B, and (except for in-place instructions) C and D. Separate AccVGPRs hold C and D.
A, B, C = 32, 48, 64
UPPER = 0xABCD  # upper halves of the registers of a half-width C. The destination's differ
OTHER = 0x1234


def many(bank, base, count):
    return f"{bank}{base}" if count == 1 else f"{bank}[{base}:{base + count - 1}]"


@dataclass(frozen=True)
class Trial:
    """One multiplication: numbers by (block, row, k), (block, column, k) and (block, row, column)."""

    exact: bool
    flushes: bool  # denormals are zeros
    a: dict[tuple[int, int, int], int]
    b: dict[tuple[int, int, int], int]
    c: dict[tuple[int, int, int], int]
    sums: dict[tuple[int, int, int], Sum]


@dataclass(frozen=True, eq=False)
class Variant:
    """A matrix instruction. Its accumulator is in separate "registers", in "place", or a "constant" 1.0."""

    op: Matrix
    accumulator: str

    @property
    def names(self):
        """CDNA 1 rejects a constant there."""
        constant = self.accumulator == "constant"
        taken = (name for name in self.op.names.split() if not (constant and name.startswith("cdna1:")))
        return " ".join(taken)

    @property
    def source_words(self):
        return self.op.layout.per_lane // (1 if self.op.format is F32 else 2)

    def registers(self, arch):
        """Names of the registers of C (none if it is a constant) and D."""
        count = self.op.layout.registers
        bank = "a" if arch_named(arch).isa.separate_acc_vgprs else "v"
        d = C if self.accumulator == "place" else C + 32
        c = [] if self.accumulator == "constant" else [f"{bank}{C + i}" for i in range(count)]
        return c, [f"{bank}{d + i}" for i in range(count)]

    def snippet(self, arch):
        c, d = self.registers(arch)
        words, count = self.source_words, self.op.layout.registers
        accumulator = many(c[0][0], C, count) if c else "1.0"
        operands = [many("v", A, words), many("v", B, words), accumulator]
        instruction = f"{spread(self.op.names)[arch]} " + ", ".join(
            [many(d[0][0], int(d[0][1:]), count), *operands]
        )
        # MFMA ignores EXEC, so it runs with a few active lanes.  WMMA requires all of them.
        mask = "" if arch_named(arch).isa.unit != "mfma" else f"s_mov_b{LANES[arch]} <exec>, 5\n"
        text = f"{mask}s_nop 7\n{instruction}\n" + "s_nop 7\n" * 3
        sources = [f"v{base + i}" for base in (A, B) for i in range(words)]
        old = d if d != c else []
        return Snippet(instruction, text, (*sources, *c, *old), (), tuple(d))

    @functools.cached_property
    def makers(self):
        """Kinds of values. Fewer if only the accumulator's place differs."""
        everything = (small_integers, small_integers, special, special, any_number)
        return everything if self.accumulator == "registers" else (small_integers, special)

    def trial(self, rng, make, *, flushes):
        layout, out = self.op.layout, self.op.half or F32
        sources = list(itertools.product(range(layout.blocks), range(layout.m), range(layout.k)))
        cells = list(itertools.product(range(layout.blocks), range(layout.m), range(layout.m)))
        number = make(self.op.format, rng)
        result = (lambda: out.round(1)) if self.accumulator == "constant" else make(out, rng)
        a, b = ({key: number() for key in sources} for _ in range(2))
        c = {key: result() for key in cells}
        return Trial(make is small_integers, flushes, a, b, c, self.sums(a, b, c, flushes=flushes))

    def sums(self, a, b, c, *, flushes):
        f, layout, out = self.op.format, self.op.layout, self.op.half or F32
        taken = (f.flushed, out.flushed) if flushes else (int, int)
        (rows, columns) = ({key: parsed(f, taken[0](x)) for key, x in m.items()} for m in (a, b))
        lines = [{(n, i): [m[n, i, k] for k in range(layout.k)] for n, i, _ in m} for m in (rows, columns)]
        return {
            (n, i, j): exact_sum(out, lines[0][n, i], lines[1][n, j], taken[1](x))
            for (n, i, j), x in c.items()
        }

    def flushes(self, arch):
        return self.op.format is not F32 and arch_named(arch).isa.flushes_denormals

    def data(self, arch, trial):
        layout, lanes = self.op.layout, LANES[arch]
        upper = UPPER << 16 if self.op.half else 0
        words = source_words(layout, self.op.format, trial.a, layout.a, lanes)
        words += source_words(layout, self.op.format, trial.b, layout.b, lanes)
        c, d = self.registers(arch)
        words += [[trial.c[layout.d(lane, g)] | upper for lane in range(lanes)] for g in range(len(c))]
        words += [[OTHER << 16 | g] * lanes for g in range(len(d) if d != c else 0)]
        return Data(dict(zip(self.snippet(arch).vectors, words, strict=True)), {})

    def problems(self, arch, trial, out):
        layout = self.op.layout
        for g, register in enumerate(self.registers(arch)[1]):
            for lane in range(LANES[arch]):
                n, i, j = layout.d(lane, g)
                if problem := self.problem(out[register][lane], trial.sums[n, i, j], trial=trial):
                    yield f"{register}[{lane}] = D[{i}][{j}] of block {n}: {problem}"

    def problem(self, got, want, *, trial):
        upper = UPPER if self.accumulator == "place" else OTHER
        if self.op.half and got >> 16 != upper:
            return f"the upper half became {got >> 16:#x}"
        got = got & 0xFFFF if self.op.half else got
        right = got == want.bits if trial.exact else close(self.op, got, want, flushes=trial.flushes)
        return "" if right else f"{got:#x}, exact {want.bits:#x}"

    def case(self, arch):
        def make():
            trials = trials_of(self, flushes=self.flushes(arch))

            def check(results):
                both = zip(trials, results, strict=True)
                return [problem for trial, out in both for problem in self.problems(arch, trial, out)]

            return [self.data(arch, trial) for trial in trials], check

        return Case(self.snippet(arch), make)


@functools.lru_cache(maxsize=8)  # archs with the same instruction follow each other
def trials_of(variant, *, flushes):
    rng = random.Random(variant.names + variant.accumulator)
    return [variant.trial(rng, make, flushes=flushes) for make in variant.makers]


MFMA = [
    # CDNA 3 spells the shapes differently. The earlier _1k forms are its bf16
    Matrix("cdna1:v_mfma_f32_32x32x8f16 cdna3:v_mfma_f32_32x32x8_f16", mfma32(8), F16),
    Matrix("cdna1:v_mfma_f32_16x16x16f16 cdna3:v_mfma_f32_16x16x16_f16", mfma16(16), F16),
    Matrix("cdna1:v_mfma_f32_4x4x4f16 cdna3:v_mfma_f32_4x4x4_16b_f16", mfma4(4), F16),
    Matrix("cdna1:v_mfma_f32_32x32x4f16 cdna3:v_mfma_f32_32x32x4_2b_f16", mfma32(4, 2), F16),
    Matrix("cdna1:v_mfma_f32_16x16x4f16 cdna3:v_mfma_f32_16x16x4_4b_f16", mfma16(4, 4), F16),
    Matrix("cdna1:v_mfma_f32_32x32x4bf16 cdna3:-", mfma32(4), BF16),
    Matrix("cdna1:v_mfma_f32_16x16x8bf16 cdna3:-", mfma16(8), BF16),
    Matrix("cdna1:v_mfma_f32_32x32x2bf16 cdna3:-", mfma32(2, 2), BF16),
    Matrix("cdna1:v_mfma_f32_16x16x2bf16 cdna3:-", mfma16(2, 4), BF16),
    Matrix("cdna1:v_mfma_f32_4x4x2bf16 cdna3:-", mfma4(2), BF16),
    Matrix("cdna2:v_mfma_f32_32x32x8bf16_1k cdna3:v_mfma_f32_32x32x8_bf16", mfma32(8), BF16),
    Matrix("cdna2:v_mfma_f32_16x16x16bf16_1k cdna3:v_mfma_f32_16x16x16_bf16", mfma16(16), BF16),
    Matrix("cdna2:v_mfma_f32_32x32x4bf16_1k cdna3:v_mfma_f32_32x32x4_2b_bf16", mfma32(4, 2), BF16),
    Matrix("cdna2:v_mfma_f32_16x16x4bf16_1k cdna3:v_mfma_f32_16x16x4_4b_bf16", mfma16(4, 4), BF16),
    Matrix("cdna2:v_mfma_f32_4x4x4bf16_1k cdna3:v_mfma_f32_4x4x4_16b_bf16", mfma4(4), BF16),
    Matrix("cdna4:v_mfma_f32_32x32x16_f16", mfma32(16), F16),
    Matrix("cdna4:v_mfma_f32_16x16x32_f16", mfma16(32), F16),
    Matrix("cdna4:v_mfma_f32_32x32x16_bf16", mfma32(16), BF16),
    Matrix("cdna4:v_mfma_f32_16x16x32_bf16", mfma16(32), BF16),
    Matrix("cdna1:v_mfma_f32_32x32x1f32 cdna3:v_mfma_f32_32x32x1_2b_f32", mfma32(1, 2), F32),
    Matrix("cdna1:v_mfma_f32_16x16x1f32 cdna3:v_mfma_f32_16x16x1_4b_f32", mfma16(1, 4), F32),
    Matrix("cdna1:v_mfma_f32_4x4x1f32 cdna3:v_mfma_f32_4x4x1_16b_f32", mfma4(1), F32),
    Matrix("cdna1:v_mfma_f32_32x32x2f32 cdna3:v_mfma_f32_32x32x2_f32", mfma32(2), F32),
    Matrix("cdna1:v_mfma_f32_16x16x4f32 cdna3:v_mfma_f32_16x16x4_f32", mfma16(4), F32),
]
WMMA = [
    Matrix("rdna3:v_wmma_f32_16x16x16_f16 rdna4:-", wmma32(), F16),
    Matrix("rdna3:v_wmma_f32_16x16x16_bf16 rdna4:-", wmma32(), BF16),
    Matrix("rdna3:v_wmma_f16_16x16x16_f16 rdna4:-", wmma32(), F16, F16),
    Matrix("rdna3:v_wmma_bf16_16x16x16_bf16 rdna4:-", wmma32(), BF16, BF16),
    Matrix("rdna4:v_wmma_f32_16x16x16_f16", wmma_split(), F16),
    Matrix("rdna4:v_wmma_f32_16x16x16_bf16", wmma_split(), BF16),
]

OPS = [
    Variant(op, accumulator) for op in [*MFMA, *WMMA] for accumulator in ("registers", "place", "constant")
]
