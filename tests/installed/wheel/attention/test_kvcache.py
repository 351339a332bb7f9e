"""Attention over a cache, dense and paged, after appending to it, against float64, on CPU tensors.

The parameters are those of upstream's test of the function, at small sizes.  Their product is too large, so
they are drawn at random, equally in every run.
"""

import itertools
import random
from types import SimpleNamespace

import pytest
import torch
from archs import ARCH
from exact import largest, plain
from flash_attn_rocm import FlashAttnArgumentError, explain, flash_attn_with_kvcache
from flash_attn_rocm.library.plans import Plan
from flash_attn_rocm.serving import layouts
from flash_attn_rocm.values import tolerances
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

PARAMETERS = {
    "dtype": [torch.float16, torch.bfloat16],
    "splits": [0, 1, 3],
    "nheads_k": [6, 1, 3],
    "new": [False, True],
    "alibi": [False, True],
    "window": [False, True],
    "causal": [False, True],
    "rotary": [0.0, 0.5, 1.0],
    "interleaved": [False, True],
    "page": [None, 16, 48],
    "batch_idx": [False, True],
    "leftpad": [False, True],
    "lengths": ["none", "int", "tensor"],
    "head_dim": [32, 59, 64, 128],
    "seqlens": [(1, 128), (3, 99), (7, 61), (16, 64), (64, 64)],
}
NHEADS, BATCH, ROWS = 6, 3, 5
CASES = 160
pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")


def allowed(case):
    """Upstream's own restrictions."""
    return not (
        (case.page and (case.batch_idx or case.leftpad))
        or (case.new and case.lengths == "none")
        or (case.rotary and not case.new)
        or (case.rotary and case.head_dim % 16)
        or (case.rotary == 0.5 and case.head_dim == 16)
    )


def cases():
    chooser = random.Random(0)
    drawn = (
        SimpleNamespace(**{name: chooser.choice(values) for name, values in PARAMETERS.items()})
        for _ in itertools.count()
    )
    return list(itertools.islice(filter(allowed, drawn), CASES))


def test_every_value_of_every_parameter_is_drawn():
    for name, values in PARAMETERS.items():
        assert {repr(getattr(case, name)) for case in cases()} == set(map(repr, values)), name


class Setup:
    """Random arguments for a case, and the cache's content as plain rows for each sequence."""

    def __init__(self, case):
        self.case = case
        self.seqlen_q, self.capacity = case.seqlens
        self.seqlen_new = (self.seqlen_q if case.rotary or case.causal else 4) if case.new else 0
        self.page = case.page
        if self.page:
            self.capacity = -(-self.capacity // self.page) * self.page
        self.q = self.random(BATCH, self.seqlen_q, NHEADS)
        self.k, self.v = (self.random(BATCH, self.seqlen_new, case.nheads_k) for _ in range(2))
        self.lengths = self.draw_lengths()
        self.pads = [length // 3 * (b % 2) if case.leftpad else 0 for b, length in enumerate(self.lengths)]
        self.rows = random.sample(range(ROWS), BATCH) if case.batch_idx else list(range(BATCH))
        self.table = None
        self.make_cache()
        angle = torch.rand(self.capacity + self.seqlen_q, int(case.rotary * case.head_dim) // 2) * 6.28
        self.cos, self.sin = (x.to(case.dtype) for x in (angle.cos(), angle.sin()))

    def random(self, *sizes):
        return torch.randn(*sizes, self.case.head_dim).to(self.case.dtype)

    def draw_lengths(self):
        most = self.capacity - self.seqlen_new
        if self.case.lengths == "none":
            return [self.capacity] * BATCH
        if self.case.lengths == "int":
            return [most * 2 // 3] * BATCH
        return [most, 0, most // 2]

    def make_cache(self):
        if self.page:
            blocks = BATCH * self.capacity // self.page + 3
            self.table = torch.randperm(blocks)[: BATCH * self.capacity // self.page].view(BATCH, -1).int()
            sizes = (blocks, self.page)
        else:
            sizes = (ROWS if self.case.batch_idx else BATCH, self.capacity)
        self.k_cache, self.v_cache = (self.random(*sizes, self.case.nheads_k) for _ in range(2))

    def logical(self, cache, b):
        """The rows of sequence b, (capacity, nheads_k, headdim)."""
        if self.page:
            return torch.cat([cache[i] for i in self.table[b].tolist()])
        return cache[self.rows[b]]

    def call(self):
        case = self.case
        lengths = {"none": None, "int": self.lengths[0], "tensor": torch.tensor(self.lengths).int()}
        options = {
            "cache_seqlens": lengths[case.lengths],
            "cache_batch_idx": torch.tensor(self.rows).int() if case.batch_idx else None,
            "cache_leftpad": torch.tensor(self.pads).int() if case.leftpad else None,
            "block_table": self.table,
            "causal": case.causal,
            "window_size": (9, 5) if case.window else (-1, -1),
            "rotary_interleaved": case.interleaved,
            "num_splits": case.splits,
            "return_softmax_lse": True,
        }
        if case.new:
            options |= {"k": self.k, "v": self.v}
        if case.rotary:
            options |= {"rotary_cos": self.cos, "rotary_sin": self.sin}
        if case.alibi:
            options["alibi_slopes"] = self.slopes = torch.rand(BATCH, NHEADS)
        return flash_attn_with_kvcache(self.q, self.k_cache, self.v_cache, **options)

    def rotated(self, x, positions):
        """x (rows, heads, headdim) turned as complex numbers, in float64."""
        if not self.case.rotary:
            return x.double()
        turn = torch.complex(self.cos.double(), self.sin.double())[positions][:, None]
        half, x = turn.shape[-1], x.double()
        head, rest = x[..., : 2 * half], x[..., 2 * half :]
        pairs = head.unflatten(-1, (half, 2)) if self.case.interleaved else head.unflatten(-1, (2, half)).mT
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
        flat = turned.flatten(-2) if self.case.interleaved else turned.mT.flatten(-2)
        return torch.cat([flat, rest], -1)

    def expected(self, b, k_cache, v_cache):
        """The cache's rows of sequence b after the call, and q, in float64, from the caches before it."""
        begin, end = self.lengths[b], self.lengths[b] + self.seqlen_new
        k, v = self.logical(k_cache, b).double(), self.logical(v_cache, b).double()
        k[begin:end] = self.rotated(self.k[b], torch.arange(begin, end))
        v[begin:end] = self.v[b].double()
        advances = self.case.causal or self.case.window
        positions = begin + torch.arange(self.seqlen_q) * int(advances)
        return self.rotated(self.q[b], positions), k, v


@pytest.mark.parametrize("case", cases(), ids=range(CASES))
def test_against_float64(case):
    random.seed(0)
    setup = Setup(case)
    before = [x.clone() for x in (setup.k_cache, setup.v_cache, setup.q)]
    out, lse = setup.call()
    assert torch.equal(setup.q, before[2])
    touched = [torch.zeros(x.shape[:2], dtype=torch.bool) for x in before[:2]]
    for b in range(BATCH):
        q, k, v = setup.expected(b, *before[:2])
        begin, end = setup.lengths[b], setup.lengths[b] + setup.seqlen_new
        # One rounding of a float64 value to the dtype, and fp32 on the way: an ulp of values up to 8.
        ulp = 8 * torch.finfo(case.dtype).eps
        assert largest(setup.logical(setup.k_cache, b), k) <= (ulp if case.rotary else 0)
        assert torch.equal(setup.logical(setup.v_cache, b).double(), v)
        keys = slice(setup.pads[b], end)
        slopes = setup.slopes[b : b + 1] if case.alibi else None
        window = (9, 5) if case.window else (-1, -1)
        rules = {"causal": case.causal, "window": window, "slopes": slopes, "most": setup.capacity}
        exact, exact_lse = plain(q[None], k[None, keys], v[None, keys], **rules)
        low = plain(*(x.to(case.dtype)[None] for x in (q, k[keys], v[keys])), **rules)[0]
        bound = tolerances.allowed(largest(low, exact), terms=k.shape[0], largest=v.abs().max().item())
        assert largest(out[b : b + 1], exact) <= bound
        # q and k are rounded to the dtype when they are rotated: a relative eps each of scores up to 40.
        slack = 80 * torch.finfo(case.dtype).eps if case.rotary else tolerances.LSE_RELATIVE
        torch.testing.assert_close(
            lse[b : b + 1].double(), exact_lse, rtol=tolerances.LSE_RELATIVE, atol=slack
        )
        for mask in touched:
            setup.logical(mask, b)[begin:end] = True
            if setup.page:
                for position in range(begin, end):
                    mask[setup.table[b, position // setup.page], position % setup.page] = True
    for cache, old, mask in zip((setup.k_cache, setup.v_cache), before[:2], touched, strict=True):
        assert torch.equal(cache[~mask], old[~mask])


def test_views_of_a_cache_are_written_in_place():
    whole = torch.zeros(2, 12, 2, 2, 32).half()
    k_cache, v_cache = whole.unbind(2)
    k = torch.randn(2, 3, 2, 32).half()
    flash_attn_with_kvcache(k[:, :1], k_cache, v_cache, k, -k, cache_seqlens=4)
    assert torch.equal(whole[:, 4:7, 0], k)
    assert torch.equal(whole[:, 4:7, 1], -k)
    assert (whole[:, 7:] == 0).all()


def test_there_is_no_gradient():
    q, cache = (torch.randn(2, n, 2, 32).half().requires_grad_() for n in (1, 9))
    out, lse = flash_attn_with_kvcache(q, cache, cache, cache_seqlens=4, return_softmax_lse=True)
    assert not out.requires_grad
    assert not lse.requires_grad


def broken(**change):
    cache = {"q": torch.randn(2, 1, 2, 32).half(), "k_cache": torch.zeros(2, 20, 2, 32).half()}
    cache |= {"v_cache": torch.zeros(2, 20, 2, 32).half(), "k": torch.ones(2, 2, 2, 32).half()}
    cache |= {"v": torch.ones(2, 2, 2, 32).half(), "cache_seqlens": 4} | change
    with pytest.raises(FlashAttnArgumentError, match=r"flash_attn_with_kvcache|attention") as caught:
        flash_attn_with_kvcache(**cache)
    assert (cache["k_cache"] == 0).all(), "nothing is written by a refused call"
    return str(caught.value)


INT = {"dtype": torch.int32}
PAGES = {name: torch.zeros(2, 32, 2, 32).half() for name in ("k_cache", "v_cache")}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"v": None}, "v: expected beside k, got None"),
        ({"k": None}, "k: expected beside v, got None"),
        ({"cache_seqlens": None}, "cache_seqlens: expected when k is given, got None"),
        ({"cache_seqlens": -1}, "cache_seqlens: expected an integer from 0 to 2147483647, got -1"),
        ({"cache_seqlens": 19}, "cache_seqlens: expected 0 to 18, so that 2 new keys fit, got 19"),
        ({"cache_seqlens": torch.tensor([0, -3], **INT)}, "expected 0 to 18, so that 2 new keys fit, got -3"),
        (
            {"cache_seqlens": torch.tensor([0, 1])},
            "cache_seqlens: expected dtype torch.int32, got torch.int64",
        ),
        ({"cache_seqlens": torch.tensor([0], **INT)}, "cache_seqlens: expected shape (2,), got (1,)"),
        (
            {"cache_batch_idx": torch.tensor([0, 2], **INT)},
            "cache_batch_idx: expected indices of the cache's rows",
        ),
        (
            {"cache_batch_idx": torch.tensor([1, 1], **INT)},
            "expected different rows when k is given, got [1, 1]",
        ),
        (
            {"cache_leftpad": torch.tensor([0, 7], **INT)},
            "cache_leftpad: expected 0 to the sequence's 6 keys, got 7",
        ),
        ({"num_splits": 513}, "num_splits: expected an integer from 0 (automatic) to 512, got 513"),
        ({"rotary_cos": torch.ones(20, 8).half()}, "rotary_sin: expected beside rotary_cos, got None"),
        (
            {"rotary_cos": torch.ones(20, 4).half(), "rotary_sin": torch.ones(20, 5).half()},
            "rotary_cos: expected a rotary_dim that is a multiple of 16 up to the headdim 32, got 8",
        ),
        (
            {"rotary_cos": torch.ones(5, 8).half(), "rotary_sin": torch.ones(5, 8).half()},
            "rotary_cos: expected 6 rows for these cache_seqlens, got 5",
        ),
        (
            {"rotary_cos": torch.ones(20, 8), "rotary_sin": torch.ones(20, 8).half()},
            "rotary_cos: expected dtype torch.float16 like q, got torch.float32",
        ),
        (
            {"block_table": torch.tensor([[0], [2]], **INT)} | PAGES,
            "block_table: expected indices of the cache's blocks",
        ),
        (
            {"block_table": torch.zeros(2, 1, **INT), "cache_seqlens": 31} | PAGES,
            "cache_seqlens: expected 0 to 30, so that 2 new keys fit into the pages of block_table, got 31",
        ),
        (
            {"block_table": torch.zeros(2, 1, **INT)},
            "k_cache: expected pages of a multiple of 16 rows, got 20",
        ),
        ({"block_table": torch.tensor([0, 1], **INT)}, "block_table: expected shape (2, any), got (2,)"),
        (
            {"block_table": torch.zeros(2, 1, **INT), "cache_leftpad": torch.zeros(2, **INT)},
            "cache_leftpad: cannot be combined with block_table",
        ),
        (
            {"block_table": torch.tensor([[1], [1]], **INT), "cache_seqlens": torch.tensor([4, 3], **INT)}
            | PAGES,
            "block_table: expected a place for each new key, got row 4 of page 1 for two",
        ),
        ({"k": torch.ones(2, 2, 1, 32).half()}, "k: expected shape (2, 2, 2, 32), got (2, 2, 1, 32)"),
        (
            dict.fromkeys(("k_cache", "v_cache"), torch.zeros(2, 20, 2, 32).half()),
            "v_cache: expected memory of its own, because new keys are written, got that of k_cache",
        ),
        (
            {"v_cache": torch.zeros(1, 20, 2, 32).half().expand(2, 20, 2, 32)},
            "v_cache: expected memory for each element, because new keys are written, got a stride of 0",
        ),
    ],
)
def test_wrong_arguments(change, words):
    assert words in broken(**change)


def test_more_keys_than_the_block_table_has_pages_for():
    q, table = torch.zeros(2, 1, 2, 32).half(), torch.tensor([[0], [1]], **INT)
    with pytest.raises(RuntimeError, match="expected at most 32 keys, as block_table has pages for, got 33"):
        flash_attn_with_kvcache(q, **PAGES, cache_seqlens=33, block_table=table)
    lengths = torch.tensor([1, 33], **INT)
    with pytest.raises(RuntimeError, match="expected at most 32 keys, as block_table has pages for, got 33"):
        flash_attn_with_kvcache(q, **PAGES, cache_seqlens=lengths, block_table=table)


def test_a_number_of_keys_is_checked_by_explain_too():
    q, cache = torch.zeros(2, 1, 2, 32).half(), torch.zeros(2, 20, 2, 32).half()
    with pytest.raises(RuntimeError, match="cache_seqlens: expected at most 20 keys, got 21"):
        explain(flash_attn_with_kvcache, q, cache, cache, cache_seqlens=21)


def test_one_memory_for_both_caches_is_refused_in_later_calls_too(host_fwd, kernels_on):
    """No stored decision depends on addresses."""
    kernels_on(ARCH)
    q, new = torch.randn(2, 1, 4, 64).half(), torch.randn(2, 1, 2, 64).half()
    k_cache, v_cache = torch.zeros(2, 2, 20, 2, 64).half()
    for _ in range(2):
        flash_attn_with_kvcache(q, k_cache, v_cache, new, new, cache_seqlens=5)
    with pytest.raises(FlashAttnArgumentError, match="v_cache: expected memory of its own"):
        flash_attn_with_kvcache(q, k_cache, k_cache[:], new, new, cache_seqlens=6)
    assert len(host_fwd) == 2
    assert (k_cache[:, 6] == 0).all()


def of_shapes():
    """The tensors of a call with new keys."""
    new = [torch.zeros(2, 1, 2, 64).half() for _ in range(2)]
    return torch.zeros(2, 1, 4, 64).half(), *(torch.zeros(2, 20, 2, 64).half() for _ in range(2)), *new


def written_at_5(*tensors):
    return flash_attn_with_kvcache(*tensors, cache_seqlens=5)


@pytest.mark.parametrize("where", [torch.device("meta"), FakeTensorMode()], ids=["meta", "fake"])
def test_caches_without_memory_are_not_one(where):
    """Such tensors all have the address 0."""
    with where:
        assert written_at_5(*of_shapes()).shape == (2, 1, 4, 64)


def test_a_call_with_new_keys_can_be_traced():
    traced = make_fx(written_at_5, tracing_mode="fake")(*of_shapes())
    given = [torch.randn(x.shape).half() for x in of_shapes()]
    assert torch.equal(traced(*(x.clone() for x in given)), written_at_5(*given))


def test_all_problems_at_once():
    lines = broken(cache_seqlens=None, v=None, num_splits=-1, softcap=-2.0).splitlines()
    assert len(lines) == 5


SETUPS = {
    "rows": {"cache_seqlens": torch.tensor([3, 9], **INT), "cache_batch_idx": torch.tensor([2, 0], **INT)},
    "leftpad": {
        "cache_seqlens": 7, "cache_leftpad": torch.tensor([2, 0], **INT), "num_splits": 4,
        "cache_batch_idx": torch.tensor([0, 1], **INT),
    },
    "pages": {"cache_seqlens": torch.tensor([3, 9], **INT), "block_table": torch.tensor([[2], [0]], **INT)},
}  # fmt: skip


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("head_dim", [64, 40])
def test_kernels_are_given_all_that_they_need(host_fwd, kernels_on, name, head_dim):
    """Only the kernel operator is replaced: the answers must equal those of the PyTorch implementation."""
    q, new = torch.randn(2, 3, 4, head_dim).half(), torch.randn(2, 2, 2, head_dim).half()
    cache = torch.randn(3, 16, 2, head_dim).half()

    def attended():
        k_cache, v_cache = cache.clone(), cache.flip(1).clone()
        answer = flash_attn_with_kvcache(
            q, k_cache, v_cache, new, new, causal=True, return_softmax_lse=True, **SETUPS[name]
        )
        return (*answer, k_cache, v_cache)

    wanted = attended()
    kernels_on(ARCH)
    for _ in range(2):
        for mine, theirs in zip(attended(), wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=2**-10, atol=2**-12)
    assert len(host_fwd) == 2


def test_a_cache_is_not_copied_where_a_kernel_reads_it_as_it_is(host_fwd, kernels_on):
    """No kernel is for head dim 40: the reference kernel takes it."""
    kernels_on(ARCH)
    q, cache = torch.randn(1, 1, 2, 40).half(), torch.randn(1, 16, 2, 40).half()
    out = flash_attn_with_kvcache(q, cache, cache, cache_seqlens=5)
    (call,) = host_fwd
    assert call["k"].data_ptr() == call["v"].data_ptr() == cache.data_ptr()
    assert explain(flash_attn_with_kvcache, q, cache, cache, cache_seqlens=5).path == "reference"
    assert out.shape == q.shape


def test_splits_get_memory_for_their_parts(host_fwd, kernels_on, monkeypatch):
    asked = []

    def plan(*arguments):
        asked.append(arguments)
        return Plan("split", 3, "few queries")

    monkeypatch.setattr(layouts, "plan", plan)
    kernels_on(ARCH)
    q, cache = torch.randn(2, 1, 4, 64).half(), torch.randn(2, 48, 2, 64).half()
    for _ in range(2):
        flash_attn_with_kvcache(q, cache, cache, num_splits=3)
    wanted = (ARCH, "fp16", 64, 2, 1, 48, 4, 2, 0, 3, False, True, True, False, 0, False, False)
    assert asked == [wanted] * len(asked)
    for call in host_fwd:
        assert call["partial_out"].shape == (3, 2, 4, 1, 64)
        assert call["partial_lse"].shape == (3, 2, 4, 1)
        assert call["partial_out"].dtype == call["partial_lse"].dtype == torch.float32
    found = explain(flash_attn_with_kvcache, q, cache, cache, num_splits=3)
    assert (found.path, found.splits, found.reason) == ("split", 3, "few queries")
