"""torch.compile takes every function into one graph, forward and backward, with changing sizes."""

import pytest
import torch
from archs import ARCH
from flash_attn_rocm import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

pytestmark = [
    pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning"),
    # PyTorch's own tracer does this to every autograd function.
    pytest.mark.filterwarnings(
        "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning"
    ),
]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()


@pytest.mark.parametrize(("backend", "dynamic"), [("aot_eager", False), ("aot_eager", True), ("eager", True)])
@pytest.mark.parametrize("options", [{"causal": True}, {"window_size": (3, 1), "softcap": 2.0}])
def test_one_graph(qkv, backend, dynamic, options):
    q, k, v = (x.requires_grad_() for x in qkv)
    compiled = torch.compile(
        lambda q, k, v: flash_attn_func(q, k, v, **options), fullgraph=True, backend=backend, dynamic=dynamic
    )
    same(compiled(q, k, v), flash_attn_func(q, k, v, **options), (q, k, v))


@pytest.mark.parametrize("head_dim", [64, 40])
def test_the_kernels_are_one_operator_of_the_graph_and_planned_when_it_runs(host_fwd, kernels_on, head_dim):
    kernels_on(ARCH)
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(
        lambda q, k: flash_attn_func(q, k, k, causal=True), fullgraph=True, backend=backend, dynamic=True
    )
    for batch, rows, keys in ((2, 5, 7), (3, 11, 13), (4, 6, 9)):
        q, k = torch.randn(batch, rows, 24, head_dim).half(), torch.randn(batch, keys, 12, head_dim).half()
        out = compiled(q, k)
        assert torch.equal(out, flash_attn_func(q, k, k, causal=True))
    assert len(graphs) == 1
    called = [str(node.target) for node in graphs[0].graph.nodes if "flash_attn_rocm" in str(node.target)]
    assert called == ["flash_attn_rocm.forward"]
    assert len(host_fwd) == 6


def test_a_graph_with_gradients_through_the_kernels(qkv, host_fwd, kernels_on):
    kernels_on(ARCH)
    q, k, v = (x.requires_grad_() for x in qkv)
    compiled = torch.compile(flash_attn_func, fullgraph=True, backend="aot_eager", dynamic=True)
    same(compiled(q, k, v, causal=True), flash_attn_func(q, k, v, causal=True), (q, k, v))
    assert host_fwd


def same(out, expected, leaves):
    found, wanted = (torch.autograd.grad(each.sum(), leaves) for each in (out, expected))
    assert torch.equal(out, expected)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_other_sizes_need_no_other_graph():
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(flash_attn_func, fullgraph=True, backend=backend, dynamic=True)
    for batch, rows, keys in ((2, 5, 7), (3, 11, 13), (4, 6, 9)):
        q = torch.randn(batch, rows, 24, 32).half()  # all dimensions differ
        k = torch.randn(batch, keys, 12, 32).half()
        assert torch.equal(compiled(q, k, k), flash_attn_func(q, k, k))
    assert len(graphs) == 1


def test_ragged_sequences():
    def attend(q, k, v, cu, most):
        return flash_attn_varlen_func(q, k, v, cu, cu, most, most, causal=True)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=True)
    for ends in ([0, 3, 7], [0, 5, 5, 11]):
        leaves = tuple(torch.randn(ends[-1], 2, 32).half().requires_grad_() for _ in range(3))
        cu = torch.tensor(ends, dtype=torch.int32)
        same(compiled(*leaves, cu, 6), attend(*leaves, cu, 6), leaves)


def test_tensors_of_8_bits(qkv):
    codes = [x.to(torch.float8_e4m3fn) for x in qkv]
    descales = {f"{name}_descale": torch.rand(2, 2) + 0.5 for name in "qkv"}
    compiled = torch.compile(flash_attn_func, backend="aot_eager", fullgraph=True)
    assert torch.equal(
        compiled(*codes, causal=True, **descales), flash_attn_func(*codes, causal=True, **descales)
    )


def test_one_tensor_may_be_several_arguments():
    x = torch.randn(2, 5, 2, 32).half().requires_grad_()
    compiled = torch.compile(lambda x: flash_attn_func(x, x, x), fullgraph=True, backend="aot_eager")
    same(compiled(x), flash_attn_func(x, x, x), (x,))


def test_dropout_draws_anew_in_each_call():
    q = torch.randn(2, 33, 4, 32).half()
    compiled = torch.compile(
        lambda q: flash_attn_func(q, q, q, dropout_p=0.5), fullgraph=True, backend="aot_eager"
    )
    torch.manual_seed(3)
    first, second = compiled(q), compiled(q)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(first, compiled(q))


# From imports of PyTorch's backend.
OF_THE_BACKEND = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@OF_THE_BACKEND
@pytest.mark.parametrize("budget", [1.0, 0.5, 0.0])
def test_gradients_of_dropout_are_those_of_what_it_dropped(budget):
    """A backward pass that computed the forward again drew another key: out was no longer linear in v."""
    q, k, v, weights = (torch.randn(2, 33, 2, 32) for _ in range(4))
    compiled = torch.compile(
        lambda q, k, v: flash_attn_func(q.sin().cos() * q, k, v, dropout_p=0.3),
        fullgraph=True, backend="aot_eager_decomp_partition",
    )  # fmt: skip
    v.requires_grad_()
    with torch._functorch.config.patch(activation_memory_budget=budget):
        out = compiled(q.requires_grad_(), k, v)
        (dv,) = torch.autograd.grad((out * weights).sum(), [v])
    # Both are sums of terms as large as out: 2^-23 is a step of fp32.
    assert ((out * weights).sum() - (v * dv).sum()).abs() <= 2**-18 * (out * weights).norm()


@OF_THE_BACKEND
def test_calls_in_one_graph_drop_on_their_own():
    def attend(q):
        first, second = (flash_attn_func(q, q, q, dropout_p=0.5) for _ in range(2))
        return first - second

    q = torch.randn(2, 33, 4, 32).half()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager_decomp_partition")
    for leaf in (q, q.clone().requires_grad_()):
        torch.manual_seed(3)
        found = compiled(leaf)
        torch.manual_seed(3)
        assert torch.equal(found, attend(leaf))
        assert found.any()


def decode(q, k_cache, v_cache, new, angles, lengths):
    cos, sin = angles
    return flash_attn_with_kvcache(
        q, k_cache, v_cache, *new, rotary_cos=cos, rotary_sin=sin, cache_seqlens=lengths, causal=True
    )


@pytest.mark.parametrize("lengths", [torch.tensor([3, 0, 7], dtype=torch.int32), 4])
def test_a_cache_is_written_in_place(lengths):
    compiled = torch.compile(decode, fullgraph=True, backend="aot_eager", dynamic=True)
    angles = torch.randn(2, 30, 16).half().unbind()
    for rows in (1, 3):
        q, k, v = (torch.randn(3, rows, heads, 32).half() for heads in (4, 2, 2))
        caches = [torch.randn(3, 20, 2, 32).half() for _ in range(2)]
        copies = [cache.clone() for cache in caches]
        wanted = decode(q, *copies, (k, v), angles, lengths)
        assert torch.equal(compiled(q, *caches, (k, v), angles, lengths), wanted)
        assert all(torch.equal(a, b) for a, b in zip(caches, copies, strict=True))
