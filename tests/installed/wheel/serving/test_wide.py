"""Head dims above 256: calls served by kernels, refused calls, and the words of the reasons."""

import pytest
import torch
from archs import ARCH
from exact import check, plain
from flash_attn_rocm import (
    FlashAttnFallbackWarning,
    attention,
    explain,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    is_supported,
)

quiet = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
NO_GRADIENTS = "the head dim is {}, and kernels compute gradients of 1 to 256"


@pytest.fixture(autouse=True)
def kernels(kernels_on):
    kernels_on(ARCH)


def tensors(head_dim=320, rows=5, keys=7):
    sizes = ((rows, 4), (keys, 2), (keys, 2))
    return [torch.randn(2, n, heads, head_dim).half() for n, heads in sizes]


@pytest.mark.parametrize("head_dim", [257, 320, 512])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", torch.float16])
def test_is_supported(dtype, head_dim):
    found = is_supported(ARCH, dtype, head_dim)
    assert (found.ok, found.path, found.splits, found.backward) == (True, "wide", 1, "pytorch")
    assert found.reason == "waves divide head_dim 512; keys are not split"
    assert f"with head_dim {head_dim} on" in found.backward_reason


def test_calls_are_explained():
    q, k, v = tensors()
    ends_q, ends_k = (torch.tensor([0, n], dtype=torch.int32) for n in (5, 7))
    for found in (
        explain(q, k, v, causal=True),
        explain(flash_attn_varlen_func, *(x[0] for x in (q, k, v)), ends_q, ends_k, 5, 7),
        explain(flash_attn_with_kvcache, q, k, v, num_splits=4),
        explain(attention, q, k, v, torch.ones(2, 1, 1, 7, dtype=torch.bool)),
        explain(attention, q, k, v, chunk=4, causal=True),
    ):
        assert (found.path, found.splits) == ("wide", 1)
        assert (found.backward, found.backward_reason) in {
            ("pytorch", NO_GRADIENTS.format(320)),
            ("pytorch", "kernels compute no gradients through a cache"),
        }


def test_keys_are_cut_into_parts():
    q, k, v = tensors(keys=300)
    found = explain(flash_attn_with_kvcache, q, k, v, num_splits=4)
    assert (found.path, found.splits) == ("wide", 4)
    assert found.reason == "waves divide head_dim 512; 4 parts wanted, 4 used for 300 keys"


FEATURES = {
    "softcap": (flash_attn_func, {"softcap": 5.0}),
    "alibi_slopes": (flash_attn_func, {"alibi_slopes": torch.rand(4)}),
    "dropout_p > 0": (flash_attn_func, {"dropout_p": 0.1}),
    "attn_mask": (attention, {"attn_mask": torch.ones(5, 7, dtype=torch.bool)}),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_are_told_and_computed_without_kernels(host_fwd, name):
    function, options = FEATURES[name]
    words = f"the head dim is 320, and above 256 kernels take no {name}"
    found = explain(function, *tensors(), **options)
    assert found.path == "pytorch"
    assert found.reason.startswith(words)
    with pytest.warns(FlashAttnFallbackWarning, match=words):
        function(*tensors(), **options)
    assert host_fwd == []


def test_pages_are_told():
    q = tensors()[0]
    cache = torch.randn(4, 16, 2, 320).half()
    table = torch.arange(4, dtype=torch.int32).view(2, 2)
    found = explain(flash_attn_with_kvcache, q, cache, cache, block_table=table, cache_seqlens=20)
    assert found.reason == "the head dim is 320, and above 256 kernels take no block_table"


@pytest.mark.parametrize("head_dim", [257, 512])
def test_smaller_ones_are_padded(host_fwd, head_dim):
    q, k, v = tensors(head_dim)
    out = flash_attn_func(q, k, v, causal=True)
    [given] = host_fwd
    assert given["q"].shape == (2, 5, 4, 512)
    assert given["softmax_scale"] == pytest.approx(head_dim**-0.5)
    assert (given["q"] is q) == (head_dim == 512)
    assert out.shape == q.shape
    assert given["path"] == "wide"


@quiet
def test_forward_by_kernel_and_gradients_without(host_operators):
    check(
        tensors(),
        ours=lambda q, k, v: flash_attn_func(q, k, v, causal=True),
        reference=lambda q, k, v: plain(q, k, v, causal=True)[0],
    )
    forwards, backwards = host_operators
    assert len(forwards) > 0
    assert backwards == []
    with pytest.warns(FlashAttnFallbackWarning, match="kernels compute gradients of 1 to 256"):
        flash_attn_func(*(x.requires_grad_() for x in tensors(300))).sum().backward()
