"""Calls like an earlier one skip the checks: they must give the first one's result or error."""

import threading
from functools import partial

import pytest
import torch
from archs import ARCH
from flash_attn_rocm import (
    FlashAttnArgumentError,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from flash_attn_rocm.arguments import checks as _checks
from flash_attn_rocm.arguments import preparation
from flash_attn_rocm.autograd import recall, unpacking
from flash_attn_rocm.serving import machine
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def some(*sizes):
    return torch.randn(*sizes, 64).half()


CALLS = {
    "dense": lambda: (flash_attn_func, (some(2, 5, 4), some(2, 7, 2), some(2, 7, 2)), {"causal": True}),
    "slopes": lambda: (
        flash_attn_func,
        (some(2, 5, 4), some(2, 7, 2), some(2, 7, 2)),
        {"alibi_slopes": torch.rand(2, 4), "window_size": (3, 1), "return_attn_probs": True},
    ),
    "sink": lambda: (flash_attn_func, (some(2, 5, 4), some(2, 7, 2), some(2, 7, 2)), {"sink": torch.ones(4)}),
    "qkvpacked": lambda: (flash_attn_qkvpacked_func, (some(2, 5, 3, 4),), {"softcap": 2.0}),
    "kvpacked": lambda: (flash_attn_kvpacked_func, (some(2, 5, 4), some(2, 7, 2, 2)), {}),
    "varlen": lambda: (
        flash_attn_varlen_func,
        (some(8, 4), some(9, 2), some(9, 2), ints(0, 3, 8), ints(0, 4, 9), 5, 5),
        {"return_attn_probs": True},
    ),
    "paged": lambda: (
        flash_attn_varlen_func,
        (some(8, 4), some(3, 16, 2), some(3, 16, 2), ints(0, 3, 8), ints(0, 4, 9), 5, 5),
        {"block_table": ints([2], [0])},
    ),
    "varlen_qkvpacked": lambda: (
        flash_attn_varlen_qkvpacked_func, (some(8, 3, 4), ints(0, 3, 8), 5), {"softmax_scale": 0.3},
    ),
    "varlen_kvpacked": lambda: (
        flash_attn_varlen_kvpacked_func,
        (some(8, 4), some(9, 2, 2), ints(0, 3, 8), ints(0, 4, 9), 5, 5),
        {},
    ),
    "kvcache": lambda: (
        flash_attn_with_kvcache,
        (some(2, 1, 4), some(3, 20, 2), some(3, 20, 2), some(2, 1, 2), some(2, 1, 2)),
        {
            "cache_seqlens": ints(3, 9), "cache_batch_idx": ints(2, 0), "causal": True,
            "rotary_cos": some(20)[:, :16].clone(), "rotary_sin": some(20)[:, :16].clone(),
        },
    ),
    "lengths": lambda: (
        flash_attn_with_kvcache, (some(2, 1, 4), some(2, 20, 2), some(2, 20, 2)),
        {"cache_seqlens": 4, "cache_leftpad": ints(1, 0), "num_splits": 3, "return_softmax_lse": True},
    ),
}  # fmt: skip


@pytest.fixture
def checks(monkeypatch):
    """The number of argument checks."""
    counted = []
    real = preparation.checks.refuse
    monkeypatch.setattr(preparation.checks, "refuse", lambda *given: (counted.append(given), real(*given)))
    return counted


def flattened(answer):
    return answer if isinstance(answer, tuple) else (answer,)


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_gives_the_same_bits_and_is_not_checked(name, host_fwd, kernels_on, checks):
    kernels_on(ARCH)
    function, arguments, options = CALLS[name]()
    first = function(*arguments, **options)
    counted = len(checks)
    assert counted
    again = function(*arguments, **options)
    assert len(checks) == counted
    first_call, second_call = host_fwd
    for argument, value in first_call.items():
        other = second_call[argument]
        same = torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
        assert same, argument
    assert all(torch.equal(a, b) for a, b in zip(flattened(first), flattened(again), strict=True))


def test_other_values_of_tensors_are_seen(host_fwd, kernels_on):
    kernels_on(ARCH)
    q, k, v = some(8, 4), some(9, 2), some(9, 2)
    for ends in ([0, 3, 8], [0, 5, 8]):
        cu = ints(*ends)
        out = flash_attn_varlen_func(q, k, v, cu, ints(0, 4, 9), 5, 5)
        assert torch.equal(out[: ends[1]], flash_attn_func(q[None, : ends[1]], k[None, :4], v[None, :4])[0])


def test_an_int_of_cache_seqlens_may_change(host_fwd, kernels_on, checks):
    kernels_on(ARCH)
    q, cache = some(1, 1, 2), some(1, 20, 2)
    flash_attn_with_kvcache(q, cache, cache, cache_seqlens=3)
    counted = len(checks)
    out = flash_attn_with_kvcache(q, cache, cache, cache_seqlens=7)
    assert len(checks) == counted
    assert torch.equal(out, flash_attn_func(q, cache[:, :7], cache[:, :7]))


@pytest.mark.parametrize(
    "change",
    [
        {"dropout_p": False},  # equal to 0.0 and valid, but another call
        {"softmax_scale": 1},
        {"causal": 1},
        {"window_size": (-1, -1.0)},
        {"window_size": [-1, -1]},
    ],
)
def test_what_is_equal_but_not_the_same_is_checked_again(qkv, host_fwd, kernels_on, checks, change):
    kernels_on(ARCH)
    flash_attn_func(*qkv, softmax_scale=1.0, causal=True)
    counted = len(checks)
    if change == {"window_size": (-1, -1.0)}:
        with pytest.raises(FlashAttnArgumentError, match="window_size: expected"):
            flash_attn_func(*qkv, softmax_scale=1.0, causal=True, **change)
    else:
        flash_attn_func(*qkv, **{"softmax_scale": 1.0, "causal": True, **change})
    assert len(checks) > counted


def test_a_length_in_a_tensor_is_read_each_time(host_fwd, kernels_on):
    kernels_on(ARCH)
    q, most = some(8, 2), torch.tensor(5)
    arguments = (q, q, q, ints(0, 3, 8), ints(0, 3, 8))
    flash_attn_varlen_func(*arguments, most, most)
    most.fill_(6)
    flash_attn_varlen_func(*arguments, most, most)
    assert [call["max_seqlen_q"] for call in host_fwd] == [5, 6]


def test_gradients_are_decided_apart(qkv, host_fwd, kernels_on):
    kernels_on(ARCH)
    flash_attn_func(*qkv)
    q, k, v = qkv
    out = flash_attn_func(q.requires_grad_(), k, v)
    assert out.requires_grad
    with torch.no_grad():
        assert not flash_attn_func(q, k, v).requires_grad


def test_what_needs_a_copy_is_decided_each_time(host_fwd, kernels_on):
    kernels_on(ARCH)
    x = torch.randn(1, 5, 2, 40).half()
    for _ in range(2):
        assert flash_attn_func(x, x, x).shape == x.shape
    assert not machine.current().decisions


def test_decisions_are_bounded(host_fwd, kernels_on, monkeypatch):
    kernels_on(ARCH)
    monkeypatch.setattr(recall, "MOST", 4)
    for rows in range(1, 12):
        flash_attn_func(*[some(1, rows, 1)] * 3)
        assert 1 <= len(machine.current().decisions) <= 4


def test_threads(host_fwd, kernels_on, monkeypatch):
    kernels_on(ARCH)
    monkeypatch.setattr(recall, "MOST", 2)
    wrong = []

    def work(rows):
        x = some(1, rows, 1)
        expected = flash_attn_func(x, x, x)
        wrong.extend(rows for _ in range(20) if not torch.equal(flash_attn_func(x, x, x), expected))

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_functions_do_not_share_decisions():
    unpacks = [value.unpack for value in vars(unpacking).values() if isinstance(value, unpacking.Function)]
    assert len(unpacks) == len(set(unpacks)) == 6


@pytest.mark.parametrize(
    "name", ["dense", "slopes", "sink", "qkvpacked", "kvpacked", "varlen", "varlen_qkvpacked"]
)
def test_gradients_of_a_call_that_looks_alike(kernels_on, host_operators, name, monkeypatch):
    """The bits of the first call, with the argument checks skipped."""
    kernels_on(ARCH)
    function, given, options = CALLS[name]()
    leaves = [x for x in given if isinstance(x, torch.Tensor) and x.dtype == torch.float16]

    def gradients():
        out = function(*given, **options)
        out = out[0] if isinstance(out, tuple) else out
        return torch.autograd.grad(out, leaves, torch.ones_like(out))

    function(*given, **options)
    for x in leaves:
        x.requires_grad_()
    wanted = gradients()
    monkeypatch.setattr(_checks, "refuse", None)
    assert all(torch.equal(a, b) for a, b in zip(gradients(), wanted, strict=True))
    assert [len(each) for each in host_operators] == [3, 2]
    with torch.no_grad():
        assert not function(*given, **{**options, "return_attn_probs": False}).requires_grad


def test_a_recalled_call_has_the_gradient_of_sink(kernels_on, host_operators):
    kernels_on(ARCH)
    leaves = [x.requires_grad_() for x in (some(2, 5, 4), some(2, 7, 2), some(2, 7, 2), torch.ones(4))]
    first, again = (
        torch.autograd.grad(flash_attn_func(*leaves[:3], sink=leaves[3]).sum(), leaves) for _ in range(2)
    )
    assert again[3].any()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_a_tensor_left_over_from_a_transform_is_not_recalled(host_fwd, kernels_on, transform):
    kernels_on(ARCH)
    left = []
    transform(lambda x: (left.append(x), x.sum())[1])(
        torch.ones(()) if transform is torch.func.grad else some(2)
    )
    dense = unpacking.DENSE.unpack
    assert recall.signature(dense, (*left, None, None), (0.0, None, False, 0.0, False, (-1, -1))) is None


def test_a_gradient_of_another_layout_is_copied(kernels_on, host_bwd, host_fwd):
    kernels_on(ARCH)
    leaves = [some(2, 5, 4).requires_grad_() for _ in range(3)]
    dout = torch.randn(2, 5, 4, 65).half()[..., :64]
    calls = [
        torch.autograd.grad(flash_attn_func(*leaves), leaves, x) for x in (dout, dout, dout.contiguous())
    ]
    assert all(torch.equal(a, b) for each in calls for a, b in zip(each, calls[0], strict=True))
    assert [call["dout"].stride(-2) for call in host_bwd] == [64] * 3
    assert len(host_fwd) == 3


class Seen(TorchDispatchMode):
    """The called operators of this package."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "flash_attn_rocm":
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_the_same_operators_in_every_call(qkv, host_operators, kernels_on):
    """For selective checkpointing: it finds results of the first call in the second."""
    kernels_on(ARCH)
    leaves = [x.requires_grad_() for x in qkv]
    for _ in range(2):
        with Seen() as seen:
            torch.autograd.grad(flash_attn_func(*leaves).sum(), leaves)
        assert [name for name in seen.names if name in {"forward", "backward"}] == ["forward", "backward"]
        torch.autograd.grad(flash_attn_func(*leaves).sum(), leaves)
    out = flash_attn_func(*leaves)
    with Seen() as seen:
        torch.autograd.grad(out.sum(), leaves)
    assert "backward" in seen.names
    assert [len(each) for each in host_operators] == [5, 5]


def test_only_what_costs_much_is_saved_again(qkv, host_operators, kernels_on):
    """Selective checkpointing: attention's results are kept, and its kernel runs once."""
    kernels_on(ARCH)
    leaves = [x.requires_grad_() for x in qkv]
    kept = partial(create_selective_checkpoint_contexts, [torch.ops.flash_attn_rocm.forward.default])

    def layer(q, k, v):
        return flash_attn_func(q.sin(), k, v)

    wanted = torch.autograd.grad(layer(*leaves).sum(), leaves)
    for count in (1, 2):
        out = checkpoint(layer, *leaves, use_reentrant=False, context_fn=kept)
        found = torch.autograd.grad(out.sum(), leaves)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        assert [len(each) for each in host_operators] == [count + 1, count + 1]
