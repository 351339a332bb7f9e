"""PyTorch's scaled_dot_product_attention on our kernels. Here they run on host memory."""

import math
import threading

import flash_attn_rocm
import pytest
import torch
from archs import ARCH
from exact import check
from flash_attn_rocm import (
    FlashAttnFallbackWarning,
    FlashAttnUnsupportedError,
    sdpa,
    set_strict,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

NAMES = [f"aten::{name}" for name in (sdpa.MATH, sdpa.FLASH)]
FLASH = torch.ops.aten._scaled_dot_product_flash_attention.default
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning"
)


@pytest.fixture
def host(kernels_on, host_fwd, monkeypatch):
    """Kernels on host memory, where PyTorch lacks flash attention. Returns the kernels' calls."""
    kernels_on(ARCH)
    monkeypatch.setattr(sdpa, "_flash_reached", lambda _device: False)
    with sdpa_kernel(SDPBackend.MATH):
        yield host_fwd
    sdpa.disable()


@pytest.fixture
def small():
    """query (2, 4, 9, 32), key and value of that shape, fp16."""
    return tuple(torch.randn(2, 4, 9, 32).half() for _ in range(3))


def registered():
    return [torch._C._dispatch_dump(name) for name in NAMES]


def test_nothing_happens_on_import(host, small):
    assert not sdpa.is_enabled()
    scaled_dot_product_attention(*small)
    assert not host


def formula(q, k, v, *, causal=False):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(q.shape[2], k.shape[2]).triu(1).bool(), -math.inf)
    return torch.softmax(scores, -1) @ v


SHAPES = {"square": ((2, 4, 9, 32), (2, 4, 9, 32)), "more_keys": ((2, 4, 9, 40), (2, 2, 14, 40))}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_output_and_gradients(host, dtype, shape, causal):
    of_q, of_k = SHAPES[shape]
    tensors = tuple(torch.randn(sizes).to(dtype).requires_grad_() for sizes in (of_q, of_k, of_k))
    with sdpa.enable():
        check(
            tensors,
            ours=lambda *x: scaled_dot_product_attention(*x, is_causal=causal, enable_gqa=True),
            reference=lambda *x: formula(*x, causal=causal),
        )
    assert len(host) == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(host, small, mode):
    expected = formula(*(x.double() for x in small))
    with mode(), sdpa.enable():
        found = scaled_dot_product_attention(*small, scale=32**-0.5)
    assert len(host) == 1
    assert (found.double() - expected).abs().max() < 2**-9


def test_dropout_is_ours(host, small):
    with sdpa.enable():
        torch.manual_seed(4)
        found = scaled_dot_product_attention(*small, dropout_p=0.5)
    torch.manual_seed(4)
    wanted = flash_attn_rocm.flash_attn_func(*(x.transpose(1, 2) for x in small), dropout_p=0.5)
    assert torch.equal(found, wanted.transpose(1, 2))
    assert len(host) == 2


def test_large_head_dims(host):
    """Without gradients by kernels. Other calls go to PyTorch, forward and backward."""
    q, k, v = (torch.randn(2, heads, 7, 512).half() for heads in (4, 2, 2))
    assert sdpa.explain(q, k, v, enable_gqa=True).path == "wide"
    with sdpa.enable():
        found = scaled_dot_product_attention(q, k, v, enable_gqa=True)
        scaled_dot_product_attention(q.clone().requires_grad_(), k, v, enable_gqa=True)
    assert len(host) == 1
    assert (found.double() - formula(q.double(), k.double(), v.double())).abs().max() < 2**-8


def unlike(**changes):
    q, k, v = (torch.randn(2, 4, 9, 32).half() for _ in range(3))
    return {"query": q, "key": k, "value": v} | changes


OTHERS = {
    "dtype": ({name: x.float() for name, x in unlike().items()}, "the dtype is torch.float32"),
    "dimensions": ({name: x[0] for name, x in unlike().items()}, "tensors of 4 dimensions"),
    "value_headdim": (unlike(value=torch.randn(2, 4, 9, 16).half()), "differ"),
    "batches": (unlike(query=torch.randn(1, 4, 9, 32).half()), "differ"),
    "more_rows": (unlike(query=torch.randn(2, 4, 12, 32).half(), is_causal=True), "more queries than keys"),
    "empty": (unlike(query=torch.randn(2, 4, 0, 32).half()), "no empty tensors"),
    "headdim": ({n: torch.randn(1, 1, 3, 520).half() for n in unlike()}, "headdim from 1 to 512"),
    "large headdim with gradients": (
        {n: torch.randn(1, 1, 3, 512).half().requires_grad_() for n in unlike()},
        "the head dim is 512, and kernels compute gradients of 1 to 256",
    ),
    "large headdim with a mask": (
        {n: torch.randn(1, 1, 3, 512).half() for n in unlike()} | {"attn_mask": torch.ones(3, 3).bool()},
        "the head dim is 512, and above 256 kernels take no attn_mask",
    ),
}


MASKS = {
    "rows and keys": lambda: torch.rand(9, 9) < 0.7,
    "keys": lambda: torch.rand(2, 1, 1, 9) < 0.7,
    "heads": lambda: torch.randn(4, 9, 9).half(),
    "fp32": lambda: torch.randn(2, 1, 9, 9),
    "one dimension": lambda: torch.randn(9).half(),
    "rows that see nothing": lambda: torch.arange(9)[:, None].expand(9, 9) > 3,
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(host, small, name):
    mask = MASKS[name]()
    assert sdpa.explain(*small, mask)
    bias = torch.zeros(mask.shape).masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else mask
    scores = small[0].double() @ small[1].double().mT * 32**-0.5 + bias.double()
    expected = torch.softmax(scores, -1).nan_to_num(0.0) @ small[2].double()
    with sdpa.enable():
        found = scaled_dot_product_attention(*small, attn_mask=mask)
    assert len(host) == 1
    assert (found.double() - expected).abs().max() < 2**-8


@pytest.mark.parametrize("expanded", [False, True])
def test_training_with_padding_and_dropout(host, host_bwd, small, expanded):
    """As encoders call it.  PyTorch makes a bias of the mask, and expands it if the mask was."""
    padding = torch.arange(9) < torch.tensor([[9], [5]])
    mask = padding[:, None, None].expand(2, 1, 9 if expanded else 1, 9)
    found = sdpa.explain(*small, mask, 0.3)
    assert found
    assert (found.backward, found.backward_reason) == ("separate", "a mask: only separate kernels read one")
    given = [x.clone().requires_grad_() for x in small]
    bias = torch.zeros(mask.shape, dtype=torch.float16).masked_fill(~mask, -math.inf)

    def results(attend):
        torch.manual_seed(4)
        out = attend()
        return out.detach(), *torch.autograd.grad(out.float().square().sum(), given)

    with sdpa.enable():
        ours = results(lambda: scaled_dot_product_attention(*given, attn_mask=mask, dropout_p=0.3))
    assert (len(host), len(host_bwd)) == (1, 1)
    heads = [x.transpose(1, 2) for x in given]
    same = results(lambda: flash_attn_rocm.attention(*heads, bias, dropout_p=0.3).transpose(1, 2))
    for one, other in zip(ours, same, strict=True):
        assert torch.equal(one, other)
    # The keys of padding stay unread.
    assert all((gradient[1, :, 5:] == 0).all() for gradient in ours[2:])


@pytest.mark.parametrize("name", OTHERS)
def test_pytorch_answers_what_kernels_do_not_serve(host, name):
    given, reason = OTHERS[name]
    assert reason in sdpa.explain(**given).reason
    expected = scaled_dot_product_attention(**given)
    with sdpa.enable():
        found = scaled_dot_product_attention(**given)
    assert torch.equal(found, expected)
    assert not host


def test_pytorch_answers_with_its_own_errors(host, small):
    q, k, v = small
    with sdpa.enable(), pytest.raises(RuntimeError, match="size of tensor a"):
        scaled_dot_product_attention(q, k[:, :2], v[:, :2])
    assert "without enable_gqa" in sdpa.explain(q, k[:, :2], v[:, :2]).reason


def test_pytorch_answers_where_it_has_flash_attention(host, small, monkeypatch):
    monkeypatch.setattr(sdpa, "_flash_reached", lambda _device: True)
    with sdpa.enable():
        scaled_dot_product_attention(*small)
    assert not host


def switches():
    return torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()


@pytest.mark.parametrize("before", [True, False])
def test_fused_attention_that_is_broken_is_replaced(kernels_on, host_operators, small, monkeypatch, before):
    """Forward and backward, and nested. PyTorch's switches are then as before."""
    kernels_on(ARCH)
    monkeypatch.setattr(sdpa, "_flash_reached", lambda _device: True)
    torch.backends.cuda.enable_mem_efficient_sdp(before)
    leaves = [x.requires_grad_() for x in small]
    forwards, backwards = host_operators
    try:
        with sdpa.enable():
            scaled_dot_product_attention(*leaves)
            assert not forwards
            with sdpa.enable(replace_fused=True):
                with sdpa.enable(replace_fused=True), sdpa.enable():
                    assert switches() == (False, False)
                scaled_dot_product_attention(*leaves).sum().backward()
                assert (len(forwards), len(backwards)) == (1, 1)
                masked = scaled_dot_product_attention(*leaves, attn_mask=torch.ones(9, 9).bool())
                assert torch.isfinite(masked).all()
                masked.sum().backward()
                assert backwards[-1]["attn_mask"] is not None
            assert switches() == (True, before)
        assert (len(forwards), len(backwards)) == (2, 2)
        assert switches() == (True, before)
        sdpa.enable(replace_fused=True)
        sdpa.disable()
        assert switches() == (True, before)
    finally:
        sdpa.disable()
        torch.backends.cuda.enable_mem_efficient_sdp(True)


def test_nothing_is_switched_off_without_kernels(small):
    with pytest.warns(FlashAttnFallbackWarning, match="stays PyTorch's own"):
        sdpa.enable(replace_fused=True)
    assert switches() == (True, True)


def test_a_call_that_a_kernel_serves_is_explained(host, small):
    assert sdpa.explain(*small, is_causal=True).path != "pytorch"


def test_everything_is_restored_exactly(host, small):
    before = registered()
    assert sdpa.enable()
    assert registered() != before
    scaled_dot_product_attention(*small)
    sdpa.disable()
    assert registered() == before
    with sdpa.enable(), sdpa.enable():
        pass
    assert registered() == before
    with pytest.raises(KeyError), sdpa.enable():
        raise KeyError
    assert registered() == before
    scaled_dot_product_attention(*small)
    assert len(host) == 1


def test_uses_nest(host, small):
    def served():
        host.clear()
        scaled_dot_product_attention(*small)
        return bool(host)

    with sdpa.enable():
        with sdpa.enable():
            assert served()
        assert served()
        assert sdpa.is_enabled()
    assert not served()
    sdpa.enable()
    with sdpa.enable():
        sdpa.disable()
        assert not served()
        outer = sdpa.enable()
    assert served()
    with outer:
        pass
    assert not served()
    assert not sdpa.is_enabled()


def test_what_another_library_laid_below_answers_and_stays(host, small):
    library = torch.library.Library("aten", "IMPL")
    library.impl(sdpa.MATH, lambda q, *_rest, **_options: (torch.full_like(q, 7), q), "AutogradCPU")
    before = registered()
    with sdpa.enable():
        scaled_dot_product_attention(*small)
        assert len(host) == 1
        floats = tuple(x.float() for x in small)
        assert (scaled_dot_product_attention(*floats) == 7).all()
    assert registered() == before
    assert (scaled_dot_product_attention(*small) == 7).all()
    library._destroy()


def test_gradients_after_the_end_of_the_block(host, small):
    leaves = [x.requires_grad_() for x in small]
    with sdpa.enable():
        out = scaled_dot_product_attention(*leaves)
    out.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in leaves)


def test_torch_compile(host, small):
    leaves = [x.requires_grad_() for x in small]
    with sdpa.enable():
        compiled = torch.compile(
            lambda *x: scaled_dot_product_attention(*x, is_causal=True), fullgraph=True, backend="aot_eager"
        )
        results = [
            (out, *torch.autograd.grad(out.float().square().sum(), leaves))
            for out in (compiled(*leaves), scaled_dot_product_attention(*leaves, is_causal=True))
        ]
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert len(host) == 2
    torch.compiler.reset()


def test_many_threads(host, small):
    def use():
        for _ in range(20):
            with sdpa.enable():
                scaled_dot_product_attention(*small)

    before = registered()
    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registered() == before
    assert not sdpa.is_enabled()


@pytest.mark.parametrize("arch", ["gfx900", None])
def test_nothing_is_claimed_without_kernels(kernels_on, small, arch):
    if arch:
        kernels_on(arch)
    before = registered()
    reason = "no kernels for gfx900" if arch else "this PyTorch is a (CPU|CUDA .*) build, which"
    with pytest.warns(FlashAttnFallbackWarning, match=reason):
        use = sdpa.enable()
    with use:
        assert not sdpa.is_enabled()
        assert registered() == before
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError, match=reason) as caught:
        sdpa.enable()
    assert "next: python -m flash_attn_rocm doctor" in str(caught.value)


@pytest.mark.parametrize("reached", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_pytorch_is_asked_once_whether_it_has_flash_attention(monkeypatch, reached, enabled):
    asked = []

    def can_use(parameters):
        asked.append((torch.backends.cuda.flash_sdp_enabled(), parameters.query.dtype))
        return reached

    monkeypatch.setattr(sdpa._State, "flash_reached", {})
    monkeypatch.setattr(torch.backends.cuda, "can_use_flash_attention", can_use)
    torch.backends.cuda.enable_flash_sdp(enabled)
    assert [sdpa._flash_reached(torch.device("cpu")) for _ in range(2)] == [reached] * 2
    assert torch.backends.cuda.flash_sdp_enabled() == enabled
    assert asked == [(True, torch.float16)]
    torch.backends.cuda.enable_flash_sdp(True)


@pytest.fixture
def own_flash(host, monkeypatch):
    """PyTorch's flash attention on host memory: calls, and the factor of its log-sum-exps."""
    calls, state = [], {"times": 1.0}
    monkeypatch.setattr(sdpa._State, "natural", {})

    def original(q, k, v, dropout_p=0.0, is_causal=False, debug=False, *, scale=None):
        calls.append(q.shape)
        scores = q.float() @ k.float().mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        lse, zero = torch.logsumexp(scores, -1) * state["times"], torch.zeros((), dtype=torch.int64)
        out = (torch.softmax(scores, -1) @ v.float()).to(q.dtype)
        return out, lse, None, None, q.shape[2], k.shape[2], zero, zero, q.new_empty(0)

    library = torch.library.Library("aten", "IMPL")
    library.impl(sdpa.FLASH, original, "CPU")
    yield calls, state
    sdpa.disable()
    library._destroy()


def test_the_flash_operator(host, own_flash, small):
    calls, _ = own_flash
    q = small[0].transpose(1, 2).contiguous().transpose(1, 2)
    for query in (small[0], q):
        expected = FLASH(query, *small[1:], scale=0.3)
        with sdpa.enable():
            found = FLASH(query, *small[1:], scale=0.3)
        assert len(host) == 1
        host.clear()
        assert (found[0].float() - expected[0].float()).abs().max() < 2**-9
        assert (found[1] - expected[1]).abs().max() < 2**-20 * 64
        assert found[0].stride() == query.stride()
        assert found[2:6] == (None, None, 9, 9)
    # Once before each use and one canary.
    assert len(calls) == 3


def test_the_flash_operator_leaves_to_pytorch_what_needs_its_backward_pass(host, own_flash, small):
    with sdpa.enable():
        FLASH(small[0].requires_grad_(), *small[1:])
        with torch.no_grad():
            FLASH(*small, 0.5)
            FLASH(small[0][:, :, :4], *small[1:], 0.0, True)
            assert not host
            FLASH(*small)
    assert len(host) == 1


def test_the_flash_operator_is_pytorchs_where_its_log_sum_exps_are_not_natural(host, own_flash, small):
    own_flash[1]["times"] = math.log2(math.e)
    with sdpa.enable():
        FLASH(*small)
    assert not host


def derivatives(x):
    """Each kind of torch.func derivative, of attention with itself."""

    def attend(x):
        return scaled_dot_product_attention(x, x, x).float().square().sum()

    ones = torch.ones_like(x)
    yield torch.func.grad(attend)(x)
    yield torch.func.vjp(attend, x)[1](torch.tensor(1.0))[0]
    yield torch.func.jvp(attend, (x,), (ones,))[1]
    yield torch.vmap(torch.func.grad(attend))(torch.stack([x, x.flip(2)]))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # PyTorch 2.12 and older
def test_transforms_are_pytorchs_own(host, small):
    """They raised NotImplementedError for custom_function_call."""
    wanted = [*derivatives(small[0])]
    with sdpa.enable():
        found = [*derivatives(small[0])]
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert not host
