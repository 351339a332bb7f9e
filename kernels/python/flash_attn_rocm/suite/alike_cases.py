"""Gradient calls where, in each head, either all queries or all keys have the same scores.

The first quarter of the elements gives the score. Each query also owns later elements, which it shares with
few others and in which all keys are 0. Keys and rows of dout own elements in the same way. There an element
of a gradient is one gradient of a score, one probability, or an exact sum of few. Elements with the same
terms must be equal bit for bit, and elements of hidden pairs must be 0. An error in one element of a lane is
found, however small. A lane of the dk and dv kernel iterates over queries, so it needs a head with equal
queries. A lane of the dq kernel iterates over keys.

Every second own element is 3 times as large. The scale makes kernels multiply their sums by 1, so one
gradient times a power of two is stored unchanged. Three times this gradient must be rounded to nearest, and
many of these are ties.

out and the log-sum-exp are chosen instead of computed, so probabilities are equal under any mask.
"""

import math

import torch

from flash_attn_rocm.suite import backward_cases
from flash_attn_rocm.suite.backward_cases import COLUMNS, kernels_of
from flash_attn_rocm.suite.rule import allowed_of_rounded_weights, largest_bias, magnitude

OWN, DOUT = 64.0, 128.0  # values of own elements, with DOUT divided by the head dim
SIZE = 4.0  # typical elements of keys
MOST = 30.0  # largest score before softcap, which only shrinks it
NEAR = 0.25  # of softcap: two formulas of tanh meet here (masks/bias.hpp)
SPREAD = 3.0  # of the scores that differ
SLOPE = 0.05  # small enough for exact sums of different probabilities
CLASSES = 1 << 48  # random numbers that identify terms, with sums that fit in int64
PERIOD = 24  # rows with different own columns, if there are enough columns
THRICE = 3
POWERS = (1, 2, 4)


class Call(backward_cases.Call):
    """The tensors of a case: a list entry per sequence."""

    def __init__(self, case, device):
        super().__init__(case, device)
        if self.slopes is not None:
            self.slopes *= SLOPE
        self.width = (case.head_dim - self.shared) // 2
        self.single = set()
        made = [self.alike(*each) for each in zip(case.rows, case.keys, strict=True)]
        self.q, self.k, self.v, self.dout, self.out, self.lse = map(list, zip(*made, strict=True))
        self.sequences = self.sequences_of()

    @property
    def shared(self):
        """The number of elements that give the score."""
        return self.case.head_dim // 4

    @property
    def factor(self):
        return self.case.head_dim**-0.5 if self.case.scale is None else self.case.scale

    def queries_and_keys(self, rows, keys):
        """Replaced by ``alike``."""
        return self.normal(rows, self.case.heads[0]), self.normal(keys, self.case.heads[1])

    def forward(self):
        return self.out, self.lse

    def between(self, least, most, *size):
        return least + (most - least) * torch.rand(*size, generator=self.generator)

    def own(self, rows, first):
        """(rows, head_dim): factors of the elements that queries or keys own from ``first`` on, others 0."""
        period, column = min(self.width, PERIOD), torch.arange(self.width)
        own = torch.zeros(rows, self.case.head_dim, dtype=torch.long)
        own[:, first : first + self.width] = owned(rows, column, period) * thrice(column + column // period)
        return own

    def own_of_dout(self, rows):
        """(rows, value_dim): the factor of each element that a row of dout owns, and 0 elsewhere."""
        column = torch.arange(self.case.value_dim)
        period = min(32, self.case.value_dim // 2)
        return owned(rows, column, period) * thrice(column // period)

    def turned(self, x):
        """Columns of ``x`` in the call's order."""
        return x.roll(self.case.seed % COLUMNS * self.width, -1)

    def alike(self, rows, keys):
        """q, k, v, dout, out and the log-sum-exp of a sequence."""
        case, shared = self.case, self.shared
        heads, heads_k = case.heads
        size = torch.arange(heads) % 2 * (1 - NEAR) + NEAR
        wanted = (
            (case.softcap or MOST) * size * self.between(0.5, 1, heads) * self.between(-1, 1, heads).sign()
        )
        along = (wanted / (self.factor * shared * SIZE))[:, None] * self.between(0.5, 1.5, heads, shared)
        k_along = SIZE * self.between(0.5, 1.5, heads_k, shared)
        most = max(SPREAD, wanted.abs().max().item())
        q, dout = (torch.zeros(rows, heads, each) for each in (case.head_dim, case.value_dim))
        k = torch.zeros(keys, heads_k, case.head_dim)
        q[..., :shared] = along * self.of_each(1 - SPREAD / most, 1, rows, ~self.queries_alike(heads))
        k[..., :shared] = k_along * self.of_each(1 - SPREAD / most, 1, keys, self.queries_alike(heads_k))
        q += OWN * self.own(rows, shared)[:, None]
        k += OWN * self.own(keys, shared + self.width)[:, None]
        dout += 2.0 ** math.floor(math.log2(DOUT / case.value_dim)) * self.own_of_dout(rows)[:, None]
        q, k, dout = map(self.turned, (q, k, dout))
        # v and out have opposite signs, so dP - delta does not cancel.
        v = self.of_each(0.5, 1.5, keys, self.queries_alike(heads_k)).expand(-1, -1, case.value_dim)
        out = self.of_each(-1.5, -0.5, rows, ~self.queries_alike(heads)).expand(-1, -1, case.value_dim)
        q, k, v, dout, out = (x.to(self.dtype) for x in (q, k, v, dout, out))
        shift = self.of_each(0.1, 1.0, rows, ~self.queries_alike(heads))[..., 0].T.log()
        return q, k, v, dout, out, (self.score(q, k).amax(-1) - shift).float()

    def of_each(self, least, most, rows, differ):
        """(rows, heads, 1) random numbers: one per row for heads in ``differ``, one per head for others."""
        found = self.between(least, most, rows, len(differ), 1)
        return torch.where(differ[:, None], found, found[:1])

    def queries_alike(self, heads):
        """(heads,) bool: True where a head's queries are equal (the first half), False where its keys are."""
        return torch.arange(heads) < heads // 2

    def score(self, q, k):
        """(heads, rows, keys), before ALiBi."""
        score = torch.einsum("qhd,khd->hqk", q.double(), self.of_queries(k).double()) * self.factor
        cap = self.case.softcap
        return cap * torch.tanh(score / cap) if cap else score

    def of_queries(self, x):
        """(keys, heads, head_dim) of (keys, heads_k, head_dim)."""
        return x.repeat_interleave(self.case.heads[0] // self.case.heads[1], 1)

    def of_keys(self, x):
        """Sums over the query heads of each key head."""
        return x.unflatten(1, (self.case.heads[1], -1)).sum(2)

    def check(self, target, shown):
        """Launch the case, compare each element with the rule and with the elements of the same terms."""
        *found, delta = self.run(target)
        lengths = (self.case.rows, self.case.keys, self.case.keys)
        found = zip(*map(self.parts, found, lengths), strict=True)
        wrong = [words for b, each in enumerate(found) for words in self.wrong(b, each, shown)]
        assert not wrong, "; ".join(wrong)
        self.check_delta(self.parts(delta, self.case.rows, 1))

    def wrong(self, b, found, shown):
        """The problems of one sequence's dq, dk and dv."""
        _, by_keys, _ = kernels_of(self.case.kernel)
        dtype = self.case.kernel.dtype
        kernels = {"dq": str(self.case.kernel), "dk": by_keys, "dv": by_keys}
        for (what, kernel), one, (exact, allowed), terms in zip(
            kernels.items(), found, self.exact(b), self.terms(b), strict=True
        ):
            error = (one.double() - exact).abs()
            nearest = (error / allowed).where(error != 0, 0.0).nan_to_num(nan=torch.inf).argmax()
            at = error.flatten()[nearest].item(), allowed.flatten()[nearest].item()
            shown.compared(kernel, f"{what} {self.case!r}", *at)
            if not (error <= allowed).all():
                yield f"{what}: error {at[0]} of an element, allowed {at[1]}"
            if not abs(share := bias(one, exact, terms)) <= largest_bias(dtype):
                yield f"{what}: elements are {share} too large on average, allowed {largest_bias(dtype)}"
            least, most = extremes(one.double(), terms)
            differ = ~(least == most) | (terms == 0) & ~(one == 0)
            if differ.any():
                first, last = least[differ][0].item(), most[differ][0].item()
                yield f"{what}: {int(differ.sum())} elements whose terms are alike differ: {first}, {last}"
            if self.case.multiplied_by_one(what):
                for single, times, three in self.not_thrice(one, terms):
                    yield f"{what}: {times} times {single} is {three}, which is not rounded to nearest"

    def not_thrice(self, found, terms):
        """(element, times, other) where ``other`` differs from the rounded ``times`` * ``element``."""
        kinds, number = terms.flatten().unique(return_inverse=True)
        value = found.new_zeros(len(kinds)).scatter(0, number, found.flatten())
        values = dict(zip(kinds.tolist(), value.tolist(), strict=True))
        for kind, three in values.items():
            for power in POWERS if kind > 0 and kind % THRICE == 0 else ():
                single = power * kind // THRICE
                if single not in values or single not in self.single:
                    continue
                times = THRICE / power
                if torch.tensor(values[single] * times, dtype=torch.float64).to(found.dtype).item() != three:
                    yield values[single], times, three

    def exact(self, b):
        """(values, allowed error) of dq, dk and dv."""
        q, k, v, dout, out = (x[b].double() for x in (self.q, self.k, self.v, self.dout, self.out))
        k, v, cap = self.of_queries(k), self.of_queries(v), self.case.softcap
        score = self.score(self.q[b], self.k[b])
        weights = (score - self.bias(b) - self.lse[b].double()[..., None]).exp() * self.visible(b)
        slope = 1 - (score / cap) ** 2 if cap else 1.0
        kept = 1.0 if self.kept[b] is None else self.kept[b].double()
        gradient = torch.einsum("qhd,khd->hqk", dout, v) * kept - (dout * out).sum(-1).T[..., None]
        of_scores = weights * slope * gradient * self.factor
        largest = magnitude(self.q[b], self.k[b], self.rules)

        def summed(sums, one, other):
            total, size = (torch.einsum(sums, *each) for each in ((one, other), (one.abs(), other.abs())))
            if sums.endswith("khd"):
                total, size = self.of_keys(total), self.of_keys(size)
            return total, allowed_of_rounded_weights(self.case.kernel.dtype, size, largest, q.shape[-1])

        return (
            summed("hqk,khd->qhd", of_scores, k),
            summed("hqk,qhd->khd", of_scores, q),
            summed("hqk,qhd->khd", weights * kept, dout),
        )

    def terms(self, b):
        """A number for each element of dq, dk and dv: equal for equal terms, 0 for an empty sum.

        -1 marks elements with differing terms or inexact sums.
        """
        rows, keys = self.case.rows[b], self.case.keys[b]
        alike = self.queries_alike(self.case.heads[0])[:, None, None]
        one = torch.where(alike, torch.arange(keys), torch.arange(rows)[:, None])
        size = (self.case.heads[0], 2, rows + keys, max(rows, keys))
        numbers = torch.randint(1, CLASSES, size, generator=self.generator)
        kept = torch.ones(1, rows, keys, dtype=torch.bool) if self.kept[b] is None else self.kept[b] > 0
        distance = self.distance(b) if self.case.alibi else torch.zeros(rows, keys, dtype=torch.long)
        heads = torch.arange(self.case.heads[0])[:, None, None]
        pairs = numbers[heads, kept.long(), distance, one] * self.visible(b)
        self.single = {power * number for number in numbers.unique().tolist() for power in POWERS}
        of_queries = pairs.permute(1, 0, 2) @ self.own(keys, self.shared + self.width)
        of_keys = self.of_keys(pairs.permute(2, 0, 1)) @ self.own(rows, self.shared)
        of_values = self.of_keys((pairs * kept).permute(2, 0, 1)) @ self.own_of_dout(rows)
        of_queries[..., : self.shared] = of_keys[..., : self.shared] = -1
        of_queries, of_keys, of_values = map(self.turned, (of_queries, of_keys, of_values))
        for each in (of_queries, of_keys, of_values):
            alike = self.queries_alike(each.shape[1])[:, None]
            each[(each != 0) & (alike == (each is of_queries))] = -1
        return of_queries, of_keys, of_values

    def distance(self, b):
        rows, keys = self.case.rows[b], self.case.keys[b]
        return (torch.arange(keys) - torch.arange(rows)[:, None] - (keys - rows)).abs()

    def bias(self, b):
        """ALiBi's loss, (heads, rows, keys) or wider."""
        slopes = self.sequences[b].slopes
        return (torch.zeros(1) if slopes is None else slopes)[:, None, None].double() * self.distance(b)


def owned(rows, column, period):
    """(rows, columns) bool: True where a row owns a column. A row owns one of every ``period`` columns."""
    return torch.arange(rows)[:, None] % period == column % period


def thrice(number):
    """1 where ``number`` is even, THRICE where it is odd."""
    return 1 + number % 2 * (THRICE - 1)


def bias(found, exact, terms):
    """The mean of (found - exact) / exact, over elements whose terms differ."""
    counted = terms > 0
    kinds, number = terms[counted].unique(return_inverse=True)
    shares = found[counted].double() / exact[counted] - 1
    none = shares.new_zeros(len(kinds))
    return none.scatter_reduce(0, number, shares, "mean", include_self=False).mean().item()


def extremes(found, terms):
    """For each element the least and the largest with its terms, or itself where its terms are -1."""
    kinds, number = terms.flatten().unique(return_inverse=True)
    none, flat = found.new_zeros(len(kinds)), found.flatten()
    ends = (none.scatter_reduce(0, number, flat, how, include_self=False) for how in ("amin", "amax"))
    return [end[number].view_as(found).where(terms != -1, found) for end in ends]
