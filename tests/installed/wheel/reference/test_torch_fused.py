"""Calls without features on PyTorch's fused attention: which ones, and unchanged results."""

import math
from itertools import product

import pytest
import torch
from archs import ARCH
from exact import check, plain
from flash_attn_rocm import attention, flash_attn_func, flash_attn_varlen_func, sdpa
from flash_attn_rocm.arguments.normal_form import Options
from flash_attn_rocm.reference import dense, torch_fused

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
CPU = torch.device("cpu")


@pytest.fixture
def calls(monkeypatch):
    """The arguments of PyTorch's operators for CPUs: the number of heads' rows, forward and backward."""
    found = []

    def noted(name):
        operator = getattr(torch_fused, name)

        def call(*arguments, **named):
            found.append((name, arguments[0].shape[1:3]))
            return operator(*arguments, **named)

        monkeypatch.setattr(torch_fused, name, call)

    noted("ON_CPU")
    noted("ON_CPU_BACKWARD")
    return found


def tensors(rows=9, keys=9, nheads=4, nheads_k=2, head_dim=24, dtype=torch.float32):
    sizes = ((rows, nheads), (keys, nheads_k), (keys, nheads_k))
    return [torch.randn(2, n, heads, head_dim, dtype=dtype) for n, heads in sizes]


SERVED = {
    "causal": ({"causal": True}, {}),
    "all keys": ({}, {"keys": 13}),
    "more rows than keys": ({}, {"rows": 13}),
    "one row": ({"causal": True}, {"rows": 1}),
    "a large head dim": ({}, {"head_dim": 520}),
    "scale": ({"softmax_scale": 0.3}, {}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SERVED)
def test_output_and_gradients(calls, name, dtype):
    options, sizes = SERVED[name]
    check(
        tensors(**sizes, dtype=dtype),
        ours=lambda q, k, v: flash_attn_func(q, k, v, **options),
        reference=lambda q, k, v: plain(
            q, k, v, causal=options.get("causal", False), scale=options.get("softmax_scale")
        )[0],
    )
    assert [each[0] for each in calls] == ["ON_CPU", "ON_CPU_BACKWARD"]


def test_packed_sequences_are_calls_of_their_own(calls):
    q, k, v = (x.flatten(0, 1) for x in tensors())
    ends = torch.tensor([0, 5, 5, 18], dtype=torch.int32)
    out = flash_attn_varlen_func(q, k, v, ends, ends, 13, 13, causal=True)
    assert [rows for _, (_, rows) in calls] == [5, 13]
    for begin, end in ((0, 5), (5, 18)):
        one = plain(*(x[None, begin:end].double() for x in (q, k, v)), causal=True)[0][0]
        torch.testing.assert_close(out[begin:end].double(), one, rtol=0, atol=1e-6)


OTHERS = {
    "window": {"window_size": (3, 0)},
    "right bound": {"window_size": (-1, 2)},
    "softcap": {"softcap": 3.0},
    "ALiBi": {"alibi_slopes": torch.full((4,), 0.1)},
    "dropout": {"dropout_p": 0.1},
    "mask": {"attn_mask": torch.ones(9, 9, dtype=torch.bool)},
    "sink": {"sink": torch.zeros(4)},
    "chunk": {"chunk": 4},
}


@pytest.mark.parametrize("name", OTHERS)
def test_features_are_computed_here(calls, name):
    attention(*tensors(), **OTHERS[name])
    assert not calls


@pytest.mark.parametrize(("rows", "keys"), [(5, 9), (9, 5)])
def test_the_last_row_sees_the_last_key(calls, rows, keys):
    """PyTorch's causal mask begins at the first row and key."""
    given = [x.double() for x in tensors(rows, keys)]
    out = flash_attn_func(*given, causal=True)
    torch.testing.assert_close(out, plain(*given, causal=True)[0])
    assert not calls


def test_rows_of_nan_are_seen(calls):
    """PyTorch's flash attention for CPUs has 0 in them where there are fewer than 16 keys."""
    q, k, v = tensors()
    q[:, 3] = math.nan
    out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True)
    assert out.isnan().all(-1).all(-1).equal((torch.arange(9) == 3).expand(2, 9))
    assert (lse[:, :, 3] == math.inf).all()
    assert len(calls) == 1


@pytest.mark.parametrize("sizes", [{"keys": 0}, {"rows": 0}])
def test_empty_tensors_are_answered_here(calls, sizes):
    out, lse, _ = flash_attn_func(*tensors(**sizes), return_attn_probs=True)
    assert not out.any()
    assert (lse == math.inf).all()
    assert not calls


def test_strides_do_not_matter(calls):
    """PyTorch's operators must honour those of the last dimension and of an expanded gradient."""
    given = [x.transpose(1, 3).contiguous().transpose(1, 3).requires_grad_() for x in tensors()]
    assert given[0].stride(-1) != 1
    copies = [x.detach().contiguous().requires_grad_() for x in given]
    found, wanted = (flash_attn_func(*each, causal=True) for each in (given, copies))
    assert torch.equal(found, wanted)
    found.sum().backward()
    torch.autograd.backward(wanted, torch.ones_like(wanted))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(given, copies, strict=True))
    assert len(calls) == 4


def test_scaled_dot_product_attention_that_is_ours_is_not_asked(calls, kernels_on, host_operators):
    kernels_on(ARCH)
    leaves = [x.requires_grad_() for x in tensors()]
    with sdpa.enable():
        flash_attn_func(*leaves, causal=True).sum().backward()
    assert len(calls) == 2
    assert host_operators == ([], [])


def test_gradients_of_part_of_the_keys_follow_the_log_sum_exp_of_all(calls):
    """As ring attention calls the backward pass: equal to a call without PyTorch's operator."""
    q, k, v = tensors(nheads_k=4)
    dout = torch.randn_like(q)
    out, lse, _ = flash_attn_func(q, torch.cat([k, k], 1), torch.cat([v, -v], 1), return_attn_probs=True)
    arguments = (dout, q, k, v, out, lse)
    found = torch_fused.backward(*arguments, Options(24**-0.5))
    # A window as wide as the keys: unsupported by PyTorch.
    wanted = dense.backward(*arguments, None, Options(24**-0.5, window_left=9), dropout=None)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


# Memory-efficient attention exists on GPUs only. Small ones take its place.
def efficient(q, k, v, _bias, _lse, _dropout, causal, *, scale):
    scores = q.float() @ k.float().mT * scale
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    lse = torch.nn.functional.pad(torch.logsumexp(scores, -1), (0, -q.shape[2] % 32), value=math.inf)
    return (torch.softmax(scores, -1) @ v.float()).to(q.dtype), lse, None, None


def efficient_backward(dout, q, k, v, _bias, _out, lse, *_rest, scale):
    assert lse.shape[-1] % 32 == 0
    with torch.enable_grad():
        leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        out = efficient(*leaves, None, True, 0.0, _rest[4], scale=scale)[0]
    return *torch.autograd.grad(out, leaves, dout), None


def broken(*_arguments, **_named):
    message = "HIP error: invalid device function"
    raise RuntimeError(message)


def other_base(*arguments, **named):
    out, lse, *rest = efficient(*arguments, **named)
    return out, lse * math.log2(math.e), *rest


def silent(*arguments, **named):
    """As PyTorch's flash attention for CPUs: 0 for rows of NaN."""
    out, *rest = efficient(*arguments, **named)
    return out.nan_to_num(0.0), *rest


def doubled(*arguments, **named):
    dq, *rest = efficient_backward(*arguments, **named)
    return 2 * dq, *rest


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        *product((efficient, broken, other_base, silent), (efficient_backward,)),
        (efficient, broken),
        (efficient, doubled),
    ],
)
def test_a_small_call_tells_whether_pytorchs_operator_is_right(monkeypatch, forward, backward, dtype):
    monkeypatch.setattr(torch_fused, "ON_GPU", forward)
    monkeypatch.setattr(torch_fused, "ON_GPU_BACKWARD", backward)
    right = forward is efficient, backward is efficient_backward
    with torch.inference_mode():
        assert torch_fused._right.__wrapped__(CPU, dtype) == right
    assert torch_fused._right.__wrapped__(CPU, dtype) == right


@pytest.mark.parametrize("right", [*product((False, True), repeat=2)])
def test_gpus_take_what_is_right(monkeypatch, right):
    """As on a GPU whose PyTorch takes the call."""
    monkeypatch.setattr(torch_fused, "ON_GPU", efficient)
    monkeypatch.setattr(torch_fused, "ON_GPU_BACKWARD", efficient_backward)
    monkeypatch.setattr(torch_fused, "_takes", lambda *_a, causal, which: right[which])
    monkeypatch.setattr(torch_fused, "_on_cpu", lambda _x: False)
    q, k, v = tensors(dtype=torch.float16)
    options = Options(24**-0.5, window_right=0)
    exact = plain(*(x.double() for x in (q, k, v)), causal=True)
    found = torch_fused.forward(q, k, v, options)
    assert (found is not None) == right[0]
    if found:
        for one, other in zip(found, exact, strict=True):
            assert (one - other).abs().max() <= 2**-9
    arguments = (torch.ones_like(q), q, k, v, exact[0].half(), exact[1].float())
    assert (torch_fused.backward(*arguments, options) is not None) == right[1]
    assert torch_fused.backward(*arguments, options._replace(deterministic=True)) is None
