"""MFMA and WMMA of 8 bits: floats as in matrix_ops, integers exactly.

Layouts: ROCm's matrix instruction calculator, CDNA 4's manual 7.1.5, RDNA 4's 7.12.
"""

import functools
import itertools
import random
from dataclasses import dataclass
from fractions import Fraction

from tests.engine.emulator.semantics.machine import LANES, Data, Snippet
from tests.engine.emulator.semantics.narrow.formats import FNUZ, OCP, Small
from tests.engine.emulator.semantics.numbers.exact import F32, INF
from tests.engine.emulator.semantics.numbers.operands import signed
from tests.engine.emulator.semantics.ops.matrix_ops import (
    A,
    B,
    C,
    Layout,
    Trial,
    Variant,
    any_number,
    exact_sum,
    many,
    mfma4,
    mfma16,
    mfma32,
    small_integers,
    special,
    wmma32,
)
from tests.engine.emulator.semantics.table import Case, spread
from wheel_builder.tables.archs import arch_named

SCALES = 24  # registers of A's and B's scales
LONG = 64  # a longer row has fewer kinds of values
LEAST = 17  # every finite code is an integer times 2^-17


def mfma_wide(m):
    """CDNA 4's products of up to 8 bits: 16 k of the first half of a row, then 16 of the second."""
    k = 2048 // m

    def source(lane, e):
        return 0, lane % m, e // 16 * (k // 2) + 16 * (lane // m) + e % 16

    base = mfma32(16) if m == 32 else mfma16(32)
    return Layout(m, k, 1, 32, base.registers, source, source, base.d)


def wmma_split():
    """RDNA 4: lanes 0 to 15 hold the first eight k, and of D its upper rows."""

    def source(lane, e):
        return 0, lane % 16, 8 * (lane // 16) + e

    def result(lane, g):
        return 0, 8 * (lane // 16) + g, lane % 16

    return Layout(16, 16, 1, 8, 8, source, source, result)


@dataclass(frozen=True)
class Product:
    """An instruction on floats of 8 bits. ``scaled``: by a byte of a register for each 32 k."""

    names: str
    layout: Layout
    a: Small
    b: Small
    suffix: str = ""
    scaled: tuple[int, int] | None = None
    half: None = None
    format: None = None


def packed(layout, matrix, place, lanes):
    """Registers of A or B: every lane's bytes."""
    words = [[0] * lanes for _ in range(layout.per_lane // 4)]
    for lane, e in itertools.product(range(lanes), range(layout.per_lane)):
        words[e // 4][lane] |= matrix[place(lane, e)] << 8 * (e % 4)
    return words


def code_of(small, x):
    return small.rounded(Fraction(x), negative=x < 0)


def some_codes(make, small, rng):
    """Codes as the maker's numbers of f32: integers, special ones, or any."""
    if make is small_integers:
        return lambda: code_of(small, rng.randint(-8, 8))
    if make is any_number:
        finite = [code for code in range(256) if abs(small.values[code]) < INF]
        return lambda: rng.choice(finite)
    odd = [code for code in range(256) if not abs(small.values[code]) < INF]
    usual = [code_of(small, x) for x in (0, 1, -2)] + [1, 1 << small.mantissa_bits, small.largest]
    return lambda: rng.choice(odd) if rng.random() < 0.005 else rng.choice(usual)


def parsed_code(small, code, power=0):
    """As ``parsed``, times 2^power."""
    x, negative = small.values[code], code > 0x7F
    if x != x or abs(x) == INF:
        return x, negative, 0, 0
    return None, negative, int(x * 2**LEAST), power - LEAST


@dataclass(frozen=True, eq=False)
class Narrow(Variant):
    """Accumulators as for ``Variant``."""

    op: Product

    @property
    def source_words(self):
        return self.op.layout.per_lane // 4

    @functools.cached_property
    def makers(self):
        return super().makers if self.op.layout.k < LONG else (small_integers, special, any_number)

    def snippet(self, arch):
        base = super().snippet(arch)
        scales = ", ".join(["", f"v{SCALES}", f"v{SCALES + 1}"]) if self.op.scaled else ""
        name = base.name + scales + self.op.suffix
        vectors = (*base.vectors, *((f"v{SCALES}", f"v{SCALES + 1}") if self.op.scaled else ()))
        text = base.text.replace(base.name, name)
        return Snippet(name, text, vectors, (), base.outputs)

    def trial(self, rng, make, *, flushes):
        layout = self.op.layout
        sources = list(itertools.product(range(layout.blocks), range(layout.m), range(layout.k)))
        cells = list(itertools.product(range(layout.blocks), range(layout.m), range(layout.m)))
        result = (lambda: F32.round(1)) if self.accumulator == "constant" else make(F32, rng)
        a = {key: number() for number in [some_codes(make, self.op.a, rng)] for key in sources}
        b = {key: number() for number in [some_codes(make, self.op.b, rng)] for key in sources}
        c = {key: result() for key in cells}
        return Trial(make is small_integers, flushes, a, b, c, self.sums(a, b, c, flushes=flushes))

    def exponents(self):
        """Of the rows' and columns' scales: by row and block of 32 k. Sums of integers stay exact."""
        rng, layout = random.Random(9), self.op.layout
        keys = list(itertools.product(range(layout.m), range(layout.k // 32)))
        return [{key: rng.randint(-2, 2) for key in keys} for _ in range(2)]

    def sums(self, a, b, c, *, flushes):
        layout, lines = self.op.layout, []
        powers = self.exponents() if self.op.scaled else [{}, {}]
        for matrix, small, power in zip((a, b), (self.op.a, self.op.b), powers, strict=True):
            of = {(n, i, k): power.get((i, k // 32), 0) for n, i, k in matrix}
            numbers = {key: parsed_code(small, x, of[key]) for key, x in matrix.items()}
            lines.append({(n, i): [numbers[n, i, k] for k in range(layout.k)] for n, i, _ in numbers})
        return {(n, i, j): exact_sum(F32, lines[0][n, i], lines[1][n, j], x) for (n, i, j), x in c.items()}

    def flushes(self, arch):
        return False

    def scale_words(self, lanes):
        """A scale's byte among bytes that it does not have."""
        m = self.op.layout.m
        for powers, byte in zip(self.exponents(), self.op.scaled, strict=True):
            given = [127 + powers[lane % m, lane // m] for lane in range(lanes)]
            yield [0x01FE00FF & ~(255 << 8 * byte) | x << 8 * byte for x in given]

    def data(self, arch, trial):
        layout, lanes = self.op.layout, LANES[arch]
        words = packed(layout, trial.a, layout.a, lanes) + packed(layout, trial.b, layout.b, lanes)
        c, d = self.registers(arch)
        words += [[trial.c[layout.d(lane, g)] for lane in range(lanes)] for g in range(len(c))]
        words += [[g] * lanes for g in range(len(d) if d != c else 0)]
        words += self.scale_words(lanes) if self.op.scaled else []
        return Data(dict(zip(self.snippet(arch).vectors, words, strict=True)), {})


# ---- integers
@dataclass(frozen=True)
class Bytes:
    """An instruction on bytes. ``signs`` of A's and B's, ``clamps``: the sum saturates."""

    names: str
    layout: Layout
    signs: tuple[bool, bool] = (True, True)
    clamps: bool = False
    suffix: str = ""


@dataclass(frozen=True, eq=False)
class Integers:
    """The accumulator is in "registers", in "place", or a "constant" 7."""

    op: Bytes
    accumulator: str

    @property
    def names(self):
        constant = self.accumulator == "constant"
        taken = (name for name in self.op.names.split() if not (constant and name.startswith("cdna1:")))
        return " ".join(taken)

    def registers(self, arch):
        count, bank = self.op.layout.registers, "a" if arch_named(arch).isa.separate_acc_vgprs else "v"
        d = C if self.accumulator == "place" else C + 32
        c = [] if self.accumulator == "constant" else [f"{bank}{C + i}" for i in range(count)]
        return c, [f"{bank}{d + i}" for i in range(count)]

    def snippet(self, arch):
        c, d = self.registers(arch)
        words, count = self.op.layout.per_lane // 4, self.op.layout.registers
        operands = [many("v", A, words), many("v", B, words), many(c[0][0], C, count) if c else "7"]
        result = many(d[0][0], int(d[0][1:]), count)
        instruction = f"{spread(self.op.names)[arch]} {', '.join([result, *operands])}{self.op.suffix}"
        mask = "" if arch_named(arch).isa.unit != "mfma" else f"s_mov_b{LANES[arch]} <exec>, 5\n"
        text = f"{mask}s_nop 7\n{instruction}\n" + "s_nop 7\n" * 3
        sources = [f"v{base + i}" for base in (A, B) for i in range(words)]
        return Snippet(instruction, text, (*sources, *c), (), tuple(d))

    def case(self, arch):
        def make():
            rng = random.Random(self.op.names + self.op.suffix + self.accumulator)
            trials = [self.trial(rng, large=large) for large in (False, True, True)]

            def check(results):
                both = zip(trials, results, strict=True)
                return [problem for trial, out in both for problem in self.problems(arch, trial, out)]

            return [self.data(arch, trial) for trial in trials], check

        return Case(self.snippet(arch), make)

    def trial(self, rng, *, large):
        """A, B and C. ``large``: bytes and sums near the ends of their ranges."""
        layout = self.op.layout
        sources = itertools.product(range(layout.blocks), range(layout.m), range(layout.k))
        cells = itertools.product(range(layout.blocks), range(layout.m), range(layout.m))
        ends = (0x80, 0x7F, 0xFF, 0, 1)
        byte = (lambda: rng.choice(ends)) if large else (lambda: rng.randrange(256))
        keys = list(sources)
        a, b = ({key: byte() for key in keys} for _ in range(2))
        near = (2**31 - 1, 2**31, 2**31 + 5000, 2**31 - 5000, 0, 2**32 - 1)
        c = {key: rng.choice(near) if large else rng.getrandbits(32) for key in cells}
        return a, b, c

    def data(self, arch, trial):
        a, b, c = trial
        layout, lanes = self.op.layout, LANES[arch]
        words = packed(layout, a, layout.a, lanes) + packed(layout, b, layout.b, lanes)
        registers = self.registers(arch)[0]
        words += [[c[layout.d(lane, g)] for lane in range(lanes)] for g in range(len(registers))]
        return Data(dict(zip(self.snippet(arch).vectors, words, strict=True)), {})

    def problems(self, arch, trial, out):
        layout = self.op.layout
        for g, register in enumerate(self.registers(arch)[1]):
            for lane in range(LANES[arch]):
                n, i, j = layout.d(lane, g)
                want, got = self.sum_of(trial, n, i, j), out[register][lane]
                if got != want:
                    yield f"{register}[{lane}] = D[{i}][{j}] of block {n}: {got:#x}, expected {want:#x}"

    def sum_of(self, trial, n, i, j):
        a, b, c = trial
        signs = self.op.signs
        number = lambda x, is_signed: signed(x, 8) if is_signed else x  # noqa: E731
        total = 7 if self.accumulator == "constant" else signed(c[n, i, j])
        for k in range(self.op.layout.k):
            total += number(a[n, i, k], signs[0]) * number(b[n, j, k], signs[1])
        return (max(-(2**31), min(2**31 - 1, total)) if self.op.clamps else total) & 0xFFFFFFFF


PAIRS = [(x, y) for x in ("fp8", "bf8") for y in ("fp8", "bf8")]
MFMA = [
    Product(f"{names.format(f'v_mfma_f32_{shape}_{x}_{y}')}", layout, family[x], family[y])
    for names, family in (("cdna3:{} cdna4:-", FNUZ), ("cdna4:{}", OCP))
    for shape, layout in (("32x32x16", mfma32(16)), ("16x16x32", mfma16(32)))
    for x, y in PAIRS
]
SCALED = (
    (" op_sel_hi:[0,0,0]", (0, 0)),
    (" op_sel:[1,0,0] op_sel_hi:[0,1,0]", (1, 2)),
    (" op_sel:[1,1,0] op_sel_hi:[1,0,0]", (3, 1)),
)


def wide():
    """Each pair of formats without scales, and with their bytes in other places."""
    for m in (32, 16):
        for (x, y), (select, scaled) in zip(PAIRS, itertools.cycle(SCALED), strict=False):
            shape, formats = f"{m}x{m}x{2048 // m}_f8f6f4", f" cbsz:{x == 'bf8':d} blgp:{y == 'bf8':d}"
            operands = mfma_wide(m), OCP[x], OCP[y]
            yield Product(f"cdna4:v_mfma_f32_{shape}", *operands, formats)
            yield Product(f"cdna4:v_mfma_scale_f32_{shape}", *operands, select + formats, scaled)


WMMA = [Product(f"rdna4:v_wmma_f32_16x16x16_{x}_{y}", wmma_split(), OCP[x], OCP[y]) for x, y in PAIRS]
SIGNS = [(x, y) for x in (False, True) for y in (False, True)]
INTEGERS = [
    Bytes("cdna1:v_mfma_i32_32x32x8i8 cdna3:-", mfma32(8)),
    Bytes("cdna1:v_mfma_i32_16x16x16i8 cdna3:-", mfma16(16)),
    Bytes("cdna1:v_mfma_i32_32x32x4i8 cdna3:v_mfma_i32_32x32x4_2b_i8", mfma32(4, 2)),
    Bytes("cdna1:v_mfma_i32_16x16x4i8 cdna3:v_mfma_i32_16x16x4_4b_i8", mfma16(4, 4)),
    Bytes("cdna1:v_mfma_i32_4x4x4i8 cdna3:v_mfma_i32_4x4x4_16b_i8", mfma4(4)),
    Bytes("cdna3:v_mfma_i32_32x32x16_i8", mfma32(16)),
    Bytes("cdna3:v_mfma_i32_16x16x32_i8", mfma16(32)),
    Bytes("cdna4:v_mfma_i32_32x32x32_i8", mfma32(32)),
    Bytes("cdna4:v_mfma_i32_16x16x64_i8", mfma16(64)),
    *(
        Bytes(names, layout, signs, clamps, f" neg_lo:[{signs[0]:d},{signs[1]:d},0]" + " clamp" * clamps)
        for names, layout in (
            ("rdna3:v_wmma_i32_16x16x16_iu8 rdna4:-", wmma32()),
            ("rdna4:v_wmma_i32_16x16x16_iu8", wmma_split()),
        )
        for signs in SIGNS
        for clamps in (False, True)
    ),
]
ACCUMULATORS = ("registers", "place", "constant")
OPS = [
    *(Narrow(op, accumulator) for op in [*MFMA, *WMMA] for accumulator in ACCUMULATORS),
    # Larger: one place each is enough.
    *(Narrow(op, place) for op, place in zip(wide(), itertools.cycle(ACCUMULATORS), strict=False)),
    *(Integers(op, accumulator) for op in INTEGERS for accumulator in ACCUMULATORS),
]
