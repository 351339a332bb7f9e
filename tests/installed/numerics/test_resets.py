"""If Windows resets GPUs, a call is cut into launches: each kernel gives the bits of one launch.

Sequences and heads are in their launches' first and last places, with all their arguments.
"""

import pytest
import torch
from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.autograd import recall
from flash_attn_rocm.launch import backward_pass, forward_pass, watched
from flash_attn_rocm.reference.operators import arguments_of
from flash_attn_rocm.serving import resets
from here import BACKWARD

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnResetWarning")
FWD, BWD = torch.ops.flash_attn_rocm.fwd.default, torch.ops.flash_attn_rocm.bwd.default
# Sequences and heads of k in a launch, of three and three.
STEPS = [(2, 3), (1, 2), (1, 1)]


@pytest.fixture(params=STEPS, ids=str)
def cut(request, monkeypatch):
    """From then on calls are cut into launches of this many sequences and heads of k."""

    def begin():
        monkeypatch.setattr(resets, "LONGEST", -1.0)  # below all estimates, also the 0 of an emulated GPU
        monkeypatch.setattr(resets, "steps", lambda work, _: _of(request.param, work))
        monkeypatch.setattr(forward_pass, "FWD", watched.forward(FWD, arguments_of(FWD)))
        monkeypatch.setattr(backward_pass, "BWD", watched.backward(BWD, arguments_of(BWD)))
        recall.forget()
        return request.param

    yield begin
    recall.forget()


def _of(step, work):
    return min(step[0], work.batch), min(step[1], work.heads)


def some(target, *sizes, head_dim=64, dtype=torch.float16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, head_dim, generator=generator).to(dtype).to(target.device)


def ints(target, *values):
    return torch.tensor(values, dtype=torch.int32, device=target.device)


def odd(x):
    """Rows readable by the slow kernel only."""
    return torch.nn.functional.pad(x, (1, 0))[..., 1:]


def calls(target):
    """Calls of each path, with arguments by sequence and by head."""
    q, k, v = some(target, 3, 40, 6), some(target, 3, 50, 3, seed=1), some(target, 3, 50, 3, seed=2)
    few = q[:, :2]
    used = ints(target, 50, 7, 33)
    pages = [some(target, 9, 16, 3, seed=seed) for seed in (3, 4)]
    table = ints(target, [2, 0, 1, 1], [8, 4, 3, 3], [5, 6, 7, 7])
    slopes = torch.rand(3, 6, generator=torch.Generator().manual_seed(5)).to(target.device)
    sink = torch.arange(6.0).sub(3).to(target.device)
    lse = {"return_softmax_lse": True}
    return {
        "whole": lambda: flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes, return_attn_probs=True),
        "whole, window": lambda: flash_attn_func(
            q, k, v, window_size=(9, 4), sink=sink, return_attn_probs=True
        ),
        "packed": lambda: flash_attn_varlen_func(
            q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), ints(target, 0, 60, 61, 120),
            ints(target, 0, 50, 100, 150), 60, 50, causal=True, sink=sink, return_attn_probs=True,
        ),
        "cache": lambda: flash_attn_with_kvcache(
            q, k, v, cache_seqlens=used, cache_leftpad=ints(target, 3, 0, 1), causal=True, **lse
        ),
        "places": lambda: flash_attn_with_kvcache(
            q, k, v, cache_seqlens=used, cache_batch_idx=ints(target, 2, 0, 1), **lse
        ),
        "pages": lambda: flash_attn_with_kvcache(q, *pages, cache_seqlens=used, block_table=table, **lse),
        "few queries": lambda: flash_attn_with_kvcache(
            few, k, v, cache_seqlens=used, alibi_slopes=slopes, num_splits=1, causal=True, **lse
        ),
        "slow kernel": lambda: flash_attn_with_kvcache(
            q, odd(k), odd(v), cache_seqlens=used, causal=True, **lse
        ),
    }  # fmt: skip


NAMES = (
    "whole", "whole, window", "packed", "cache", "places", "pages", "few queries", "slow kernel",
)  # fmt: skip


@pytest.mark.divided
@pytest.mark.parametrize("name", NAMES)
def test_launches_give_the_bits_of_one(target, cut, name):
    call = calls(target)[name]
    whole, launched = target.attend(call)
    _, heads = cut()
    found, more = target.attend(call)
    for one, other in zip(found[:2], whole[:2], strict=True):
        assert torch.equal(one, other)
    if launched is not None:
        assert set(more) == set(launched)
        # Packed sequences are launched together.
        assert len(more) > len(launched) or (name, heads) == ("packed", 3)


@pytest.mark.needs(BACKWARD)
@pytest.mark.divided
@pytest.mark.parametrize("path", ["separate", "fused"])
def test_gradients_of_launches_are_those_of_one(target, cut, path, monkeypatch):
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", path)
    sizes = ((40, 6), (50, 3), (50, 3))
    tensors = [some(target, 3, *size, seed=seed).requires_grad_() for seed, size in enumerate(sizes)]
    slopes = torch.rand(6, generator=torch.Generator().manual_seed(5)).to(target.device)
    options = {} if path == "fused" else {"alibi_slopes": slopes}  # missing from some fused kernels

    def trained():
        out = flash_attn_func(*tensors, causal=True, **options)
        return torch.autograd.grad(out, tensors, out.detach())

    whole, launched = target.attend(trained)
    cut()
    found, more = target.attend(trained)
    for one, other in zip(found, whole, strict=True):
        if path == "separate":
            assert torch.equal(one, other)
        else:  # dq is added up in any order
            assert (one.float() - other.float()).abs().max() < 1e-2
    if launched is not None:
        assert set(more) == set(launched)
        assert len(more) > len(launched)
