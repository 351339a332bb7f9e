"""The PyTorch implementation answers calls without a kernel.

These are fp32, and head dims above 512, also of v alone, through every function, forward and backward.
Without a GPU it also takes a head dim of v unlike that of q and k.
"""

import pytest
import torch
from archs import ARCH
from exact import check, plain
from flash_attn_rocm import (
    FlashAttnFallbackWarning,
    FlashAttnUnsupportedError,
    attention,
    explain,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
    is_supported,
    raw,
    sdpa,
    set_strict,
)

quiet = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
F16, F32 = torch.float16, torch.float32
CASES = {  # dtype, head dim of q and k, that of v, and the reason for the missing kernel
    "fp32": (F32, 64, 64, "the dtype is torch.float32, and kernels have fp16 and bf16"),
    "520": (F16, 520, 520, "the head dim is 520, and kernels have 1 to 512"),
    "larger v": (F16, 64, 520, "the head dim is 520, and kernels have 1 to 512"),
    "smaller v": (F16, 192, 128, ""),
}
UNSERVED = [name for name, case in CASES.items() if case[3]]
ENDS_Q, ENDS_K = (torch.tensor(x, dtype=torch.int32) for x in ([0, 4, 4, 9], [0, 6, 8, 13]))
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
unserved = pytest.mark.parametrize("case", [CASES[name] for name in UNSERVED], ids=UNSERVED)
one_dim = pytest.mark.parametrize("case", [CASES["fp32"], CASES["520"]], ids=["fp32", "520"])


def tensors(case, rows=5, keys=7):
    dtype, head_dim, of_v, _ = case
    sizes = ((rows, 4, head_dim), (keys, 2, head_dim), (keys, 2, of_v))
    return [torch.randn(2, *each).to(dtype) for each in sizes]


@quiet
@every_case
@pytest.mark.parametrize(
    "options", [{"causal": True}, {"window": (3, 1), "softcap": 2.0}], ids=["causal", "window"]
)
def test_dense(case, options):
    given = {"window_size" if name == "window" else name: value for name, value in options.items()}
    check(
        tensors(case),
        ours=lambda q, k, v: flash_attn_func(q, k, v, **given),
        reference=lambda q, k, v: plain(q, k, v, **options)[0],
    )


@quiet
@every_case
def test_packed_sequences(case):
    q, k, v = (x[0] for x in tensors(case, 9, 13))
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = flash_attn_varlen_func(*leaves, ENDS_Q, ENDS_K, 5, 6, causal=True)
    dout = torch.randn_like(out)
    found = [out, *torch.autograd.grad(out, leaves, dout)]
    assert out.shape == (9, 4, v.shape[-1])
    for begin, end, first, last in ((0, 4, 0, 6), (4, 9, 8, 13)):
        some = [x.detach()[None].requires_grad_() for x in (q[begin:end], k[first:last], v[first:last])]
        alone = flash_attn_func(*some, causal=True)
        wanted = [alone, *torch.autograd.grad(alone, some, dout[None, begin:end])]
        places = slice(begin, end), slice(begin, end), *[slice(first, last)] * 2
        for mine, place, one in zip(found, places, wanted, strict=True):
            assert torch.equal(mine[place], one[0])
    assert not any(x[6:8].any() for x in found[2:])  # keys of the sequence without queries


@quiet
@one_dim
def test_packed_tensors(case):
    dtype, head_dim, *_ = case
    qkv = torch.randn(2, 5, 3, 2, head_dim).to(dtype).requires_grad_()
    q, k, v = qkv.unbind(2)
    wanted = flash_attn_func(q, k, v)
    (gradient,) = torch.autograd.grad(wanted.sum(), qkv, retain_graph=True)
    cut = torch.tensor([0, 5, 10], dtype=torch.int32)
    q_rows, kv_rows = q.flatten(0, 1), qkv[:, :, 1:].flatten(0, 1)
    for found in (
        flash_attn_qkvpacked_func(qkv),
        flash_attn_kvpacked_func(q, qkv[:, :, 1:]),
        flash_attn_varlen_qkvpacked_func(qkv.flatten(0, 1), cut, 5),
        flash_attn_varlen_kvpacked_func(q_rows, kv_rows, cut, cut, 5, 5),
    ):
        assert torch.equal(found.reshape(wanted.shape), wanted)
        assert torch.equal(torch.autograd.grad(found.sum(), qkv, retain_graph=True)[0], gradient)


@quiet
@every_case
def test_masks(case):
    q, k, v = (x.requires_grad_() for x in tensors(case))
    mask = torch.ones(5, 7).tril(2).bool()
    found, wanted = attention(q, k, v, mask), flash_attn_func(q, k, v, causal=True)
    assert torch.equal(found, wanted)
    for one, other in zip(*(torch.autograd.grad(x.sum(), (q, k, v)) for x in (found, wanted)), strict=True):
        assert torch.equal(one, other)


@quiet
@every_case
@pytest.mark.parametrize("paged", [False, True])
def test_caches(case, paged):
    dtype, head_dim, of_v, _ = case
    q, k, v = tensors(case, 2, 2)
    lengths = torch.tensor([3, 17], dtype=torch.int32)
    caches = [torch.randn(2, 32, 2, dim).to(dtype) for dim in (head_dim, of_v)]
    given = [x.clone() for x in caches]
    options = {}
    if paged:
        given = [x.view(4, 16, 2, x.shape[-1]) for x in given]
        options = {"block_table": torch.arange(4, dtype=torch.int32).view(2, 2)}
    found, lse = flash_attn_with_kvcache(
        q, *given, k, v, cache_seqlens=lengths, causal=True, return_softmax_lse=True, **options
    )
    for b, length in enumerate(lengths.tolist()):
        keys, values = (
            torch.cat((cache[b, :length], new[b]))[None] for cache, new in zip(caches, (k, v), strict=True)
        )
        out, wanted_lse, _ = flash_attn_func(q[b : b + 1], keys, values, causal=True, return_attn_probs=True)
        assert torch.equal(found[b], out[0])
        assert torch.equal(lse[b], wanted_lse[0])


@quiet
@every_case
def test_dropout_and_its_probabilities(case):
    q, k, v = tensors(case)
    torch.manual_seed(1)
    out, _, signed = flash_attn_func(q, k, v, dropout_p=0.5, return_attn_probs=True)
    kept = signed.clamp(min=0).double() / 0.5
    values = v.double().repeat_interleave(2, dim=2)
    exact = torch.einsum("bhqk,bkhd->bqhd", kept, values)
    assert (signed < 0).any()
    # The probabilities are rounded to the dtype of q, and so is out.
    assert (out - exact).abs().max() <= 4 * torch.finfo(q.dtype).eps * values.abs().max()


@quiet
@every_case
def test_entry_points_below_the_public_functions(case):
    q, k, v = tensors(case)
    out, lse, _, _ = raw.fwd(q, k, v, None, None, 0.0, 0.1, True, -1, -1, 0.0, False)
    dout = torch.randn_like(out)
    found = raw.bwd(dout, q, k, v, out, lse, None, None, None, None, 0.0, 0.1, True, -1, -1, 0.0, False)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    wanted = flash_attn_func(*leaves, softmax_scale=0.1, causal=True)
    assert torch.equal(out, wanted)
    for one, other in zip(found, torch.autograd.grad(wanted, leaves, dout), strict=False):
        assert torch.equal(one, other)


def calls(q, k, v):
    """A call of each function, without and with another layout."""
    rows = [x[0] for x in (q, k, v)]
    cut_q, cut_k = (torch.tensor([0, n], dtype=torch.int32) for n in (5, 7))
    return {
        "dense": (flash_attn_func, q, k, v),
        "packed": (flash_attn_varlen_func, *rows, cut_q, cut_k, 5, 7),
        "cache": (flash_attn_with_kvcache, q, k, v),
        "mask": (attention, q, k, v),
    }


@unserved
@pytest.mark.parametrize("name", ["dense", "packed", "cache", "mask"])
def test_it_is_told_once_and_an_error_in_strict_mode(case, name, kernels_on, host_operators):
    kernels_on(ARCH)
    function, *arguments = calls(*tensors(case))[name]
    assert explain(function, *arguments).reason == case[3]
    assert explain(function, *arguments).path == explain(function, *arguments).backward == "pytorch"
    with pytest.warns(FlashAttnFallbackWarning, match=case[3]):
        function(*arguments)
    function(*arguments)  # A second warning would be an error.
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError) as refused:
        function(*arguments)
    assert case[3] in str(refused.value)
    assert host_operators == ([], [])


@unserved
def test_gradients_are_in_the_same_words(case, kernels_on):
    kernels_on(ARCH)
    found = explain(*(x.requires_grad_() for x in tensors(case)))
    assert (found.backward, found.backward_reason) == ("pytorch", case[3])


@one_dim
def test_is_supported_says_no(case):
    dtype, head_dim, *_ = case
    found = is_supported(ARCH, dtype, head_dim)
    assert not found
    assert found.path == found.backward == "pytorch"
    assert str(dtype) in found.reason or f"head_dim {head_dim}" in found.reason


@every_case
def test_scaled_dot_product_attention_stays_with_pytorch(case, kernels_on, host_fwd):
    kernels_on(ARCH)
    q, k, v = (x.transpose(1, 2) for x in tensors(case, 7, 7))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    with sdpa.enable():
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert torch.equal(found, wanted)
    assert host_fwd == []
    assert not sdpa.explain(q, k, v, enable_gqa=True)


@quiet
@every_case
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.filterwarnings(
    "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning"
)
def test_in_one_graph_of_the_compiler(case, dynamic):
    torch.compiler.reset()
    leaves = [x.requires_grad_() for x in tensors(case)]
    compiled = torch.compile(flash_attn_func, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    found, wanted = compiled(*leaves), flash_attn_func(*leaves)
    assert torch.equal(found, wanted)
    for one, other in zip(*(torch.autograd.grad(x.sum(), leaves) for x in (found, wanted)), strict=True):
        assert torch.equal(one, other)
