"""Forward attention against float64, for every forward kernel of the arch in the wheel (see rule.py)."""

import itertools
import random
from dataclasses import dataclass

import pytest
import torch
from flash_attn_rocm import flash_attn_func
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge
from here import FORWARD

# Around the rows and columns of every tile and fragment: 16, 32, 64, 128.
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 113, 257)
UNGROUPED = ((2, 2), (1, 1))  # (nheads, nheads_k)
GROUPED = ((4, 2), (3, 1))
BATCHES = (1, 2)
# Factors of q, k and v.  Kernels defer rescaling while a row's maximum grows little. 4 makes it grow a lot.
MAGNITUDES = (1.0, 1.0, 4.0)
# All of them in each case would take minutes on the emulator.
KERNELS_OF_A_CASE = 1
instances = pytest.mark.parametrize(("dtype", "head_dim"), FORWARD)


@dataclass(frozen=True)
class Case:
    """One call. Shapes are those of ``flash_attn_func``."""

    dtype: str
    head_dim: int
    seqlen_q: int
    seqlen_k: int
    causal: bool = False
    batch: int = 1
    heads: tuple = (2, 1)
    layout: str = "contiguous"
    scale: float | None = None
    magnitude: float = 1.0

    @property
    def instance(self):
        return f"fa_fwd_{self.dtype}_d{self.head_dim}"


def contiguous(x):
    return x.contiguous()


def heads_first(x):
    """Laid out as ``(batch, heads, rows, head_dim)`` in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def padded(x):
    """Row stride 8 elements larger than the row."""
    return torch.nn.functional.pad(x, (0, 8))[..., : x.shape[-1]]


def packed(x):
    """One of three interleaved tensors, as a fused projection produces them."""
    return torch.stack([torch.zeros_like(x), x, torch.ones_like(x)], dim=2)[:, :, 1]


def odd(x):
    """Odd row stride, in elements: the package has to copy."""
    return torch.nn.functional.pad(x, (0, 1))[..., : x.shape[-1]]


LAYOUTS = {f.__name__: f for f in (contiguous, heads_first, padded, packed, odd)}


def grid():
    """Every pair of lengths, with causal and grouped heads on and off.

    Other options vary from case to case.
    """
    every = itertools.product(LENGTHS, LENGTHS, (False, True), (UNGROUPED, GROUPED))
    for number, (seqlen_q, seqlen_k, causal, heads) in enumerate(every):
        # Steps without a common period: each choice meets nearly every combination of the others.
        yield {
            "seqlen_q": seqlen_q,
            "seqlen_k": seqlen_k,
            "causal": causal,
            "heads": heads[number // 4 % len(heads)],
            "batch": BATCHES[number // 7 % len(BATCHES)],
            "layout": tuple(LAYOUTS)[number % len(LAYOUTS)],
            "magnitude": MAGNITUDES[number // 5 % len(MAGNITUDES)],
        }


def words(changes):
    causal = "causal" if changes["causal"] else "full"
    nheads, nheads_k = changes["heads"]
    sizes = f"{changes['seqlen_q']}x{changes['seqlen_k']}-{causal}-b{changes['batch']}"
    return f"{sizes}-h{nheads}_{nheads_k}-{changes['layout']}-x{changes['magnitude']:g}"


def inputs(case, device):
    generator = torch.Generator().manual_seed(0)
    nheads, nheads_k = case.heads
    lay_out, dtype = LAYOUTS[case.layout], DTYPES[case.dtype]

    def tensor(rows, heads):
        values = torch.randn(case.batch, rows, heads, case.head_dim, generator=generator) * case.magnitude
        return lay_out(values.to(dtype).to(device))

    return tensor(case.seqlen_q, nheads), tensor(case.seqlen_k, nheads_k), tensor(case.seqlen_k, nheads_k)


def check(target, shown, case):
    q, k, v = inputs(case, target.device)
    (out, lse, _), kernels = target.attend(
        flash_attn_func, q, k, v, causal=case.causal, softmax_scale=case.scale, return_attn_probs=True
    )
    assert kernels is None or len(kernels) == 1, "one call is one kernel"
    rules = Rules(right=0 if case.causal else -1, scale=case.scale)
    sequences = [Sequence(*each) for each in zip(q, k, v, out, lse, strict=True)]
    judge(shown, target.answering(case.instance), repr(case), sequences, rules)


def shared_out():
    """Every case of the grid, each for some kernels. Kernels with large head dims are slow and get fewer."""
    choose = random.Random(0)
    for changes in grid():
        # A draw without replacement. A kernel's weight is 1 / head_dim.
        drawn = sorted(FORWARD, key=lambda kernel: choose.random() ** kernel[1])
        for dtype, head_dim in drawn[-KERNELS_OF_A_CASE:]:
            yield pytest.param(dtype, head_dim, changes, id=f"{dtype}-{head_dim}-{words(changes)}")


@pytest.mark.divided
@pytest.mark.parametrize(("dtype", "head_dim", "changes"), tuple(shared_out()))
def test_lengths_heads_batches_and_layouts(target, shown, dtype, head_dim, changes):
    check(target, shown, Case(dtype, head_dim, **changes))


@instances
@pytest.mark.parametrize("scale", [0.01, 1.0, -0.3, 0.0])
def test_softmax_scale(target, shown, dtype, head_dim, scale):
    check(target, shown, Case(dtype, head_dim, 65, 113, causal=True, scale=scale))


@instances
@pytest.mark.parametrize("magnitude", [1e-3, 8.0])
def test_scores_that_are_all_equal_or_far_apart(target, shown, dtype, head_dim, magnitude):
    check(target, shown, Case(dtype, head_dim, 33, 129, magnitude=magnitude))


@instances
def test_no_keys(target, shown, dtype, head_dim):
    check(target, shown, Case(dtype, head_dim, 17, 0))


@instances
@pytest.mark.parametrize("sizes", [{"batch": 0}, {"seqlen_q": 0}])
def test_nothing_to_compute_launches_nothing(target, dtype, head_dim, sizes):
    case = Case(dtype, head_dim, **{"seqlen_q": 3, "seqlen_k": 5, **sizes})
    q, k, v = inputs(case, target.device)
    out, kernels = target.attend(flash_attn_func, q, k, v)
    assert out.shape == q.shape
    assert not kernels


@instances
def test_the_same_call_gives_the_same_bits(target, dtype, head_dim):
    q, k, v = inputs(Case(dtype, head_dim, 113, 257, causal=True), target.device)
    (first, _), (second, _) = (target.attend(flash_attn_func, q, k, v, causal=True) for _ in range(2))
    assert torch.equal(first, second)


def test_every_forward_kernel_of_the_arch_was_asked_for():
    assert FORWARD, "the wheel has no forward kernel for this arch"
