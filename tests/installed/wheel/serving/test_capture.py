"""During the capture of a graph, host reads are impossible: calls that need one are refused in words."""

import pytest
import torch
from flash_attn_rocm import (
    FlashAttnUnsupportedError,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)
from flash_attn_rocm.serving import capture

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
ENDS = torch.tensor([0, 2, 5], dtype=torch.int32)


@pytest.fixture
def capturing(monkeypatch):
    """A capture: reading a tensor on the host is an error."""

    def read(_tensor):
        raise AssertionError

    monkeypatch.setattr(capture, "is_capturing", lambda _device: True)
    for name in ("tolist", "item", "__int__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, read)


def calls():
    x = torch.randn(5, 2, 32).half()
    cache = torch.randn(2, 16, 2, 32).half()
    table = torch.tensor([[1], [0]], dtype=torch.int32)
    ones = torch.ones(2, dtype=torch.int32)
    q = torch.randn(2, 1, 2, 32).half()
    return {
        "varlen": (
            ["cu_seqlens_q", "cu_seqlens_k"],
            lambda: flash_attn_varlen_func(x, x, x, ENDS, ENDS, 3, 3),
        ),
        "lengths": (["cache_seqlens"], lambda: flash_attn_with_kvcache(q, cache, cache, cache_seqlens=3)),
        "pages": (["block_table"], lambda: flash_attn_with_kvcache(q, cache, cache, block_table=table)),
        "rows": (
            ["cache_leftpad", "cache_batch_idx"],
            lambda: flash_attn_with_kvcache(q, cache, cache, cache_leftpad=ones, cache_batch_idx=ones),
        ),
        "append": (
            ["cache_seqlens"],
            lambda: flash_attn_with_kvcache(q, cache, cache.clone(), q, q, cache_seqlens=ones),
        ),
    }


@pytest.mark.parametrize("name", calls())
def test_calls_that_read_lengths_are_refused(capturing, name):
    names, call = calls()[name]
    with pytest.raises(FlashAttnUnsupportedError) as caught:
        call()
    assert f"has to read {', '.join(names)} on the host" in str(caught.value)
    assert "next: capture a call that a kernel serves" in str(caught.value)


def test_so_is_their_backward_pass(monkeypatch):
    x = torch.randn(5, 2, 32).half().requires_grad_()
    out = flash_attn_varlen_func(x, x, x, ENDS, ENDS, 3, 3)
    monkeypatch.setattr(capture, "is_capturing", lambda _device: True)
    with pytest.raises(FlashAttnUnsupportedError, match="cu_seqlens_q"):
        out.sum().backward()


def test_nothing_was_written_into_the_cache(capturing, monkeypatch):
    q, caches = torch.randn(1, 1, 2, 32).half(), torch.zeros(2, 1, 16, 2, 32).half()
    with pytest.raises(FlashAttnUnsupportedError):
        flash_attn_with_kvcache(q, *caches, q, q, cache_seqlens=3)
    monkeypatch.undo()
    assert (caches == 0).all()


def test_a_dense_call_reads_nothing(capturing):
    q = torch.randn(1, 3, 2, 32).half().requires_grad_()
    flash_attn_func(q, q, q, causal=True, dropout_p=0.1).sum().backward()


def test_host_memory_can_be_read_during_a_capture():
    assert not capture.is_capturing(torch.device("cpu"))
