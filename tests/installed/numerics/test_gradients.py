"""Gradients, from ``backward()`` through autograd down to the machine code, held to the numerics rule.

Dropout's mask equals the forward's: both are compared with ``philox``.
"""

from dataclasses import dataclass
from itertools import accumulate

import pytest
import torch
from flash_attn_rocm import flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func, raw
from flash_attn_rocm.library import plans
from flash_attn_rocm.reference import philox
from flash_attn_rocm.suite import reference_attention
from flash_attn_rocm.suite.backward_cases import BackwardCase, kernels_of
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.fuzz import made
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge_gradients
from flash_attn_rocm.suite.target import BACKWARD_OP, FUSED_OP
from flash_attn_rocm.values import paths
from here import ARCH, BACKWARD, FUSED, FUSED_FEATURES
from shares import FULL

pytestmark = pytest.mark.needs(BACKWARD)

SEED = 5
ALL = Rules()


@dataclass(frozen=True)
class Case:
    """``lengths`` are (queries, keys) of each sequence. Unless ``ragged``, all are equal."""

    lengths: tuple
    heads: tuple = (2, 1)
    ragged: bool = False
    packed: bool = False
    alibi: bool = False
    dropout_p: float = 0.0
    rules: Rules = ALL
    dout: float = 1.0  # its size
    steep: float = 1.0  # the largest slope of ALiBi

    @property
    def featured(self):
        return self.alibi or self.rules.softcap != 0 or self.dropout_p > 0


CASES = {
    "plain": Case(((45, 140),), rules=Rules(right=0)),
    "packed": Case(((40, 40),) * 2, (1, 1), packed=True),
    "dropout": Case(
        ((33, 45), (0, 5), (20, 0), (5, 3)), ragged=True, alibi=True, dropout_p=0.3,
        rules=Rules(left=30, right=9),
    ),
    "softcap": Case(((50, 45),), alibi=True, rules=Rules(left=30, right=9, softcap=3.0, scale=-0.2)),
    "steep slopes": Case(((50, 145),), alibi=True, steep=8192.0),
    "ragged": Case(
        ((5, 9), (0, 12), (33, 0), (17, 65), (1, 1)), ragged=True, rules=Rules(right=0, scale=-0.2)
    ),
    "one query": Case(((1, 200),)),
    "one key": Case(((200, 1),)),
    "blind rows": Case(((77, 30),), rules=Rules(right=0)),
    "window that leaves keys out": Case(((9, 90),), rules=Rules(left=5, right=5)),
    "dropout of groups": Case(((33, 70),) * 2, (4, 2), dropout_p=0.17),
    "several blocks": Case(((130, 300),), (1, 1), rules=Rules(right=0)),
}  # fmt: skip
# More than 2^16 of them, with the smallest kernel, as these take long.
LONG = {
    "keys": Case(((3, 65_700),), (1, 1), dropout_p=0.17, rules=Rules(right=0)),
    "queries": Case(((65_700, 3),), (1, 1), rules=Rules(right=0)),
    "queries of a second sequence": Case(((5, 3), (65_700, 9)), (1, 1), ragged=True, dropout_p=0.17),
}
CASES |= {
    "two thousand keys": Case(((257, 2050),), rules=Rules(right=0)),
    "large batch": Case(((63, 65),) * 5, (4, 2), rules=Rules(left=40, right=40)),
} if FULL else {}  # fmt: skip


def drawn(case, dtype, head_dim, device):
    """q, k and v of each sequence, dout, and slopes (batch, heads)."""
    generator = torch.Generator().manual_seed(SEED)

    def values(rows, heads, size=1.0):
        made = torch.randn(rows, heads, head_dim, generator=generator) * size
        return made.to(DTYPES[dtype]).to(device)

    nheads, nheads_k = case.heads
    sequences = [
        (
            values(rows, nheads),
            values(keys, nheads_k),
            values(keys, nheads_k),
            values(rows, nheads, case.dout),
        )
        for rows, keys in case.lengths
    ]
    slopes = case.steep * torch.rand(len(case.lengths), nheads, generator=generator) if case.alibi else None
    return sequences, slopes


def kept(case, state, b, rows, keys):
    """The factors of the probabilities of one sequence (heads, rows, keys)."""
    if not case.dropout_p:
        return None
    places = {
        "batches": torch.tensor(b),
        "heads": torch.arange(case.heads[0])[:, None, None],
        "rows": torch.arange(rows)[:, None],
    }
    keep = philox.keep(state, case.dropout_p, **places, columns=range(keys))
    return keep.double() / (1 - case.dropout_p)


def ints(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


def call(case, parts, slopes, device):
    """The leaves, and out of a public function."""
    join = torch.cat if case.ragged else torch.stack
    joined = [join([part[i] for part in parts]) for i in range(3)]
    options = {**case.rules.arguments, "dropout_p": case.dropout_p, "alibi_slopes": slopes}
    if case.packed:
        qkv = torch.stack(joined, -3).requires_grad_()
        return [qkv], flash_attn_qkvpacked_func(qkv, **options)
    leaves = [x.requires_grad_() for x in joined]
    if not case.ragged:
        return leaves, flash_attn_func(*leaves, **options)
    lengths = [*zip(*case.lengths, strict=True)]
    cut = [ints([0, *accumulate(each)], device) for each in lengths]
    return leaves, flash_attn_varlen_func(*leaves, *cut, *map(max, lengths), **options)


def split(case, tensors):
    """The parts of each sequence."""
    if not case.ragged:
        return [*zip(*(x.unbind() for x in tensors), strict=True)]
    rows, keys = zip(*case.lengths, strict=True)
    cuts = [rows if x.shape[0] == sum(rows) and i in {0, 3} else keys for i, x in enumerate(tensors)]
    return [*zip(*(x.split(each) for x, each in zip(tensors, cuts, strict=True)), strict=True)]


def check(target, shown, name, case, dtype, head_dim):
    parts, slopes = drawn(case, dtype, head_dim, target.device)
    on_device = None if slopes is None else slopes.to(target.device)
    dout = (torch.cat if case.ragged else torch.stack)([part[3] for part in parts])

    def both():
        torch.manual_seed(SEED)
        leaves, out = call(case, parts, on_device, target.device)
        found = torch.autograd.grad(out, leaves, dout)
        return found[0].unbind(-3) if case.packed else found

    gradients, kernels = target.attend(both)
    path = plans.backward_plan(ARCH, dtype, head_dim, featured=case.featured).path
    kernel = Kernel(FUSED_OP if path == paths.FUSED else BACKWARD_OP, dtype, head_dim)
    launched = kernels_of(kernel)
    assert kernels is None or kernels[-3:] == launched
    torch.manual_seed(SEED)
    state = philox.new_state(target.device).cpu()
    sequences = []
    for b, ((q, k, v, each_dout), found) in enumerate(zip(parts, split(case, gradients), strict=True)):
        weights = kept(case, state, b, len(q), len(k))
        one = Sequence(q, k, v, q, None, None if slopes is None else slopes[b], weights)
        sequences.append((one, each_dout, found))
    _, by_keys, _ = launched
    instances = {"dq": str(kernel), "dk": by_keys, "dv": by_keys}
    judge_gradients(shown, instances, name, sequences, case.rules)


@pytest.mark.parametrize("name", CASES)
def test_through_autograd(target, shown, name):
    """Each with one kernel, as test_corpus.py has them all. FA_FULL: with all of them."""
    number = [*CASES].index(name)
    for dtype, head_dim in BACKWARD if FULL else [BACKWARD[number % len(BACKWARD)]]:
        check(target, shown, name, CASES[name], dtype, head_dim)


@pytest.mark.divided
@pytest.mark.parametrize("name", LONG)
def test_long_sequences(target, shown, name):
    check(target, shown, name, LONG[name], "fp16", 32)


@pytest.mark.parametrize(
    ("path", "dtype", "head_dim", "alibi"),
    [
        *((paths.SEPARATE, *each, alibi) for each in BACKWARD for alibi in (False, True)),
        *((paths.FUSED, *each, alibi) for each in FUSED for alibi in {False, each in FUSED_FEATURES}),
    ],
)
def test_a_block_of_queries_that_see_no_key(target, shown, monkeypatch, path, dtype, head_dim, alibi):
    """In both loops of every kernel. Fuzz cases seldom have it."""
    monkeypatch.setenv(plans.BACKWARD_VARIABLE, path)
    case = Case(((129, 1),), (1, 1), alibi=alibi, rules=Rules(right=0))
    check(target, shown, "one key for the last query", case, dtype, head_dim)


@pytest.mark.parametrize(
    ("path", "head_dim"),
    [
        *((paths.SEPARATE, head_dim) for dtype, head_dim in BACKWARD if dtype == "fp16"),
        *((paths.FUSED, head_dim) for dtype, head_dim in FUSED if dtype == "fp16"),
    ],
)
def test_small_gradients(target, shown, monkeypatch, path, head_dim):
    """Gradients of scores and a part of dout are below fp16's least normal number.

    MI200 flushes them to zero. dq, dk and dv are above it.
    """
    monkeypatch.setenv(plans.BACKWARD_VARIABLE, path)
    case = Case(((40, 300),), (1, 1), dout=2.0**-10)
    check(target, shown, "small dout", case, "fp16", head_dim)


# Equal gradients of scores: the losses by truncation add up.
ALIKE = {
    "falling scores": BackwardCase(
        Kernel(BACKWARD_OP, "bf16", 64), 64, (77, 65, 0), (129, 64, 0), (6, 2), "packed", 0, "heads first",
        (-1, 0), 1.0, "batch", 0.17, 1, "falling", 1.0, 647203359,
    ),
    "rising scores": BackwardCase(
        Kernel(BACKWARD_OP, "bf16", 192), 192, (77,), (33,), (2, 2), "dense", 0, "padded", (-1, 100), 1.0,
        "batch", 0.0, 1, "rising", 1.0, 1951726999,
    ),
    "outliers": BackwardCase(
        Kernel(BACKWARD_OP, "fp16", 256), 256, (129,), (64,), (6, 2), "dense", 0, "contiguous", (-1, 16), 2.5,
        "", 0.17, 1, "outliers", None, 1061949347,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs([each for each in BACKWARD if each[1] >= case.head_dim]))
        for name, case in ALIKE.items()
    ],
)
def test_truncating_twice_leaves_no_bias(target, shown, name):
    """dS was truncated after P, and only one loss was corrected: dk erred by up to 2.3 times the limit."""
    made(ALIKE[name], target.device).check(target, shown)


@pytest.mark.parametrize("head_dim", [40, 111])
def test_other_head_dims_are_padded(target, head_dim):
    generator = torch.Generator().manual_seed(SEED)
    q, k, v, dout = (torch.randn(1, 20, 2, head_dim, generator=generator).half() for _ in range(4))
    leaves = [x.to(target.device).requires_grad_() for x in (q, k, v)]

    def both():
        return torch.autograd.grad(flash_attn_func(*leaves, causal=True), leaves, dout.to(target.device))

    found, _ = target.attend(both)
    assert [x.shape for x in found] == [x.shape for x in leaves]
    sequence = Sequence(q[0], k[0], v[0], q[0], None)
    verdicts = reference_attention.judge_gradients(
        [(sequence, dout[0], tuple(x[0] for x in found))], Rules(right=0)
    )
    assert [each.wrong for each in verdicts.values()] == [(), (), ()]


def test_gradients_are_written_where_they_are_wanted(target):
    """Into parts of one packed tensor. The gaps stay untouched, and repeated runs give equal bits."""
    generator = torch.Generator().manual_seed(SEED)
    qkv = torch.randn(2, 20, 3, 2, 64, generator=generator).half().to(target.device)
    dout = torch.randn(2, 20, 2, 64, generator=generator).half().to(target.device)
    rules = (0.125, True, -1, 0, 0.0)
    room = torch.full((2, 20, 4, 2, 64), 7.0, dtype=torch.float16, device=target.device)
    results = []

    def both():
        out, lse, *_ = raw.fwd(*qkv.unbind(2), None, None, 0.0, *rules, False)
        places = room[:, :, :3].unbind(2)
        found = raw.bwd(dout, *qkv.unbind(2), out, lse, *places, None, 0.0, *rules, True)
        assert all(a is b for a, b in zip(found, places, strict=False))
        results.append(room.clone())
        again = raw.bwd(dout, *qkv.unbind(2), out, lse, None, None, None, None, 0.0, *rules, True)
        results.append(torch.stack([*again[:3], room[:, :, 3]], 2))
        return found[3], (dout.float() * out.float()).sum(-1).transpose(1, 2)

    (sums, wanted), _ = target.attend(both)
    assert (room[:, :, 3] == 7).all()
    assert torch.equal(*results)
    # Sums of 64 products in fp32.
    assert (sums - wanted).abs().max() <= 64 * 2**-24 * 64


@pytest.mark.parametrize(("rows", "keys"), [(0, 9), (9, 0)])
def test_without_queries_or_keys_gradients_are_zero(target, rows, keys):
    leaves = [torch.randn(2, n, 2, 64).half().to(target.device).requires_grad_() for n in (rows, keys, keys)]

    def both():
        out = flash_attn_func(*leaves)
        return torch.autograd.grad(out, leaves, torch.ones_like(out))

    found, _ = target.attend(both)
    assert all((x == 0).all() for x in found)


def test_rows_of_no_sequence_have_no_gradient(target):
    leaves = [torch.randn(12, 1, 64).half().to(target.device).requires_grad_() for _ in range(3)]
    cut = ints([0, 3, 8], target.device)

    def both():
        out = flash_attn_varlen_func(*leaves, cut, cut, 5, 5)
        return torch.autograd.grad(out, leaves, torch.ones_like(out))

    found, _ = target.attend(both)
    assert all((x[8:] == 0).all() for x in found)
    assert all((x[:8] != 0).any() for x in found[1:])
