"""Random calls of the operator ``fwd_int8``, compared with float64 on the numbers of the codes.

``reference.quantising`` has these numbers. Tolerances come from the rounding of probabilities
(``plans.coded_allowed``).
"""

import math
import random
from dataclasses import dataclass

import torch

from flash_attn_rocm.arguments.normal_form import TORCH_DTYPES
from flash_attn_rocm.library import plans
from flash_attn_rocm.reference import quantising
from flash_attn_rocm.suite.eight_bits import HEADS, LAYOUTS, MANY, MOST_RMS, ROWS, WINDOWS, hidden, placed
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.target import arch
from flash_attn_rocm.values import kinds, paths, tolerances

FWD_INT8 = torch.ops.flash_attn_rocm.fwd_int8.default
INT8 = kinds.ATTENDING[paths.INT8]
KEYS = (1, 2, 31, 63, 64, 65, 129, 200, 257, 320)  # in tiles of 64; a workgroup that quantises has 256
VALUES = ("normal", "normal", "sinks", "outliers", "large", "zeros", "rising")
PADDING = 8  # elements behind each row of the layout "padded"
# Of probabilities in fp16: each errs by less than this.
MOST_RMS_16 = 2.0**-10


@dataclass(frozen=True)
class Case:
    """Sequences of ``rows`` and ``keys``, equally long: one length for each."""

    kernel: Kernel
    rows: tuple
    keys: tuple
    heads: tuple
    window: tuple
    values: str
    scale: float
    layout: str
    seed: int

    @property
    def features(self):
        left, right = self.window
        seen = {
            "several sequences": len(self.rows) > 1,
            "causal": self.window == (-1, 0),
            "window on the left": left >= 0,
            "window on the right": right > 0,
            "grouped heads": self.heads[0] != self.heads[1],
            "several workgroups of rows": max(self.rows) > 256,
            "several workgroups of keys": max(self.keys) > 256,
            "a negative scale": self.scale < 0,
            "a scale of 0": self.scale == 0,
            f"layout {self.layout}": True,
            f"values {self.values}": True,
        }
        return {name for name, used in seen.items() if used}

    @property
    def work(self):
        pairs = len(self.rows) * max(self.rows) * max(self.keys)
        return 4 * pairs * self.heads[0] * self.kernel.head_dim


def served(_kernel):
    """The features to test with every kernel."""
    return {
        "several sequences", "causal", "window on the left", "window on the right", "grouped heads",
        "several workgroups of rows", "several workgroups of keys", "a negative scale", "a scale of 0",
        *(f"values {each}" for each in VALUES), *(f"layout {each}" for each in LAYOUTS),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number}")
    some = chance.choice
    scale = some((1.0, 1.0, 1.0, 1.0, 0.3, -0.7, 0.0)) * kernel.head_dim**-0.5
    batch, rows, keys = some((1, 1, 2, 3)), some(ROWS), some(KEYS)
    return Case(
        kernel, (rows,) * batch, (keys,) * batch, some(HEADS), some(WINDOWS), some(VALUES), scale,
        some(LAYOUTS), chance.randrange(2**31),
    )  # fmt: skip


class Call:
    """The tensors of a case."""

    def __init__(self, case, _device):
        self.case = case
        self.batch, self.rows, self.keys = len(case.rows), max(case.rows), max(case.keys)
        self.generator = torch.Generator().manual_seed(case.seed)
        sizes = ((self.rows, case.heads[0]), (self.keys, case.heads[1]), (self.keys, case.heads[1]))
        self.given = [self.drawn(place, *each) for place, each in enumerate(sizes)]
        self.numbers = quantising.numbers(*self.given, of_v=plans.codes_of_values(arch()))

    def drawn(self, place, length, heads):
        case = self.case
        x = torch.randn(self.batch, length, heads, case.kernel.head_dim, generator=self.generator)
        if case.values == "outliers" and place > 0:
            x[..., 5::32] += 9 if place == 1 else 2
        if case.values == "sinks" and place == 0:
            x += 1
        if case.values == "sinks" and place > 0:
            x[:, 0] = 0.7 if place == 1 else x[:, 0] / 64
        if case.values == "rising" and place < 2:
            x = x / 4 + (1 if place == 0 else torch.arange(length)[:, None, None] / 512)
        x = x * {"large": 32 if place < 2 else 1, "zeros": 0}.get(case.values, 1)
        return x.to(TORCH_DTYPES[case.kernel.dtype])

    def laid(self, place):
        return placed(self.given[place], self.case.layout, PADDING)

    def run(self, target):
        """Launch the case. Returns out and the log-sum-exp in float64."""
        case, device = self.case, target.device
        q, k, v = (self.laid(place).to(device) for place in range(3))
        workspace = torch.empty(quantising.floats(q.shape, k.shape), device=device)
        out = torch.empty(q.shape, dtype=q.dtype, device=device)
        lse = torch.empty((self.batch, case.heads[0], self.rows), device=device)
        target.attend(FWD_INT8, q, k, v, workspace, out, lse, case.scale, *case.window)
        return out.double().cpu(), lse.double().cpu()

    def exact(self):
        """out, the log-sum-exp, out of the magnitudes of v, and the most of a score's terms, in float64."""
        case, group = self.case, self.case.heads[0] // self.case.heads[1]
        q, k, v = (x.transpose(1, 2) for x in self.numbers)
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        scores = q @ k.mT * case.scale
        scores = scores.masked_fill(hidden(self.rows, self.keys, case.window), -math.inf)
        lse = scores.logsumexp(-1)
        blind = lse == -math.inf
        weights = (scores - lse.masked_fill(blind, 0.0)[..., None]).exp()
        out, sizes = (torch.einsum("bhij,bhjd->bihd", weights, x) for x in (v, v.abs()))
        magnitude = (q.abs() @ k.abs().mT).max().item() * abs(case.scale)
        return out, lse.masked_fill(blind, math.inf), sizes, magnitude

    def check(self, target, shown):
        """Launch the case and judge the results."""
        case, (out, lse) = self.case, self.run(target)
        wanted, sums, sizes, magnitude = self.exact()
        most = self.numbers.v.abs().max().item()
        # Scores are sums of int8 products plus a constant of 1.5 * 2^23 quanta, rounded once each.
        of_scores = tolerances.INT8_SCORE * magnitude + tolerances.INT8_QUANTUM * self.quantum()
        allowed = plans.coded_allowed(arch(), sizes, self.keys, most)
        allowed = allowed * (1 + of_scores) + of_scores * most
        difference = (out - wanted).abs()
        worst = (difference - allowed).argmax()
        shown.compared(
            str(case.kernel), repr(case), *(x.flatten()[worst].item() for x in (difference, allowed))
        )
        assert (difference <= allowed).all(), f"{case}: out differs"
        same = sums == lse
        of_lse = (lse - sums).abs().masked_fill(same, 0.0)
        bound = tolerances.LSE_RELATIVE * sums.abs().masked_fill(same, 0.0).clamp(min=1.0)
        share = (of_lse / (bound + of_scores)).max().item()
        shown.compared_lse(str(case.kernel), share * tolerances.LSE_RELATIVE)
        assert share <= 1, f"{case}: lse differs"
        if wanted.numel() >= MANY and case.values in {"normal", "outliers"}:
            error, square = difference.square().sum(), wanted.square().sum()
            most = MOST_RMS if plans.multiplies_fp8(arch()) else MOST_RMS_16
            assert error <= most**2 * square, f"{case}: the root mean square of errors is too large"

    def quantum(self):
        """The largest score of two codes of 1."""
        q, k = (quantising.rotated(x.float()).abs().amax().item() for x in self.given[:2])
        return q * k / 127**2 / self.case.kernel.head_dim * abs(self.case.scale)
