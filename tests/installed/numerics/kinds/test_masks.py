"""Masks and biases of ``attention``, on kernels that read them, against float64 (see rule.py)."""

import math

import pytest
import torch
from flash_attn_rocm import attention
from flash_attn_rocm.reference import philox
from flash_attn_rocm.suite import masked_backward_cases
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.masked_cases import OWN, SOME
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from here import MASKED, MASKED_BACKWARD

BATCH, ROWS, KEYS, NHEADS, NHEADS_K = 2, 70, 203, 4, 2
instances = pytest.mark.parametrize(("dtype", "head_dim"), MASKED)
ALL, LEFT, ROWS_OF = "some keys", "left keys", "whole rows"
WHOLE = (BATCH, NHEADS, ROWS, KEYS)
# Hiding value, dtype (None: q's), sizes, and additional rules, by name.  -inf hides. The least finite numbers
# and -10000 also remove a key, if others are larger.
CASES = {
    "bool": (True, torch.bool, WHOLE, Rules(), ALL),
    "bool, one for all": (True, torch.bool, (1, 1, ROWS, KEYS), Rules(left=40, right=3), ALL),
    "bool of keys, causal": (True, torch.bool, (BATCH, 1, 1, KEYS), Rules(right=0), LEFT),
    "bool, rows that see nothing": (True, torch.bool, (BATCH, 1, ROWS, KEYS), Rules(), ROWS_OF),
    "bias": (-math.inf, None, WHOLE, Rules(), ALL),
    "bias of heads": (0.0, None, (1, NHEADS, ROWS, KEYS), Rules(right=0), ALL),
    "bias, negative scale": (-math.inf, None, (BATCH, 1, ROWS, KEYS), Rules(scale=-0.3), ALL),
    "bias, left keys hidden": (-math.inf, None, (BATCH, 1, ROWS, KEYS), Rules(), LEFT),
    "bias of keys, rows that see nothing": (-math.inf, None, (BATCH, 1, ROWS, KEYS), Rules(), ROWS_OF),
    "bias, left keys far below": ("least", None, (BATCH, 1, 1, KEYS), Rules(), LEFT),
    "bias, left keys": (-10000.0, None, (BATCH, 1, ROWS, KEYS), Rules(), LEFT),
    # Later scores must not keep the rounding of these.
    "bias, left keys below": (-700.0, None, (BATCH, 1, ROWS, KEYS), Rules(), LEFT),
    "fp32": (-math.inf, torch.float32, WHOLE, Rules(left=50, right=-1), ALL),
    "fp32, zero scale": (-math.inf, torch.float32, (1, 1, ROWS, KEYS), Rules(scale=0.0), ALL),
    "fp32, left keys below": (-700.0, torch.float32, WHOLE, Rules(), LEFT),
    "fp32, left keys far below": ("least", torch.float32, (BATCH, NHEADS, 1, KEYS), Rules(), LEFT),
    "fp32, rows that see nothing": (-math.inf, torch.float32, (1, 1, ROWS, KEYS), Rules(), ROWS_OF),
    "fp32, scores far above": (3000.0, torch.float32, (BATCH, 1, ROWS, KEYS), Rules(), ALL),
}


def drawn(sizes, hides, where, dtype, generator):
    if where == LEFT:
        hidden = (torch.arange(KEYS) <= KEYS // 2).expand(sizes)
    elif where == ROWS_OF:
        hidden = (torch.rand((*sizes[:3], 1), generator=generator) < 0.3).expand(sizes)
    else:
        hidden = torch.rand(sizes, generator=generator) < 0.5
    if dtype == torch.bool:
        return ~hidden
    by = torch.finfo(dtype).min if hides == "least" else hides
    return (torch.randn(sizes, generator=generator) * 2).to(dtype).masked_fill(hidden, by)


def as_bias(mask):
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    return mask.float()


def launched(mask, dtype, head_dim):
    """The kernels of a call."""
    looked_at = mask.dtype == torch.bool or (mask.dtype == DTYPES[dtype] and 1 in mask.shape[1:3])
    before = ("fa_mask_ranges_fp16",) if looked_at else ()
    return (*before, f"fa_fwd_masked_{dtype}_d{head_dim}")


def check(target, shown, dtype, head_dim, name, size=1.0):
    hides, of_mask, sizes, rules, where = CASES[name]
    generator = torch.Generator().manual_seed(len(name) + head_dim)
    lengths = ((ROWS, NHEADS), (KEYS, NHEADS_K), (KEYS, NHEADS_K))
    q, k, v = (torch.randn(BATCH, *n, head_dim, generator=generator).to(DTYPES[dtype]) for n in lengths)
    v *= size
    mask = drawn(sizes, hides, where, of_mask or DTYPES[dtype], generator)
    given = (x.to(target.device) for x in (q, k, v, mask))
    (out, lse, _), kernels = target.attend(attention, *given, return_attn_probs=True, **rules.arguments)
    assert kernels in (None, launched(mask, dtype, head_dim))
    bias = as_bias(mask).expand(WHOLE)
    judge(
        shown,
        f"fa_fwd_masked_{dtype}_d{head_dim}",
        name,
        [Sequence(q[b], k[b], v[b], out[b].cpu(), lse[b].cpu(), bias=bias[b]) for b in range(BATCH)],
        rules,
    )


@instances
@pytest.mark.parametrize("name", CASES)
def test_masks(target, shown, dtype, head_dim, name):
    check(target, shown, dtype, head_dim, name)


@pytest.mark.parametrize(("head_dim", "served"), [(40, 64), (96, 128)])
def test_other_head_dims_are_padded(target, head_dim, served):
    q, k, v = (torch.randn(1, n, 2, head_dim).half() for n in (17, 33, 33))
    mask = torch.rand(17, 33) < 0.7
    given = (x.to(target.device) for x in (q, k, v, mask))
    out, kernels = target.attend(attention, *given)
    assert kernels in (None, launched(mask, "fp16", served))
    heads = (x.float().transpose(1, 2) for x in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask)
    torch.testing.assert_close(out.float().cpu().transpose(1, 2), expected, rtol=2**-9, atol=2**-9)


@instances
@pytest.mark.parametrize("value", [math.nan, math.inf, 30000.0])
def test_keys_hidden_from_all_rows_change_nothing(target, dtype, head_dim, value):
    rows, keys, hidden = 37, 137, [70, 71, 75, 90, 130]  # after a tile with a maximum, between visible keys
    generator = torch.Generator().manual_seed(head_dim)
    lengths = ((rows, 2), (keys, 2), (keys, 2))
    q, k, v = (torch.randn(1, *n, head_dim, generator=generator).to(DTYPES[dtype]) for n in lengths)
    mask = torch.rand(rows, keys, generator=generator) < 0.5
    mask[:, hidden], mask[:, 0] = False, True
    heads = (x.float().transpose(1, 2) for x in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask)
    k[:, hidden] = value
    out, kernels = target.attend(attention, *(x.to(target.device) for x in (q, k, v, mask)))
    assert kernels in (None, launched(mask, dtype, head_dim))
    epsilon = 2**-9 if dtype == "fp16" else 2**-6
    torch.testing.assert_close(out.float().cpu().transpose(1, 2), expected, rtol=epsilon, atol=epsilon)


@pytest.mark.parametrize("head_dim", sorted({head_dim for _, head_dim in MASKED}))
@pytest.mark.parametrize("name", CASES)
def test_values_that_are_not_exact_in_fp16(target, shown, head_dim, name):
    """gfx1030 computes such rows of bf16 again."""
    check(target, shown, "bf16", head_dim, name, 512.0)


@pytest.mark.divided
@pytest.mark.parametrize("of_mask", [None, torch.float32])
@instances
def test_whole_rows_of_the_least_number_are_as_in_pytorch(target, dtype, head_dim, of_mask):
    """The mean of v, if the bias absorbs the scores. fp16 scores survive in part."""
    generator = torch.Generator().manual_seed(head_dim)
    q, k, v = (torch.randn(1, n, 1, head_dim, generator=generator).to(DTYPES[dtype]) for n in (9, 40, 40))
    mask = torch.zeros(1, 1, 9, 40, dtype=of_mask or DTYPES[dtype])
    mask[:, :, 2:5] = torch.finfo(mask.dtype).min
    given = (x.to(target.device) for x in (q, k, v, mask))
    (out, lse, _), _ = target.attend(attention, *given, return_attn_probs=True)
    heads = (x.float().transpose(1, 2) for x in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(*heads, attn_mask=mask.float())
    assert lse.isfinite().all()
    found, near = out.float().cpu().transpose(1, 2), 2**-6 if dtype == "bf16" else 2**-8
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=near)


@pytest.mark.needs(MASKED_BACKWARD)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("of_mask", [torch.bool, torch.float16, torch.float32])
def test_gradients_and_that_of_a_bias(target, of_mask, dropout):
    """Through the public function. Fuzz cases hold each kernel to the rule."""
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, n, 2, 64, generator=generator).half() for n in (17, 33, 33))
    mask = drawn((1, 2, 1, KEYS), -math.inf, ALL, of_mask, generator)[..., :33]
    leaves = [x.to(target.device).requires_grad_() for x in (q, k, v)]
    given = mask.to(target.device)
    if of_mask != torch.bool:
        leaves.append(given.requires_grad_())
    weights = torch.randn(1, 17, 2, 64, generator=generator).half()

    def gradients():
        torch.manual_seed(5)
        out = attention(*leaves[:3], given, dropout_p=dropout)
        return torch.autograd.grad(out, leaves, weights.to(out.device))

    found, kernels = target.attend(gradients)
    names = ("delta_fp16", "dkdv_masked_fp16_d64", "dq_masked_fp16_d64")
    assert kernels in (None, (*launched(mask, "fp16", 64), *(f"fa_bwd_{name}" for name in names)))
    exact = [x.detach().cpu().double().requires_grad_() for x in leaves]
    bias = exact[3] if of_mask != torch.bool else as_bias(mask).double()
    torch.manual_seed(5)
    kept = philox.keep(
        philox.new_state(target.device).cpu(), dropout, batches=torch.tensor(0),
        heads=torch.arange(2)[:, None, None], rows=torch.arange(17)[:, None], columns=range(33),
    )  # fmt: skip
    query, key, value = (x.transpose(1, 2) for x in exact[:3])
    seen = (query @ key.mT / 8 + bias).softmax(-1) * kept / (1 - dropout)
    wanted = torch.autograd.grad((seen @ value).transpose(1, 2), exact, weights.double())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=2**-7, atol=2**-7)


def causal_of(rows, keys, _generator):
    return torch.arange(keys) * rows // keys <= torch.arange(rows)[:, None]


def padded(rows, keys, _generator):
    return (torch.arange(keys) < keys // 3).expand(rows, keys)


def documents(rows, keys, _generator):
    return torch.arange(keys) * 5 // keys == (torch.arange(rows) * 5 // rows)[:, None]


def sparse(rows, keys, generator):
    """Two rows of many, of which one sees the first and one the last keys."""
    mask = torch.zeros(rows, keys, dtype=torch.bool)
    first, last = torch.randperm(rows, generator=generator)[:2]
    mask[first, :5] = mask[last, -5:] = True
    return mask


@pytest.mark.needs(MASKED_BACKWARD)
@pytest.mark.parametrize("pattern", [causal_of, padded, documents, sparse])
@pytest.mark.parametrize("kind", [torch.bool, torch.float16])
@instances
def test_gradients_skip_what_a_mask_hides(target, dtype, head_dim, kind, pattern):
    """From 1024 queries on. Heads of q share a head of k, and each of them, or all, have a mask.

    One head of k is enough for a mask of all.
    """
    generator = torch.Generator().manual_seed(head_dim)
    rows, keys, wide = 1040, 150, 152
    own = pattern == documents and kind == torch.bool
    nheads, nheads_k = (NHEADS, NHEADS_K) if own else (NHEADS // NHEADS_K, 1)
    of_heads = [pattern(rows, keys, generator).roll(30 * head, 0) for head in range(nheads if own else 1)]
    seen = torch.stack(of_heads)[None]
    bias = torch.zeros(seen.shape, dtype=DTYPES[dtype]).masked_fill(~seen, -math.inf)
    mask = torch.nn.functional.pad(seen if kind == torch.bool else bias, (0, wide - keys))
    mask = mask.to(target.device)[..., :keys]
    lengths = ((rows, nheads), (keys, nheads_k), (keys, nheads_k), (rows, nheads))
    made = [torch.randn(1, *n, head_dim, generator=generator).to(DTYPES[dtype]) for n in lengths]
    leaves = [x.to(target.device).requires_grad_() for x in made[:3]]

    def gradients():
        out = attention(*leaves, mask)
        return torch.autograd.grad(out, leaves, made[3].to(out.device))

    found, kernels = target.attend(gradients)
    ends = (f"delta_{dtype}", f"dkdv_masked_{dtype}_d{head_dim}", f"dq_masked_{dtype}_d{head_dim}")
    backward = ("fa_mask_ranges_fp16", *(f"fa_bwd_{end}" for end in ends))
    assert kernels in (None, (*launched(mask, dtype, head_dim), *backward))
    exact = [x.double().requires_grad_() for x in made[:3]]
    query, key, value = (x.transpose(1, 2) for x in exact)
    key, value = (x.repeat_interleave(nheads // nheads_k, 1) for x in (key, value))
    scores = (query @ key.mT / head_dim**0.5).masked_fill(~seen, -1e30)
    shares = scores.softmax(-1) * seen.any(-1, keepdim=True)
    wanted = torch.autograd.grad((shares @ value).transpose(1, 2), exact, made[3].double())
    for one, other in zip(found, wanted, strict=True):
        near = other.abs().max().item() * (2**-6 if dtype == "bf16" else 2**-8)
        torch.testing.assert_close(one.cpu().double(), other, rtol=0, atol=near)


@pytest.mark.needs(MASKED_BACKWARD)
@instances
def test_gradients_where_whole_workgroups_see_no_key(target, dtype, head_dim):
    """Rows with keys get the gradients of a call without the other rows. The others get zeros."""
    generator = torch.Generator().manual_seed(head_dim)
    rows, keys = 560, 33
    made = [torch.randn(1, n, 1, head_dim, generator=generator).to(DTYPES[dtype]) for n in (rows, keys, keys)]
    mask = drawn((1, 1, rows, KEYS), -math.inf, ALL, torch.bool, generator)[..., :keys]
    weights = torch.randn(1, rows, 1, head_dim, generator=generator).to(DTYPES[dtype])
    leaves = [x.to(target.device).requires_grad_() for x in made]

    def gradients():
        out = attention(*leaves, mask.to(target.device), causal=True)
        return torch.autograd.grad(out, leaves, weights.to(out.device))

    (dq, dk, dv), kernels = target.attend(gradients)
    names = (f"delta_{dtype}", *(f"{op}_masked_{dtype}_d{head_dim}" for op in ("dkdv", "dq")))
    assert kernels in (None, (*launched(mask, dtype, head_dim), *(f"fa_bwd_{name}" for name in names)))
    assert not dq[:, : rows - keys].any()
    last = [x[:, -keys:].double().transpose(1, 2).requires_grad_() for x in made]
    seen = mask[:, :, -keys:] & torch.ones(keys, keys, dtype=torch.bool).tril()
    scores = (last[0] @ last[1].mT * head_dim**-0.5).masked_fill(~seen, -math.inf)
    weight = scores.softmax(-1).nan_to_num(0.0)
    wanted = torch.autograd.grad(weight @ last[2], last, weights[:, -keys:].double().transpose(1, 2))
    near = 2**-4 if dtype == "bf16" else 2**-7
    for one, other in zip((dq[:, -keys:], dk, dv), wanted, strict=True):
        torch.testing.assert_close(one.cpu().double(), other.transpose(1, 2), rtol=near, atol=near)


@pytest.mark.needs(MASKED_BACKWARD)
@pytest.mark.parametrize("head_dim", [64, 128])
def test_gradients_are_exact_where_a_row_sees_only_keys_far_below(target, shown, head_dim):
    """Products that start from log-sum-exps of -8000 would be rounded at each step to 2^-11 and more."""
    kernel = Kernel("bwd_dq_masked", "fp16", head_dim)
    case = masked_backward_cases.Case(
        kernel, head_dim, rows=(70, 70), keys=(97, 97), heads=(3, 1), store="dense", page=0,
        layout="contiguous", window=(0, 0), softcap=0.0, alibi="", dropout=0.0, splits=1, values=1.0,
        scale=0.3, seed=1925836257, mask=OWN, hides=SOME, by=-8000.0, dscores=True,
    )  # fmt: skip
    masked_backward_cases.Call(case, target.device).check(target, shown)
