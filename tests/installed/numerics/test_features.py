"""Every feature of forward attention against float64, through the public functions (see rule.py).

Each feature meets two kernels here, with variants in rotation. test_corpus.py tests every kernel with each
feature, but calls the operator directly.
"""

import itertools

import pytest
import torch
from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from here import FORWARD

instances = pytest.mark.parametrize(("dtype", "head_dim"), FORWARD)
two_instances = pytest.mark.parametrize(("dtype", "head_dim"), [("fp16", 64), ("bf16", 128)])
HEADS = ((2, 1), (1, 1), (3, 1), (2, 2), (4, 2))
PAGES = (16, 48, 256)
INT32 = torch.int32
# Windows inside one tile, and over several.  A window as wide as the keys is unbounded, as in upstream, even
# with more queries than keys: 60 is less than all numbers of keys here.
WINDOWS = ((5, 0), (0, 0), (33, 7), (-1, 16), (70, -1), (0, 60), (-1, 0))


class Setting:
    """The inputs and choices for one kernel."""

    def __init__(self, target, shown, dtype, head_dim, feature=0):
        self.target, self.shown = target, shown
        self.dtype, self.head_dim = DTYPES[dtype], head_dim
        self.instance = f"fa_fwd_{dtype}_d{head_dim}"
        number = FORWARD.index((dtype, head_dim))
        # The two dtypes of a head dim get different variants, for any number of variants.
        self.number = number + number // 6 + feature
        self.nheads, self.nheads_k = self.choice(HEADS)
        self.generator = torch.Generator().manual_seed(self.number)

    def choice(self, variants):
        return variants[self.number % len(variants)]

    def tensor(self, *sizes):
        values = torch.randn(*sizes, self.head_dim, generator=self.generator)
        return values.to(self.dtype).to(self.target.device)

    def q(self, *rows):
        return self.tensor(*rows, self.nheads)

    def kv(self, *rows):
        return self.tensor(*rows, self.nheads_k), self.tensor(*rows, self.nheads_k)

    def slopes(self, *batch):
        return torch.rand(*batch, self.nheads, generator=self.generator).to(self.target.device)

    def integers(self, *values):
        return torch.tensor(values, dtype=INT32, device=self.target.device)

    def call(self, function, *arguments, **options):
        (out, lse, *_), kernels = self.target.attend(function, *arguments, **options)
        assert kernels is None or len(kernels) == 1, "one call is one kernel"
        return out, lse

    def judge(self, case, sequences, rules):
        judge(
            self.shown,
            self.target.answering(self.instance),
            f"{case} heads={self.nheads, self.nheads_k}",
            sequences,
            rules,
        )


@pytest.fixture
def setting(request, target, shown, dtype, head_dim):
    """The feature's number shifts the choices, so a kernel meets different heads in each feature."""
    return Setting(target, shown, dtype, head_dim, len(request.function.__name__))


def dense(setting, rules, *, batch=1, rows=(65, 131), slopes=None):
    q, (k, v) = setting.q(batch, rows[0]), setting.kv(batch, rows[1])
    out, lse = setting.call(
        flash_attn_func, q, k, v, alibi_slopes=slopes, return_attn_probs=True, **rules.arguments
    )
    each = [None] * batch if slopes is None else slopes.expand(batch, -1)
    sequences = [Sequence(*one) for one in zip(q, k, v, out, lse, each, strict=True)]
    setting.judge(f"dense {rows} {rules}", sequences, rules)


@two_instances
@pytest.mark.parametrize("rows", [(113, 257), (130, 65), (3, 67)])
def test_windows(setting, rows):
    left, right = setting.choice(WINDOWS)
    dense(setting, Rules(left, right), rows=rows)


@instances
@pytest.mark.parametrize("rows", [(100, 110), (300, 300)])
def test_waves_that_see_the_last_keys_only(setting, rows):
    """They load the keys that earlier waves of their workgroup see: also the last ones, and few of a tile."""
    dense(setting, Rules(5, 0), rows=rows)


@two_instances
def test_softcap(setting):
    softcap, right = setting.choice(((5.0, -1), (30.0, 0), (1.0, 9)))
    dense(setting, Rules(right=right, softcap=softcap))


@two_instances
def test_softcap_with_scores_that_reach_it(setting):
    dense(setting, Rules(softcap=2.0, scale=1.0), rows=(33, 70))


@two_instances
@pytest.mark.parametrize("of_batch", [False, True])
def test_alibi(setting, of_batch):
    slopes = setting.slopes(*([2] if of_batch else []))
    left, right = setting.choice(((-1, -1), (-1, 0), (20, 3)))
    rows = setting.choice(((65, 131), (97, 33)))
    dense(setting, Rules(left, right), batch=2, rows=rows, slopes=slopes)


@two_instances
def test_all_features_of_the_scores_together(setting):
    dense(setting, Rules(20, 3, softcap=10.0, scale=-0.2), batch=2, slopes=setting.slopes(2))


LENGTHS = (((5, 0, 40, 1, 130), (70, 3, 0, 33, 17)), ((0, 17, 64), (0, 17, 64)), ((1, 0), (129, 0)))


def sums(setting, lengths):
    return setting.integers(0, *itertools.accumulate(lengths))


def ragged(setting, q, out, lse, lengths, keys_and_values, slopes=None):
    """The sequences of a packed call."""
    ends = list(itertools.accumulate(lengths))
    for number, (k, v) in enumerate(keys_and_values):
        rows = slice(ends[number] - lengths[number], ends[number])
        yield Sequence(q[rows], k, v, out[rows], lse[:, rows], None if slopes is None else slopes[number])


@two_instances
@pytest.mark.parametrize("kind", ["full", "causal", "window", "alibi"])
def test_packed_sequences_of_which_some_are_empty(setting, kind):
    rows, keys = setting.choice(LENGTHS)
    left, right = {"causal": (-1, 0), "window": (20, 3)}.get(kind, (-1, -1))
    rules = Rules(left, right)
    slopes = setting.slopes(len(rows)) if kind == "alibi" else None
    q, (k, v) = setting.q(sum(rows)), setting.kv(sum(keys))
    out, lse = setting.call(
        flash_attn_varlen_func, q, k, v, sums(setting, rows), sums(setting, keys), max(rows), max(keys),
        alibi_slopes=slopes, return_attn_probs=True, **rules.arguments,
    )  # fmt: skip
    each = list(zip(k.split(keys), v.split(keys), strict=True))
    setting.judge(f"{kind} {rows} {keys}", ragged(setting, q, out, lse, rows, each, slopes), rules)


def cache(setting, page, keys, spare=3):
    """A paged cache with room for ``keys`` of each sequence, its pages in random order: k, v, the table, and
    each sequence's keys and values as the table gives them."""
    blocks = [-(-each // page) for each in keys]
    k, v = setting.kv(sum(blocks) + spare, page)
    order = torch.randperm(len(k), generator=setting.generator).to(INT32).split([*blocks, spare])
    table = torch.full((len(keys), max(blocks, default=0)), -1, dtype=INT32)
    for row, pages in zip(table, order, strict=False):
        row[: len(pages)] = pages
    joined = [
        tuple(x.cpu()[pages.long()].flatten(0, 1)[:length] for x in (k, v))
        for pages, length in zip(order, keys, strict=False)
    ]
    return k, v, table.to(setting.target.device), joined


@two_instances
@pytest.mark.parametrize("page", PAGES)
def test_paged_packed_sequences(setting, page):
    rows, keys = (5, 0, 40, 1), (70, 3, 0, 133)
    rules = Rules(*setting.choice(((-1, -1), (-1, 0), (20, 3))), softcap=setting.choice((0.0, 10.0)))
    q, (k, v, table, joined) = setting.q(sum(rows)), cache(setting, page, keys)
    out, lse = setting.call(
        flash_attn_varlen_func, q, k, v, sums(setting, rows), sums(setting, keys), max(rows), max(keys),
        block_table=table, return_attn_probs=True, **rules.arguments,
    )  # fmt: skip
    setting.judge(f"page {page} {rules}", ragged(setting, q, out, lse, rows, joined), rules)


def cached(setting, rows, caches, keys, rules, slopes=None, **options):
    """``flash_attn_with_kvcache`` on q of len(keys) sequences. ``keys`` are each sequence's k and v."""
    q = setting.q(len(keys), rows)
    out, lse = setting.call(
        flash_attn_with_kvcache, q, *caches, alibi_slopes=slopes, return_softmax_lse=True,
        **options, **rules.arguments,
    )  # fmt: skip
    each = [None] * len(keys) if slopes is None else slopes.expand(len(keys), -1)
    sequences = [
        Sequence(q, k.cpu(), v.cpu(), out, lse, some)
        for q, (k, v), out, lse, some in zip(q, keys, out, lse, each, strict=True)
    ]
    setting.judge(f"cached {rows} {rules} {options}", sequences, rules)


@two_instances
@pytest.mark.parametrize("page", PAGES)
def test_paged_cache(setting, page):
    keys = (70, 133, 1)
    k, v, table, joined = cache(setting, page, keys)
    rules = Rules(right=setting.choice((-1, 0)))
    rows = setting.choice((1, 3, 15, 33))
    cached(setting, rows, (k, v), joined, rules, cache_seqlens=setting.integers(*keys), block_table=table)


@two_instances
def test_paged_cache_with_alibi(setting):
    keys = (70, 33)
    k, v, table, joined = cache(setting, 16, keys)
    cached(
        setting, 3, (k, v), joined, Rules(right=0), setting.slopes(),
        cache_seqlens=setting.integers(*keys), block_table=table,
    )  # fmt: skip


@two_instances
@pytest.mark.parametrize("padding", [None, (7, 60, 0)])
def test_cache_of_which_a_part_is_in_use(setting, padding):
    lengths = (50, 61, 0)
    caches = setting.kv(3, 90)
    first = padding or (0, 0, 0)
    keys = [tuple(x[b, first[b] : lengths[b]] for x in caches) for b in range(3)]
    options = {} if padding is None else {"cache_leftpad": setting.integers(*padding)}
    rules = Rules(*setting.choice(((-1, 0), (-1, -1), (9, 2))), softcap=setting.choice((0.0, 3.0)))
    rows = setting.choice((1, 5, 17))
    cached(setting, rows, caches, keys, rules, cache_seqlens=setting.integers(*lengths), **options)


@two_instances
@pytest.mark.parametrize("places", [(3, 0), (2, 2), (1, 3)])
def test_cache_rows_by_index(setting, places):
    lengths = (65, 40)
    caches = setting.kv(4, 70)
    keys = [tuple(x[place, :length] for x in caches) for place, length in zip(places, lengths, strict=True)]
    cached(
        setting, setting.choice((1, 7, 20)), caches, keys, Rules(right=setting.choice((-1, 0))),
        cache_seqlens=setting.integers(*lengths), cache_batch_idx=setting.integers(*places),
    )  # fmt: skip


# The following values would lead outside the tensors if they were trusted, and the emulator reports every
# such access.  Kernels clamp them to the tensors.


@instances
@pytest.mark.parametrize("page", PAGES)
def test_pages_that_are_not_there(setting, page):
    keys = (70, 133)
    k, v, table, _ = cache(setting, page, keys)
    wild = table.clone()
    wild[0, 0], wild[1, 0] = setting.choice(((-1, 2**31 - 1), (len(k), -(2**31)), (1 << 24, -7)))
    # Pages out of range are read as the last one.
    there = torch.where((wild >= 0) & (wild < len(k)), wild, len(k) - 1).long()
    joined = [tuple(x[there[b]].flatten(0, 1)[: keys[b]] for x in (k, v)) for b in (0, 1)]
    cached(setting, 5, (k, v), joined, Rules(), cache_seqlens=setting.integers(*keys), block_table=wild)


@instances
def test_lengths_of_a_cache_that_are_not_possible(setting):
    caches = setting.kv(4, 40)
    lengths = (-1, 41, 2**31 - 1, -(2**31))
    padding = (5, -9, 2**31 - 1, 2)
    keys = [
        tuple(x[b, first:end] for x in caches)
        for b, (first, end) in enumerate(((0, 0), (0, 40), (40, 40), (0, 0)))
    ]
    cached(
        setting, 5, caches, keys, Rules(right=setting.choice((-1, 0))),
        cache_seqlens=setting.integers(*lengths), cache_leftpad=setting.integers(*padding),
    )  # fmt: skip


@instances
def test_lengths_of_a_paged_cache_that_are_not_possible(setting):
    lengths = (-3, 2**31 - 1)
    k, v, table, joined = cache(setting, 16, (48, 48))
    keys = [tuple(x[:0] for x in joined[0]), joined[1]]
    cached(setting, 5, (k, v), keys, Rules(), cache_seqlens=setting.integers(*lengths), block_table=table)


@instances
def test_cache_rows_that_are_not_there(setting):
    caches = setting.kv(3, 33)
    keys = [tuple(x[place] for x in caches) for place in (0, 2, 2)]
    cached(setting, 4, caches, keys, Rules(), cache_batch_idx=setting.integers(-1, 3, 2**31 - 1))


def cut(value, low, high):
    return max(low, min(value, high))


def between(cumulative, rows):
    """The slice between each pair of neighbours, clamped to the tensor."""
    for first, last in itertools.pairwise(cumulative):
        begin = cut(first, 0, rows)
        yield slice(begin, cut(last, begin, rows))


@instances
def test_packed_sequences_that_go_back_or_leave_the_tensors(setting):
    far = 2**31 - 1
    starts_q = setting.choice(((40, 31, 40, 9, 20, -5, 4), (far, 31, far, 9, 20, -far, 4)))
    starts_k = setting.choice(((0, 20, 10, 99, -4, 43, 50), (0, far, 10, far, -far, 43, 50)))
    rows, keys = setting.q(40), setting.kv(50)
    out, lse = setting.call(
        flash_attn_varlen_func, rows, *keys, setting.integers(*starts_q), setting.integers(*starts_k), 40, 50,
        causal=True, return_attn_probs=True,
    )  # fmt: skip
    sequences = [
        Sequence(rows[q], keys[0][k], keys[1][k], out[q], lse[:, q])
        for q, k in zip(between(starts_q, 40), between(starts_k, 50), strict=True)
    ]
    setting.judge(f"{starts_q} {starts_k}", sequences, Rules(right=0))
