"""Results never contain unwritten memory, for any lengths of packed sequences.

Here each new tensor begins as NaN.  Kernels skip the rows of q outside all sequences, and those after the
first max_seqlen_q of a sequence, and keys likewise. There the results are 0, the log-sum-exp +inf.
"""

import pytest
import torch
from flash_attn_rocm import flash_attn_varlen_func
from flash_attn_rocm.autograd import recall
from flash_attn_rocm.library import plans
from flash_attn_rocm.serving import machine
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from here import BACKWARD, FORWARD, FUSED

HEADS, KEYS = (2, 1), (40, 300, 4)
WAYS = ["separate", "fused"] if ("fp16", 64) in FUSED else ["separate"]
# Rows of q: three in front, 40, 20 and 4 of sequences, five at the end.  20 rows of the second sequence are
# computed.
MOST, BEGINS, ROWS, TOTAL = 20, (3, 43, 63), (40, 20, 4), 72


@pytest.fixture(autouse=True)
def new_memory_is_nan(monkeypatch):
    new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like

    def filled(tensor):
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *a, **k: filled(new_empty(self, *a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda like, **k: filled(empty_like(like, **k)))
    recall.forget()


def made(target, dtype, head_dim):
    """q, k, v with gradients, and the lengths. There are additional rows before and after the sequences."""
    generator = torch.Generator().manual_seed(1)
    sizes = (TOTAL, HEADS[0]), (sum(KEYS), HEADS[1]), (sum(KEYS), HEADS[1])
    tensors = [
        torch.randn(*size, head_dim, generator=generator).to(DTYPES[dtype]).to(target.device)
        for size in sizes
    ]
    cuts = ([*BEGINS, BEGINS[-1] + ROWS[-1]], [0, *torch.tensor(KEYS).cumsum(0).tolist()])
    integers = [torch.tensor(cut, dtype=torch.int32, device=target.device) for cut in cuts]
    return [x.requires_grad_() for x in tensors], integers


def visited():
    rows = torch.zeros(TOTAL, dtype=torch.bool)
    for begin, length in zip(BEGINS, ROWS, strict=True):
        rows[begin : begin + min(length, MOST)] = True
    return rows


@pytest.mark.parametrize("known", [False, True], ids=["first call", "known call"])
@pytest.mark.parametrize(("dtype", "head_dim"), [FORWARD[0], FORWARD[-1], ("bf16", 40)])
def test_forward(target, shown, dtype, head_dim, known):
    (q, k, v), cuts = made(target, dtype, head_dim)
    with torch.no_grad():
        for _ in range(1 + known):
            (out, lse, _), _ = target.attend(
                flash_attn_varlen_func, q, k, v, *cuts, MOST, max(KEYS), return_attn_probs=True
            )
    rows = visited()
    assert not out[~rows].any()
    assert torch.equal(lse[:, ~rows], torch.full_like(lse[:, ~rows], torch.inf))
    ends = cuts[1].tolist()
    sequences = [
        Sequence(q[i : i + m].detach(), *(x[j:e].detach() for x in (k, v)), out[i : i + m], lse[:, i : i + m])
        for i, m, j, e in zip(BEGINS, (20, 20, 4), ends, ends[1:], strict=False)
    ]
    judge(shown, target.answering(f"fa_fwd_{dtype}_d64"), "rows that no workgroup visits", sequences, Rules())


@pytest.mark.parametrize("units", [0, 96])
def test_keys_in_parts(target, monkeypatch, units):
    monkeypatch.setattr(machine.current(), "units", units, raising=False)
    (q, k, v), cuts = made(target, "fp16", 64)
    with torch.no_grad():
        (out, lse, _), _ = target.attend(
            flash_attn_varlen_func, q, k, v, *cuts, 2, max(KEYS), return_attn_probs=True
        )
    rows = torch.zeros(TOTAL, dtype=torch.bool)
    for begin in BEGINS:
        rows[begin : begin + 2] = True
    assert not out[~rows].any()
    assert out[rows].isfinite().all()
    assert lse[:, ~rows].isposinf().all()
    assert lse[:, rows].isfinite().all()


@pytest.mark.needs(BACKWARD)
@pytest.mark.parametrize("most", [(0, 0), (0, 300), (20, 0)], ids=str)
def test_lengths_of_nothing(target, most):
    leaves, cuts = made(target, "fp16", 64)

    def call():
        out = flash_attn_varlen_func(*leaves, *cuts, *most)
        return out, *torch.autograd.grad(out, leaves, torch.ones_like(out).fill_(1.0))

    found, _ = target.attend(call)
    assert all(x.isfinite().all() for x in found)


@pytest.mark.needs(BACKWARD)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("most_keys", [100, max(KEYS)])
@pytest.mark.parametrize("known", [False, True], ids=["first call", "known call"])
def test_gradients(target, monkeypatch, way, most_keys, known):
    monkeypatch.setenv(plans.BACKWARD_VARIABLE, way)
    leaves, cuts = made(target, "fp16", 64)
    dout = torch.randn(TOTAL, HEADS[0], 64).half().to(target.device)

    def call():
        out = flash_attn_varlen_func(*leaves, *cuts, MOST, most_keys)
        return torch.autograd.grad(out, leaves, dout)

    for _ in range(1 + known):
        (dq, dk, dv), kernels = target.attend(call)
    assert kernels is None or any(way == "fused" for name in kernels if "fused" in name) == (way == "fused")
    rows, keys = visited(), torch.ones(sum(KEYS), dtype=torch.bool)
    keys[40 + most_keys : 340] = False
    assert not dq[~rows].any()
    for gradient in (dk, dv):
        assert not gradient[~keys].any()
        assert gradient.isfinite().all()
    assert dq.isfinite().all()
    assert dq[rows].any()
