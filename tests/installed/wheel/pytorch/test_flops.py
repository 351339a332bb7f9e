"""FlopCounterMode counts attention as it counts PyTorch's own."""

import pytest
import torch
from archs import ARCH, archs_with
from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
from flash_attn_rocm.arguments import flops
from flash_attn_rocm.launch import fp8
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

pytestmark = [
    pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(
        "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning"
    ),
]
BATCH, ROWS, KEYS, HEADS, HEAD_DIM = 2, 5, 7, 4, 64
PRODUCT = 2 * BATCH * HEADS * ROWS * KEYS * HEAD_DIM


def counted(function, *arguments):
    with FlopCounterMode(display=False) as counter:
        function(*arguments)
    return counter.get_total_flops()


def tensors(heads_k=HEADS):
    sizes = (ROWS, HEADS), (KEYS, heads_k), (KEYS, heads_k)
    return [torch.randn(BATCH, *each, HEAD_DIM).half().requires_grad_() for each in sizes]


def trained(function):
    return lambda *each: function(*each).sum().backward()


def of_pytorch(q, k, v):
    return scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)))


@pytest.fixture(params=["kernels", "PyTorch implementation"])
def either_way(request, kernels_on, host_operators):
    if request.param == "kernels":
        kernels_on(ARCH)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("heads_k", [4, 2])
def test_forward_and_backward(heads_k):
    given = tensors(heads_k)
    flash_attn_func(*given, causal=True)  # known to the kernels' side, and from before the counter
    assert counted(flash_attn_func, *given) == 2 * PRODUCT
    assert counted(trained(flash_attn_func), *given) == 7 * PRODUCT
    out = flash_attn_func(*given)
    assert counted(lambda: out.sum().backward()) == 5 * PRODUCT


def test_pytorch_counts_its_own_alike():
    with sdpa_kernel(SDPBackend.MATH):  # two products forward, four backward: it keeps the probabilities
        assert counted(of_pytorch, *tensors()) == 2 * PRODUCT
        assert counted(trained(of_pytorch), *tensors()) == 6 * PRODUCT
    x = torch.empty(BATCH, HEADS, ROWS, HEAD_DIM, dtype=torch.float16, device="meta").requires_grad_()
    y = torch.empty(BATCH, HEADS, KEYS, HEAD_DIM, dtype=torch.float16, device="meta").requires_grad_()
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    assert counted(trained(lambda *each: flash(*each)[0]), x, y, y) == 7 * PRODUCT


def test_a_head_dim_of_v():
    q, k, v = tensors()
    values = v[..., :16].detach().requires_grad_()
    pairs = 2 * BATCH * HEADS * ROWS * KEYS
    assert counted(flash_attn_func, q, k, values) == pairs * (64 + 16)
    assert counted(trained(flash_attn_func), q, k, values) == pairs * (4 * 64 + 3 * 16)


@pytest.mark.usefixtures("either_way")
def test_lengths_are_those_of_the_sequences():
    q, k = torch.randn(9, 2, 64).half(), torch.randn(13, 2, 64).half()
    cuts = [torch.tensor(ends, dtype=torch.int32) for ends in ([0, 4, 9], [0, 6, 13])]
    assert counted(flash_attn_varlen_func, q, k, k, *cuts, 5, 7) == 2 * (4 * 6 + 5 * 7) * 2 * 2 * 64
    q, cache = torch.randn(2, 1, 4, 64).half(), torch.randn(2, 32, 2, 64).half()
    used = torch.tensor([3, 17], dtype=torch.int32)
    found = counted(lambda: flash_attn_with_kvcache(q, cache, cache, cache_seqlens=used))
    assert found == 2 * (3 + 17) * 4 * 2 * 64


def test_a_counter_that_was_open_before_the_first_call(monkeypatch):
    q, k, v = tensors()
    for operator in flops._formulas():
        monkeypatch.delitem(flop_counter.flop_registry, operator, raising=False)
    assert counted(flash_attn_func, q, k, v) == 2 * PRODUCT
    assert counted(flash_attn_func, q, k, v) == 2 * PRODUCT


def test_forward_mode():
    q, k, v = (x.detach() for x in tensors())
    with forward_ad.dual_level():
        assert counted(lambda: flash_attn_func(forward_ad.make_dual(q, q), k, v)) == 7 * PRODUCT


def test_a_graph_of_the_compiler():
    torch.compiler.reset()
    compiled = torch.compile(flash_attn_func, backend="aot_eager")
    compiled(*tensors())
    assert counted(trained(compiled), *tensors()) == 7 * PRODUCT


@pytest.mark.needs_kernels("fwd_fp8")
def test_products_of_fp8(kernels_on, monkeypatch):
    kernels_on(archs_with("fwd_fp8")[0])
    monkeypatch.setattr(fp8, "FWD_FP8", lambda *_given: None)
    codes = [torch.randn(BATCH, 20, HEADS, 128).to(torch.float8_e4m3fn) for _ in range(3)]
    product = 2 * BATCH * HEADS * 20 * 20 * 128
    assert counted(flash_attn_func, *codes) == 2 * product
    ends = torch.tensor([0, 20, 40], dtype=torch.int32)
    packed = [x.flatten(0, 1) for x in codes]
    assert counted(flash_attn_varlen_func, *packed, ends, ends, 20, 20) == 2 * product
