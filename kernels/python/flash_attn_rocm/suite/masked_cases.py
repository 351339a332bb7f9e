"""Forward calls with a mask or a bias, generated like the calls of forward_cases.py."""

import math
import random
from dataclasses import dataclass, replace

import torch

from flash_attn_rocm.suite import forward_cases
from flash_attn_rocm.suite.forward_cases import (
    FAR,
    FAR_STRIDE,
    HEADS,
    MAGNITUDES,
    PATTERNS,
    WINDOWS,
    far_apart,
)
from flash_attn_rocm.values import kinds

MASKED = kinds.ATTENDING[kinds.MASKED]
BOOL, OWN, FP32 = "bool", "elements", "fp32"  # dtype of the mask: bool, q's dtype, fp32
KINDS = {BOOL: torch.bool, FP32: torch.float32}
ALONG = {"b": "sequences", "h": "heads", "i": "rows"}
BROADCASTS = ("", "", "b", "h", "bh", "hi", "i", "bhi")  # dimensions of size 1
SOME, LEFT, WHOLE = "some keys", "left keys", "whole rows"
# More patterns of boolean masks: they hide whole tiles from all rows of a wave or workgroup.
RIGHT, BLOCKS, LATER, NOTHING = "right keys", "other blocks", "later keys", "nothing"
BY_TILES = (LEFT, RIGHT, BLOCKS, LATER, NOTHING)
BY_TILES_SHARE = 0.6
BLOCK = 33  # keys of a block that sees only itself
# MANY keys take more than one pass of fa_mask_ranges_*. FEW rows go with them.
MANY, MANY_SHARE, FEW = 4200, 0.1, 17
LEAST = "least"
LOW = (-20000.0, LEAST)  # biases that leave a key no weight next to others, and -inf, which hides it
ROWS = (5, 17, 33, 65, 129, 150)
KEYS = (1, 17, 40, 63, 64, 97, 128, 161, 200)
DROPOUT = (0.0, 0.0, 0.0, 0.5, 0.17)
SCALES = (None, None, None, 0.3, -0.2, 0.0)
LAYOUTS = (*forward_cases.LAYOUTS, FAR)
WORKGROUP = 128  # rows
MOST_HEADS = 7  # more than any call has
MULTIPLE = 8  # elements of a mask's rows
TINY = 2.0**-30  # Inexact in fp16: gfx1030 computes rows of bf16 again. Too small to change results.
TINY_SHARE = 0.4


@dataclass(frozen=True)
class Case(forward_cases.Case):
    """``mask`` is the mask's dtype, ``broadcast`` names its dimensions of size 1.

    ``by`` is the bias of hidden keys. ``tiny``: v has numbers below fp16's range.
    """

    mask: str = BOOL
    broadcast: str = ""
    hides: str = SOME
    by: float | str = -math.inf
    tiny: bool = False

    @property
    def features(self):
        """Names of the features in this call."""
        before = self.rows[0] - self.keys[0]  # rows whose diagonal is before the first key
        low = self.by in LOW and self.mask != BOOL
        return super().features | {
            f"mask of {self.mask}",
            *({f"mask of {self.mask}, dropout"} if self.dropout else ()),
            *({f"mask of {self.mask}, tiny numbers"} if self.tiny else ()),
            *(f"mask for all {ALONG[name]}" for name in self.broadcast),
            *({f"{self.hides} far below, {self.mask}"} if low else {f"{self.hides} hidden"}),
            *({"scale of 0"} if self.scale == 0.0 else ()),
            *({"many keys"} if self.keys[0] == MANY else ()),
            *({"a workgroup without keys"} if 0 <= self.window[1] <= before - WORKGROUP else ()),
        }


def served(_kernel):
    """The features to test with every masked kernel."""
    masks = {
        f"mask of {kind}{more}" for kind in (BOOL, OWN, FP32) for more in ("", ", tiny numbers", ", dropout")
    }
    return {
        "window on the left", "window on the right", "causal", "grouped heads", "far strides", "scale of 0",
        "a workgroup without keys",
        *masks,
        *(f"mask for all {each}" for each in ALONG.values()),
        "many keys",
        *(f"{hides} hidden" for hides in (SOME, WHOLE, *BY_TILES)),
        *(f"{hides} far below, {kind}" for hides in (LEFT, WHOLE) for kind in (OWN, FP32)),
        *(f"values {each}" for each in (*MAGNITUDES, *PATTERNS, "infinite")),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number}")
    some = chance.choice
    batch, layout = some((1, 2, 2)), some(LAYOUTS)
    values = some((*MAGNITUDES, *PATTERNS, "infinite"))
    patterned = values in PATTERNS
    case = Case(
        kernel, kernel.head_dim, (some(ROWS),) * batch, (some(KEYS),) * batch, some(HEADS), "dense", 0,
        "contiguous" if layout == FAR and batch == 1 else layout, some(WINDOWS), 0.0, "", 0.0, 1, values,
        1.0 if patterned else some(SCALES), chance.randrange(2**31), some((BOOL, OWN, FP32)),
        some(BROADCASTS), some((SOME, LEFT, WHOLE)), some((-math.inf, *LOW)),
        chance.random() < TINY_SHARE,
    )  # fmt: skip
    # A separate random number, so the other arguments stay as they are.
    case = replace(case, dropout=random.Random(f"{kernel} {number} dropout").choice(DROPOUT))
    if values == "infinite":  # NaN is still NaN when -inf is added
        case = replace(case, mask=BOOL)
    if case.by == LEAST and (case.hides != LEFT or case.keys[0] < MULTIPLE):
        # Kernels may read LEAST as -1e30 (params.hpp), with another log-sum-exp for rows of such scores only.
        case = replace(case, by=LOW[0])
    if case.mask == BOOL:
        return _by_tiles(case, chance)
    return replace(case, window=(-1, -1)) if case.by == LEAST else case


def _by_tiles(case, chance):
    """Choose another pattern of a boolean mask, and sometimes many keys."""
    if chance.random() < BY_TILES_SHARE:
        case = replace(case, hides=chance.choice(BY_TILES))
    if chance.random() >= MANY_SHARE or case.layout == FAR:
        return case
    batch = len(case.rows)
    return replace(case, rows=(min(FEW, case.rows[0]),) * batch, keys=(MANY,) * batch, heads=(2, 1))


class Masking:
    """The mask of a call."""

    def drawn(self):
        """(batch, nheads, seqlen_q, seqlen_k). Any size but the last may be 1."""
        case, keys = self.case, self.case.keys[0]
        whole = {"b": len(case.rows), "h": case.heads[0], "i": case.rows[0]}
        sizes = [1 if name in case.broadcast else size for name, size in whole.items()]
        key, place = torch.arange(keys), (torch.arange(sizes[2]) * keys // sizes[2])[:, None]
        hidden = {
            SOME: lambda: torch.rand(*sizes, keys, generator=self.generator) < 0.5,
            LEFT: lambda: (key < keys // 2).expand(*sizes, keys),
            RIGHT: lambda: (key > keys // 2).expand(*sizes, keys),
            BLOCKS: lambda: (key // BLOCK != place // BLOCK).expand(*sizes, keys),
            LATER: lambda: (key > place).expand(*sizes, keys),
            NOTHING: lambda: torch.zeros(*sizes, keys, dtype=torch.bool),
            WHOLE: lambda: (torch.rand(*sizes, 1, generator=self.generator) < 0.3).expand(*sizes, keys),
        }[case.hides]()
        if case.mask == BOOL:
            return ~hidden
        dtype = KINDS.get(case.mask, self.dtype)
        by = torch.finfo(dtype).min if case.by == LEAST else case.by
        numbers = torch.randn(*sizes, keys, generator=self.generator) * 2
        return numbers.to(dtype).masked_fill(hidden, by)

    def more(self):
        """The mask with rows padded to a multiple of 8 elements. The padding is True or NaN."""
        case, dtype = self.case, self.mask.dtype
        *sizes, keys = self.mask.shape
        wide = -(-keys // MULTIPLE) * MULTIPLE
        filled = torch.full((*sizes, wide), True if dtype == torch.bool else math.nan, dtype=dtype)
        filled[..., :keys] = self.mask
        if case.layout == FAR and self.device.type == "cpu":
            steps = (MOST_HEADS * FAR_STRIDE, FAR_STRIDE + MULTIPLE, wide + MULTIPLE, 1)
            return {"attn_mask": far_apart(filled, steps, MULTIPLE * filled.element_size())}
        placed = torch.nn.functional.pad(filled, (0, MULTIPLE if case.layout == "padded" else 0))[..., :wide]
        placed = placed.to(self.device) if case.layout != "heads first" else self.laid_out(placed)
        # Broadcast by strides of 0 as well as by sizes of 1.
        return {"attn_mask": placed.expand(len(case.rows), -1, -1, -1) if "b" in case.broadcast else placed}

    def biases(self):
        """(nheads, seqlen_q, seqlen_k), fp32, of each sequence: the bias of its scores."""
        mask = self.mask.expand(len(self.case.rows), self.case.heads[0], self.case.rows[0], -1)
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return [bias.float() for bias in mask]


class Call(Masking, forward_cases.Call):
    """The tensors of a case."""

    def __init__(self, case, device):
        super().__init__(case, device)
        self.mask = self.drawn()
        for v in self.v if case.tiny else ():
            v[..., 0] = TINY

    def sequences(self, out, lse, weights):
        found = super().sequences(out, lse, weights)
        return [replace(each, bias=bias) for each, bias in zip(found, self.biases(), strict=True)]
