"""Random calls of the operator ``bwd``, as drawn.py has them of attention.

The kernels get float64's output and log-sum-exp, rounded as a forward stores them, so that what they find
does not depend on another kernel.
"""

import random
from dataclasses import replace

import drawn
import torch
from drawn import FAR, HEADS, LAYOUTS, MAGNITUDES, SOFTCAPS, WINDOWS, Case
from rule import FP32_ROUNDING, Sequence, attention, judge_gradients
from target import BACKWARD_OP

BWD = torch.ops.flash_attn_rocm.bwd.default
# Around the rows and columns of every tile, and more than one workgroup has.
ROWS = (1, 5, 16, 17, 31, 33, 48, 64, 65, 77, 129)
KEYS = (1, 5, 16, 17, 33, 64, 65, 90, 129, 150)
BLOCK = 128  # the most keys of a workgroup
DENSE, PACKED = "dense", "packed"
# Features that each loop has code for.
TWICE = ("a negative scale", "a block of keys that no query sees", "far strides of several tiles")
SEVERAL = (48, 65, 90)  # queries and keys of more than one tile
# What chance gives too seldom, by the last digit of a call's number.
CUT, UNSEEN, APART = 1, 4, 9
OUTLIERS = "outliers"
VALUES = (*MAGNITUDES, "rising", "falling", "one-hot", OUTLIERS)
SUBNORMAL = 2.0**-149  # between two fp32 numbers near 0
# Of activations, a few channels are much larger than all others; gradients are small.
EACH, TIMES, SMALL = 17, 12.0, 1e-3


class BackwardCase(Case):
    """One call: ``store`` is DENSE or PACKED, for queries and keys."""

    @property
    def features(self):
        left, right = self.window
        pairs = [*zip(self.rows, self.keys, strict=True)]
        cut = (self.softcap, self.values, self.scale) == (SOFTCAPS[1], MAGNITUDES[1], None)
        seen = {
            "window on the left": left >= 0,
            "window on the right": right > 0,
            "causal": right == 0,
            "softcap": bool(self.softcap),
            "softcap that cuts": cut,
            "ALiBi": bool(self.alibi),
            "dropout": bool(self.dropout),
            "softcap alone": bool(self.softcap) and not self.alibi and not self.dropout,
            "features without softcap": not self.plain and not self.softcap,
            f"{TWICE[0]}, {self.loop}": self.scale is not None and self.scale < 0,
            "grouped heads": self.heads[0] > self.heads[1],
            "several sequences": len(self.rows) > 1 and not self.ragged,
            "dropout of several sequences": bool(self.dropout) and len(self.rows) > 1 and not self.ragged,
            "ragged": self.ragged,
            "an empty sequence": 0 in self.rows,
            "a sequence without keys": 0 in self.keys,
            "queries that see no key": right >= 0 and any(rows > keys + right for rows, keys in pairs),
            f"{TWICE[1]}, {self.loop}": (
                left >= 0 and any(rows and keys >= rows + left + BLOCK for rows, keys in pairs)
            ),
            f"{TWICE[2]}, {self.loop}": self.layout == FAR and {self.rows[0], self.keys[0]} <= {*SEVERAL},
            f"layout {self.layout}": True,
            f"values {self.values}": True,
        }
        return {name for name, used in seen.items() if used}


def kernels_of(kernel):
    """The names of all kernels that a call launches, in this order; that of dq is the call's own."""
    name = str(kernel)
    return (
        f"fa_bwd_delta_{kernel.dtype}",
        name.replace(BACKWARD_OP, "bwd_dkdv"),
        name,
    )


def served(_kernel):
    """The features with which every backward kernel has to be tested."""
    return {
        "window on the left", "window on the right", "causal", "softcap", "softcap that cuts", "ALiBi",
        "dropout", "softcap alone", "features without softcap", "grouped heads", "several sequences",
        "dropout of several sequences", "ragged", "an empty sequence", "a sequence without keys",
        "queries that see no key",
        *(f"{what}, {loop}" for what in TWICE for loop in drawn.LOOPS),
        *(f"layout {each}" for each in LAYOUTS),
        *(f"values {each}" for each in VALUES),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, always the same."""
    chance = random.Random(f"{kernel} {number}")
    some = chance.choice
    store = some((DENSE, PACKED))
    batch = some((1, 1, 2)) if store == DENSE else some((2, 3, 4))
    rows, keys = ([some(each) for _ in range(batch)] for each in (ROWS, KEYS))
    if store == DENSE:
        rows, keys = rows[:1] * batch, keys[:1] * batch
    else:
        for lengths in (rows, keys):
            if chance.random() < 0.4:
                lengths[chance.randrange(1, batch)] = 0
    plain, values = chance.random() < 0.4, some(VALUES)
    layout = some(LAYOUTS)
    if store == DENSE and batch > 1 and chance.random() < 0.5:
        layout = FAR
    patterned = isinstance(values, str) and values != OUTLIERS
    case = BackwardCase(
        kernel, kernel.head_dim, tuple(rows), tuple(keys), some(HEADS), store, 0, layout, some(WINDOWS),
        softcap=0.0 if plain else some((0.0, *SOFTCAPS)), alibi="" if plain else some(("", "heads", "batch")),
        dropout=0.0 if plain else some((0.0, 0.0, 0.5, 0.17)), splits=1, values=values,
        scale=1.0 if patterned else some((None, None, 0.3, -0.2)), seed=chance.randrange(2**31),
    )  # fmt: skip
    if number % 10 == CUT:  # by something, but not to nothing
        return replace(case, softcap=SOFTCAPS[1], values=MAGNITUDES[1], scale=None)
    if number % 10 == UNSEEN:
        return replace(
            case, store=DENSE, layout=LAYOUTS[0], rows=(5,), keys=(150,), window=some(((0, 0), (5, 0)))
        )
    if number % 10 == APART:
        return replace(case, store=DENSE, layout=FAR, rows=(some(SEVERAL),) * 2, keys=(some(SEVERAL),) * 2)
    return case


class Call(drawn.Call):
    """The tensors of a case: a list entry per sequence."""

    def __init__(self, case, device):
        super().__init__(case, device)
        self.dout = [self.normal(len(q), case.heads[0]) for q in self.q]
        if case.values == OUTLIERS:
            self.dout = [x * SMALL for x in self.dout]
        self.state = torch.tensor([case.seed, 0x89ABCDEF])
        self.kept = self.weights(self.state)
        slopes = [None] * len(self.q) if self.slopes is None else self.slopes.expand(len(self.q), -1)
        # ``out`` of these is not looked at.
        self.sequences = [
            Sequence(*each, each[0], None, one, kept)
            for each, one, kept in zip(
                zip(self.q, self.k, self.v, strict=True), slopes, self.kept, strict=True
            )
        ]

    def normal(self, rows, heads):
        x = super().normal(rows, heads)
        if self.case.values == OUTLIERS:
            x[..., ::EACH] *= TIMES
        return x

    def queries_and_keys(self, rows, keys):
        if self.case.values == OUTLIERS:
            return self.normal(rows, self.case.heads[0]), self.normal(keys, self.case.heads[1])
        return super().queries_and_keys(rows, keys)

    def forward(self):
        """out and the log-sum-exp of each sequence."""
        found = [
            attention(*(x.double() for x in (each.q, each.k, each.v)), self.rules, each.slopes, each.kept)
            for each in self.sequences
        ]
        outs, sums = zip(*found, strict=True)
        return [x.to(self.dtype) for x in outs], [x.float() for x in sums]

    def joined(self, tensors):
        """One tensor of all sequences, of queries or keys, on the device in the case's layout."""
        return self.laid_out((torch.cat if self.case.ragged else torch.stack)(tensors))

    def run(self, target):
        """Launch it; returns dq, dk, dv, and delta, whose rows are those of the log-sum-exp."""
        case = self.case
        outs, sums = self.forward()
        q, k, v, out, dout = (self.joined(each) for each in (self.q, self.k, self.v, outs, self.dout))
        lse = (torch.cat(sums, 1) if case.ragged else torch.stack(sums)).to(self.device)
        gradients = [self.place(x) for x in (q, k, v)]
        delta = torch.empty_like(lse)
        target.attend(
            BWD, q, k, v, out, dout, lse, *gradients, delta,
            None if self.slopes is None else self.slopes.to(self.device),
            self.sums(case.rows) if case.ragged else None, self.sums(case.keys) if case.ragged else None,
            self.state.to(self.device) if case.dropout else None, max(case.rows), max(case.keys),
            case.head_dim**-0.5 if case.scale is None else case.scale, *case.window, case.softcap,
            case.dropout,
        )  # fmt: skip
        return [*gradients, delta]

    def place(self, like):
        """Memory for a gradient, in the strides of ``like``, unless these are far apart: the emulator keeps a
        byte for each of the results that nobody wrote."""
        steps = torch.empty(like.shape).stride() if self.case.layout == FAR else like.stride()
        return torch.empty_strided(like.shape, steps, dtype=like.dtype, device=self.device)

    def parts(self, tensor, lengths, dim=0):
        return tensor.cpu().split(lengths, dim) if self.case.ragged else tensor.cpu().unbind()

    def check(self, target, shown):
        """Launch it, and hold its gradients to the rule."""
        case = self.case
        dq, dk, dv, delta = self.run(target)
        lengths = (case.rows, case.keys, case.keys)
        found = zip(*map(self.parts, (dq, dk, dv), lengths), strict=True)
        _, dkdv, name = kernels_of(case.kernel)
        judge_gradients(
            shown, {"dq": name, "dk": dkdv, "dv": dkdv}, repr(case),
            [*zip(self.sequences, self.dout, found, strict=True)], self.rules,
        )  # fmt: skip
        self.check_delta(self.parts(delta, case.rows, 1))

    def check_delta(self, found):
        """A sum of products in fp32: each addition rounds, by a step of subnormals at least."""
        for rows, dout, out in zip(found, self.dout, self.forward()[0], strict=True):
            terms = dout.double() * out.double()
            allowed = self.case.head_dim * (FP32_ROUNDING * terms.abs().sum(-1) + SUBNORMAL)
            assert ((rows.T - terms.sum(-1)).abs() <= allowed).all(), "delta: more than its sums' rounding"
