"""Random calls of the operator ``bwd``, generated like the attention calls of forward_cases.py.

The kernels read out and the log-sum-exp computed in float64 and rounded to the dtypes that a forward stores.
The findings are thus independent of the forward kernels.
"""

import random
from dataclasses import replace

import torch

from flash_attn_rocm.suite import forward_cases
from flash_attn_rocm.suite.forward_cases import (
    ALIGNED,
    FAR,
    HEADS,
    LAYOUTS,
    MAGNITUDES,
    SOFTCAPS,
    TENSORS,
    WINDOWS,
    Case,
)
from flash_attn_rocm.suite.rule import FP32_ROUNDING, Sequence, as_taken, attention, judge_gradients
from flash_attn_rocm.suite.target import FUSED_OP, fused_with_features
from flash_attn_rocm.values import kinds, paths

BWD = torch.ops.flash_attn_rocm.bwd.default
ARGUMENTS = tuple(argument.name for argument in BWD._schema.arguments)
SUMS = torch.ops.flash_attn_rocm.bwd_sums.default
# Around the sizes of every tile, up to more than a workgroup's rows and keys.
ROWS = (1, 5, 16, 17, 31, 33, 48, 64, 65, 77, 129)
KEYS = (1, 5, 16, 17, 33, 64, 65, 90, 129, 150)
BLOCK = 128  # the most keys of a workgroup
DENSE, PACKED = "dense", "packed"
# The largest supported row stride, with enough rows for offsets above 2^32 elements.
ROWS_APART = "rows apart"
ROW_STRIDE, MANY = (1 << 24) - 8, 258
# Features to test with each loop.
TWICE = (
    "a negative scale", "a block of keys that no query sees", "far strides of several tiles", ROWS_APART,
    "many heads", "all NaN", "missing keys beside scores far below zero",
)  # fmt: skip
SEVERAL = (48, 65, 90)  # queries and keys of more than one tile
# Rare cases, chosen by the last digit of a call's number.
CUT, LONG, MANY_HEADS, UNSEEN, ALIKE, ALL_NAN, APART = 1, 2, 3, 4, 6, 8, 9
# And by the number modulo 200, with a dropout for each loop. Keys past the end have scores of 0. If the other
# scores are far below zero, the probabilities of these keys are infinite, and infinity times a zero is NaN.
BELOW = {177: 0.0, 185: 0.17}
# scores of -180: just low enough, because rounding errors grow with scores
BELOW_ZERO, BELOW_SCALE = "far below zero", 0.03
ENDS = (74, 80)  # within a block of 16 keys and at its end: kernels may read blocks in pairs
QUOTIENTS = ((5, 1), (7, 7), (8, 4), (9, 3), (10, 2))  # of heads
OUTLIERS, NAN = "outliers", "NaN"
# Values of the calls of alike_cases.py, in turn, and the options they need.
ALIKE_CALLS = {
    "alike": {"window": (20, 7)},
    "alike, softcap": {"softcap": 200.0},
    "alike, ALiBi": {"window": (-1, 0), "alibi": "heads"},
    "alike, all": {
        "softcap": 60.0, "window": (40, 5), "alibi": "batch", "dropout": 0.17, "store": PACKED,
        "rows": (33, 20), "keys": (40, 35),
    },
}  # fmt: skip
COLUMNS = 3  # rotations of own columns: a column belongs to queries in one and to keys in another
UNGROUPED = (4, 4)  # heads of alike calls, but HEADS[-1] in the last turn
MULTIPLES = ("dq", "dk")  # gradients whose sums are multiplied by 1 in some alike calls
# 1 / kCutGain (kernels/device/mma/unit.hpp), rounded so that the product of both is 1 in fp32.
MADE_UP_FOR = {"fp16": 1 / 1.00035, "bf16": 1 / 1.00282}
VALUES = (*MAGNITUDES, "rising", "falling", "one-hot", OUTLIERS)
SUBNORMAL = 2.0**-149  # between two fp32 numbers near 0
# Outliers, as in activations: a few channels much larger than the others, and small gradients.
EACH, TIMES, SMALL = 17, 12.0, 1e-3
# The features of all fuzz cases (EVERY) and of kernels with a featured loop only (FEATURED).
EVERY = frozenset({
    "window on the left", "window on the right", "causal", "softcap", "softcap that cuts", "ALiBi",
    "dropout", "softcap alone", "features without softcap", "grouped heads", "several sequences",
    "dropout of several sequences", "ragged", "an empty sequence", "a sequence without keys",
    "queries that see no key",
    *(f"{what}, {loop}" for what in TWICE for loop in forward_cases.LOOPS),
    *(f"layout {each}" for each in LAYOUTS),
    *(f"values {each}" for each in (*VALUES, *ALIKE_CALLS)),
    *(
        f"columns {n} of {what}, {loop}"
        for n in range(COLUMNS) for what in MULTIPLES for loop in forward_cases.LOOPS
    ),
})  # fmt: skip
FEATURED = frozenset({
    "softcap", "softcap that cuts", "ALiBi", "dropout", "softcap alone", "features without softcap",
    "dropout of several sequences", *(f"{what}, {forward_cases.LOOPS[1]}" for what in TWICE),
    *(f"values {each}" for each in ALIKE_CALLS if each != "alike"),
    *(f"columns {n} of {what}, {forward_cases.LOOPS[1]}" for n in range(COLUMNS) for what in MULTIPLES),
})  # fmt: skip


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
            f"{TWICE[2]}, {self.loop}": (
                self.layout == FAR and len(self.rows) > 2 and {self.rows[0], self.keys[0]} <= {*SEVERAL}
            ),
            f"{ROWS_APART}, {self.loop}": self.layout == ROWS_APART,
            f"{TWICE[4]}, {self.loop}": self.heads in QUOTIENTS,
            f"{TWICE[5]}, {self.loop}": self.values == NAN,
            f"{TWICE[6]}, {self.loop}": self.values == BELOW_ZERO,
            **{
                f"columns {self.seed % COLUMNS} of {what}, {self.loop}": (
                    self.values in ALIKE_CALLS and self.heads == UNGROUPED and self.multiplied_by_one(what)
                )
                for what in MULTIPLES
            },
            f"layout {self.layout}": True,
            f"values {self.values}": True,
        }
        return {name for name, used in seen.items() if used}

    def multiplied_by_one(self, what):
        """Whether the kernel's sums of dq, dk or dv are the results."""
        if what == "dv":
            return not self.dropout
        # Only the separate dq kernel computes dS from a P that was not truncated.
        made_up_for = what == "dk" or self.kernel.op == FUSED_OP
        return self.scale == (MADE_UP_FOR[self.kernel.dtype] if made_up_for else 1.0)


def kernels_of(kernel):
    """The names of the kernels that a call launches, in launch order."""
    every = kinds.LAUNCHES[kernel.op]
    return tuple(str(replace(kernel, op=op, head_dim=kernel.head_dim * (op in kinds.TILED))) for op in every)


def served(kernel):
    """The features to test with a backward kernel."""
    return EVERY - FEATURED if no_features(kernel) else EVERY


def no_features(kernel):
    """Whether the kernel lacks ALiBi, softcap and dropout."""
    if kernel.op in kinds.PLAIN:
        return True
    return kernel.op == FUSED_OP and (kernel.dtype, kernel.head_dim) not in fused_with_features()


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
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
    plain, values = chance.random() < 0.4 or no_features(kernel), some(VALUES)
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
    return rare(case, number, some)


def rare(case, number, some):
    """The rare case of this number, or ``case`` itself."""
    last = number % 10
    if last == ALIKE:
        able = [
            name for name in ALIKE_CALLS if not no_features(case.kernel) or f"values {name}" not in FEATURED
        ]
        return alike(case, able[number // 10 % len(able)], number // 10 // len(able))
    # a softcap that changes scores and keeps gradients above 0
    if last == CUT and not no_features(case.kernel):
        return replace(case, softcap=SOFTCAPS[1], values=MAGNITUDES[1], scale=None)
    if last == LONG:
        return replace(
            case, store=PACKED, layout=ROWS_APART, heads=(1, 1), rows=(MANY, 5), keys=(3, MANY),
            window=(-1, -1),
        )  # fmt: skip
    if last == ALL_NAN:
        return replace(
            case, store=PACKED, values=NAN, rows=(20, 50), keys=(50, 20), window=some(((0, 0), (5, 0)))
        )
    if (dropout := BELOW.get(number % 200)) is not None and not (dropout and no_features(case.kernel)):
        return replace(
            case, store=PACKED, layout=LAYOUTS[0], values=BELOW_ZERO, scale=BELOW_SCALE, rows=(17, 17),
            keys=ENDS, window=(-1, -1), softcap=0.0, alibi="", dropout=dropout,
        )  # fmt: skip
    dense = replace(case, store=DENSE, layout=LAYOUTS[0])
    given = {
        MANY_HEADS: lambda: {"heads": some(QUOTIENTS), "rows": (5,), "keys": (17,), "window": (-1, -1)},
        UNSEEN: lambda: {"rows": (5,), "keys": (150,), "window": some(((0, 0), (5, 0)))},
        APART: lambda: {"layout": FAR, "rows": (some(SEVERAL[:2]),) * 3, "keys": (some(SEVERAL[:2]),) * 3},
    }.get(last)
    return replace(dense, **given()) if given else case


def alike(case, values, turn):
    """A case for alike_cases.py.

    The last turn has grouped heads, whose gradients are summed. In the other turns one gradient can be a
    whole sum.
    """
    scales = (MADE_UP_FOR[case.kernel.dtype], *(() if case.kernel.op == FUSED_OP else (1.0,)))
    turn %= COLUMNS * len(scales) + 1
    given = {
        "store": DENSE, "rows": (32,), "keys": (32,), "window": (-1, -1), "softcap": 0.0, "alibi": "",
        "dropout": 0.0, **ALIKE_CALLS[values],
    }  # fmt: skip
    return replace(
        case, values=values, layout=LAYOUTS[0], seed=case.seed // COLUMNS * COLUMNS + turn % COLUMNS,
        heads=HEADS[-1] if turn == COLUMNS * len(scales) else UNGROUPED,
        scale=scales[turn // COLUMNS % len(scales)], **given,
    )  # fmt: skip


class Call(forward_cases.Call):
    """The tensors of a case: a list entry per sequence."""

    def __init__(self, case, device):
        super().__init__(case, device)
        self.dout = [self.normal(len(q), case.heads[0], case.value_dim) for q in self.q]
        if case.values == OUTLIERS:
            self.dout = [x * SMALL for x in self.dout]
        self.state = torch.tensor([case.seed, 0x89ABCDEF])
        self.kept = self.weights(self.state)
        self.sequences = self.sequences_of()

    def sequences_of(self):
        """The sequences for ``judge_gradients``, which ignores their ``out``."""
        slopes = [None] * len(self.q) if self.slopes is None else self.slopes.expand(len(self.q), -1)
        given = zip(self.q, self.k, self.v, slopes, self.kept, strict=True)
        return [Sequence(q, k, v, q, None, one, kept) for q, k, v, one, kept in given]

    def normal(self, rows, heads, head_dim=None):
        x = super().normal(rows, heads, head_dim)
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
            attention(
                *(x.double() for x in (each.q, each.k, each.v)), self.rules, each.slopes, each.kept, each.bias
            )
            for each in map(as_taken, self.sequences)
        ]
        outs, sums = zip(*found, strict=True)
        return [x.to(self.dtype) for x in outs], [x.float() for x in sums]

    def joined(self, tensors):
        """One tensor of all sequences, of queries or keys, on the device in the case's layout."""
        return self.laid_out((torch.cat if self.case.ragged else torch.stack)(tensors))

    def run(self, target):
        """Launch the case. Returns dq, dk, dv and delta, with the log-sum-exp's shape."""
        case = self.case
        outs, sums = self.forward()
        q, k, v, out, dout = (self.joined(each) for each in (self.q, self.k, self.v, outs, self.dout))
        lse = (torch.cat(sums, 1) if case.ragged else torch.stack(sums)).to(self.device)
        gradients = [self.place(x) for x in (q, k, v)]
        delta = torch.empty_like(lse)
        given = {
            "q": q, "k": k, "v": v, "out": out, "dout": dout, "lse": lse,
            **dict(zip(("dq", "dk", "dv"), gradients, strict=True)),
            "delta": delta, "dq_sums": self.dq_sums(q), **self.masks(),
            "alibi_slopes": None if self.slopes is None else self.slopes.to(self.device),
            "cu_seqlens_q": self.sums(case.rows) if case.ragged else None,
            "cu_seqlens_k": self.sums(case.keys) if case.ragged else None,
            "rng_state": self.state.to(self.device) if case.dropout else None,
            "softmax_scale": case.head_dim**-0.5 if case.scale is None else case.scale,
            "window_left": case.window[0], "window_right": case.window[1], "softcap": case.softcap,
            "dropout_p": case.dropout, "max_seqlen_q": max(case.rows), "max_seqlen_k": max(case.keys),
            "path": paths.FUSED if case.kernel.op == FUSED_OP else paths.SEPARATE,
        }  # fmt: skip
        target.attend(BWD, *(given[name] for name in ARGUMENTS))
        return [*gradients, delta]

    def masks(self):
        """The operator's mask arguments."""
        return {"attn_mask": None, "dscores": None}

    def dq_sums(self, q):
        """Zeros in which the fused kernels add up dq, or None for the separate kernels."""
        if self.case.kernel.op != FUSED_OP:
            return None
        *_, rows, nheads, head_dim = q.shape
        return q.new_zeros(
            SUMS(self.case.ragged, len(self.case.rows), rows, nheads, head_dim), dtype=torch.float32
        )

    def far_strides(self, x):
        """FAR: heads are far apart, too. ROWS_APART: row strides just below 2^24 elements, the limit."""
        if self.case.layout == ROWS_APART:
            return (ROW_STRIDE - self.placed % TENSORS * ALIGNED, *x.stride()[-2:])
        steps = super().far_strides(x)
        return steps and (steps[0], steps[1], len(x) * steps[0], 1)

    def visible(self, b):
        """(rows, keys) bool: visible pairs, where attention to unit vectors is positive."""
        q, k = (torch.zeros(lengths[b], 1, 1) for lengths in (self.case.rows, self.case.keys))
        weights, _ = attention(q, k, torch.eye(len(k))[:, None], self.rules)
        return weights[:, 0] > 0

    def parts(self, tensor, lengths, dim=0):
        return tensor.cpu().split(lengths, dim) if self.case.ragged else tensor.cpu().unbind()

    def check(self, target, shown):
        """Launch the case and compare its gradients with the reference."""
        case = self.case
        dq, dk, dv, delta, *_ = self.run(target)
        lengths = (case.rows, case.keys, case.keys)
        found = zip(*map(self.parts, (dq, dk, dv), lengths), strict=True)
        _, by_keys, _ = kernels_of(case.kernel)
        judge_gradients(
            shown, {"dq": str(case.kernel), "dk": by_keys, "dv": by_keys}, repr(case),
            [*zip(self.sequences, self.dout, found, strict=True)], self.rules,
        )  # fmt: skip
        self.check_delta(self.parts(delta, case.rows, 1))

    def check_delta(self, found):
        """A sum of products in fp32: each addition rounds, by a step of subnormals at least."""
        for rows, dout, out in zip(found, self.dout, self.forward()[0], strict=True):
            terms = dout.double() * out.double()
            allowed = self.case.value_dim * (FP32_ROUNDING * terms.abs().sum(-1) + SUBNORMAL)
            assert ((rows.T - terms.sum(-1)).abs() <= allowed).all(), "delta: more than its sums' rounding"
