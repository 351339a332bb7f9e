"""Each way of computing a call is the one that the plan names, and its answers are right (see rule.py).

Which kernels ran is what the stand-in HIP runtime tells; on a GPU only the answers are judged.
"""

import pytest
import torch
from conftest import ARCH, DECODE, FORWARD
from flash_attn_rocm import _philox, _recall, _support, flash_attn_func, flash_attn_with_kvcache
from rule import DTYPES, Rules, Sequence, judge

FWD = torch.ops.flash_attn_rocm.fwd.default
ARGUMENTS = tuple(argument.name for argument in FWD._schema.arguments)
ROWS = (1, 3, 15)
HEADS = ((4, 1), (3, 3), (6, 2))
CAUSAL = Rules(right=0)
UNITS = 96


def tensors(target, dtype, head_dim, rows, keys, heads, *, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((rows, heads[0]), (keys, heads[1]), (keys, heads[1]))
    values = (torch.randn(batch, n, h, head_dim, generator=generator) for n, h in sizes)
    return [x.to(DTYPES[dtype]).to(target.device) for x in values]


def check(shown, target, case, expected, q, k, v, out, lse, rules, kept=None):
    """The kernels of the last call and each of its sequences."""
    assert target.standin is None or target.kernels == expected
    each = kept or [None] * len(q)
    sequences = [Sequence(*one[:5], kept=one[5]) for one in zip(q, k, v, out, lse, each, strict=True)]
    judge(shown, target.answering(expected[0]), case, sequences, rules)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("dtype", "head_dim"), DECODE)
def test_few_queries(target, shown, dtype, head_dim, rows):
    heads = HEADS[(ROWS.index(rows) + DECODE.index((dtype, head_dim))) % len(HEADS)]
    q, k, v = tensors(target, dtype, head_dim, rows, 77, heads)
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, causal=True, return_attn_probs=True)
    expected = (f"fa_decode_{dtype}_d{head_dim}",)
    check(shown, target, f"{rows} rows {heads}", expected, q, k, v, out, lse, CAUSAL)


@pytest.mark.parametrize("dtype", DTYPES)
def test_prompts_of_three_tokens_differ_in_their_answers(target, shown, dtype):
    """As many queries as keys, on each path that takes so few."""
    q, k, v = tensors(target, dtype, 64, 3, 3, (4, 2), batch=2)
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, causal=True, return_attn_probs=True)
    check(shown, target, "prompt", (f"fa_decode_{dtype}_d64",), q, k, v, out, lse, CAUSAL)
    assert torch.equal(out[:, 0], v.repeat_interleave(2, dim=2)[:, 0]), "a first token attends to itself only"
    assert not torch.equal(out[0, 1:], out[1, 1:])
    again, more = new_results(q)
    target.attend(launch, *odd(q, k, v), again, more, window_right=0)
    check(shown, target, "prompt", (f"fa_reference_{dtype}",), q, k, v, again, more, CAUSAL)


@pytest.mark.parametrize("splits", [2, 5])
@pytest.mark.parametrize(("dtype", "head_dim"), DECODE)
def test_keys_in_parts(target, shown, dtype, head_dim, splits):
    """Of the two sequences the second has fewer keys than there are parts of a tile each."""
    lengths = (290, 40)
    heads = HEADS[DECODE.index((dtype, head_dim)) % len(HEADS)]
    q, k, v = tensors(target, dtype, head_dim, 2, 300, heads, batch=2)
    used = torch.tensor(lengths, dtype=torch.int32, device=target.device)
    (out, lse), _ = target.attend(
        flash_attn_with_kvcache, q, k, v, cache_seqlens=used, causal=True, num_splits=splits,
        return_softmax_lse=True,
    )  # fmt: skip
    in_use = [[x[b, :length] for b, length in enumerate(lengths)] for x in (k, v)]
    expected = (f"fa_decode_{dtype}_d{head_dim}", f"fa_combine_{dtype}")
    check(shown, target, f"{splits} parts {heads}", expected, q, *in_use, out, lse, CAUSAL)


@pytest.fixture
def compute_units(target, monkeypatch):
    """There are many to fill; a GPU has its own."""
    monkeypatch.setattr(_support.Machine, "host_memory_units", UNITS)
    _recall.forget()
    yield
    _recall.forget()


@pytest.mark.usefixtures("compute_units")
@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_in_as_many_parts_as_fill_the_device(target, shown, dtype):
    q, k, v = tensors(target, dtype, 64, 2, 300, (4, 2))
    (out, lse, _), _ = target.attend(flash_attn_func, q, k, v, causal=True, return_attn_probs=True)
    expected = (f"fa_decode_{dtype}_d64", f"fa_combine_{dtype}")
    check(shown, target, "parts of its own choice", expected, q, k, v, out, lse, CAUSAL)


def test_long_queries_in_parts(target, shown):
    dtype, head_dim = DECODE[0]
    q, k, v = tensors(target, dtype, head_dim, 33, 130, (2, 1))
    (out, lse), _ = target.attend(
        flash_attn_with_kvcache, q, k, v, causal=True, num_splits=2, return_softmax_lse=True
    )
    expected = (f"fa_decode_{dtype}_d{head_dim}", f"fa_combine_{dtype}")
    check(shown, target, "33 rows in 2 parts", expected, q, k, v, out, lse, CAUSAL)


def launch(q, k, v, out, lse, **more):
    """The operator itself, with tensors as they are."""
    given = {
        "q": q, "k": k, "v": v, "out": out, "lse": lse,
        "max_seqlen_q": q.shape[1], "max_seqlen_k": k.shape[1], "softmax_scale": q.shape[-1] ** -0.5,
        "window_left": -1, "window_right": -1, "softcap": 0.0, "dropout_p": 0.0, **more,
    }  # fmt: skip
    FWD(*(given.get(name) for name in ARGUMENTS))


def new_results(q):
    batch, rows, heads, _ = q.shape
    return torch.empty_like(q), torch.empty(batch, heads, rows, device=q.device)


def odd(*given):
    """Rows apart by one element more than they are long, from an address that is a multiple of 2 bytes."""
    return [torch.nn.functional.pad(x, (1, 0))[..., 1:] for x in given]


def far(q, *given):
    """Keys further apart than the kernels for one head dim can reach."""
    made = [q]
    for x in given:
        room = x.new_empty(((x.shape[1] - 1) << 24) + x[0, 0].numel())
        made.append(room.as_strided(x.shape, (0, 1 << 24, x.shape[3], 1)).copy_(x))
    return made


AS_THEY_ARE = {
    "head dim 40": (40, lambda *x: x),
    "head dim 80": (80, lambda *x: x),
    "head dim 1": (1, lambda *x: x),
    "head dim 255, odd": (255, odd),
    "head dim 64, odd": (64, odd),
    "head dim 64, far": (64, far),
}


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("name", AS_THEY_ARE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_whatever_is_left(target, shown, dtype, name, rows):
    head_dim, lay_out = AS_THEY_ARE[name]
    q, k, v = lay_out(*tensors(target, dtype, head_dim, rows, 3 if lay_out is far else 70, (4, 2)))
    out, lse = new_results(q)
    target.attend(launch, q, k, v, out, lse, window_right=0)
    check(shown, target, f"{name} {rows} rows", (f"fa_reference_{dtype}",), q, k, v, out, lse, CAUSAL)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cache_of_another_head_dim_is_read_as_it_is(target, shown, dtype):
    q, k, v = tensors(target, dtype, 80, 3, 70, (4, 2))
    (out, lse), _ = target.attend(flash_attn_with_kvcache, q, k, v, cache_seqlens=50, return_softmax_lse=True)
    expected = (f"fa_reference_{dtype}",)
    check(shown, target, "cache", expected, q, k[:, :50], v[:, :50], out, lse, Rules())


@pytest.mark.parametrize(("head_dim", "rows"), [(64, 3), (128, 70), (40, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout(target, shown, dtype, head_dim, rows):
    """Few queries, too, which are not packed then."""
    share, (nheads, keys) = 0.5, (4, 45)
    q, k, v = tensors(target, dtype, head_dim, rows, keys, (nheads, 2), batch=2)
    state = torch.tensor([0x01234567, 0x89ABCDEF], device=target.device)
    b, h, r = (torch.arange(n) for n in (2, nheads, rows))
    places = {"batches": b[:, None, None, None], "heads": h[:, None, None], "rows": r[:, None]}
    kept = _philox.keep(state.cpu(), share, **places, columns=range(keys))
    out, lse = new_results(q)
    target.attend(launch, q, k, v, out, lse, rng_state=state, dropout_p=share)
    native = (dtype, head_dim) in FORWARD
    expected = (f"fa_fwd_{dtype}_d{head_dim}" if native else f"fa_reference_{dtype}",)
    weights = list(kept / (1 - share))
    check(shown, target, f"dropout {rows} rows", expected, q, k, v, out, lse, Rules(), weights)


def test_parts_that_the_plan_does_not_have_are_refused(target):
    q, k, v = tensors(target, "fp16", 64, 33, 70, (4, 2))
    out, lse = new_results(q)
    parts = {"partial_out": lse.new_empty(2, *lse.shape, 64), "partial_lse": lse.new_empty(2, *lse.shape)}
    state = torch.tensor([1, 2], device=target.device)
    words = r"expected none, as plan says of this call \(dropout: keys are not split\)"
    with pytest.raises(RuntimeError, match=words):
        launch(q, k, v, out, lse, **parts, rng_state=state, dropout_p=0.5)


def test_the_plan_is_what_ran(target):
    """The operator that Python and users ask, for the calls above."""
    whole = "tiled" if ARCH == "gfx1030" else "matrix"

    def plan(head_dim, rows, keys, splits=0, *, dropout=False, aligned=True):
        found = torch.ops.flash_attn_rocm.plan(
            ARCH, "fp16", head_dim, 1, rows, keys, 4, 2, UNITS, splits, dropout, aligned
        )
        return found.split(" ", 2)[:2]

    assert plan(64, 33, 70) == plan(64, 33, 70, 1) == plan(64, 3, 70, dropout=True) == [whole, "1"]
    assert plan(64, 3, 64) == ["split", "1"]
    assert plan(64, 3, 300, 2) == plan(64, 33, 300, 2) == ["split", "2"]
    assert plan(64, 3, 1 << 15) == ["split", "44"]
    assert plan(40, 3, 70) == plan(64, 3, 70, aligned=False) == ["reference", "1"]
