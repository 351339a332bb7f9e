"""Backward calls with a mask or a bias: backward_cases.py with the masks of masked_cases.py.

Some calls with a bias also ask for the gradients of the scores, which are the bias's gradients.
"""

import random
from dataclasses import dataclass, fields, replace

import torch

from flash_attn_rocm.suite import backward_cases, masked_cases
from flash_attn_rocm.suite.masked_cases import BOOL, FP32, LEAST, LEFT, LOW, MANY, OWN, WHOLE
from flash_attn_rocm.suite.rule import dscores_allowed

VALUES = (1.0, 4.0, "rising", "falling", backward_cases.OUTLIERS)
# Biases of whole rows, instead of LOW. An lse below kFarBelow (backward_params.hpp) gives zero gradients,
# and at -20,000 fp32 rounds away most of the differences between scores.
WHOLE_LOW = (-300.0, -2000.0)
DSCORES_SHARE = 0.7  # of calls with a bias
BLOCK = 128  # the most keys of a workgroup


@dataclass(frozen=True)
class Case(masked_cases.Case):
    """``dscores``: whether to compute the gradients of the scores."""

    dscores: bool = False

    @property
    def features(self):
        left, right = self.window
        rows, keys = self.rows[0], self.keys[0]
        low = self.by in (*LOW, *WHOLE_LOW) and self.mask != BOOL
        seen = {
            "window on the left": left >= 0,
            "window on the right": right > 0,
            "causal": right == 0,
            "grouped heads": self.heads[0] > self.heads[1],
            "far strides": self.layout == masked_cases.FAR,
            "several sequences": len(self.rows) > 1,
            "scale of 0": self.scale == 0.0,
            "a negative scale": self.scale is not None and self.scale < 0,
            "a block of keys that no query sees": left >= 0 and keys >= rows + left + BLOCK,
            "queries that see no key": right >= 0 and rows > keys + right,
            f"mask of {self.mask}": True,
            **{f"mask for all {masked_cases.ALONG[name]}": True for name in self.broadcast},
            f"{self.hides} hidden": not low,
            f"{self.hides} far below, {self.mask}": low,
            f"gradients of scores, {self.mask}": self.dscores,
            f"mask of {self.mask}, dropout": bool(self.dropout),
            "gradients of scores, dropout": self.dscores and bool(self.dropout),
            "dropout of several sequences": len(self.rows) > 1 and bool(self.dropout),
            "dropout, grouped heads": self.heads[0] > self.heads[1] and bool(self.dropout),
            f"values {self.values}": True,
        }
        return {name for name, used in seen.items() if used}


def served(_kernel):
    """The features to test with every masked backward kernel."""
    return {
        "window on the left", "window on the right", "causal", "grouped heads", "far strides",
        "several sequences", "scale of 0", "a negative scale", "a block of keys that no query sees",
        "queries that see no key",
        *(f"mask of {kind}{more}" for kind in (BOOL, OWN, FP32) for more in ("", ", dropout")),
        "gradients of scores, dropout", "dropout of several sequences", "dropout, grouped heads",
        *(f"gradients of scores, {kind}" for kind in (OWN, FP32)),
        *(f"mask for all {each}" for each in masked_cases.ALONG.values()),
        *(f"{hides} hidden" for hides in (masked_cases.SOME, WHOLE, LEFT)),
        *(f"{hides} far below, {kind}" for hides in (LEFT, WHOLE) for kind in (OWN, FP32)),
        *(f"values {each}" for each in VALUES),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    drawn = masked_cases.draw(kernel, number)
    chance = random.Random(f"{kernel} {number} gradients")
    given = {each.name: getattr(drawn, each.name) for each in fields(masked_cases.Case)}
    case = Case(**given, dscores=drawn.mask != BOOL and chance.random() < DSCORES_SHARE)
    values = chance.choice(VALUES)
    case = replace(case, values=values, tiny=False)
    if values in ("rising", "falling"):
        case = replace(case, scale=1.0)
    elif case.scale == 1.0:
        case = replace(case, scale=chance.choice((None, 0.3, -0.2)))
    if case.keys[0] == MANY:
        case = replace(case, keys=(200,) * len(case.keys))
    if number % 10 == 1:
        case = replace(case, rows=(5,) * len(case.rows), keys=(150,) * len(case.keys), window=(5, 0))
    if number % 10 == 2:
        case = replace(case, rows=(150,) * len(case.rows), keys=(17,) * len(case.keys), window=(-1, 0))
    # A window can also leave a row only low scores. At -20,000 the row keeps its gradients.
    if case.by in LOW and (case.hides == WHOLE or (case.by == LEAST and case.window != (-1, -1))):
        return replace(case, by=chance.choice(WHOLE_LOW))
    return case


class Call(masked_cases.Masking, backward_cases.Call):
    """The tensors of a case."""

    def sequences_of(self):
        self.mask = self.drawn()
        found = super().sequences_of()
        return [replace(each, bias=bias) for each, bias in zip(found, self.biases(), strict=True)]

    def masks(self):
        given = self.more()
        self.dscores = None
        if self.case.dscores:
            rows, heads = self.case.rows[0], self.case.heads[0]
            wide = given["attn_mask"].shape[-1]
            self.dscores = torch.zeros(len(self.case.rows), heads, rows, wide, device=self.device)
        return {**given, "dscores": self.dscores}

    def run(self, target):
        found = super().run(target)
        return found if self.dscores is None else [*found, self.dscores]

    def check(self, target, shown):
        """Also compare the gradients of the scores with the reference."""
        super().check(target, shown)
        if self.dscores is None:
            return
        keys = self.case.keys[0]
        assert not self.dscores[..., keys:].any(), "gradients of scores of keys that there are not"
        outs, sums = self.forward()
        given = zip(self.sequences, self.dout, outs, sums, self.dscores[..., :keys].cpu(), strict=True)
        for each, dout, out, lse, found in given:
            exact, allowed = dscores_allowed(each, dout, out, lse, self.rules)
            share = ((found.double() - exact).abs() / allowed).max().item()
            assert share <= 1, f"gradients of scores: {share} times what is allowed"
