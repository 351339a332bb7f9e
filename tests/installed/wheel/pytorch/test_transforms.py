"""Derivatives besides ``backward()``: torch.func, forward mode, vmap. Each is right, or a clear error."""

import pytest
import torch
from archs import ARCH
from flash_attn_rocm import (
    FlashAttnFallbackWarning,
    FlashAttnUnsupportedError,
    attention,
    flash_attn_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
    raw,
    set_strict,
)
from torch.autograd import forward_ad, gradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

pytestmark = [
    pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning"),
    # PyTorch's own tracer does this to every autograd function.
    pytest.mark.filterwarnings(
        "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning"
    ),
    # PyTorch's own forward mode does.
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning"),
]
SLOPES = torch.tensor([0.5, 0.1])
OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window, softcap": {"window_size": (1, 1), "softcap": 1.5, "softmax_scale": -0.7},
    "ALiBi": {"alibi_slopes": SLOPES, "causal": True},
    "ALiBi of a batch": {"alibi_slopes": torch.tensor([[0.5, 0.1], [0.0, 2.0]]), "window_size": (2, 0)},
    "dropout": {"dropout_p": 0.4, "causal": True, "alibi_slopes": SLOPES},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
CUTS = [torch.tensor(ends, dtype=torch.int32) for ends in ([0, 2, 2, 3], [0, 2, 3, 4])]
SIZES = (2, 3, 2), (2, 4, 1), (2, 4, 1)


def wide(*sizes, head_dim=2):
    return torch.randn(*sizes, head_dim, dtype=torch.float64)


def tensors(dtype=torch.float64, head_dim=2):
    return [wide(*each, head_dim=head_dim).to(dtype) for each in SIZES]


def seeded(function, **options):
    """An equal dropout mask in every call."""

    def call(*arguments):
        torch.manual_seed(7)
        return function(*arguments, **options)

    return call


def packed(q, k, v, **options):
    return flash_attn_varlen_func(q, k, v, *CUTS, 3, 2, **options)


def forward_mode_is_right(function, given):
    leaves = [x.requires_grad_() for x in given]
    return gradcheck(function, leaves, check_forward_ad=True, check_backward_ad=False)


@every_option
def test_forward_mode_against_differences(options):
    assert forward_mode_is_right(seeded(flash_attn_func, **options), tensors())


@pytest.mark.parametrize("name", ["plain", "window, softcap", "dropout"])
def test_forward_mode_of_packed_sequences(name):
    given = wide(4, 2), wide(5, 1), wide(5, 1)
    assert forward_mode_is_right(seeded(packed, **OPTIONS[name]), given)


def test_forward_mode_of_other_functions():
    mask = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    cut = torch.tensor([0, 1, 3], dtype=torch.int32)
    assert forward_mode_is_right(lambda *each: attention(*each, mask), tensors())
    assert forward_mode_is_right(flash_attn_qkvpacked_func, [wide(1, 3, 3, 2)])
    assert forward_mode_is_right(lambda x: flash_attn_varlen_qkvpacked_func(x, cut, 2), [wide(4, 3, 1)])


def test_forward_mode_of_a_paged_cache():
    table = torch.tensor([[1], [0], [2]], dtype=torch.int32)
    k, v = wide(3, 16, 1), wide(3, 16, 1)

    def call(q, k, v):
        return flash_attn_varlen_func(q, k, v, *CUTS, 3, 2, block_table=table)

    assert forward_mode_is_right(call, [wide(4, 2), k, v])


def test_jvp_and_jacobians():
    q, k, v = tensors()
    by_forward, by_backward = (each(flash_attn_func, argnums=(0, 1, 2))(q, k, v) for each in (jacfwd, jacrev))
    for one, other in zip(by_forward, by_backward, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-14)
    move = torch.randn_like(k)
    _, moved = jvp(lambda k: flash_attn_func(q, k, v), (k,), (move,))
    exact = torch.einsum("bshdctge,ctge->bshd", by_backward[1], move)
    torch.testing.assert_close(moved, exact, rtol=0, atol=1e-14)


def test_a_call_that_is_known_is_differentiated_too(kernels_on, host_operators):
    """It would go straight to its kernel."""
    kernels_on(ARCH)
    q, k, v = tensors(torch.float16, 64)
    out = flash_attn_func(q, k, v)
    assert torch.equal(flash_attn_func(q, k, v), out)
    told = pytest.warns(FlashAttnFallbackWarning, match="kernels compute no forward-mode derivatives")
    with forward_ad.dual_level():
        given = q, k, forward_ad.make_dual(v, v)
        with told:
            dual = flash_attn_func(*given)
        primal, tangent = forward_ad.unpack_dual(dual)
    assert torch.equal(primal, out)
    assert torch.equal(tangent, out)  # out is linear in v


def test_forward_mode_behind_kernels_is_told(kernels_on, host_operators):
    kernels_on(ARCH)
    q, k, v = tensors(torch.float16, 64)
    call = (lambda q: flash_attn_func(q, k, v), (q,), (q,))
    with pytest.warns(FlashAttnFallbackWarning, match="kernels compute no forward-mode derivatives"):
        jvp(*call)
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError, match="kernels compute no forward-mode derivatives"):
        jvp(*call)


@every_option
def test_grad_is_what_backward_computes(options):
    given = tensors()
    call = seeded(flash_attn_func, **options)
    found = grad(lambda *each: call(*each).sin().sum(), argnums=(0, 1, 2))(*given)
    leaves = [x.requires_grad_() for x in given]
    wanted = torch.autograd.grad(call(*leaves).sin().sum(), leaves)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_grad_of_packed_tensors_with_the_kernels(kernels_on, host_operators):
    kernels_on(ARCH)
    qkv = torch.randn(2, 5, 3, 2, 64).half()
    found = grad(lambda x: flash_attn_qkvpacked_func(x, causal=True).float().sum())(qkv)
    assert [len(each) for each in host_operators] == [1, 1]
    leaf = qkv.requires_grad_()
    (wanted,) = torch.autograd.grad(flash_attn_qkvpacked_func(leaf, causal=True).float().sum(), leaf)
    assert torch.equal(found, wanted)


MAPPED = {
    "all": (0, 0, 0),
    "queries": (0, None, None),
    "values, last": (None, None, 4),
    "keys inside": (None, 2, None),
}


@every_option
@pytest.mark.parametrize("in_dims", MAPPED.values(), ids=MAPPED)
def test_vmap_is_a_loop(options, in_dims):
    given = [
        x if dim is None else torch.stack([x, 2 * x, -x], dim)
        for x, dim in zip(tensors(), in_dims, strict=True)
    ]

    def entry(i):
        return [x if dim is None else x.select(dim, i) for x, dim in zip(given, in_dims, strict=True)]

    call = seeded(flash_attn_func, **options)
    found = vmap(call, in_dims, randomness="same")(*given)
    torch.testing.assert_close(found, torch.stack([call(*entry(i)) for i in range(3)]), rtol=0, atol=1e-14)

    def loss(*each):
        return call(*each).sin().sum()

    every = grad(loss, argnums=(0, 1, 2))
    gradients = vmap(every, in_dims, randomness="same")(*given)
    wanted = zip(*(every(*entry(i)) for i in range(3)), strict=True)
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, torch.stack(other), rtol=0, atol=1e-14)


def test_vmap_over_slopes_and_masks():
    q, k, v = tensors()
    slopes = torch.rand(3, 2)
    found = vmap(lambda x: flash_attn_func(q, k, v, alibi_slopes=x))(slopes)
    assert torch.equal(found, torch.stack([flash_attn_func(q, k, v, alibi_slopes=x) for x in slopes]))
    masks = torch.rand(5, 2, 1, 4) > 0.5
    found = vmap(lambda x: attention(q, k, v, x))(masks)
    assert torch.equal(found, torch.stack([attention(q, k, v, x) for x in masks]))
    many = torch.stack([q, 2 * q])
    found = vmap(lambda q: attention(q, k, v, masks[0]))(many)
    assert torch.equal(found, torch.stack([attention(q, k, v, masks[0]) for q in many]))


def test_vmap_over_packed_sequences_and_caches():
    q, k, v = wide(3, 4, 2), wide(5, 1), wide(5, 1)
    found = vmap(lambda x: packed(x, k, v))(q)
    assert torch.equal(found, torch.stack([packed(x, k, v) for x in q]))
    q, cache = wide(3, 2, 3, 2), wide(2, 8, 1)
    lengths = torch.tensor([[4, 5], [1, 8], [3, 3]], dtype=torch.int32)

    def call(q, lengths):
        return flash_attn_with_kvcache(q, cache, cache, cache_seqlens=lengths)

    assert torch.equal(
        vmap(call)(q, lengths), torch.stack([call(*each) for each in zip(q, lengths, strict=True)])
    )


def test_a_vmap_is_one_launch(kernels_on, host_operators):
    kernels_on(ARCH)
    q, k, v = tensors(torch.float16, 64)
    many = torch.randn(3, *q.shape).half()
    found = vmap(grad(lambda q: flash_attn_func(q, k, v).float().sum()))(many)
    assert found.shape == many.shape
    assert [len(each) for each in host_operators] == [1, 1]
    assert host_operators[0][0]["q"].shape == (6, 3, 2, 64)


def twice(function):
    return lambda q: jvp(function, (q,), (q,))[1].sum()


SECOND = {
    "hessian": lambda f, q: hessian(lambda q: f(q).sum())(q),
    "gradient of a gradient": lambda f, q: jacrev(jacrev(lambda q: f(q).sum()))(q),
    "gradient of a tangent": lambda f, q: grad(twice(f))(q),
    "tangent of a tangent": lambda f, q: jvp(twice(f), (q,), (q,)),
}


@pytest.mark.parametrize("derivative", SECOND.values(), ids=SECOND)
def test_second_derivatives_are_an_error(derivative):
    q, k, v = tensors()
    with pytest.raises(RuntimeError, match="attention has no second derivative\n  next: differentiate once"):
        derivative(lambda q: flash_attn_func(q, k, v), q)


def test_functions_without_derivatives_say_so():
    q, k, v = tensors()
    rules = (0.0, 1.0, False, -1, -1, 0.0)
    ways = {
        "flash_attn_with_kvcache": lambda q: flash_attn_with_kvcache(q, k, v),
        "the extension's fwd": lambda q: raw.fwd(q, k, v, None, None, *rules, False)[0],
        "the extension's bwd": lambda q: raw.bwd(
            q, q, k, v, q, q[..., 0].mT, None, None, None, None, *rules, False
        )[0],
    }
    for name, way in ways.items():
        with pytest.raises(RuntimeError, match=f"{name} has no derivatives"):
            jvp(way, (q,), (q,))
        with forward_ad.dual_level(), pytest.raises(RuntimeError, match=f"{name} has no derivatives"):
            way(forward_ad.make_dual(q, q))
    with pytest.raises(RuntimeError, match="by q, k and v only; alibi_slopes, attn_mask or sink has a"):
        jvp(lambda slopes: flash_attn_func(q, k, v, alibi_slopes=slopes), (SLOPES,), (SLOPES,))


INSIDE = {
    "grad": grad,
    "jvp": lambda function: lambda x: jvp(function, (x,), (x,)),
    "vmap": lambda function: vmap(lambda x: function(x[None])),
}


@pytest.mark.parametrize("transform", INSIDE.values(), ids=INSIDE)
def test_inside_what_is_compiled(transform):
    torch.compiler.reset()
    q, k, v = tensors()
    function = transform(lambda q: flash_attn_func(q, k[:1], v[:1]).sin().sum())
    wanted, found = function(q[:1]), torch.compile(function, backend="aot_eager")(q[:1])
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-14)
