"""Random calls of the operator ``fwd_fp8``, compared with float64 on the numbers of the codes.

Tolerances come from the rounding of probabilities (``values.tolerances.fp8_allowed``). Of many numbers the
root mean square is also compared with the simulated one.
"""

import math
import random
from dataclasses import dataclass

import torch

from flash_attn_rocm.library import plans
from flash_attn_rocm.reference import codes
from flash_attn_rocm.suite.eight_bits import HEADS, LAYOUTS, MANY, MOST_RMS, ROWS, WINDOWS, hidden, placed
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.target import arch
from flash_attn_rocm.values import kinds, paths, tolerances

FWD_FP8 = torch.ops.flash_attn_rocm.fwd_fp8.default
FP8 = kinds.ATTENDING[paths.FP8]
FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz")
KEYS = (1, 2, 31, 63, 64, 65, 128, 129, 200, 257, 320)  # in tiles of 64
VALUES = ("normal", "normal", "codes", "sinks", "outliers", "large", "zeros")
PADDING = 16  # codes behind each row of the layout "padded"


@dataclass(frozen=True)
class Case:
    """Sequences of ``rows`` and ``keys``: one length each, or packed."""

    kernel: Kernel
    rows: tuple
    keys: tuple
    heads: tuple
    packed: bool
    codes: str
    descales: bool
    window: tuple
    sink: bool
    values: str
    scale: float
    layout: str
    seed: int

    @property
    def features(self):
        left, right = self.window
        seen = {
            "packed": self.packed,
            "causal": self.window == (-1, 0),
            "window on the left": left >= 0,
            "window on the right": right > 0,
            "grouped heads": self.heads[0] != self.heads[1],
            "sinks": self.sink,
            "descales": self.descales,
            "no descales": not self.descales,
            "several workgroups of rows": max(self.rows) > 256,
            "a sequence without keys": 0 in self.keys,
            "a negative scale": self.scale < 0,
            "a scale of 0": self.scale == 0,
            f"layout {self.layout}": not self.packed,
            f"{self.codes}": True,
            f"values {self.values}": True,
        }
        return {name for name, used in seen.items() if used}

    @property
    def work(self):
        pairs = zip(self.rows, self.keys, strict=True)
        return sum(4 * rows * keys * self.heads[0] * self.kernel.head_dim for rows, keys in pairs)


def served(_kernel):
    """The features to test with every kernel."""
    return {
        "packed", "causal", "window on the left", "window on the right", "grouped heads", "sinks", "descales",
        "no descales", "several workgroups of rows", "a sequence without keys", "a negative scale",
        "a scale of 0", *FORMATS, *(f"values {each}" for each in VALUES),
        *(f"layout {each}" for each in LAYOUTS),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number}")
    some = chance.choice
    packed, batch = chance.random() < 0.4, some((1, 2, 3))
    rows, keys = (tuple(some(each) for _ in range(batch)) for each in (ROWS, KEYS))
    if not packed:
        rows, keys = (each[:1] * batch for each in (rows, keys))
    elif chance.random() < 0.5:
        keys = (*keys[:-1], 0)
    scale = some((1.0, 1.0, 1.0, 1.0, 0.3, -0.7, 0.0)) * kernel.head_dim**-0.5
    return Case(
        kernel, rows, keys, some(HEADS), packed, some(FORMATS), chance.random() < 0.7, some(WINDOWS),
        chance.random() < 0.3, some(VALUES), scale, some(LAYOUTS), chance.randrange(2**31),
    )  # fmt: skip


class Call:
    """The tensors of a case: a list entry per sequence."""

    def __init__(self, case, _device):
        # Where kernels read e4m3fn only, cases of e4m3fnuz have its codes.
        name = case.codes if plans.multiplies_fnuz(arch()) else FORMATS[0]
        self.case, self.format = case, getattr(torch, name)
        self.generator = torch.Generator().manual_seed(case.seed)
        batch, (heads, heads_k) = len(case.rows), case.heads
        self.descales = 2.0 ** -(self.uniform(3, batch, heads_k) * 2 + 4) if case.descales else None
        self.codes, self.numbers = [], []
        for place, (lengths, own) in enumerate(
            ((case.rows, heads), (case.keys, heads_k), (case.keys, heads_k))
        ):
            drawn = [self.drawn(place, b, length, own) for b, length in enumerate(lengths)]
            self.codes.append([each for each, _ in drawn])
            self.numbers.append([each for _, each in drawn])
        self.sink = self.uniform(heads) * 4 - 2 if case.sink else None

    def uniform(self, *sizes):
        return torch.rand(sizes, generator=self.generator)

    def drawn(self, place, b, length, heads):
        """The codes of a sequence, as bytes, and their numbers in float64."""
        size = (length, heads, self.case.kernel.head_dim)
        of = torch.ones(heads)
        if self.descales is not None:
            of = self.descales[place, b].repeat_interleave(heads // self.case.heads[1])
        if self.case.values == "codes":
            bits = torch.randint(256, size, generator=self.generator, dtype=torch.uint8)
            no_number = codes.decode(bits.view(self.format)).isnan()
            bits = bits.masked_fill(no_number, 0)
        elif self.case.values == "zeros":
            bits = torch.randint(2, size, generator=self.generator, dtype=torch.uint8) * 0x80
            bits = bits if self.format == torch.float8_e4m3fn else bits * 0
        else:
            x = self.values(place, size)
            bits = codes.encode(x, of[:, None], self.format).view(torch.uint8)
        numbers = codes.decode(bits.view(self.format)).double() * of[:, None].double()
        return bits, numbers

    def values(self, place, size):
        x, kind = torch.randn(size, generator=self.generator), self.case.values
        if kind == "outliers" and place > 0:
            x[..., 5::32] += 9 if place == 1 else 2
        if kind == "sinks" and place == 0:
            x += 1
        if kind == "sinks" and place > 0 and size[0]:
            x[0] = 0.7 if place == 1 else x[0] / 64
        return x * 32 if kind == "large" and place < 2 else x

    def given(self, name):
        """A tensor of codes in the case's layout."""
        sequences = self.codes["qkv".index(name)]
        if self.case.packed:
            return torch.cat(sequences)
        return placed(torch.stack(sequences), self.case.layout, PADDING)

    def ends(self, lengths):
        return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int()

    def run(self, target):
        """Launch the case. Returns out and the log-sum-exp of each sequence, in float64."""
        case, device = self.case, target.device
        q, k, v = (self.given(name).to(device).view(self.format) for name in "qkv")
        out = torch.empty(q.shape, dtype=torch.bfloat16, device=device)
        *batch, rows, heads, _ = q.shape
        lse = torch.empty((*batch, heads, rows), device=device)
        ends = [self.ends(x).to(device) if case.packed else None for x in (case.rows, case.keys)]
        descales = [None] * 3 if self.descales is None else [*self.descales.to(device)]
        sink = None if self.sink is None else self.sink.to(device)
        target.attend(
            FWD_FP8, q, k, v, *ends, sink, *descales, out, lse, case.scale, *case.window, max(case.rows),
            max(case.keys),
        )  # fmt: skip
        outs, sums = out.double().cpu(), lse.double().cpu()
        if not case.packed:
            return [*zip(outs, sums, strict=True)]
        return [*zip(outs.split(case.rows), sums.split(case.rows, -1), strict=True)]

    def exact(self, b):
        """out, the log-sum-exp and out of the magnitudes of v, in float64."""
        case, group = self.case, self.case.heads[0] // self.case.heads[1]
        q, k, v = (each[b].transpose(0, 1) for each in self.numbers)
        k, v = (x.repeat_interleave(group, 0) for x in (k, v))
        scores = q @ k.mT * case.scale
        scores = scores.masked_fill(hidden(q.shape[1], k.shape[1], case.window), -math.inf)
        lse = scores.logsumexp(-1) if k.shape[1] else torch.full(scores.shape[:2], -math.inf).double()
        blind = lse == -math.inf
        total = lse if self.sink is None else torch.logaddexp(lse, self.sink[:, None].double())
        weights = (scores - total.masked_fill(blind, 0.0)[..., None]).exp()
        out, sizes = (torch.einsum("hij,hjd->ihd", weights, x) for x in (v, v.abs()))
        return out, total.masked_fill(blind, math.inf), sizes, self.magnitude(q, k)

    def magnitude(self, q, k):
        """The largest sum of the magnitudes of a score's terms."""
        terms = (q.abs() @ k.abs().mT).flatten()
        return abs(self.case.scale) * (terms.max().item() if len(terms) else 0.0)

    def check(self, target, shown):
        """Launch the case and judge the results."""
        case, errors, squares, count = self.case, 0.0, 0.0, 0
        for b, (out, lse) in enumerate(self.run(target)):
            wanted, sums, sizes, magnitude = self.exact(b)
            most = self.numbers[2][b].abs().max().item() if case.keys[b] else 0.0
            allowed = tolerances.fp8_allowed(sizes, case.keys[b], most, plans.fp8_subnormal(arch()))
            allowed = (
                allowed * (1 + magnitude * tolerances.FP8_SCORE) + tolerances.FP8_SCORE * magnitude * most
            )
            difference = (out - wanted).abs()
            worst = (difference - allowed).argmax() if len(difference) else 0
            shown.compared(
                str(case.kernel),
                repr(case),
                *(x.flatten()[worst].item() if x.numel() else 0.0 for x in (difference, allowed)),
            )
            assert (difference <= allowed).all(), f"{case}: out of sequence {b} differs"
            same = sums == lse
            of_lse = (lse - sums).abs().masked_fill(same, 0.0)
            bound = tolerances.LSE_RELATIVE * sums.abs().masked_fill(same, 0.0).clamp(min=1.0)
            shares = of_lse / (bound + tolerances.FP8_SCORE * magnitude)
            share = shares.max().item() if shares.numel() else 0.0
            shown.compared_lse(str(case.kernel), share * tolerances.LSE_RELATIVE)
            assert share <= 1, f"{case}: lse of {b} differs"
            errors, squares = errors + difference.square().sum(), squares + wanted.square().sum()
            count += wanted.numel()
        if count >= MANY and case.values in {"normal", "outliers"}:
            assert errors <= MOST_RMS**2 * squares, f"{case}: the root mean square of errors is too large"
