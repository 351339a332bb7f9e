"""The backward kernels on the emulator, from cases to gradients, and the comparison with float64."""

import random
import struct
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from tests.engine.emulator.kernels.gradients import Options as Reference
from tests.engine.emulator.kernels.gradients import gradients, philox
from wheel_builder.machine_code.emulator.attention import HARDWARES, MASK_KINDS
from wheel_builder.machine_code.emulator.formats import decode, encode, rounded
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import dot
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import workgroup_of

SEED = (0x12345678, 0x9ABCDEF0)
SUM_ROWS = 32  # of a block of dq_sums
SEPARATE, FUSED = ("delta", "dkdv", "dq"), ("delta", "fused", "convert")
MASKED = ("delta", "dkdv_masked", "dq_masked")
BY_KEYS, ANY_HEAD_DIM = ("dkdv", "fused", "dkdv_masked"), ("delta", "convert")
GIVEN, FOUND = ("q", "k", "v", "out", "dout"), ("dq", "dk", "dv")
OF_KEYS = ("k", "v", "dk", "dv")


@dataclass(frozen=True)
class Case:
    """One call.  ``lengths`` are (queries, keys) of each sequence. Unless ``ragged``, all are equal."""

    lengths: tuple = ((49, 77),)
    ragged: bool = False
    nheads: int = 2
    nheads_k: int = 1
    left: int = -1
    right: int = -1
    softcap: float = 0.0
    alibi: bool = False
    dropout: float = 0.0
    scale: float | None = None
    pad: int = 0  # elements between heads. The gap between rows is the number of heads that makes one
    values: str = "normal"

    def kept(self, sequence, head, row, key):
        """The factor of a probability."""
        word = philox((key // 4, row, head, sequence), SEED)[key % 4]
        return 1 / (1 - self.dropout) if word >= self.below else 0.0

    @property
    def below(self):
        return int(self.dropout * 2**32)

    def slope(self, sequence, head):
        return 2.0 ** -(1 + head + sequence) if self.alibi else 0.0

    def reference(self, sequence, head, head_dim):
        return Reference(
            self.scale_of(head_dim), self.left, self.right, self.softcap, self.slope(sequence, head),
            partial(self.kept, sequence, head) if self.dropout else None,
        )  # fmt: skip

    def scale_of(self, head_dim):
        return head_dim**-0.5 if self.scale is None else self.scale


class Tensor:
    """(rows of all sequences, heads, head_dim) in device memory."""

    def __init__(self, name, call, rows):
        self.name, self.call = name, call
        case = call.case
        self.firsts = [0, *accumulate(rows)]
        self.heads = case.nheads_k if name in OF_KEYS else case.nheads
        self.head = call.head_dim + case.pad
        self.row = (self.heads + (case.pad > 0)) * self.head
        self.batch = 0 if case.ragged else rows[0] * self.row
        self.elements = self.firsts[-1] * self.row
        self.memory = Memory.output(max(2 * self.elements, 2), name)

    def at(self, sequence, head, row):
        return (self.firsts[sequence] + row) * self.row + head * self.head

    def fill(self, values):
        """``values[sequence, head]`` is a list of rows. The gaps between them are NaN."""
        every = [float("nan")] * self.elements
        for (sequence, head), rows in values.items():
            for row, elements in enumerate(rows):
                begin = self.at(sequence, head, row)
                every[begin : begin + len(elements)] = elements
        self.memory = Memory.of(encode(every, self.call.dtype) or b"\0\0", self.name, readonly=True)

    def values(self, sequence, head):
        every = decode(self.memory.read(), self.call.dtype)
        rows = range(self.firsts[sequence + 1] - self.firsts[sequence])
        begins = [self.at(sequence, head, row) for row in rows]
        return [every[begin : begin + self.call.head_dim] for begin in begins]

    def written_outside(self):
        """Whether anything but the rows was written."""
        data = bytearray(self.memory.read())
        for sequence in range(len(self.firsts) - 1):
            for head in range(self.heads):
                for row in range(self.firsts[sequence + 1] - self.firsts[sequence]):
                    begin = 2 * self.at(sequence, head, row)
                    size = 2 * self.call.head_dim
                    data[begin : begin + size] = b"\xa5" * size
        return bytes(data) != b"\xa5" * len(data)


class Call:
    """The tensors of a case in device memory. ``exact`` and ``plain`` are the gradients to compare with."""

    def __init__(self, case, dtype, head_dim, change=None):
        self.case, self.dtype, self.head_dim = case, dtype, head_dim
        drawn = self._drawn()
        if change:
            change(drawn)
        self.drawn = drawn
        self.exact, self.plain, out, lse = self._reference(drawn)
        self.tensors = {name: self._tensor(name) for name in (*GIVEN, *FOUND)}
        for name in GIVEN:
            self.tensors[name].fill(out if name == "out" else drawn[name])
        self.memory, self.masks = self._memory(lse), []

    def _tensor(self, name):
        return Tensor(name, self, [pair[name in OF_KEYS] for pair in self.case.lengths])

    def _drawn(self):
        draw = random.Random(1)
        return {
            name: {
                (sequence, head): [self._row(name, row, draw) for row in range(pair[name in OF_KEYS])]
                for sequence, pair in enumerate(self.case.lengths)
                for head in range(self.case.nheads_k if name in OF_KEYS else self.case.nheads)
            }
            for name in ("q", "k", "v", "dout")
        }

    def _row(self, name, row, draw):
        values = [draw.gauss(0.0, 1.0) for _ in range(self.head_dim)]
        if self.case.values == "outliers":  # as in activations: a few channels are much larger
            values = [
                x * (12 if i % 17 == 0 else 1) * (1e-3 if name == "dout" else 1) for i, x in enumerate(values)
            ]
        elif self.case.values == "one-hot" and name in "qk":  # each row scores high with few keys
            values[row % self.head_dim] += 8
        elif self.case.values == "small":
            values = [x * 1e-3 for x in values]
        return rounded(values, self.dtype)

    def _reference(self, drawn):
        exact, plain, out, lse = {}, {}, {}, {}
        self.largest_dp = 0.0  # of the sums of the magnitudes of its terms
        group = self.case.nheads // self.case.nheads_k
        for sequence, head in drawn["q"]:
            keys = (sequence, head // group)
            given = [
                drawn["q"][sequence, head],
                drawn["k"][keys],
                drawn["v"][keys],
                drawn["dout"][sequence, head],
            ]
            sizes = [[[abs(x) for x in row] for row in rows] for rows in (given[3], given[2])]
            dp = max((dot(a, b) for a in sizes[0] for b in sizes[1]), default=0.0)
            self.largest_dp = max(self.largest_dp, dp / (1 - self.case.dropout))
            options = self.case.reference(sequence, head, self.head_dim)
            for found, dtype in ((exact, ""), (plain, self.dtype)):
                rows, sums, dq, dk, dv = gradients(*given, options, dtype)
                found["dq", sequence, head] = dq
                for name, part in (("dk", dk), ("dv", dv)):
                    found[name, *keys] = _added(found.get((name, *keys)), part, given[1])
                if not dtype:
                    out[sequence, head], lse[sequence, head] = [rounded(x, self.dtype) for x in rows], sums
        return exact, plain, out, lse

    def _memory(self, lse):
        case = self.case
        self.rows = self.tensors["q"].firsts[-1]
        self.lse_head = self.rows if case.ragged else case.lengths[0][0]
        self.lse_batch = 0 if case.ragged else case.nheads * self.lse_head
        every = [0.0] * max(self.rows * case.nheads, 1)
        for (sequence, head), sums in lse.items():
            first = self.tensors["q"].firsts[sequence] if case.ragged else sequence * self.lse_batch
            begin = first + head * self.lse_head
            every[begin : begin + len(sums)] = sums
        memory = {
            "lse": Memory.of(struct.pack(f"<{len(every)}f", *every), "lse", readonly=True),
            "delta": Memory.output(4 * len(every), "delta"),
            "dq_sums": Memory.of(bytes(4 * self._sums()), "dq_sums"),
        }
        if case.alibi:
            slopes = [case.slope(s, h) for s in range(len(case.lengths)) for h in range(case.nheads)]
            memory["alibi_slopes"] = Memory.of(
                struct.pack(f"<{len(slopes)}f", *slopes), "slopes", readonly=True
            )
        if case.dropout:
            memory["rng_state"] = Memory.of(struct.pack("<2q", *SEED), "rng_state", readonly=True)
        if case.ragged:
            for name, of in (("cu_seqlens_q", "q"), ("cu_seqlens_k", "k")):
                firsts = self.tensors[of].firsts
                memory[name] = Memory.of(struct.pack(f"<{len(firsts)}i", *firsts), name, readonly=True)
        return memory

    def _sums(self):
        """Floats of dq_sums."""
        lengths = [q for q, _ in self.case.lengths]
        batch = len(lengths)
        self.blocks = (
            self.rows // SUM_ROWS + batch if self.case.ragged else batch * -(-lengths[0] // SUM_ROWS)
        )
        return self.case.nheads * self.blocks * SUM_ROWS * self.head_dim

    def kernarg(self, **changes):
        case, lengths = self.case, self.case.lengths
        tensors = {
            f"{name}.{field}": value
            for name, each in self.tensors.items()
            for field, value in (
                ("data", each.memory.address), ("batch", each.batch), ("row", each.row), ("head", each.head),
            )
        }  # fmt: skip
        return layout("BwdParams").pack(
            {
                **tensors, **{name: memory.address for name, memory in self.memory.items()},
                "lse_batch": self.lse_batch, "lse_head": self.lse_head, "alibi_batch": case.nheads,
                "seqlen_q": max(q for q, _ in lengths), "seqlen_k": max(k for _, k in lengths),
                "rows_q": self.rows, "rows_k": self.tensors["k"].firsts[-1],
                "nheads": case.nheads, "nheads_k": case.nheads_k, "head_dim": self.head_dim,
                "dq_blocks": self.blocks, "window_left": case.left,
                "window_right": case.right, "scale": case.scale_of(self.head_dim), "softcap": case.softcap,
                "dropout_below": case.below, "dropout_scale": 1 / (1 - case.dropout), **changes,
            }
        )  # fmt: skip

    def arguments(self, op, **changes):
        """The argument of a kernel.  Masked kernels get an fp32 mask of zeros."""
        inner = self.kernarg(**changes)
        if op not in MASKED[1:]:
            return inner
        (rows, keys), *_ = self.case.lengths
        width = -(-keys // 8) * 8
        mask = Memory.of(bytes(4 * rows * width), "mask", readonly=True)
        self.masks = [mask]
        given = {"mask": mask.address, "mask_kind": MASK_KINDS.index("fp32"), "mask_row": width}
        return inner + layout("MaskedBwdParams").pack(given)[len(inner) :]

    def renew(self):
        """Outputs as before any run."""
        self.tensors |= {name: self._tensor(name) for name in FOUND}
        self.memory["delta"] = Memory.output(4 * max(self.rows * self.case.nheads, 1), "delta")
        self.memory["dq_sums"] = Memory.of(bytes(4 * self._sums()), "dq_sums")

    def run(self, machine_of, arch, seed=0, ops=SEPARATE, order=HARDWARES, **changes):
        """Launch all kernels and return their results.  ``machine_of(kernel)`` is the loaded code object."""
        longest_q, longest_k = (max(each) for each in zip(*self.case.lengths, strict=True))
        batch = len(self.case.lengths)
        results = []
        for op in ops:
            kernel = f"fa_bwd_{op}_{self.dtype}" + ("" if op in ANY_HEAD_DIM else f"_d{self.head_dim}")
            machine = machine_of(kernel)
            tile = workgroup_of(arch_named(arch), f"bwd_{op}", self.dtype, self.head_dim)
            rows, heads = (longest_k, self.case.nheads_k) if op in BY_KEYS else (longest_q, self.case.nheads)
            if not rows:
                continue
            given = HARDWARES if op in ANY_HEAD_DIM else order
            grid = given.grid(-(-rows // tile.rows), heads, batch)
            arguments = self.arguments(op, **given.fields(grid), **changes)
            memory = [*(each.memory for each in self.tensors.values()), *self.memory.values(), *self.masks]
            launch = Launch(grid, (tile.threads, 1, 1))
            results.append(machine.run(kernel, launch, arguments, memory, Options(seed=seed)))
            if op == "delta":  # the other kernels may read it
                self.memory["delta"] = Memory.of(self.memory["delta"].read(), "delta", readonly=True)
        return results

    def found(self):
        """The gradients' bytes."""
        return tuple(self.tensors[name].memory.read() for name in FOUND)

    def problems(self):
        """Every gradient outside the rule, and every tensor written outside its rows."""
        problems = [f"{name}: written outside" for name in FOUND if self.tensors[name].written_outside()]
        for name in FOUND:
            error, bound = self._error(name, self._values(name)), self._bound(name)
            if not error <= bound:
                problems.append(f"{name}: error {error} against float64, allowed {bound}")
        return problems

    def _values(self, name):
        tensor = self.tensors[name]
        return {key: tensor.values(*key[1:]) for key in self.exact if key[0] == name}

    def _error(self, name, found):
        pairs = (
            pair
            for key, rows in self.exact.items()
            if key[0] == name
            for want, have in zip(rows, found[key], strict=True)
            for pair in zip(want, have, strict=True)
        )
        errors = [abs(want - have) for want, have in pairs]
        return float("nan") if any(x != x for x in errors) else max(errors, default=0.0)

    def _bound(self, name):
        plain = self._error(name, {key: rows for key, rows in self.plain.items() if key[0] == name})
        most = _most(rows for key, rows in self.exact.items() if key[0] == name)
        q, k, dout = (_most(self.drawn[each].values()) for each in ("q", "k", "dout"))
        of_scores = self.largest_dp * abs(self.case.scale_of(self.head_dim))
        largest = {"dq": of_scores * k, "dk": of_scores * q, "dv": dout}[name]
        plain = tolerances.least_error(plain, self.dtype, most)
        return tolerances.allowed(
            plain, terms=tolerances.WEIGHT_ROUNDINGS, largest=largest, factor=tolerances.GRADIENT_FACTOR
        )


def run(call, machines, arch, seed=0, ops=SEPARATE, order=HARDWARES, **changes):
    """Run a call, and assert that it has no findings."""
    for result in call.run(machines, arch, seed, ops, order, **changes):
        assert not result.error
        assert not result.findings, "\n".join(map(str, result.findings))


def _added(before, part, keys):
    """The sum over the heads of the same keys. Zeros if there are no queries."""
    part = [[0.0] * len(key) for key in keys] if part is None else part
    if before is None:
        return part
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(before, part, strict=True)]


def _most(lists):
    return max((abs(x) for rows in lists for row in rows for x in row), default=0.0)
