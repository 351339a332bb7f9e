"""``attention`` with masks and biases, forward and backward, against float64, on CPU tensors."""

import math
import warnings

import pytest
import torch
from archs import ARCH
from conftest import kernels_off
from exact import assert_log_sum_exp, check
from flash_attn_rocm import (
    FlashAttnArgumentError,
    FlashAttnUnsupportedError,
    attention,
    explain,
    flash_attn_func,
    set_strict,
)
from flash_attn_rocm.launch import mask_gradients
from flash_attn_rocm.reference import blocks, philox
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

BATCH, ROWS, KEYS, NHEADS, NHEADS_K = 2, 21, 37, 6, 2
pytestmark = [
    pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning"),
    # PyTorch's own tracer does this to every autograd function.
    pytest.mark.filterwarnings(
        "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning"
    ),
]
SIZES = {
    "rows_keys": (ROWS, KEYS),
    "keys": (1, KEYS),
    "batch": (BATCH, ROWS, KEYS),
    "padding": (BATCH, 1, KEYS),
    "heads": (BATCH, NHEADS, ROWS, KEYS),
    "of_heads": (1, NHEADS, 1, KEYS),
    "one": (1, 1, 1, 1),
}


def tensors(dtype=torch.float16):
    q = torch.randn(BATCH, ROWS, NHEADS, 40)
    k, v = (torch.randn(BATCH, KEYS, NHEADS_K, 40) for _ in range(2))
    return tuple(x.to(dtype).requires_grad_() for x in (q, k, v))


def masked(q, k, v, mask, *, causal=False, kept=1.0):
    """The formula. ``mask`` has four dimensions. ``kept`` multiplies the probabilities."""
    k, v = (x.repeat_interleave(NHEADS // NHEADS_K, dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask.dtype != torch.bool:
        scores, mask = scores + mask.to(scores.dtype), mask != -math.inf
    seen = mask.expand(scores.shape)
    if causal:
        seen = seen & torch.ones(ROWS, KEYS).tril(KEYS - ROWS).bool()
    scores = scores.masked_fill(~seen, -math.inf)
    blind = ~seen.any(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights * kept, v), torch.logsumexp(scores, -1).masked_fill(
        blind[..., 0], math.inf
    )


def several_blocks(monkeypatch):
    """Blocks of 16 rows of a pair."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 16)
    monkeypatch.setattr(blocks, "BLOCK_SCORES", blocks.ON_CPU * 16 * NHEADS // NHEADS_K * KEYS)


def four(mask):
    return mask[:, None] if mask.dim() == 3 else mask.reshape((1,) * (4 - mask.dim()) + mask.shape)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_output_and_gradients(monkeypatch, sizes, causal):
    several_blocks(monkeypatch)
    mask = torch.rand(SIZES[sizes]) < 0.6
    if sizes == "heads":
        mask[1, 2, 3] = False  # a row without keys
    check(
        tensors(),
        ours=lambda q, k, v: attention(q, k, v, mask, causal=causal),
        reference=lambda q, k, v: masked(q, k, v, four(mask), causal=causal)[0],
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_bias_with_its_gradient(monkeypatch, sizes, dtype):
    several_blocks(monkeypatch)
    bias = torch.randn(SIZES[sizes]).to(dtype)
    if sizes == "heads":
        bias[1, 2, 3] = -math.inf  # a row without keys
    bias.requires_grad_()
    q, k, v = tensors()
    weights = torch.randn(BATCH, ROWS, NHEADS, 40)
    found, wanted = (
        torch.autograd.grad((out.double() * weights).sum(), (q, k, v, bias))
        for out in (
            attention(q, k, v, bias),
            masked(q.double(), k.double(), v.double(), four(bias).double())[0],
        )
    )
    for name, one, other in zip(("dq", "dk", "dv", "dbias"), found, wanted, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        # An addend of all scores of a row changes nothing: its gradient is 0.
        size = max(1.0, other.double().abs().max().item())
        assert (one.double() - other.double()).abs().max() <= 2**-6 * size, name


@pytest.mark.parametrize("least", [torch.finfo(torch.float32).min, 0.0])
def test_rows_whose_bias_is_far_below_are_as_in_pytorch(least):
    """If the bias absorbs the scores, the result is the mean of v. Gradients follow."""
    q, k, v = (torch.randn(1, n, 2, 16, requires_grad=True) for n in (5, 9, 9))
    bias = torch.zeros(1, 1, 5, 9)
    bias[:, :, 1:3] = least
    weights = torch.randn(q.shape)

    def results(attend, *tensors):
        out = attend(*tensors)
        return out.detach(), *torch.autograd.grad(out, tensors, weights.to(out.dtype))

    def formula(q, k, v):
        heads = (x.transpose(1, 2) for x in (q, k, v))
        with sdpa_kernel(SDPBackend.MATH):
            return scaled_dot_product_attention(*heads, attn_mask=bias.double()).transpose(1, 2)

    wanted = results(formula, *(x.detach().double().requires_grad_() for x in (q, k, v)))
    for one, other in zip(results(lambda *x: attention(*x, bias), q, k, v), wanted, strict=True):
        torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-5)


def test_a_bias_and_rules_beside_it():
    q, k, v = (x.detach().double() for x in tensors())
    bias = torch.randn(NHEADS, ROWS, KEYS, dtype=torch.float64)[None]
    out = attention(q, k, v, bias, causal=True)
    torch.testing.assert_close(out, masked(q, k, v, bias, causal=True)[0])


def test_a_bias_of_another_dtype_than_kernels_have(qkv):
    with pytest.raises(FlashAttnArgumentError, match=r"attn_mask: expected dtype torch\.bool, torch"):
        attention(*qkv, torch.zeros(5, 7).double())


@pytest.mark.parametrize("sizes", SIZES)
def test_log_sum_exp(sizes):
    q, k, v = (x.detach() for x in tensors(torch.bfloat16))
    mask = torch.rand(SIZES[sizes]) < 0.3
    _, lse, _ = attention(q, k, v, mask, return_attn_probs=True)
    exact = masked(q.double(), k.double(), v.double(), four(mask))[1]
    assert_log_sum_exp(lse, exact, (q, k))


def test_a_causal_mask_is_causal_and_none_is_no_mask():
    q, k, v = (x.detach() for x in tensors())
    mask = torch.ones(ROWS, KEYS).tril(KEYS - ROWS).bool()
    # The masks are equal, but causal blocks leave out keys hidden from all rows: sums are in another order.
    difference = attention(q, k, v, mask).float() - flash_attn_func(q, k, v, causal=True).float()
    assert difference.abs().max() <= 2**-10
    assert torch.equal(attention(q, k, v), flash_attn_func(q, k, v))


def test_dropout_and_alibi_and_window():
    q, k, v = (x.detach() for x in tensors())
    options = {"dropout_p": 0.3, "alibi_slopes": torch.rand(NHEADS), "window_size": (9, 4)}
    torch.manual_seed(1)
    wanted = flash_attn_func(q, k, v, return_attn_probs=True, **options)
    torch.manual_seed(1)
    found = attention(q, k, v, torch.ones(ROWS, KEYS).bool(), return_attn_probs=True, **options)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_compiled_with_gradients():
    q, k, v = tensors()
    mask = torch.rand(BATCH, ROWS, KEYS) < 0.5
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    for found, wanted in zip(
        *(
            (out, *torch.autograd.grad(out.float().square().sum(), (q, k, v)))
            for out in (compiled(q, k, v, mask), attention(q, k, v, mask))
        ),
        strict=True,
    ):
        assert torch.equal(found, wanted)


PLACES = "kernels take no attn_mask beside alibi_slopes or chunk"


@pytest.mark.parametrize(
    ("mask", "options", "reason"),
    [
        ((2, 1, 7), {"chunk": 3}, PLACES),
        ((2, 1, 7), {"alibi_slopes": torch.zeros(4)}, PLACES),
        ((5, 7), {"softcap": 3.0}, "kernels take no attn_mask beside softcap"),
    ],
)
def test_masks_that_no_kernel_takes(qkv, kernels_on, mask, options, reason):
    mask = torch.ones(mask).bool()
    kernels_on(ARCH)
    qkv = [x.detach() for x in qkv]
    assert explain(attention, *qkv, **options)
    found = explain(attention, *qkv, mask, **options)
    assert (found.reason, found.backward, found.backward_reason) == (reason, "pytorch", reason)
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError, match=reason):
        attention(*qkv, mask, **options)


def test_larger_head_dims_than_kernels_with_a_mask_have(kernels_on):
    kernels_on(ARCH)
    q, k, v = (torch.randn(1, 5, 2, 160).half() for _ in range(3))
    assert explain(attention, q, k, v)
    found = explain(attention, q, k, v, torch.zeros(5, 5))
    assert not found
    assert found.reason.startswith(f"no fwd_masked kernel for fp16 with head_dim 160 on {ARCH}: this wheel ")


def test_small_scales_beside_a_bias(qkv, kernels_on):
    kernels_on(ARCH)
    qkv = [x.detach() for x in qkv]
    for mask, scale, served in ((torch.zeros(5, 7), 1e-7, False), (torch.zeros(5, 7), 0.0, True),
                                (torch.zeros(5, 7).bool(), 1e-7, True)):  # fmt: skip
        found = explain(attention, *qkv, mask, softmax_scale=scale)
        assert bool(found) == served
        assert served or "softmax_scale" in found.reason


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (2, -1)}])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sizes", [(5, 7), (1, 4, 1, 7), (2, 1, 7), (2, 4, 5, 7), (2, 1, 5, 1)])
def test_masks_that_kernels_read(qkv, kernels_on, host_fwd, sizes, dtype, options):
    """For any strides, kernels get rows of a multiple of 8 elements, and no expanded tensor."""
    kernels_on(ARCH)
    q, k, v = (x.detach() for x in qkv)
    mask = torch.rand(sizes) < 0.5 if dtype == torch.bool else torch.randn(sizes).to(dtype)
    expected, lse, _ = attention(*(x.float() for x in (q, k, v)), mask, return_attn_probs=True, **options)
    set_strict(True)
    for given in (mask, mask.transpose(-1, -2).contiguous().transpose(-1, -2)):
        found, found_lse, _ = attention(q, k, v, given, return_attn_probs=True, **options)
        torch.testing.assert_close(found.float(), expected, rtol=2**-9, atol=2**-9)
        torch.testing.assert_close(found_lse, lse, rtol=1e-5, atol=1e-4)
    if dtype == torch.bool and not options and four(mask).shape[1:3] == (1, 1):
        return  # such a mask chooses keys
    for call in host_fwd:
        got = call["attn_mask"]
        assert got.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
        assert got.shape[3] == 8
        assert got.is_contiguous()
        assert got.shape[:3] == four(mask).shape[:3]


def test_what_kernels_can_read_is_not_copied(kernels_on, host_fwd):
    kernels_on(ARCH)
    q, k, v = (torch.randn(2, 16, 4, 64).half() for _ in range(3))
    bias = torch.randn(2, 1, 16, 32).half()
    for given in (bias[..., :16], bias[:, :, :1, 16:].expand(2, 4, 16, 16)):
        attention(q, k, v, given)
        got = host_fwd[-1]["attn_mask"]
        assert got.data_ptr() == given.data_ptr()
        assert got.untyped_storage().data_ptr() == bias.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.float32])
def test_kernels_train_with_such_a_mask(qkv, kernels_on, host_operators, dtype):
    kernels_on(ARCH)
    mask = torch.rand(2, 1, 5, 7) < 0.5 if dtype == torch.bool else torch.randn(4, 5, 7)[None].to(dtype)
    found = explain(attention, *qkv, mask)
    assert (found.path, found.backward) == ("matrix", "separate")
    assert found.backward_reason == "a mask: only separate kernels read one"
    set_strict(True)
    attention(*(x.requires_grad_() for x in qkv), mask).sum().backward()
    ((forward,), (backward,)) = host_operators
    for call in (forward, backward):
        assert call["attn_mask"].shape == (*mask.shape[:3], 8)
        assert call["attn_mask"].is_contiguous()
    assert backward["dscores"] is None
    assert backward["dq_sums"] is None


@pytest.mark.parametrize("sizes", [(5, 7), (2, 4, 5, 7)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.float32])
def test_kernels_drop_beside_such_a_mask(qkv, kernels_on, host_operators, sizes, dtype):
    mask = torch.rand(sizes) < 0.7 if dtype == torch.bool else torch.randn(sizes).to(dtype).requires_grad_()
    leaves = [*(x.requires_grad_() for x in qkv), *([mask] if mask.requires_grad else [])]
    weights = torch.randn(2, 5, 4, 64).half()

    def results():
        torch.manual_seed(3)
        out = attention(*qkv, mask, causal=True, dropout_p=0.4)
        return out.detach(), *torch.autograd.grad(out, leaves, weights)

    expected = results()
    assert host_operators == ([], [])
    kernels_on(ARCH)
    set_strict(True)
    assert explain(attention, *qkv, mask, causal=True, dropout_p=0.4).backward == "separate"
    for found, wanted in zip(results(), expected, strict=True):
        torch.testing.assert_close(found.float(), wanted.float(), rtol=2**-8, atol=2**-8)
    ((forward,), (backward,)) = host_operators
    assert torch.equal(forward["rng_state"], backward["rng_state"])
    assert forward["attn_mask"].shape == backward["attn_mask"].shape


def gradient_of(bias, qkv, weights, dropout_p=0.0):
    torch.manual_seed(3)
    (found,) = torch.autograd.grad(attention(*qkv, bias, dropout_p=dropout_p), bias, weights)
    return found


def test_with_dropout_the_gradient_of_a_bias_comes_at_once(qkv, kernels_on, host_operators, monkeypatch):
    """The numbers of sequences and heads decide the dropped elements."""
    bias = torch.randn(2, 4, 5, 7, requires_grad=True)
    weights = torch.randn(2, 5, 4, 64).half()
    expected = gradient_of(bias, qkv, weights, 0.4)
    kernels_on(ARCH)
    set_strict(True)
    monkeypatch.setattr(mask_gradients, "MOST_SCORES", 1)
    found = gradient_of(bias, qkv, weights, 0.4)
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-7)
    assert [call["dscores"].shape for call in host_operators[1]] == [(2, 4, 5, 8)]


@pytest.mark.parametrize("most", [1 << 26, 5 * 8 * 2, 1], ids=["all at once", "one group of heads", "fewer"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "sizes", [(2, 4, 5, 7), (5, 7), (1, 4, 1, 7), (2, 1, 5, 7), (2, 1, 7), (2, 4, 5, 1), (1, 1)]
)
def test_kernels_find_the_gradient_of_a_bias(
    qkv, kernels_on, host_operators, monkeypatch, sizes, dtype, most
):
    """Added up along broadcast dimensions. The share of memory limits the part computed at once."""
    bias = torch.randn(sizes).to(dtype).requires_grad_()
    weights = torch.randn(2, 5, 4, 64).half()
    expected = gradient_of(bias, qkv, weights)
    assert host_operators == ([], [])
    kernels_on(ARCH)
    set_strict(True)
    monkeypatch.setattr(mask_gradients, "MOST_SCORES", most)
    found = gradient_of(bias, qkv, weights)
    assert (found.shape, found.dtype) == (bias.shape, dtype)
    torch.testing.assert_close(found.float(), expected.float(), rtol=2**-7, atol=2**-7)
    calls = host_operators[1]
    assert len(calls) == (1 if most == 1 << 26 else 4)
    assert all(call["dscores"].numel() <= max(most, 5 * 8 * 2) for call in calls)
    assert torch.equal(found, gradient_of(bias, qkv, weights)), "the same call, the same bits"


def test_head_dims_without_masked_gradients_are_said(kernels_on):
    kernels_on(ARCH)
    q, k, v = (torch.randn(1, 5, 2, 160).half().requires_grad_() for _ in range(3))
    found = explain(attention, q, k, v, torch.zeros(5, 5))
    assert found.backward == "pytorch"
    assert found.backward_reason.startswith(f"no bwd_dq_masked kernel for fp16 with head_dim 160 on {ARCH}")


def test_torch_func_has_no_derivative_by_a_bias(qkv):
    bias = torch.zeros(5, 7)
    with pytest.raises(RuntimeError, match="no derivative by attn_mask"):
        torch.func.grad(lambda x: attention(*qkv, x).float().sum())(bias)


def strided(*shape):
    """transformers' layout: heads before rows."""
    return torch.randn(shape[0], shape[2], shape[1], shape[3]).half().transpose(1, 2).requires_grad_()


def results(given, mask, options):
    """out, the log-sum-exp and all gradients."""
    *qkv, sink = given
    out, lse, _ = attention(*qkv, mask, sink=sink, return_attn_probs=True, **options)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out.dtype)
    return [out.detach(), lse, *torch.autograd.grad(out, given, weights)]


MASKS = {
    "padding": lambda: torch.arange(KEYS) < torch.tensor([KEYS, 11])[:, None, None],
    "left padding": lambda: torch.arange(KEYS) >= torch.tensor([3, 30])[:, None, None],
    "any": lambda: torch.rand(BATCH, 1, KEYS) < 0.5,
    "of all sequences": lambda: torch.rand(1, 1, 1, KEYS) < 0.5,
    "expanded": lambda: (torch.rand(BATCH, 1, 1, KEYS) < 0.5).expand(BATCH, NHEADS, ROWS, KEYS),
    "a sequence without": lambda: torch.arange(KEYS) < torch.tensor([0, 20])[:, None, None],
    "everything": lambda: torch.ones(1, 1).bool(),
}


@pytest.mark.parametrize("options", [{}, {"softcap": 3.0, "deterministic": True}])
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_keys_run_on_kernels(asked, name, options):
    given = [strided(BATCH, n, h, 64) for n, h in ((ROWS, NHEADS), (KEYS, NHEADS_K), (KEYS, NHEADS_K))]
    given.append(torch.randn(NHEADS, requires_grad=True))
    mask = MASKS[name]()
    found = results(given, mask, options)
    counts = four(mask).expand(BATCH, NHEADS, ROWS, KEYS)[:, 0, 0].sum(-1).tolist()
    assert len(asked) == 2
    for inputs, _ in asked:
        assert inputs.attn_mask is None
        assert inputs.cu_seqlens_k.diff().tolist() == counts, "kernels look at no hidden key"
        assert inputs.cu_seqlens_q.diff().tolist() == [ROWS] * BATCH
    kernels_off(asked)
    for a, b in zip(found, results(given, mask, options), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a.float(), b.float(), rtol=2**-9, atol=2**-8)


DROPOUT = 0.4


def kept_of(mask):
    """Dropout's factors after torch.manual_seed(3), by definition: (batch, nheads, rows, keys)."""
    torch.manual_seed(3)
    kept = philox.keep(
        philox.new_state(torch.device("cpu")),
        DROPOUT,
        batches=torch.arange(BATCH)[:, None, None, None],
        heads=torch.arange(NHEADS)[:, None, None],
        rows=torch.arange(ROWS)[:, None],
        columns=range(KEYS),
    )
    seen = four(mask).expand(kept.shape)
    found = torch.zeros(kept.shape, dtype=torch.float64)
    for b in range(BATCH):
        places = seen[b, 0, 0].nonzero()[:, 0]
        found[b, ..., places] = kept[b, ..., : len(places)].double()  # as if only these keys were there
    return found / (1 - DROPOUT)


def dropped(given, mask):
    """out and all gradients with this dropout."""
    torch.manual_seed(3)
    out = attention(*given, mask, dropout_p=DROPOUT)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, given, weights)]


@pytest.mark.parametrize("name", MASKS)
def test_dropout_counts_the_keys_that_are_seen(asked, monkeypatch, name):
    """Kernels, the PyTorch implementation and the formula, forward and backward."""
    given = [strided(BATCH, n, h, 64) for n, h in ((ROWS, NHEADS), (KEYS, NHEADS_K), (KEYS, NHEADS_K))]
    mask = MASKS[name]()
    assert explain(attention, *given, mask, dropout_p=DROPOUT)
    by_kernels = dropped(given, mask)
    assert [inputs.attn_mask for inputs, _ in asked] == [None, None]
    kernels_off(asked)
    several_blocks(monkeypatch)
    by_pytorch = dropped(given, mask)
    exact = [x.detach().double().requires_grad_() for x in given]
    out = masked(*exact, four(mask), kept=kept_of(mask))[0]
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).half().double()
    wanted = [out.detach(), *torch.autograd.grad(out, exact, weights)]
    for found in (by_kernels, by_pytorch):
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=2**-8, atol=2**-8)


def test_probabilities_say_what_dropout_dropped():
    q, k, v = (x.detach() for x in tensors(torch.float32))
    mask = MASKS["any"]()
    torch.manual_seed(3)
    signed = attention(q, k, v, mask, dropout_p=DROPOUT, return_attn_probs=True)[2]
    seen = four(mask).expand(signed.shape)
    assert (signed[~seen] == 0).all()
    assert torch.equal(signed[seen] > 0, kept_of(mask)[seen] > 0)


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")  # PyTorch's own
def test_forward_mode_drops_the_same():
    primals = tuple(x.detach() for x in tensors(torch.float64))
    mask, tangents = MASKS["left padding"](), tuple(map(torch.randn_like, primals))

    def attend(*given):
        torch.manual_seed(3)
        return attention(*given, mask, dropout_p=DROPOUT)

    found = torch.func.jvp(attend, primals, tangents)[1]
    leaves = [x.clone().requires_grad_() for x in primals]
    weights = torch.randn_like(found)
    gradients = torch.autograd.grad(attend(*leaves), leaves, weights)
    backwards = sum((gradient * x).sum() for gradient, x in zip(gradients, tangents, strict=True))
    torch.testing.assert_close((found * weights).sum(), backwards)


def test_compiled_with_dropout(kernels_on, host_operators):
    """All rates share one graph. The rate is a symbol in it."""
    kernels_on(ARCH)
    given, mask = [x.detach().requires_grad_() for x in tensors()], MASKS["padding"]()

    def attend(q, k, v, dropout_p):
        return attention(q, k, v, mask, dropout_p=dropout_p)

    compiled = torch.compile(attend, fullgraph=True, backend="eager")
    set_strict(True)
    for rate in (0.1, 0.3, 0.5):
        answers = []
        for function in (compiled, attend):
            torch.manual_seed(5)
            out = function(*given, rate)
            answers.append((out, *torch.autograd.grad(out.float().square().sum(), given)))
        for found, wanted in zip(*answers, strict=True):
            assert torch.equal(found, wanted)
    assert [len(calls) for calls in host_operators] == [6, 6]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_what_hidden_keys_hold_does_not_matter(asked, dropout):
    q, k, v = (torch.randn(2, n, 4, 64).half().requires_grad_() for n in (5, 9, 9))
    mask = torch.arange(9) < torch.tensor([4, 7])[:, None, None]
    with torch.no_grad():
        k[0, 4:] = v[1, 7:] = float("nan")
    out = attention(q, k, v, mask, dropout_p=dropout)
    dk, dv = torch.autograd.grad(out.float().sum(), (k, v))
    assert len(asked) == 2
    assert out.isfinite().all()
    assert (dk[0, 4:] == 0).all()
    assert (dv[1, 7:] == 0).all()


def test_explain_names_the_kernels(qkv, kernels_on):
    kernels_on(ARCH)
    found = explain(attention, *qkv, torch.ones(2, 1, 7).bool())
    assert found
    assert found.backward in {"separate", "fused"}


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (
            torch.ones(5, 6).bool(),
            "attn_mask: expected shape (5, 7), (2, 5, 7) or (2, 4, 5, 7), any size may be 1",
        ),
        (torch.ones(4, 5, 7).bool(), "got (4, 5, 7)"),
        (torch.ones(7).bool(), "got (7,)"),
        (torch.ones(1, 2, 4, 5, 7).bool(), "got (1, 2, 4, 5, 7)"),
        (torch.zeros(5, 7).int(), "or that of q, got torch.int32"),
        (torch.ones(5, 7, device="meta").bool(), "attn_mask: expected device cpu like q, got meta"),
        ([[True]], "attn_mask: expected a tensor, got list"),
    ],
)
def test_wrong_masks(qkv, mask, words):
    with warnings.catch_warnings(), pytest.raises(FlashAttnArgumentError) as caught:
        attention(*qkv, mask)
    assert words in str(caught.value)
