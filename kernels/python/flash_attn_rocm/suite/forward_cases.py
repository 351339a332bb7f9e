"""Random combinations of features as calls, each identified by a kernel and a number.

Calls go to the operator itself and so reach the kernel under test, even where a public function would choose
another one. ``tests/tools/corpus.py`` picks cases by the instructions they execute, and
``tests/installed/numerics/test_corpus.py`` runs them.
"""

import itertools
import math
import random
from dataclasses import dataclass, replace

import torch

from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.reference import philox
from flash_attn_rocm.suite.reserved import reserved, use
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from flash_attn_rocm.suite.target import arch
from flash_attn_rocm.values import kinds, paths

FWD = torch.ops.flash_attn_rocm.fwd.default
ARGUMENTS = tuple(argument.name for argument in FWD._schema.arguments)
UNITS = 96
FEW = 16  # the most queries of a decode call
# Around the sizes of every tile and fragment, with enough keys for several passes of a loop.
MANY_ROWS = (17, 31, 33, 64, 65, 113, 129, 150)
TALL_ROWS = (17, 33, 129, 150, 241, 256, 257, 300)  # for workgroups of 256 rows
WIDE_ROWS = (1, 5, 15, 16, 17, 31, 33, 64, 65, 97, 129)  # for workgroups of 16, 32 or 64 rows
FEW_ROWS = (1, 2, 3, 5, 15, 16)
KEYS = (1, 5, 16, 17, 31, 33, 63, 64, 65, 97, 128, 129, 161, 200, 257, 300)
REFERENCE_HEAD_DIMS = (1, 8, 24, 40, 59, 64, 80, 128, 255)
HEADS = ((1, 1), (2, 2), (2, 1), (3, 1), (4, 2), (6, 2))
TILES = 128  # keys of two tiles: with more, a row's maximum rises after the first tiles
PAGES = (16, 48, 64, 256)
SPLITS = (2, 3, 5, 9)
PARTS_SHARE = 0.5  # of wide calls, with keys in parts
MANY_SPLITS, MANY_KEYS = 67, 2400  # more parts than a wave has lanes
WINDOWS = ((-1, -1), (-1, 0), (-1, 0), (5, 0), (0, 0), (33, 7), (-1, 16), (70, -1), (0, 60), (-1, 100))
SOFTCAPS = (1.0, 5.0, 2.5)  # small next to scores, so some are always cut
LAYOUTS = ("contiguous", "padded", "heads first")
WIDER = {"padded": 8, "odd": 1}  # elements after each row
# Strides above 2^32 elements between sequences, pages of a cache, or heads of gradients: they test both
# halves of a 64-bit stride. Each tensor of a call has different strides.
FAR = "far"
FAR_STRIDE = (1 << 32) + (1 << 31) + 8
CARRIES = 1 << 32  # bytes
ALIGNED = 16  # bytes, of the kernels with a fixed head dim
TENSORS = 8  # at most in one call
FAR_SHARE = 0.8  # of the calls with a layout that permits it
WHOLE_SHARE = 0.5  # of decode's calls with PATTERNS: one part, with several tiles of keys per row
QUERIES_SHARE = 0.4  # of the calls with pages and packed queries: only these have cumulative lengths
# How k and v are stored.
STORES = ("dense", "dense", "in use", "left padded", "rows by index", "packed", "paged", "paged packed")
TALL, WIDE = (kinds.ATTENDING[each] for each in (paths.TALL, paths.WIDE))
PLAIN_PATHS = {op: path for path, op in kinds.ATTENDING.items() if op in kinds.PLAIN}
LOOPS = ("plain", "featured")
# words that mark features of the featured loop
FEATURES = frozenset({"softcap", "ALiBi", "paged", "queries"})
MAGNITUDES = (1.0, 4.0, 8.0)
# Scores that are difficult for an online softmax: functions of a key's index j and the number of keys n.
PATTERNS = {
    "rising": lambda j, n: 0.08 * j,
    "rising steeply": lambda j, n: 5.0 * j,
    "falling": lambda j, n: -5.0 * j,
    "one-hot": lambda j, n: 1000.0 * (j == n // 3),
    "far below zero": lambda j, n: torch.full_like(j, -6000.0),
}
FAR_SCORES = ("far below zero", "rising steeply")  # beyond kFar of softmax.hpp, in the first tile and later
MANY_TILES = 257  # with so many keys, steeply rising scores exceed kFar
NO_NUMBERS = (math.inf, -math.inf, math.nan)
NOISE = 2e-3
# Fills cache memory outside of every sequence, so reading it makes the result wrong.
UNUSED = math.nan


@dataclass(frozen=True)
class Kernel:
    """``head_dim`` is 0 for the reference kernel, which takes every head dim."""

    op: str
    dtype: str
    head_dim: int = 0

    def __str__(self):
        return f"fa_{self.op}_{self.dtype}" + (f"_d{self.head_dim}" if self.head_dim else "")


@dataclass(frozen=True)
class Case:
    """One call: ``rows`` and ``keys`` per sequence, ``splits`` to request, ``values`` of q and k."""

    kernel: Kernel
    head_dim: int
    rows: tuple
    keys: tuple
    heads: tuple
    store: str
    page: int
    layout: str
    window: tuple
    softcap: float
    alibi: str
    dropout: float
    splits: int
    values: str | float
    scale: float | None
    seed: int

    @property
    def value_dim(self):
        """The head dim of v and out."""
        return LIMITS.uneven_head_dim if "uneven" in self.kernel.op else self.head_dim

    @property
    def ragged(self):
        return self.store.endswith("packed")

    @property
    def work(self):
        """Estimated duration in relation to other calls."""
        scores = sum(rows * keys for rows, keys in zip(self.rows, self.keys, strict=True))
        return scores * self.heads[0] * self.head_dim

    @property
    def plain(self):
        """Whether the kernel uses its plain loop."""
        return not (self.softcap or self.alibi or self.dropout or self.store.startswith("paged"))

    @property
    def loop(self):
        return LOOPS[not self.plain]

    @property
    def features(self):
        """Names of the features in this call."""
        left, right = self.window
        seen = {
            "window on the left": left >= 0,
            "window on the right": right > 0,
            "causal": right == 0,
            "softcap": bool(self.softcap),
            "softcap that cuts": 0 < self.softcap <= 5
            and self.values in MAGNITUDES[1:]
            and max(self.keys) > TILES,
            "ALiBi": bool(self.alibi),
            "dropout": bool(self.dropout),
            "parts": self.splits > 1,
            "grouped heads": self.heads[0] > self.heads[1],
            "paged": self.store.startswith("paged"),
            "left padded": self.store == "left padded",
            "part in use": self.store == "in use",
            "rows by index": self.store == "rows by index",
            "ragged": self.ragged,
            "ragged and paged": self.store == "paged packed",
            "ragged queries only": self.store == "paged queries packed",
            "an empty sequence": self.ragged and 0 in self.rows,
            "a sequence without keys": 0 in self.keys,
            "far strides": self.layout == FAR,
            f"values {self.values}": True,
            f"values {self.values} over tiles of the plain loop": self.plain and max(self.keys) > TILES,
            f"values {self.values} over tiles of one part, {self.loop}": (
                max(self.keys) >= MANY_TILES and self.splits == 1 and left < 0 and not self.softcap
            ),
            f"rows by index, {self.loop}": self.store == "rows by index" and min(self.keys) > 0,
            f"ragged and dense, {self.loop}": self.store == "packed",
        }
        return {name for name, used in seen.items() if used}


def served(kernel):
    """The features to test with every kernel of this kind."""
    every = {
        "window on the left", "window on the right", "causal", "softcap", "softcap that cuts", "ALiBi",
        "grouped heads", "paged", "left padded", "part in use", "rows by index", "ragged", "ragged and paged",
        "ragged queries only", "an empty sequence", "a sequence without keys", "far strides",
        *(f"values {each}" for each in (*MAGNITUDES, *PATTERNS, "infinite")),
    }  # fmt: skip
    far = {f"values {each} over tiles of one part, {loop}" for each in FAR_SCORES for loop in LOOPS}
    rows = {f"{how}, {loop}" for how in ("rows by index", "ragged and dense") for loop in LOOPS}
    if kernel.op in kinds.PLAIN:
        of_features = FEATURES | {LOOPS[1]}
        parts = {"parts"} if kernel.op == WIDE else set()
        return parts | {each for each in every | rows if not of_features.intersection(each.split())}
    return every | {"fwd": {"dropout", *rows}, "decode": {"parts", *rows, *far}}.get(kernel.op, {"dropout"})


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number}")  # a string, because Python's hashes differ between runs
    some = chance.choice
    store = some(STORES[:-2] if kernel.op in kinds.PLAIN else STORES)
    rows_of = {"fwd": MANY_ROWS, TALL: TALL_ROWS, WIDE: WIDE_ROWS, "decode": FEW_ROWS}.get(
        kernel.op, MANY_ROWS[:5] + FEW_ROWS
    )
    ragged = store.endswith("packed")
    batch = some((2, 3, 4)) if ragged else some((1, 2, 3))
    rows = [some(rows_of) for _ in range(batch)] if ragged else [some(rows_of)] * batch
    keys = [some(KEYS) for _ in range(batch)]
    if ragged and chance.random() < 0.5:
        rows[chance.randrange(1, batch)] = 0
    if store != "dense" and chance.random() < 0.3:
        keys[chance.randrange(batch)] = 0
    if store in ("dense", "rows by index"):
        keys = [keys[0]] * batch
    many = kernel.op == "decode" and store in ("dense", "paged packed") and chance.random() < 0.3
    if many:
        rows, keys = [1], [MANY_KEYS]
    plain = chance.random() < 0.4 or kernel.op in kinds.PLAIN
    head_dim = kernel.head_dim or some(REFERENCE_HEAD_DIMS)
    values = some((*MAGNITUDES, *PATTERNS, "infinite"))
    features = {
        "softcap": 0.0 if plain or values == "infinite" else some((0.0, *SOFTCAPS)),
        "alibi": "" if plain else some(("", "heads", "batch")),
        "dropout": 0.0 if plain or kernel.op == "decode" else some((0.0, 0.0, 0.5, 0.17)),
        "splits": MANY_SPLITS if many else some((1, *SPLITS)) if kernel.op == "decode" else 1,
    }
    patterned = isinstance(values, str) and values != "infinite"
    case = Case(
        kernel, head_dim, tuple(rows), tuple(keys), some(HEADS), store, some(PAGES), some(LAYOUTS),
        some(WINDOWS), **features, values=values, scale=1.0 if patterned else some((None, None, 0.3, -0.2)),
        seed=chance.randrange(2**31),
    )  # fmt: skip
    if kernel.op == "reference" and head_dim % 8 == 0:
        return replace(case, layout="odd")
    # Separate random numbers, so the calls of all other numbers stay as they are.
    chances = {
        name: random.Random(f"{kernel} {number} {name}").random()
        for name in ("far", "whole", "queries", "parts")
    }
    if kernel.op == WIDE and chances["parts"] < PARTS_SHARE:
        case = replace(case, splits=SPLITS[number % len(SPLITS)])
    if store == "paged packed" and chances["queries"] < QUERIES_SHARE:
        case = replace(case, store="paged queries packed")
    if kernel.op == "decode" and patterned and not many and chances["whole"] < WHOLE_SHARE:
        longer = tuple(each and max(each, MANY_TILES) for each in keys)
        case = replace(case, splits=1, window=(-1, -1), softcap=0.0, keys=longer)
    apart = case.layout in ("contiguous", "padded") and not ragged and len(rows) > 1
    return replace(case, layout=FAR) if apart and chances["far"] < FAR_SHARE else case


def far_apart(x, steps, aligned=ALIGNED):
    """``x`` with the strides ``steps``, placed so that its last row crosses a multiple of 2^32 bytes.

    Additions of addresses then carry into the upper half. Untouched memory costs nothing.
    """
    if not x.numel():
        return x
    last = sum((size - 1) * step for size, step in zip(x.shape[:-1], steps, strict=False)) * x.element_size()
    each = x.shape[-1] * x.element_size()
    memory = reserved(last + each + CARRIES)
    begin = -(memory.data_ptr() + last + each // 2 // aligned * aligned) % CARRIES
    return use(memory[begin:].view(x.dtype).as_strided(x.shape, steps)).copy_(x)


def laid_out(x, layout):
    """``x`` in one of LAYOUTS, or with rows of odd addresses."""
    if layout == "heads first":
        return x.transpose(-3, -2).contiguous().transpose(-3, -2)
    return torch.nn.functional.pad(x, (0, WIDER.get(layout, 0)))[..., : x.shape[-1]]


class Call:
    """The tensors of a case: a list entry per sequence, and the operator's arguments."""

    coded = False  # whether k and v are codes of 8 bits

    def __init__(self, case, device):
        self.case, self.device = case, device
        self.dtype = DTYPES[case.kernel.dtype]
        self.generator = torch.Generator().manual_seed(case.seed)
        self.q, self.k, self.v, self.placed = [], [], [], 0
        for rows, keys in zip(case.rows, case.keys, strict=True):
            q, k = self.queries_and_keys(rows, keys)
            v = self.normal(keys, case.heads[1], case.value_dim)
            self.q.append(q), self.k.append(k), self.v.append(v)
        self.rules = Rules(*case.window, softcap=case.softcap, scale=case.scale)
        self.slopes = self.slopes_of()

    def normal(self, rows, heads, head_dim=None):
        size = (rows, heads, head_dim or self.case.head_dim)
        return torch.randn(*size, generator=self.generator).to(self.dtype)

    def queries_and_keys(self, rows, keys):
        case = self.case
        q, k = self.normal(rows, case.heads[0]), self.normal(keys, case.heads[1])
        if case.values == "infinite":
            if keys:
                k[keys // 3, case.seed % case.heads[1], 0] = NO_NUMBERS[case.seed % 3]
            return q, k
        if not isinstance(case.values, str):
            return (x * case.values**0.5 for x in (q, k))
        scores = PATTERNS[case.values](torch.arange(keys, dtype=torch.float32), keys)
        # Spread over q and k evenly: fp16 cannot overflow.
        most = max(scores.abs().max().item() if keys else 0.0, 1.0)
        size = math.sqrt(most / case.head_dim)
        along = (scores / (size * case.head_dim))[:, None, None] + k.float() * NOISE
        return torch.full_like(q, size), along.to(self.dtype)

    def slopes_of(self):
        nheads = self.case.heads[0]
        sizes = {"heads": (nheads,), "batch": (len(self.case.rows), nheads)}.get(self.case.alibi)
        return None if sizes is None else torch.rand(*sizes, generator=self.generator)

    def laid_out(self, x):
        """``x`` on the device in the case's layout."""
        x = x.to(self.device)
        self.placed += 1
        steps = self.far_strides(x) if self.device.type == "cpu" else None
        return far_apart(x, steps) if steps else laid_out(x, self.case.layout)

    def far_strides(self, x):
        """The strides of ``x`` in a far layout, different for each tensor of a call, else None."""
        if self.case.layout != FAR or x.dim() < 4:
            return None
        return (self.placed % TENSORS * FAR_STRIDE + FAR_STRIDE, *x.stride()[1:])

    def place(self, like):
        """Memory for a result with the strides of ``like``."""
        if self.far_strides(like):
            return self.laid_out(torch.empty(like.shape, dtype=like.dtype))
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=self.device)

    def like_values(self, q):
        """A tensor like q with the head dim of v."""
        if self.case.value_dim == self.case.head_dim:
            return q
        return laid_out(q.new_empty((*q.shape[:-1], self.case.value_dim)), self.case.layout)

    def integers(self, values):
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def store(self):
        """k and v in the case's store, and the integer tensors that describe it."""
        caches, options = getattr(self, f"_{self.case.store.replace(' ', '_')}")()
        return [self.laid_out(x) for x in caches], options

    def cache(self, rows, count=None):
        """Two unwritten caches of ``count`` sequences."""
        count = len(self.case.keys) if count is None else count
        size = (count, rows, self.case.heads[1])
        dims = (self.case.head_dim, self.case.value_dim)
        return tuple(torch.full((*size, each), UNUSED, dtype=self.dtype) for each in dims)

    def _dense(self):
        return (torch.stack(self.k), torch.stack(self.v)), {}

    def _in_use(self):
        return self._left_padded(lambda _: 0)

    def _left_padded(self, padding=None):
        first = [(padding or (lambda n: (n + 1) * 7))(n) for n in range(len(self.k))]
        lengths = [start + len(k) for start, k in zip(first, self.k, strict=True)]
        caches = self.cache(max(lengths) + 9)
        for cache, each in zip(caches, (self.k, self.v), strict=True):
            for b, (start, x) in enumerate(zip(first, each, strict=True)):
                cache[b, start : start + len(x)] = x
        options = {"seqused_k": self.integers(lengths)}
        return caches, options if padding else {**options, "leftpad_k": self.integers(first)}

    def _rows_by_index(self):
        caches = self.cache(len(self.k[0]), len(self.k) + 2)
        places = torch.randperm(len(self.k) + 2, generator=self.generator)[: len(self.k)].tolist()
        for cache, each in zip(caches, (self.k, self.v), strict=True):
            for place, x in zip(places, each, strict=True):
                cache[place] = x
        return caches, {"cache_batch_idx": self.integers(places)}

    def _packed(self):
        return (torch.cat(self.k), torch.cat(self.v)), {"cu_seqlens_k": self.sums(self.case.keys)}

    def _paged_packed(self):
        caches, options = self._paged()
        return caches, {"block_table": options["block_table"], "cu_seqlens_k": self.sums(self.case.keys)}

    def _paged_queries_packed(self):
        return self._paged()

    def _paged(self):
        page = self.case.page
        blocks = [-(-len(k) // page) for k in self.k]
        caches = self.cache(page, sum(blocks) + 2)
        order = torch.randperm(sum(blocks) + 2, generator=self.generator).split([*blocks, 2])
        table = torch.full((len(blocks), max(1, *blocks)), -1, dtype=torch.int32)
        for b, pages in enumerate(order[:-1]):
            table[b, : len(pages)] = pages
            for cache, x in zip(caches, (self.k[b], self.v[b]), strict=True):
                for number, place in enumerate(pages.tolist()):
                    part = x[number * page : (number + 1) * page]
                    cache[place, : len(part)] = part
        options = {"block_table": table.to(self.device), "seqused_k": self.integers(self.case.keys)}
        return caches, options

    def sums(self, lengths):
        return self.integers([0, *itertools.accumulate(lengths)])

    def weights(self, state):
        """Dropout's factors for each sequence's probabilities."""
        case = self.case
        if not case.dropout:
            return [None] * len(case.rows)
        heads = torch.arange(case.heads[0])[:, None, None]
        return [
            philox.keep(
                state.cpu(), case.dropout, batches=torch.tensor(b), heads=heads,
                rows=torch.arange(rows)[:, None], columns=range(keys),
            ) / (1 - case.dropout)
            for b, (rows, keys) in enumerate(zip(case.rows, case.keys, strict=True))
        ]  # fmt: skip

    def parts(self, lse, keys):
        """Buffers for the parts of the keys. The plan decides their number."""
        case = self.case
        if case.splits == 1:
            return {}
        _, splits, _ = torch.ops.flash_attn_rocm.plan(
            arch(), case.kernel.dtype, case.head_dim, len(case.rows), max(case.rows), keys, *case.heads,
            UNITS, case.splits, False, True, False, False, 0, self.coded, case.window[1] >= 0,
        )  # fmt: skip
        if splits == 1:
            return {}
        return {
            "partial_out": lse.new_empty(splits, *lse.shape, case.head_dim),
            "partial_lse": lse.new_empty(splits, *lse.shape),
        }

    def more(self):
        """Further arguments by name, for operators that take them."""
        return {}

    def run(self, target):
        """Launch the case. Returns all results."""
        return [x for each in self.launched(target) for x in (each.out, each.lse)]

    def check(self, target, shown):
        """Launch the case and compare its results with the reference."""
        judge(shown, str(self.case.kernel), repr(self.case), self.launched(target), self.rules)

    def launched(self, target):
        """The sequences with their results."""
        case = self.case
        q = self.laid_out(torch.cat(self.q) if case.ragged else torch.stack(self.q))
        (k, v), stored = self.store()
        out = self.place(self.like_values(q))
        rows = sum(case.rows) if case.ragged else case.rows[0]
        shape = (case.heads[0], rows) if case.ragged else (len(case.rows), case.heads[0], rows)
        lse = torch.empty(shape, device=self.device)
        longest = max(case.keys)
        if "cu_seqlens_k" not in stored:
            longest = stored["block_table"].shape[1] * case.page if "block_table" in stored else k.shape[1]
        state = torch.tensor([case.seed, 0x89ABCDEF], device=self.device)
        given = {
            "q": q, "k": k, "v": v, "out": out, "lse": lse, **stored, **self.parts(lse, longest),
            "alibi_slopes": None if self.slopes is None else self.slopes.to(self.device),
            "cu_seqlens_q": self.sums(case.rows) if case.ragged else None,
            "rng_state": state if case.dropout else None,
            "max_seqlen_q": max(case.rows), "max_seqlen_k": max(case.keys),
            "softmax_scale": case.head_dim**-0.5 if case.scale is None else case.scale,
            "window_left": case.window[0], "window_right": case.window[1], "softcap": case.softcap,
            "dropout_p": case.dropout, "path": PLAIN_PATHS.get(case.kernel.op, ""), **self.more(),
        }  # fmt: skip
        target.attend(FWD, *(given.get(name) for name in ARGUMENTS))
        return self.sequences(out, lse, self.weights(state))

    def sequences(self, out, lse, weights):
        rows = self.case.rows
        outs = out.split(rows) if self.case.ragged else out
        sums = lse.split(rows, dim=1) if self.case.ragged else lse
        slopes = [None] * len(rows) if self.slopes is None else self.slopes.expand(len(rows), -1)
        return [
            Sequence(*each) for each in zip(self.q, self.k, self.v, outs, sums, slopes, weights, strict=True)
        ]
