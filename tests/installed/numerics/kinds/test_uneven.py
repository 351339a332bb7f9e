"""v of another head dim than q and k, through the public functions (see rule.py), as DeepSeek V3 has it."""

import pytest
import torch
from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func
from flash_attn_rocm.canary import calls, rows
from flash_attn_rocm.launch import forward_pass
from flash_attn_rocm.machine import remembered
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.rule import DTYPES, Rules, Sequence, judge, judge_gradients
from flash_attn_rocm.suite.target import UNEVEN_OP
from here import ARCH, LARGE, UNEVEN, UNEVEN_BACKWARD

CAUSAL = Rules(right=0)
FAMILIES = {"own kernels": (192, 128), "padded to them": (160, 120)}


def tensors(target, dtype, dims, rows, keys, heads=(4, 2)):
    generator = torch.Generator().manual_seed(dims[0])
    sizes = ((rows, heads[0], dims[0]), (keys, heads[1], dims[0]), (keys, heads[1], dims[1]))
    return [torch.randn(*each, generator=generator).to(DTYPES[dtype]).to(target.device) for each in sizes]


def ends(target, lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=target.device)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [dtype for dtype, _ in UNEVEN])
def test_dense(target, shown, dtype, name):
    q, k, v = tensors(target, dtype, FAMILIES[name], 40, 70)
    given = (x[None] for x in (q, k, v))
    (out, lse, _), kernels = target.attend(flash_attn_func, *given, causal=True, return_attn_probs=True)
    assert out.shape == (1, 40, 4, FAMILIES[name][1])
    kernel = f"fa_fwd_uneven_{dtype}_d192"
    assert kernels in (None, (kernel,))
    judge(shown, kernel, name, [Sequence(q, k, v, out[0], lse[0])], CAUSAL)


# Calls with features or few queries use kernels for one head dim.
OTHERS = {
    "softcap": (40, {"softcap": 3.0}, Rules(softcap=3.0)),
    "few queries": (5, {}, Rules()),
}


@pytest.mark.needs(LARGE)
@pytest.mark.parametrize("name", OTHERS)
def test_what_is_padded_to_one_head_dim(target, shown, name):
    rows, options, rules = OTHERS[name]
    q, k, v = tensors(target, "bf16", (192, 128), rows, 33)
    given = (x[None] for x in (q, k, v))
    (out, lse, _), kernels = target.attend(flash_attn_func, *given, return_attn_probs=True, **options)
    assert out.shape[-1] == 128
    assert kernels is None or not any("uneven" in kernel for kernel in kernels)
    kernel = target.answering("fa_fwd_bf16_d192")
    judge(shown, kernel, name, [Sequence(q, k, v, out[0], lse[0])], rules)


# A window, and packed sequences including an empty one. On archs without such kernels v is padded.
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [dtype for dtype, _ in UNEVEN])
def test_gradients(target, shown, dtype, name):
    rows, keys, rules = (20, 0, 35), (33, 7, 40), Rules(30, 0)
    leaves = [x.requires_grad_() for x in tensors(target, dtype, FAMILIES[name], sum(rows), sum(keys))]
    cut = (*(ends(target, each) for each in (rows, keys)), 35, 40)
    window = {"window_size": (rules.left, rules.right)}
    out, _ = target.attend(flash_attn_varlen_func, *leaves, *cut, **window)
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    found, kernels = target.attend(torch.autograd.grad, out, leaves, dout)
    own = (dtype, 192) in UNEVEN_BACKWARD
    by_queries = f"fa_{UNEVEN_OP}_{dtype}_d192" if own else f"fa_bwd_dq_{dtype}_d192"
    by_keys = by_queries.replace("bwd_dq", "bwd_dkdv")
    assert kernels in (None, (f"fa_bwd_delta_{dtype}", by_keys, by_queries))
    lengths = (rows, keys, keys)
    q, k, v = (x.detach().split(each) for x, each in zip(leaves, lengths, strict=True))
    parts = zip(*(x.split(each) for x, each in zip(found, lengths, strict=True)), strict=True)
    sequences = [
        (Sequence(*each[:3], each[3], None, None, None), each[4], gradients)
        for each, gradients in zip(
            zip(q, k, v, out.split(rows), dout.split(rows), strict=True), parts, strict=True
        )
    ]
    names = {"dq": by_queries, "dk": by_keys, "dv": by_keys}
    judge_gradients(shown, names, name, sequences, rules)


@pytest.mark.parametrize(("dtype", "head_dim"), UNEVEN)
def test_the_check_at_first_use_finds_what_is_wrong(target, monkeypatch, dtype, head_dim):
    """Only its calls with another head dim of v. The others launch the family's other kernels."""
    for name in ("ATTENTION", "TALL"):
        monkeypatch.setattr(rows, name, ())
    family = remembered.Family(ARCH, dtype, head_dim)
    given = (family, forward_pass.answer, Device(ARCH, 0), target.device)
    problem, kernels = target.attend(calls.attention_problem, *given)
    assert problem == ""
    assert kernels is None or {*kernels} == {str(Kernel("fwd_uneven", dtype, head_dim))}

    def doubled(*arguments):
        out, lse = forward_pass.answer(*arguments)
        return out * 2, lse

    wrong, _ = target.attend(calls.attention_problem, family, doubled, *given[2:])
    assert wrong.startswith("another head dim of v: ")


@pytest.mark.parametrize(("dtype", "head_dim"), UNEVEN)
def test_the_whole_check_at_first_use(target, dtype, head_dim):
    given = (remembered.Family(ARCH, dtype, head_dim), forward_pass.answer, Device(ARCH, 0), target.device)
    problem, kernels = target.attend(calls.attention_problem, *given)
    assert problem == ""
    assert kernels is None or str(Kernel("fwd_uneven", dtype, head_dim)) in kernels
