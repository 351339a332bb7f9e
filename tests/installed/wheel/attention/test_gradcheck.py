"""float64, unsupported by kernels: gradients against finite differences. Second ones are refused."""

import pytest
import torch
from archs import ARCH
from flash_attn_rocm import (
    FlashAttnUnsupportedError,
    attention,
    explain,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
    set_strict,
)
from flash_attn_rocm.suite import reference_attention
from torch.autograd import gradcheck

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
ROWS, KEYS, HEAD_DIM = 3, 4, 2
SLOPES = torch.tensor([0.5, 0.1])
CASES = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window_size": (1, 1)},
    "softcap": {"softcap": 1.5, "softmax_scale": -0.7},
    "ALiBi": {"alibi_slopes": SLOPES, "causal": True},
    "ALiBi of a batch": {"alibi_slopes": torch.tensor([[0.5, 0.1], [0.0, 2.0]]), "window_size": (2, 0)},
    "dropout": {"dropout_p": 0.4, "causal": True},
    "everything": {"alibi_slopes": SLOPES, "window_size": (3, 1), "dropout_p": 0.2, "softmax_scale": 0.3},
}


def wide(*sizes):
    return torch.randn(*sizes, HEAD_DIM, dtype=torch.float64).requires_grad_()


def seeded(function):
    """An equal dropout mask in every call."""

    def call(*tensors):
        torch.manual_seed(7)
        return function(*tensors)

    return call


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_dense(options):
    batch = 2 if options.get("alibi_slopes", SLOPES).dim() == 2 else 1
    tensors = wide(batch, ROWS, 2), wide(batch, KEYS, 1), wide(batch, KEYS, 1)
    assert gradcheck(seeded(lambda *each: flash_attn_func(*each, **options)), tensors)


@pytest.mark.parametrize("options", [CASES["everything"], CASES["softcap"]], ids=["everything", "softcap"])
def test_packed_sequences(options):
    cut_q, cut_k = (torch.tensor(x, dtype=torch.int32) for x in ([0, 2, 2, 3], [0, 2, 3, 4]))
    tensors = wide(4, 2), wide(5, 1), wide(5, 1)

    def function(*each):
        return flash_attn_varlen_func(*each, cut_q, cut_k, 3, 2, **options)

    assert gradcheck(seeded(function), tensors)


def test_packed_tensors():
    cut = torch.tensor([0, 1, 3], dtype=torch.int32)
    assert gradcheck(lambda qkv: flash_attn_qkvpacked_func(qkv, causal=True), [wide(1, ROWS, 3, 2)])
    assert gradcheck(flash_attn_kvpacked_func, [wide(1, ROWS, 2), wide(1, KEYS, 2, 1)])
    assert gradcheck(lambda qkv: flash_attn_varlen_qkvpacked_func(qkv, cut, 2), [wide(4, 3, 1)])


def test_a_mask():
    mask = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    tensors = wide(1, ROWS, 2), wide(1, KEYS, 2), wide(1, KEYS, 2)
    assert gradcheck(lambda *each: attention(*each, mask), tensors)


def test_gradcheck_would_see_a_wrong_gradient():
    """The bias of ALiBi in the forward only."""
    slopes = torch.zeros(2)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            ctx.save_for_backward(q, k, v)
            return flash_attn_func(q, k, v, alibi_slopes=SLOPES)

        @staticmethod
        def backward(ctx, dout):
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
                out = flash_attn_func(*leaves, alibi_slopes=slopes)
            return torch.autograd.grad(out, leaves, dout)

    tensors = wide(1, ROWS, 2), wide(1, KEYS, 2), wide(1, KEYS, 2)
    assert not gradcheck(Wrong.apply, tensors, raise_exception=False)


def test_it_is_computed_in_float64():
    """Without rounding to fp32: sums of float64 in another order."""
    q, k, v = (x.detach() for x in (wide(2, ROWS, 2), wide(2, KEYS, 1), wide(2, KEYS, 1)))
    options = {"alibi_slopes": SLOPES, "softcap": 1.5, "causal": True}
    out, lse, _ = flash_attn_func(q, k, v, **options, return_attn_probs=True)
    rules = reference_attention.Rules(right=0, softcap=1.5)
    exact_out, exact_lse = reference_attention.attention(q, k, v, rules, SLOPES.expand(2, 2))
    assert out.dtype == lse.dtype == torch.float64
    torch.testing.assert_close(out, exact_out, rtol=0, atol=1e-14)
    torch.testing.assert_close(lse, exact_lse, rtol=0, atol=1e-14)


def test_caches():
    q, k_cache, v_cache, k, v = (wide(1, n, 1).detach() for n in (1, 8, 8, 1, 1))
    lengths = torch.tensor([4], dtype=torch.int32)
    out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths)
    assert torch.equal(k_cache[:, 4:5], k)
    exact, _ = reference_attention.attention(q, k_cache[:, :5], v_cache[:, :5], reference_attention.Rules())
    torch.testing.assert_close(out, exact, rtol=0, atol=1e-14)


def test_no_kernel_is_asked(kernels_on, host_operators):
    kernels_on(ARCH)
    tensors = wide(2, ROWS, 2), wide(2, KEYS, 1), wide(2, KEYS, 1)
    with pytest.warns(UserWarning, match="float64, and kernels have fp16 and bf16"):
        flash_attn_func(*tensors).sum().backward()
    assert host_operators == ([], [])
    found = explain(*tensors)
    assert (found.path, found.backward) == ("pytorch", "pytorch")
    assert (
        found.reason == found.backward_reason == "the dtype is torch.float64, and kernels have fp16 and bf16"
    )
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError, match="the dtype is "):
        flash_attn_func(*tensors)


def test_a_second_derivative_is_refused_in_words():
    tensors = wide(1, ROWS, 2), wide(1, KEYS, 2), wide(1, KEYS, 2)
    out = flash_attn_func(*tensors)
    with pytest.raises(RuntimeError, match="attention has no second derivative"):
        torch.autograd.grad(out.sum(), tensors, create_graph=True)
