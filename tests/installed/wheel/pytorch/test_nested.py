"""Jagged nested tensors, through flash_attn_varlen_func and through PyTorch's own function."""

import pytest
import torch
from archs import ARCH
from flash_attn_rocm import FlashAttnArgumentError, explain, flash_attn_func, flash_attn_varlen_func, sdpa
from torch.nested import nested_tensor_from_jagged
from torch.nested._internal import ops
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

pytestmark = [
    pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning"),
    pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage"),  # PyTorch's plain formula
]
ENDS_Q, ENDS_K = torch.tensor([0, 3, 3, 9]), torch.tensor([0, 4, 6, 13])
NOTHING = (None,) * 4


def made(dtype=torch.float16):
    """q, k, v with separate rows, and the equal nested tensors (batch, ragged, nheads, headdim)."""
    rows = [torch.randn(n, heads, 64).to(dtype).requires_grad_() for n, heads in ((9, 4), (13, 2), (13, 2))]
    ends = ENDS_Q, ENDS_K, ENDS_K
    return rows, [nested_tensor_from_jagged(x, each) for x, each in zip(rows, ends, strict=True)]


@pytest.fixture(params=["kernels", "PyTorch implementation"])
def either_way(request, kernels_on, host_operators):
    if request.param == "kernels":
        kernels_on(ARCH)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("options", [{"causal": True}, {"window_size": (2, 1), "softcap": 2.0}], ids=str)
def test_packed_sequences(options):
    rows, nested = made()
    cuts = ENDS_Q.int(), ENDS_K.int()
    wanted = flash_attn_varlen_func(*rows, *cuts, 6, 7, **options)
    found = flash_attn_varlen_func(*nested, *NOTHING, **options)
    assert found.shape == nested[0].shape  # with an equal ragged size, so that both can be added
    assert torch.equal((found + nested[0]).values(), wanted + rows[0])
    dout = torch.randn_like(wanted)
    gradients = torch.autograd.grad(found.values(), rows, dout)
    for one, other in zip(gradients, torch.autograd.grad(wanted, rows, dout), strict=True):
        assert torch.equal(one, other)


def test_explain_looks_inside(kernels_on):
    kernels_on(ARCH)
    rows, nested = made()
    wanted = explain(flash_attn_varlen_func, *rows, ENDS_Q.int(), ENDS_K.int(), 6, 7)
    assert explain(flash_attn_varlen_func, *nested, *NOTHING) == wanted
    assert wanted.path == "split"


def test_log_sum_exps_are_those_of_the_rows():
    rows, nested = made()
    wanted = flash_attn_varlen_func(*rows, ENDS_Q.int(), ENDS_K.int(), 6, 7, return_attn_probs=True)
    out, lse, _ = flash_attn_varlen_func(*nested, *NOTHING, return_attn_probs=True)
    assert torch.equal(out.values(), wanted[0])
    assert torch.equal(lse, wanted[1])


def refused(*arguments):
    with pytest.raises(FlashAttnArgumentError, match="flash_attn_varlen_func cannot use its arg") as told:
        flash_attn_varlen_func(*arguments)
    return str(told.value)


def test_what_does_not_fit_is_an_error():
    rows, (q, k, v) = made()
    assert "cu_seqlens, max_seqlen, block_table: expected None beside" in refused(
        q, k, v, ENDS_Q, None, 6, None
    )
    assert (
        "k: expected a nested tensor with the layout torch.jagged like the others, got a tensor of shape"
        in (refused(q, rows[1], v, *NOTHING))
    )
    other = nested_tensor_from_jagged(rows[2], ENDS_K.clone())
    assert "v: expected the offsets of k, the same tensor, got others" in refused(q, k, other, *NOTHING)
    assert "q: expected a nested tensor (batch, ragged, nheads, headdim)" in (
        refused(q.transpose(1, 2), k, v, *NOTHING)
    )
    holes = nested_tensor_from_jagged(rows[0], ENDS_Q, torch.tensor([2, 0, 5]))
    assert "q: expected a nested tensor without holes" in refused(holes, k, v, *NOTHING)
    with pytest.raises(FlashAttnArgumentError, match="got a nested one; use flash_attn_varlen_func"):
        flash_attn_func(q, k, v)


@pytest.fixture
def host(kernels_on, host_fwd, monkeypatch):
    """Kernels on host memory, where PyTorch lacks flash attention. Returns the kernels' calls."""
    kernels_on(ARCH)
    monkeypatch.setattr(sdpa, "_flash_reached", lambda _device: False)
    with sdpa.enable():
        yield host_fwd


def heads_first(nested):
    """(batch, nheads, ragged, headdim)."""
    return [x.transpose(1, 2) for x in nested]


@pytest.mark.parametrize("scale", [None, 0.3])
def test_scaled_dot_product_attention(host, scale):
    rows, nested = made()
    found = scaled_dot_product_attention(*heads_first(nested), enable_gqa=True, scale=scale)
    assert len(host) == 1
    wanted = flash_attn_varlen_func(*rows, ENDS_Q.int(), ENDS_K.int(), 6, 7, softmax_scale=scale)
    values = found.transpose(1, 2).values()
    assert torch.equal(values, wanted)
    assert found.shape == nested[0].transpose(1, 2).shape
    gradients = torch.autograd.grad(values.sum(), rows)
    for one, other in zip(gradients, torch.autograd.grad(wanted.sum(), rows), strict=True):
        assert torch.equal(one, other)


def test_causal_attention_of_nested_tensors_which_pytorch_lacks_here(host):
    rows = torch.randn(9, 2, 64).half()
    x = nested_tensor_from_jagged(rows, ENDS_Q).transpose(1, 2)
    found = scaled_dot_product_attention(x, x, x, is_causal=True).transpose(1, 2).values()
    for begin, end in ((0, 3), (3, 9)):
        one = rows[begin:end].transpose(0, 1)[None]
        with sdpa_kernel(SDPBackend.MATH):
            wanted = scaled_dot_product_attention(*(one.double(),) * 3, is_causal=True)[0].transpose(0, 1)
        torch.testing.assert_close(found[begin:end].double(), wanted, rtol=0, atol=2**-10)
    with sdpa_kernel(SDPBackend.MATH):
        sdpa.disable()
        with pytest.raises(RuntimeError, match="No viable backend"):
            scaled_dot_product_attention(x, x, x, is_causal=True)


def test_autocast_makes_them_narrow(host):
    _, (q, k, v) = made(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = scaled_dot_product_attention(*heads_first((q, k, v)), enable_gqa=True)
    assert found.dtype == torch.bfloat16
    assert len(host) == 1


def test_what_kernels_do_not_serve_stays_with_pytorch(host):
    x = nested_tensor_from_jagged(torch.randn(9, 2, 64), ENDS_Q).transpose(1, 2)  # fp32
    found = scaled_dot_product_attention(x, x, x)
    assert host == []
    reason = "the dtype is torch.float32, and kernels have fp16 and bf16"
    assert sdpa.explain(x, x, x).reason == reason
    sdpa.disable()
    assert torch.equal(scaled_dot_product_attention(x, x, x).values(), found.values())


def test_explain_says_why(host):
    _, nested = made()
    q, k, v = heads_first(nested)
    assert sdpa.explain(q, k, v, enable_gqa=True)
    assert "enable_gqa" in sdpa.explain(q, k, v).reason
    assert "causal with other lengths" in sdpa.explain(q, k, v, is_causal=True, enable_gqa=True).reason
    assert "kernels take no attn_mask" in (
        sdpa.explain(q, k, v, torch.ones(1, dtype=torch.bool), enable_gqa=True).reason
    )
    strided = torch.nested.as_nested_tensor([torch.randn(2, n, 64).half() for n in (3, 4)])
    assert "torch.jagged only" in sdpa.explain(strided, strided, strided).reason


@pytest.mark.parametrize("trains", [False, True])
def test_where_pytorch_has_flash_attention_training_stays_there(host, monkeypatch, trains):
    monkeypatch.setattr(sdpa, "_flash_reached", lambda _device: True)
    _, nested = made()
    with torch.set_grad_enabled(trains):
        given = heads_first(nested)
        assert (sdpa._of_nested(*given, enable_gqa=True) is None) == trains
        assert sdpa._of_nested(*given, enable_gqa=True, dropout_p=0.5) is None
        with sdpa.enable(replace_fused=True):
            assert sdpa._of_nested(*given, enable_gqa=True) is not None


def test_pytorch_has_its_function_back(host):
    ours = ops.jagged_scaled_dot_product_attention
    with sdpa.enable():
        assert ops.jagged_scaled_dot_product_attention is ours
    assert ops.jagged_scaled_dot_product_attention is ours
    sdpa.disable()
    assert ops.jagged_scaled_dot_product_attention.__module__ == "torch.nested._internal.sdpa"
