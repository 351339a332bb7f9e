"""Gradients through the backward kernels' operator. conftest.py answers it on host memory."""

import warnings
from functools import partial

import pytest
import torch
from archs import ARCH, UNKNOWN, archs_with
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
    is_supported,
    raw,
    set_strict,
)
from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.autograd.dispatch import attend
from flash_attn_rocm.library import plans
from flash_attn_rocm.library.host import instances
from flash_attn_rocm.suite import reference_attention
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

FUSED = next(iter(archs_with("bwd_fused")), "")  # gfx1030 has none
needs_fused = pytest.mark.needs_kernels("bwd_fused")
FALLS_BACK = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
RULES = (0.125, True, -1, 0, 0.0)  # softmax_scale, is_causal, window_size_left and _right, softcap


@pytest.fixture
def leaves(qkv, kernels_on):
    """``qkv`` with gradients, where kernels run."""
    kernels_on(ARCH)
    return tuple(x.requires_grad_() for x in qkv)


def test_every_backward_kernel_is_told(qkv, host_fwd):
    fused = {(each.dtype, each.head_dim, arch) for each in of_op("bwd_fused") for arch in each.archs}
    for each in of_op("bwd_dq"):
        for arch in each.archs:
            found = is_supported(arch, each.dtype, each.head_dim).backward
            if (each.dtype, each.head_dim, arch) not in fused:
                assert found == "separate"
            elif arch == FUSED:
                assert found == "fused"
    found = is_supported(UNKNOWN, "fp16", 64)
    assert found.backward == "pytorch"
    assert found.backward_reason.startswith(f"this wheel has no kernels for {UNKNOWN}")
    assert explain(*qkv).backward_reason == "the tensors are on cpu, and kernels run on AMD GPUs"
    assert not host_fwd


def of_op(op):
    return [each for each in instances() if each.op == op]


@needs_fused
def test_other_head_dims_are_padded_to_the_next():
    there = {each.dtype for each in of_op("bwd_fused")}
    found = {is_supported(FUSED, dtype, n).backward for dtype in there for n in range(1, 257)}
    assert found == {"fused", "separate"}


@needs_fused
def test_a_call_is_explained(leaves, kernels_on):
    kernels_on(FUSED)
    found = explain(*leaves)
    assert found.backward == "fused"
    assert found.backward_reason.startswith(f"the default of {FUSED}: five products instead of seven")
    for words in ("in no fixed order", "not measured", "FLASH_ATTN_ROCM_BACKWARD=separate"):
        assert words in found.backward_reason
    found = explain(*leaves, deterministic=True)
    assert found.backward == "separate"
    assert found.backward_reason == "the same bits every time are wanted (deterministic)"
    found = explain(attention, *leaves, attn_mask=torch.ones(5, 7).bool())
    assert (found.path, found.backward) == ("matrix", "separate")
    assert found.backward_reason == "a mask: only separate kernels read one"
    found = explain(*leaves, dropout_p=0.5, return_attn_probs=True)
    assert found.path == "pytorch"
    if plans.fused_takes_features(FUSED, "fp16", 64):
        assert found.backward == "fused"
    else:
        assert found.backward == "separate"
        words = f"the fused kernels of {FUSED} have no ALiBi, softcap and dropout"
        assert found.backward_reason.startswith(words)


@needs_fused
def test_the_environment_may_be_a_plain_dict(leaves, kernels_on, monkeypatch):
    kernels_on(FUSED)
    for variables in ({}, {"FLASH_ATTN_ROCM_BACKWARD": "separate"}):
        with monkeypatch.context() as patch:
            patch.setattr("os.environ", variables)
            reason = explain(*leaves).backward_reason
        assert (reason == "separate is wanted") == bool(variables)


@needs_fused
def test_the_environment_chooses_the_path(leaves, kernels_on, monkeypatch):
    kernels_on(FUSED)
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", "separate")
    found = explain(*leaves)
    assert (found.backward, found.backward_reason) == ("separate", "separate is wanted")
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", "split")
    assert explain(*leaves).backward == "separate", "the name that earlier releases had"
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", "fused")
    found = explain(*leaves)
    assert (found.backward, found.backward_reason) == ("fused", "fused is wanted")
    assert explain(*leaves, deterministic=True).backward == "separate"
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", "atomics")
    words = (
        "FLASH_ATTN_ROCM_BACKWARD: expected separate, fused or nothing, got 'atomics'\n"
        "  next: unset it, or set it to separate or fused"
    )
    with pytest.raises(ValueError, match=words):
        explain(*leaves)


@needs_fused
@pytest.mark.usefixtures("host_fwd")
def test_only_what_is_fused_gets_sums(leaves, kernels_on, host_bwd):
    kernels_on(FUSED)
    torch.autograd.grad(flash_attn_func(*leaves).sum(), leaves)
    torch.autograd.grad(flash_attn_func(*leaves, deterministic=True).sum(), leaves)
    torch.use_deterministic_algorithms(True)
    try:
        torch.autograd.grad(flash_attn_func(*leaves).sum(), leaves)
    finally:
        torch.use_deterministic_algorithms(False)
    sums = [call["dq_sums"] for call in host_bwd]
    assert [x is None for x in sums] == [False, True, True]
    assert [call["path"] for call in host_bwd] == ["fused", "separate", "separate"]
    assert sums[0].dtype == torch.float32
    assert not sums[0].any()


CACHE = Options(softmax_scale=0.125, max_seqlen_q=5, max_seqlen_k=7)


def through_a_cache(leaves):
    return attend(Inputs(*leaves, seqused_k=torch.tensor([7, 3], dtype=torch.int32)), CACHE)[0]


@pytest.mark.usefixtures("host_fwd")
def test_what_the_kernels_do_not_have_is_told_when_it_is_computed(leaves, host_bwd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = through_a_cache(leaves)
    with pytest.warns(FlashAttnFallbackWarning, match="kernels compute no gradients through a cache"):
        found = torch.autograd.grad(out.sum(), leaves)
    assert all(torch.isfinite(x).all() for x in found)
    assert not host_bwd


@pytest.mark.usefixtures("host_fwd")
def test_strict_mode_refuses_gradients_that_no_kernel_computes(leaves):
    set_strict(True)
    out = through_a_cache(leaves)
    with pytest.raises(FlashAttnUnsupportedError, match="kernels compute no gradients through a cache"):
        torch.autograd.grad(out.sum(), leaves)
    torch.autograd.grad(flash_attn_func(*leaves).sum(), leaves)


@pytest.mark.usefixtures("host_fwd")
def test_dropout_has_the_same_key_in_both_passes(leaves, host_fwd, host_bwd):
    out = flash_attn_func(*leaves, dropout_p=0.5)
    torch.autograd.grad(out.sum(), leaves)
    (one,), (other,) = host_fwd, host_bwd
    assert torch.equal(one["rng_state"], other["rng_state"])
    assert one["dropout_p"] == other["dropout_p"] == 0.5


@pytest.mark.usefixtures("host_fwd")
def test_packed_sequences_start_from_zero(host_bwd, kernels_on):
    kernels_on(ARCH)
    leaves = [torch.randn(9, 2, 64).half().requires_grad_() for _ in range(3)]
    cut = torch.tensor([0, 3, 7], dtype=torch.int32)
    out = flash_attn_varlen_func(*leaves, cut, cut, 4, 4)
    # The forward leaves rows after the last sequence unwritten.
    found = torch.autograd.grad(out[:7].sum(), leaves)
    assert all((x[7:] == 0).all() for x in found)
    assert host_bwd[0]["max_seqlen_q"] == 4


def test_gradients_are_written_in_place_where_kernels_can(qkv, host_fwd, host_bwd, kernels_on):
    kernels_on(ARCH)
    q, k, v = qkv
    out, lse, *_ = raw.fwd(q, k, v, None, None, 0.0, *RULES, False)
    both = torch.empty(2, 7, 2, 2, 64).half()
    odd = torch.empty(2, 5, 4, 65).half()[..., :64]
    places = (odd, *both.unbind(2))
    found = raw.bwd(out, q, k, v, out, lse, *places, None, 0.0, *RULES, True)
    (call,) = host_bwd
    pairs = [*zip(("dq", "dk", "dv"), places, strict=True)]
    assert [call[name].data_ptr() == x.data_ptr() for name, x in pairs] == [False, True, True]
    assert all(a is b for a, b in zip(found, places, strict=False))
    wanted = raw.bwd(out, q, k, v, out, lse, None, None, None, None, 0.0, *RULES, False)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert found[3].shape == lse.shape
    assert len(host_fwd) == 1


@pytest.mark.usefixtures("host_fwd")
@pytest.mark.parametrize("head_dim", [64, 40])
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.mT.contiguous().mT, lambda x: x[:1].expand(x.shape)]
)
def test_kernels_get_what_they_can_read(host_bwd, kernels_on, head_dim, view):
    kernels_on(ARCH)
    leaves = [torch.randn(2, n, 2, head_dim).half().requires_grad_() for n in (5, 7, 7)]
    out = flash_attn_func(*leaves)
    dout = view(torch.randn_like(out))
    found = torch.autograd.grad(out, leaves, dout)
    (call,) = host_bwd
    for name in ("q", "k", "v", "out", "dout", "dq", "dk", "dv"):
        assert call[name].shape[-1] == 64
        assert call[name].stride(-1) == 1
        assert all(step % 8 == 0 for step in call[name].stride()[:-1])
    assert [x.shape for x in found] == [x.shape for x in leaves]
    assert all(x.is_contiguous() for x in found)


@pytest.mark.usefixtures("host_fwd", "host_bwd")
def test_a_second_derivative_is_refused_in_words(leaves):
    out = flash_attn_func(*leaves)
    with pytest.raises(RuntimeError, match="attention has no second derivative"):
        torch.autograd.grad(out.sum(), leaves, create_graph=True)


def plain(*tensors):
    return flash_attn_func(*tensors, dropout_p=0.3)


def cast(*tensors):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return plain(*tensors)


def ways(seen):
    """Other ways to call ``plain``. Hooks pass their arguments to ``seen``."""

    def hooked(*tensors):
        copies = [x.view_as(x) for x in tensors]
        for x in copies:
            x.register_hook(seen.append)
        return plain(*copies)

    again, reentrant = (partial(checkpoint, plain, use_reentrant=each) for each in (False, True))
    return again, reentrant, hooked, cast


@FALLS_BACK
@pytest.mark.usefixtures("host_fwd")
@pytest.mark.parametrize("by_kernels", [True, False])
def test_checkpointing_hooks_and_autocast_give_the_same_bits(qkv, host_bwd, kernels_on, by_kernels):
    if by_kernels:
        kernels_on(ARCH)
    leaves, seen = [x.requires_grad_() for x in qkv], []

    def gradients(function):
        torch.manual_seed(3)
        for x in leaves:
            x.grad = None
        function(*leaves).float().square().sum().backward()
        return [x.grad for x in leaves]

    wanted = gradients(plain)
    for function in ways(seen):
        assert all(torch.equal(a, b) for a, b in zip(gradients(function), wanted, strict=True))
    assert len(seen) == 3
    assert len(host_bwd) == 5 * by_kernels


@FALLS_BACK
@pytest.mark.usefixtures("host_fwd")
@pytest.mark.parametrize("by_kernels", [True, False])
def test_a_layer_under_autocast(host_bwd, kernels_on, by_kernels):
    """Weights and their gradients are fp32, attention is bf16, as without autocast on bf16 copies."""
    if by_kernels:
        kernels_on(ARCH)
    x, weight = torch.randn(2, 9, 64), torch.randn(3 * 128, 64).requires_grad_()

    def layer(x, weight):
        return flash_attn_qkvpacked_func(torch.nn.functional.linear(x, weight).view(2, 9, 3, 2, 64))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x, weight)
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    half = weight.detach().bfloat16().requires_grad_()
    layer(x.bfloat16(), half).float().square().sum().backward()
    assert weight.grad.dtype == torch.float32
    assert torch.equal(weight.grad, half.grad.float())
    assert len(host_bwd) == 2 * by_kernels


@pytest.mark.usefixtures("host_fwd")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_forward_and_backward_of_one_graph(leaves, host_bwd):
    graphs = []

    def backend(graph, inputs):
        def compiler(part, _):
            graphs.append(part)
            return make_boxed_func(part.forward)

        return aot_autograd(fw_compiler=compiler)(graph, inputs)

    torch.compiler.reset()
    compiled = torch.compile(flash_attn_func, fullgraph=True, backend=backend)
    out = compiled(*leaves, causal=True)
    found = torch.autograd.grad(out.sum(), leaves)
    expected = flash_attn_func(*leaves, causal=True)
    wanted = torch.autograd.grad(expected.sum(), leaves)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    called = [
        [str(node.target) for node in graph.graph.nodes if "flash_attn_rocm" in str(node.target)]
        for graph in graphs
    ]
    assert [[name.removesuffix(".default") for name in names] for names in called] == [
        ["flash_attn_rocm.forward"], ["flash_attn_rocm.backward"]
    ]  # fmt: skip
    assert len(host_bwd) == 2


@pytest.mark.usefixtures("host_fwd", "host_bwd")
@pytest.mark.parametrize("head_dim", [64, 40])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("sink", [None, torch.rand(4)], ids=["no sink", "sink"])
@pytest.mark.parametrize("chunk", [0, 3])
def test_opcheck(qkv, head_dim, ragged, sink, chunk):
    q, k, v = (x[..., :head_dim] for x in qkv)
    inputs = Inputs(q, k, v, torch.rand(4), sink=sink)
    lse = torch.randn(2, 4, 5)
    if ragged:
        cut = [torch.tensor(x, dtype=torch.int32) for x in ([0, 5, 10], [0, 7, 14])]
        inputs = Inputs(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), torch.rand(4), *cut, sink=sink)
        lse = torch.randn(4, 10)
    out = torch.randn_like(inputs.q)
    options = Options(0.125, -1, 0, 0.0, 0.25, 5, 7, chunk=chunk)
    state = torch.tensor([1, 2])
    together = 2 if head_dim == 64 else 0
    arguments = (out, out, lse, *inputs, *options, state, ARCH, together, False)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.backward.default, arguments)
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4


@pytest.mark.usefixtures("host_fwd", "host_bwd")
def test_opcheck_with_the_gradient_of_a_bias(qkv):
    inputs = Inputs(*qkv, attn_mask=torch.randn(1, 4, 5, 7))
    out, lse = torch.randn_like(inputs.q), torch.randn(2, 4, 5)
    options = Options(0.125, -1, 0, 0.0, 0.0, 5, 7)
    arguments = (out, out, lse, *inputs, *options, None, ARCH, 0, True)
    found = torch.library.opcheck(torch.ops.flash_attn_rocm.backward.default, arguments)
    assert set(found.values()) == {"SUCCESS"}
    assert len(found) == 4


CUT_Q, CUT_K = (torch.tensor(x, dtype=torch.int32) for x in ([0, 4, 9], [0, 7, 11]))
# The function and the one for separate q, k and v, the sizes of its tensors, the number of q, k and v in the
# last one, and more arguments of both functions.
PACKED = {
    "qkv": (flash_attn_qkvpacked_func, flash_attn_func, [(2, 9, 3, 4)], 3, ((), ())),
    "kv": (flash_attn_kvpacked_func, flash_attn_func, [(2, 9, 4), (2, 11, 2, 2)], 2, ((), ())),
    "sequences of qkv": (
        flash_attn_varlen_qkvpacked_func, flash_attn_varlen_func, [(9, 3, 4)], 3,
        ((CUT_Q, 5), (CUT_Q, CUT_Q, 5, 5)),
    ),
    "sequences of kv": (
        flash_attn_varlen_kvpacked_func, flash_attn_varlen_func, [(9, 4), (11, 2, 2)], 2,
        ((CUT_Q, CUT_K, 5, 7),) * 2,
    ),
}  # fmt: skip


@FALLS_BACK
@pytest.mark.usefixtures("host_fwd")
@pytest.mark.parametrize("head_dim", [64, 40])
@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("by_kernels", [True, False])
def test_gradients_of_packed_arguments(host_bwd, kernels_on, name, head_dim, by_kernels):
    """Gradients are written into one tensor, without stacking."""
    if by_kernels:
        kernels_on(ARCH)
    packed, unpacked, sizes, together, (own, others) = PACKED[name]
    tensors = [torch.randn(*each, head_dim).half().requires_grad_() for each in sizes]
    found = torch.autograd.grad(packed(*tensors, *own, causal=True).sum(), tensors)
    assert [x.shape for x in found] == [x.shape for x in tensors]
    parts = [x.detach().requires_grad_() for x in (*tensors[:-1], *tensors[-1].unbind(-3))]
    wanted = torch.autograd.grad(unpacked(*parts, *others, causal=True).sum(), parts)
    wanted = (*wanted[:-together], torch.stack(wanted[-together:], -3))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert len(host_bwd) == 2 * by_kernels
    if by_kernels and head_dim == 64:
        begins = [host_bwd[0][gradient].data_ptr() for gradient in ("dq", "dk", "dv")]
        assert begins[-together:] == [x.data_ptr() for x in found[-1].unbind(-3)]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.usefixtures("host_fwd")
def test_packed_arguments_in_a_graph(host_bwd, kernels_on):
    kernels_on(ARCH)
    qkv = torch.randn(2, 9, 3, 4, 64).half().requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(flash_attn_qkvpacked_func, fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(qkv, causal=True).sum(), qkv)
    (wanted,) = torch.autograd.grad(flash_attn_qkvpacked_func(qkv, causal=True).sum(), qkv)
    assert torch.equal(found, wanted)
    assert len(host_bwd) == 2


@pytest.mark.parametrize("name", reference_attention.GRADIENTS)
def test_the_rule_refuses_a_gradient_just_beyond_it(qkv, name):
    """A planted error: the largest within the rule, and a little more.

    The limit is the error of the plain computation with dout. A larger error is compared with its errors for
    multiples of dout: only a little more, also in a call as small as this one.
    """
    q, k, v = (x[0] for x in qkv)
    sequence, dout = reference_attention.Sequence(q, k, v, q, None), torch.randn_like(q)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    out, _ = reference_attention.attention(*leaves, reference_attention.Rules())
    exact = torch.autograd.grad(out, leaves, dout.double())
    number = reference_attention.GRADIENTS.index(name)

    def planted(error):
        found = [x.clone() for x in exact]
        found[number][3, 0, 5] += error
        rules = reference_attention.Rules()
        return reference_attention.judge_gradients([(sequence, dout, tuple(found))], rules)[name]

    usual, most = planted(0).allowed, planted(100).allowed
    assert usual <= most <= 2.5 * usual
    assert planted(0.99 * most).wrong == ()
    (wrong,) = planted(1.01 * most).wrong
    assert wrong.startswith(f"{name}: error ")
