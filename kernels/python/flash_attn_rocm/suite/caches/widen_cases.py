"""Random calls of the operator ``widen``. The answer is exact: bits equal those of reference/codes.py."""

import random
from dataclasses import dataclass

import torch

from flash_attn_rocm.reference import codes
from flash_attn_rocm.suite.caches.append_cases import INT32, ODD, PAGES, WILD, require_bits
from flash_attn_rocm.suite.caches.coded_append_cases import FORMATS, HEADS, KEYS, NONE, ONE
from flash_attn_rocm.suite.forward_cases import LAYOUTS, Kernel, laid_out
from flash_attn_rocm.suite.rule import DTYPES

WIDENING = "widen"
WIDEN = torch.ops.flash_attn_rocm.widen.default
HEAD_DIMS = (1, 8, 16, 41, 59, 64, 72, 80, 96, 128, 192, 256, 512)
CAPACITY = 96
KEYS_OF_COPY = (CAPACITY, CAPACITY, 1, 17, 50)
OUTSIDE = (-3, 2**31 - 1)  # lengths
DESCALES = (NONE, HEADS, ONE, KEYS, KEYS)
EVERY = "every code"
UNWRITTEN = 7.0


@dataclass(frozen=True)
class WidenCase:
    """A cache, of which each sequence has ``lengths`` keys, or all."""

    kernel: Kernel
    head_dim: int
    keys: int
    heads: int
    page: int
    by_index: bool
    lengths: tuple
    cut: bool
    wild: bool
    layouts: tuple
    codes: str
    descales: str
    exponent: int
    seed: int
    values: str = EVERY

    @property
    def features(self):
        seen = {
            "paged": self.page > 0,
            "rows by index": self.by_index,
            "part in use": self.cut,
            "lengths outside of the cache": self.cut and any(each in OUTSIDE for each in self.lengths),
            "places that are not there": self.wild,
            "a copy of some keys": self.keys < CAPACITY,
            f"{self.codes}, {self.values}": len(self.lengths) * CAPACITY * self.heads * self.head_dim > 4096,
            f"{self.codes}, descales {self.descales}": True,
            **{f"layout {each}": True for each in self.layouts},
        }
        return {name for name, used in seen.items() if used}

    @property
    def work(self):
        return 2 * len(self.lengths) * self.keys * self.heads * self.head_dim


def served(_kernel):
    """The features to test with every kernel."""
    return {
        "paged", "rows by index", "part in use", "lengths outside of the cache", "places that are not there",
        "a copy of some keys", *(f"{each}, {EVERY}" for each in FORMATS),
        *(f"{each}, descales {kind}" for each in FORMATS for kind in DESCALES),
        *(f"layout {each}" for each in (*LAYOUTS, ODD)),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number}")
    some = chance.choice
    page, batch = some(PAGES), some((1, 2, 3))
    by_index = not page and chance.random() < 0.4
    lengths = tuple(
        some(OUTSIDE) if chance.random() < 0.2 else chance.randrange(CAPACITY + 1) for _ in range(batch)
    )
    layouts = some((("contiguous",), ("padded",), (*LAYOUTS, ODD)))
    return WidenCase(
        kernel, some(HEAD_DIMS), some(KEYS_OF_COPY), some((1, 2, 3)), page, by_index, lengths,
        chance.random() < 0.6, bool(page or by_index) and chance.random() < 0.3,
        layouts=(some(layouts), some(layouts)), codes=some(FORMATS), descales=some(DESCALES),
        exponent=some((-24, -8, 0, 0, 8)), seed=chance.randrange(2**31),
    )  # fmt: skip


class Call:
    """The tensors of a case."""

    def __init__(self, case, _device):
        self.case, self.dtype, self.format = case, DTYPES[case.kernel.dtype], getattr(torch, case.codes)
        self.generator = torch.Generator().manual_seed(case.seed)
        batch, self.rows = len(case.lengths), case.page or CAPACITY
        self.blocks = CAPACITY // self.rows
        places = batch * self.blocks + (2 if case.page or case.by_index else 0)
        size = (places, self.rows, case.heads, case.head_dim)
        self.caches = [
            torch.randint(256, size, generator=self.generator, dtype=torch.uint8) for _ in range(2)
        ]
        self.descales = self.given_descales()
        self.places = torch.randperm(places, generator=self.generator)[: batch * self.blocks].to(INT32)
        if case.wild:
            wrong = (places, *WILD)
            self.places[case.seed % len(self.places)] = wrong[case.seed % len(wrong)]

    def given_descales(self):
        case = self.case
        if case.descales == NONE:
            return None, None
        size = {HEADS: (len(case.lengths), case.heads), ONE: (1, 1), KEYS: self.caches[0].shape[:3]}
        every = torch.rand(2, *size[case.descales], generator=self.generator) * 2.0**case.exponent
        return list(every.expand(2, *size[HEADS]) if case.descales == ONE else every)

    def expected(self):
        """Both copies. Keys that are not in use keep what was there."""
        return [self.copy_of(*each) for each in zip(self.caches, self.descales, strict=True)]

    def copy_of(self, cache, descale):
        case, found = self.case, self.unwritten()
        numbers = codes.decode(cache.view(self.format))
        if case.descales == KEYS:
            numbers = numbers * descale[..., None]
        for b, length in enumerate(case.lengths):
            used = min(max(length, 0), case.keys) if case.cut else case.keys
            own = torch.cat([numbers[place] for place in self.places_of(b, len(cache))])[:used]
            if descale is not None and case.descales != KEYS:
                own = own * descale[b, None, :, None]
            found[b, :used] = own.to(self.dtype)
        return found

    def places_of(self, b, most):
        """Of a sequence's keys, clamped."""
        if not self.case.page and not self.case.by_index:
            return [b]
        own = self.places[b * self.blocks :][: self.blocks]
        return own.clamp(0, most - 1).tolist()

    def unwritten(self):
        case = self.case
        size = (len(case.lengths), case.keys, case.heads, case.head_dim)
        return torch.full(size, UNWRITTEN, dtype=self.dtype)

    def run(self, target):
        """Launch the case. Returns both copies."""
        case, device = self.case, target.device
        stored, wide = case.layouts
        caches = [laid_out(x.to(device), stored).view(self.format) for x in self.caches]
        copies = [laid_out(self.unwritten().to(device), wide) for _ in range(2)]
        descales = [None if x is None else x.to(device) for x in self.descales]
        places = self.places.to(device)
        lengths = torch.tensor(case.lengths, dtype=INT32, device=device)
        target.attend(
            WIDEN, *caches, *descales, lengths if case.cut else None,
            places.view(-1, self.blocks) if case.page else None, places if case.by_index else None, *copies,
        )  # fmt: skip
        return [x.cpu() for x in copies]

    def check(self, target, shown):
        """Launch the case and compare every bit."""
        found = self.run(target)
        shown.compared(str(self.case.kernel), repr(self.case), 0.0, 0.0)
        for name, one, other in zip(("k_out", "v_out"), found, self.expected(), strict=True):
            require_bits(name, one, other)
