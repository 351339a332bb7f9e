"""If Windows resets GPUs that are busy for long, calls are cut into launches, or a warning is given.

The PyTorch implementation stands in for the operators. tests/installed/numerics/test_resets.py has the
kernels.
"""

import warnings

import pytest
import torch
from archs import ARCH, archs_with
from flash_attn_rocm import (
    FlashAttnResetWarning,
    explain,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    set_strict,
)
from flash_attn_rocm.autograd import recall
from flash_attn_rocm.launch import append, backward_pass, forward_pass, fp8
from flash_attn_rocm.launch import watched as _watched
from flash_attn_rocm.reference.operators import arguments_of
from flash_attn_rocm.serving import machine, resets
from torch.nn.functional import pad

FWD, BWD = torch.ops.flash_attn_rocm.fwd.default, torch.ops.flash_attn_rocm.bwd.default
APPEND = torch.ops.flash_attn_rocm.append.default


@pytest.fixture
def watched(monkeypatch, kernels_on):
    """As on Windows, with an estimate for each launch. ``watched(seconds)`` sets the limit."""
    kernels_on(ARCH)
    monkeypatch.setattr(machine.current(), "units", 32)
    monkeypatch.setattr(forward_pass, "FWD", _watched.forward(FWD, arguments_of(FWD)))
    monkeypatch.setattr(backward_pass, "BWD", _watched.backward(BWD, arguments_of(BWD)))
    monkeypatch.setattr(append, "KERNEL", _watched.append(APPEND, arguments_of(APPEND)))
    monkeypatch.setattr(resets, "THREATENED", True)
    return lambda seconds: monkeypatch.setattr(resets, "LONGEST", seconds)


@pytest.fixture
def silent():
    """A warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FlashAttnResetWarning)
        yield


def qkv(batch=3, rows=40, nheads=6, nheads_k=3, head_dim=64):
    q = torch.randn(batch, rows, nheads, head_dim).half()
    return q, *(torch.randn(batch, rows, nheads_k, head_dim).half() for _ in range(2))


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def longest(*arguments, **options):
    """The estimate for the whole call, forward."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        seconds = resets.seconds
        patch.setattr(resets, "seconds", lambda *given: found.append(seconds(*given)) or found[-1])
        assert explain(*arguments, **options).launches
    return found[0]


def shapes(calls, *names):
    return [tuple(tuple(call[name].shape) for name in names) for call in calls]


def close(some, others):
    for one, other in zip(some, others, strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0)


@pytest.mark.usefixtures("silent")
def test_a_call_that_is_short_enough_is_one_launch(watched, host_fwd):
    flash_attn_func(*qkv())
    assert shapes(host_fwd, "q", "k") == [((3, 40, 6, 64), (3, 40, 3, 64))]


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (6, [(2, 40, 6, 64), (1, 40, 6, 64)]),
        (3, [(1, 40, 6, 64)] * 3),
        (2, [(1, 40, 4, 64), (1, 40, 2, 64)] * 3),
        (1, [(1, 40, 2, 64)] * 9),
    ],
)
def test_a_long_one_is_cut_by_sequences_and_then_by_heads(watched, host_fwd, allowed, expected):
    """``allowed`` of its nine heads of k take no longer than a launch may."""
    q, k, v = qkv()
    options = {"causal": True, "alibi_slopes": torch.rand(3, 6), "sink": torch.arange(6.0) - 3}
    whole = flash_attn_func(q, k, v, **options, return_attn_probs=True)[:2]
    watched((allowed + 0.5) / 9 * longest(q, k, v, **options))
    host_fwd.clear()
    found = flash_attn_func(q, k, v, **options, return_attn_probs=True)[:2]
    assert [shape for (shape,) in shapes(host_fwd, "q")] == expected
    assert all(call["lse"].is_contiguous() for call in host_fwd)
    assert all(call["k"].shape[2] * 2 == call["q"].shape[2] for call in host_fwd)
    assert all(call["sink"].shape == call["q"].shape[2:3] for call in host_fwd)
    close(found, whole)


CACHES = {
    "lengths": {"cache_seqlens": ints(40, 3, 17), "cache_leftpad": ints(2, 0, 5)},
    "places": {"cache_seqlens": ints(40, 3, 17), "cache_batch_idx": ints(2, 0, 1)},
    "pages": {"cache_seqlens": ints(40, 3, 17), "block_table": ints([2, 0, 1], [8, 4, 3], [5, 6, 7])},
}


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnResetWarning")
def test_a_cache_is_cut_with_what_belongs_to_its_sequences(watched, host_fwd, name):
    q, k, v = qkv()
    if name == "pages":
        k, v = (torch.randn(9, 16, 3, 64).half() for _ in "kv")
    options = {**CACHES[name], "causal": True, "num_splits": 1, "return_softmax_lse": True}
    whole = flash_attn_with_kvcache(q, k, v, **options)
    for seconds in (0, longest(flash_attn_with_kvcache, q, k, v, **options) / 2.9):
        watched(seconds)
        host_fwd.clear()
        close(flash_attn_with_kvcache(q, k, v, **options), whole)
        assert len(host_fwd) == (3 if seconds else 9)


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnResetWarning")
def test_packed_sequences_are_cut_by_heads(watched, host_fwd, host_bwd):
    q, k, v = (x.flatten(0, 1).requires_grad_() for x in qkv())
    call = (q, k, v, ints(0, 30, 31, 120), ints(0, 40, 80, 120), 89, 40)

    def trained():
        out, lse, _ = flash_attn_varlen_func(*call, causal=True, return_attn_probs=True)
        return [out, lse, *torch.autograd.grad(out, (q, k, v), torch.ones_like(out))]

    whole = trained()
    host_fwd.clear()
    host_bwd.clear()
    watched(0)
    close(trained(), whole)
    assert shapes(host_fwd, "q", "lse") == [((120, 2, 64), (2, 120))] * 3
    assert shapes(host_bwd, "dq", "dk", "delta") == [((120, 2, 64), (120, 1, 64), (2, 120))] * 3


@pytest.mark.parametrize("path", ["separate", "fused"])
@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnResetWarning")
def test_gradients_are_cut_too(watched, host_bwd, monkeypatch, path):
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", path)
    tensors = [x.requires_grad_() for x in qkv()]

    def trained():
        out = flash_attn_func(*tensors, causal=True)
        return torch.autograd.grad(out, tensors, torch.ones_like(out))

    whole = trained()
    sums = host_bwd[-1]["dq_sums"]
    host_bwd.clear()
    watched(0)
    close(trained(), whole)
    assert shapes(host_bwd, "dq", "dk") == [((1, 40, 2, 64), (1, 40, 1, 64))] * 9
    if sums is not None:
        pieces = [call["dq_sums"] for call in host_bwd]
        assert [x.numel() for x in pieces] == [sums.numel() // 9] * 9
        assert len({x.data_ptr() for x in pieces}) == 9, "each launch adds into its own"


def test_what_cannot_be_cut_is_told_once_for_each_kind(watched, host_fwd, host_bwd):
    tensors = [x.requires_grad_() for x in qkv()]
    watched(0)
    set_strict(True)  # a slow kernel keeps strict mode
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            recall.forget()
            flash_attn_func(*tensors, dropout_p=0.5).sum().backward()
    told = [str(each.message) for each in caught if each.category is FlashAttnResetWarning]
    assert len(told) == 2
    for words, kind in zip(told, ("forward", "gradients"), strict=True):
        assert words.startswith(f"{kind}: a launch may take up to ")
        assert "not divided, because dropout's numbers depend on all heads of all sequences" in words
    assert shapes(host_fwd, "q") == shapes(host_bwd, "dq") == [((3, 40, 6, 64),)] * 2


def test_keys_that_are_divided_already_stay_one_launch(watched, host_fwd):
    q = qkv(rows=3)[0]
    watched(0)
    with pytest.warns(FlashAttnResetWarning, match="its keys are already split"):
        flash_attn_with_kvcache(q, *(torch.randn(3, 300, 3, 64).half() for _ in "kv"), num_splits=2)
    assert [call["partial_lse"].shape[0] for call in host_fwd] == [2]


def test_writing_into_a_cache_is_told(watched, host_fwd):
    q, k, v = qkv(rows=2)
    caches = [torch.zeros(3, 32, 3, 64).half() for _ in "kv"]
    watched(0)
    with pytest.warns(FlashAttnResetWarning) as caught:
        flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=ints(1, 0, 20))
    assert any("writing into a cache" in str(each.message) for each in caught)
    assert torch.equal(caches[0][0, 1:3], k[0])


@pytest.mark.usefixtures("silent")
def test_the_slow_kernel_is_estimated_as_such(watched, host_fwd):
    q, k, v = qkv(head_dim=64)
    odd = [pad(x, (1, 0))[..., 1:] for x in (k, v)]
    used = {"cache_seqlens": ints(40, 40, 40)}
    words = explain(flash_attn_with_kvcache, q, *odd, **used).launches
    assert words.startswith("forward by the slow kernel: one launch of at most ")
    slow = longest(flash_attn_with_kvcache, q, *odd, **used)
    assert slow > 10 * longest(flash_attn_with_kvcache, q, k, v, **used)
    watched(slow / 2.9)
    flash_attn_with_kvcache(q, k, v, **used)
    assert len(host_fwd) == 1
    flash_attn_with_kvcache(q, *odd, **used)
    assert len(host_fwd) == 1 + 3


def test_explain_says_how_a_call_is_cut(watched):
    q, k, v = qkv(rows=2000)  # large enough that time, rather than bytes, counts
    assert explain(q, k, v).launches.startswith("forward: one launch of at most ")
    assert explain(q, k, v).launches.endswith(" s by a cautious estimate")
    leaves = [x.requires_grad_() for x in (q, k, v)]
    watched(longest(*leaves) / 2)
    forward, gradients = explain(*leaves).launches.split("; ")
    assert forward.startswith("forward: divided into 3 launches, the longest of at most ")
    assert gradients.startswith("gradients: divided into 9 launches, the longest of at most ")


def test_elsewhere_nothing_is_watched(kernels_on):
    """On Linux: the operators are the library's, and explain has no words."""
    kernels_on(ARCH)
    assert (forward_pass.FWD is FWD, backward_pass.BWD is BWD, append.KERNEL is APPEND) == (
        (not resets.threaten(),) * 3
    )
    assert bool(explain(*qkv()).launches) == resets.threaten()


def test_each_launch_is_handed_over_before_the_next(watched, host_fwd, monkeypatch):
    """HIP hands launches to Windows in batches, and its clock runs for a batch."""
    submitted = []
    monkeypatch.setattr(_watched, "_submit", lambda device: submitted.append((device, len(host_fwd))))
    watched(0)
    with pytest.warns(FlashAttnResetWarning):
        flash_attn_func(*qkv(batch=1))
    assert submitted == [(torch.device("cpu"), launched) for launched in range(3)]


@pytest.mark.parametrize(("capturing", "expected"), [(False, ["query"]), (True, [])])
def test_nothing_is_asked_of_a_stream_that_is_captured(monkeypatch, capturing, expected):
    """HIP refuses such a query. A graph is one batch anyway."""
    asked = []

    class Stream:
        def query(self):
            asked.append("query")

    monkeypatch.setattr(_watched, "is_capturing", lambda _device: capturing)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: Stream())
    _watched._submit(torch.device("cuda", 0))
    assert asked == expected
    _watched._submit(torch.device("cpu"))
    assert asked == expected


@pytest.mark.needs_kernels("fwd_fp8")
@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnResetWarning")
def test_products_of_fp8_are_cut_with_their_descales(watched, kernels_on, monkeypatch):
    kernels_on(archs_with("fwd_fp8")[0])
    monkeypatch.setattr(machine.current(), "units", 32)
    names, seen = arguments_of(fp8.FWD_FP8), []
    kernel = _watched.fp8(lambda *given: seen.append(dict(zip(names, given, strict=True))), names)
    monkeypatch.setattr(fp8, "FWD_FP8", kernel)
    codes = [x.to(torch.float8_e4m3fn) for x in qkv(head_dim=128)]
    descales = {name: torch.rand(3, 3) for name in ("q_descale", "k_descale", "v_descale")}
    assert explain(*codes, **descales).launches.startswith("forward: one launch of at most")
    watched(0)
    flash_attn_func(*codes, **descales)
    assert (
        shapes(seen, "q", "k", "lse", "q_descale", "v_descale")
        == [((1, 40, 2, 128), (1, 40, 1, 128), (1, 2, 40), (1, 1), (1, 1))] * 9
    )
    starts = [(call["q_descale"].item(), call["v_descale"].item()) for call in seen]
    assert starts == [
        *zip(*(descales[name].flatten().tolist() for name in ("q_descale", "v_descale")), strict=True)
    ]
