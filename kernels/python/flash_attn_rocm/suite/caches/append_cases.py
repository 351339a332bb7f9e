"""Random calls of the operator ``append``, generated like the attention calls of suite/forward_cases.py.

The answer is exact: each bit equals the result of PyTorch's operators, and the rest of the caches is
unchanged.
"""

import random
from dataclasses import dataclass

import torch

from flash_attn_rocm.reference.rotary import rotate
from flash_attn_rocm.suite.forward_cases import LAYOUTS, Kernel, laid_out
from flash_attn_rocm.suite.rule import DTYPES

APPEND = torch.ops.flash_attn_rocm.append.default
INT32 = torch.int32
HEADS = ((1, 1), (2, 1), (2, 2), (3, 1), (4, 2))
HEAD_DIMS = (1, 8, 16, 24, 40, 41, 59, 64, 80, 96, 128, 192, 255, 256)
ROTARY = (2, 10, 16, 32, 48, 64, 96, 128, 192, 256)
ROWS = (1, 2, 3, 5, 17, 33)
PAGES = (0, 0, 16, 48)
CAPACITY = 96
# Lengths before the start and behind the end of every cache.
OUTSIDE = (-2, CAPACITY - 1, CAPACITY, 2**31 - 3, -(2**31))
ODD = "odd"
WILD = (-1, 2**31 - 1, -(2**31))  # pages and rows outside of the cache
TURNS = ("not rotated", "halves", "interleaved")
VALUES = ("random", "ties", "extremes", "no numbers")
NAMES = ("q", "k_cache", "v_cache", "k_descale", "v_descale")
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
NO_NUMBERS = torch.tensor([torch.inf, -torch.inf, torch.nan])


@dataclass(frozen=True)
class AppendCase:
    """One call with ``new`` keys and ``rows`` queries in each sequence."""

    kernel: Kernel
    head_dim: int
    new: int
    rows: int
    heads: tuple
    rotary: int
    interleaved: bool
    advances: bool
    page: int
    by_index: bool
    lengths: tuple
    wild: bool
    angles: int
    layouts: tuple
    values: str
    seed: int

    @property
    def features(self):
        seen = {
            "a part is rotated": 0 < self.rotary < self.head_dim - self.head_dim % 2,
            "queries at one position": not self.advances,
            "paged": self.page > 0,
            "rows by index": self.by_index,
            "lengths outside of the cache": any(length in OUTSIDE for length in self.lengths),
            "places that are not there": self.wild,
            "few angles": self.rotary > 0 and self.angles < CAPACITY,
            f"{self.turn}, values {self.values}": True,
            **{f"layout {each}": True for each in self.layouts},
        }
        return {name for name, used in seen.items() if used}

    @property
    def turn(self):
        return TURNS[0] if not self.rotary else TURNS[1 + self.interleaved]

    @property
    def work(self):
        rows = self.rows * self.heads[0] + 2 * self.new * self.heads[1]
        return len(self.lengths) * rows * self.head_dim


def served(_kernel):
    """The features to test with every append kernel."""
    return {
        "a part is rotated", "queries at one position", "paged", "rows by index",
        "lengths outside of the cache", "places that are not there", "few angles",
        *(f"{turn}, values {each}" for turn in TURNS for each in VALUES),
        *(f"layout {each}" for each in (*LAYOUTS, ODD)),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number}")
    some = chance.choice
    head_dim, page, batch, new = some(HEAD_DIMS), some(PAGES), some((1, 2, 3)), some(ROWS)
    rotary = some([0, *(each for each in ROTARY if each <= head_dim)])
    lengths = [
        some(OUTSIDE) if chance.random() < 0.2 else chance.randrange(CAPACITY - new + 1) for _ in range(batch)
    ]
    by_index = not page and chance.random() < 0.4
    # In most cases all tensors allow wide accesses.
    layouts = some((("contiguous",), ("padded",), (*LAYOUTS, ODD)))
    return AppendCase(
        kernel, head_dim, new, some(ROWS), some(HEADS), rotary, some((True, False)), some((True, False)),
        page, by_index, tuple(lengths), bool(page or by_index) and chance.random() < 0.3,
        angles=some((CAPACITY + max(ROWS), CAPACITY + max(ROWS), 40)),
        layouts=(some(layouts), some(layouts)), values=some(VALUES), seed=chance.randrange(2**31),
    )  # fmt: skip


class Call:
    """The tensors of a case."""

    def __init__(self, case, device):
        self.case, self.device, self.dtype = case, device, DTYPES[case.kernel.dtype]
        self.generator = torch.Generator().manual_seed(case.seed)
        batch, (nheads, nheads_k) = len(case.lengths), case.heads
        self.q = self.numbers(batch, case.rows, nheads, case.head_dim)
        self.k, self.v = (self.numbers(batch, case.new, nheads_k, case.head_dim) for _ in range(2))
        self.blocks = CAPACITY // (case.page or CAPACITY)
        places = batch * self.blocks + (2 if case.page or case.by_index else 0)
        size = (places, case.page or CAPACITY, nheads_k, case.head_dim)
        self.caches = [self.stored(*size) for _ in range(2)]
        self.cos, self.sin = self.angles()
        self.places = torch.randperm(places, generator=self.generator)[: batch * self.blocks].to(INT32)
        if case.wild:
            wrong = (places, *WILD)
            self.places[case.seed % len(self.places)] = wrong[case.seed % len(wrong)]

    def stored(self, *size):
        """A cache before the call."""
        return self.normal(*size)

    def normal(self, *size):
        return torch.randn(*size, generator=self.generator).to(self.dtype)

    def numbers(self, *size):
        """Values "extremes" are near the dtype's largest numbers, or subnormals of few bits."""
        x = self.normal(*size)
        if self.case.values == "extremes":
            return x * self.one_of(
                *size, of=[torch.finfo(self.dtype).max / 4, torch.finfo(self.dtype).tiny / 64, 1]
            )
        if self.case.values == "no numbers":
            return torch.where(
                torch.rand(*size, generator=self.generator) < 0.2, self.one_of(*size, of=NO_NUMBERS), x
            )
        return x

    def one_of(self, *size, of):
        choices = torch.as_tensor(of, dtype=torch.float32).to(self.dtype)
        return choices[torch.randint(len(choices), size, generator=self.generator)]

    def angles(self):
        case = self.case
        if not case.rotary:
            return None, None
        size = (case.angles, case.rotary // 2)
        if case.values == "ties":  # products that are often ties between two numbers of the dtype
            return self.one_of(*size, of=[1.5, -1.25, 0.75]), self.one_of(*size, of=[0, 0, 1.5])
        turns = torch.rand(*size, generator=self.generator) * 6.3
        return turns.cos().to(self.dtype), turns.sin().to(self.dtype)

    def rotated(self, x, positions):
        if self.cos is None:
            return x
        near = positions.clamp(0, self.case.angles - 1)
        return rotate(x, self.cos, self.sin, near, interleaved=self.case.interleaved)

    def expected(self):
        """q and both caches after the call."""
        case, begins = self.case, torch.tensor(self.case.lengths)
        positions = begins[:, None] + torch.arange(case.new)
        q = self.rotated(self.q, begins[:, None] + torch.arange(case.rows) * case.advances)
        return q, *self.written(positions, self.rotated(self.k, positions), self.v)

    def written(self, positions, k, v):
        """The caches after new rows at these positions."""
        return [self.with_rows(*each, positions) for each in zip(self.caches, (k, v), strict=True)]

    def with_rows(self, cache, new, positions):
        """A copy of a cache with new rows."""
        cache = cache.clone()
        for b, row in torch.cartesian_prod(*map(torch.arange, positions.shape)).tolist():
            place, at = self.where(b, int(positions[b, row]))
            if 0 <= place < len(cache):
                cache[place, at] = new[b, row]
        return cache

    def where(self, b, position):
        """The cache's row of a position: its first two indices."""
        if not 0 <= position < CAPACITY:
            return -1, 0
        rows = self.case.page or CAPACITY
        if self.case.page or self.case.by_index:
            return int(self.places[b * self.blocks + position // rows]), position % rows
        return b, position

    def run(self, target):
        """Launch the case. Returns what ``expected`` does."""
        case = self.case
        given, stored = case.layouts
        q, k, v = (laid_out(x.to(target.device), given) for x in (self.q, self.k, self.v))
        caches = [self.placed(x.to(target.device), stored) for x in self.caches]
        descales = self.descales_on(target.device)
        cos, sin = (None if x is None else x.to(target.device) for x in (self.cos, self.sin))
        places = self.places.to(target.device)
        rotated = None if cos is None else torch.empty(q.shape, dtype=q.dtype, device=target.device)
        target.attend(
            APPEND, q, *caches, k, v, cos, sin, torch.tensor(case.lengths, dtype=INT32, device=target.device),
            places.view(-1, self.blocks) if case.page else None, places if case.by_index else None,
            *descales, rotated, case.interleaved, case.advances,
        )  # fmt: skip
        return [x.cpu() for x in (q if rotated is None else rotated, *self.results(caches, descales))]

    def placed(self, cache, layout):
        """A cache in one of LAYOUTS."""
        return laid_out(cache, layout)

    def descales_on(self, _device):
        """k_descale and v_descale of the call."""
        return None, None

    def results(self, caches, _descales):
        """What a call writes besides q."""
        return caches

    def check(self, target, shown):
        """Launch the case and compare every bit with PyTorch's result."""
        found = self.run(target)
        shown.compared(str(self.case.kernel), repr(self.case), 0.0, 0.0)
        for name, one, other in zip(NAMES, found, self.expected(), strict=False):
            require_bits(name, one, other)


def require_bits(name, one, other):
    """Every bit is equal, but those of NaN of 16 bits."""
    no_number = other.isnan() if other.dtype in DTYPES.values() else torch.zeros_like(other, dtype=torch.bool)
    assert torch.equal(one[no_number].isnan(), no_number[no_number]), f"{name}: no NaN there"
    wrong = (one.view(BITS[one.element_size()]) != other.view(BITS[other.element_size()])) & ~no_number
    assert not wrong.any(), f"{name}: {int(wrong.sum())} wrong, first at {wrong.nonzero()[0].tolist()}"
