"""Wrong arguments are reported in words, all at once, before anything is computed."""

import numpy as np
import pytest
import torch
from flash_attn_rocm import (
    FlashAttnArgumentError,
    FlashAttnUnsupportedError,
    explain,
    flash_attn_func,
    flash_attn_with_kvcache,
)


def message(q, k, v, **options):
    with pytest.raises(FlashAttnArgumentError) as caught:
        flash_attn_func(q, k, v, **options)
    with pytest.raises(FlashAttnArgumentError) as explained:
        explain(q, k, v, **options)
    assert str(explained.value) == str(caught.value)
    return str(caught.value)


def test_dimensions(qkv):
    q, k, v = qkv
    assert message(q[0], k, v[0]).splitlines() == [
        "flash_attn_func cannot use its arguments:",
        "  - q: expected 4 dimensions (batch, seqlen_q, nheads, headdim), got shape (5, 4, 64)",
        "  - v: expected 4 dimensions (batch, seqlen_k, nheads_k, headdim), got shape (7, 2, 64)",
    ]


def test_all_problems_at_once(qkv):
    q, k, v = qkv
    lines = message(
        q[:, :, :3], k[:1], v.float(), dropout_p=1.0, softcap=-1.0, alibi_slopes=torch.ones(5).double()
    ).splitlines()
    assert lines == [
        "flash_attn_func cannot use its arguments:",
        "  - k: expected batch 2 like q, got shape (1, 7, 2, 64)",
        "  - v: expected the shape of k, (1, 7, 2, 64), got (2, 7, 2, 64)",
        "  - q: expected a positive number of heads that is a multiple of k's 2, got 3",
        "  - v: expected dtype torch.float16 like q, got torch.float32",
        "  - alibi_slopes: expected shape (3,) or (2, 3), got (5,)",
        "  - alibi_slopes: expected dtype torch.float32, got torch.float64",
        "  - dropout_p: expected 0 <= dropout_p < 1, got 1.0",
        "  - softcap: expected 0 (none) or a positive number, got -1.0",
    ]


def test_dtype(qkv):
    text = message(*(x.float() for x in qkv))
    expected = "q: expected dtype torch.float16, torch.bfloat16, or torch.float64 without kernels, got "
    assert f"{expected}torch.float32" in text


@pytest.mark.parametrize("head_dim", [0, 257])
def test_head_dim(head_dim):
    x = torch.zeros(1, 2, 1, head_dim).half()
    assert f"q: expected a headdim from 1 to 256, got {head_dim}" in message(x, x, x)


def test_device(qkv):
    q, k, v = qkv
    assert "k: expected device cpu like q, got meta" in message(q, k.to("meta"), v)


NO_WINDOWS = (
    (1,), (1, 2, 3), [True, 2], (1, 2.0), 5, None, "12", {1: 2, 3: 4}, {1, 2}, torch.tensor(3),
    torch.tensor([1.0, 2.0]), torch.tensor([1, 2, 3]), torch.tensor([[1, 2]]), (torch.tensor([1, 2]), 3),
)  # fmt: skip


@pytest.mark.parametrize("window", NO_WINDOWS)
def test_window(qkv, window):
    assert f"window_size: expected (left, right), got {window}" in message(*qkv, window_size=window)


WINDOWS = {
    "list": [2, 1],
    "tensor": torch.tensor([2, 1]),
    "short": torch.tensor([2, 1], dtype=torch.int8),
    "of_tensors": (torch.tensor(2), torch.tensor(1)),
    "array": np.array([2, 1]),
    "of_arrays": (np.int32(2), np.int64(1)),
    "size": torch.Size([2, 1]),
    "range": range(2, 0, -1),
}


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
@pytest.mark.parametrize("name", WINDOWS)
def test_any_pair_of_integers_is_a_window(qkv, name):
    expected = flash_attn_func(*qkv, window_size=(2, 1))
    assert not torch.equal(expected, flash_attn_func(*qkv))
    assert torch.equal(flash_attn_func(*qkv, window_size=WINDOWS[name]), expected)
    q, *cache = qkv
    expected = flash_attn_with_kvcache(q, *cache, window_size=(2, 1))
    assert torch.equal(flash_attn_with_kvcache(q, *cache, window_size=WINDOWS[name]), expected)


def test_errors_are_of_the_class_that_upstream_raises(qkv):
    q, k, v = qkv
    with pytest.raises(RuntimeError, match="expected batch 2 like q"):
        flash_attn_func(q, k[:1], v[:1])
    with pytest.raises(ValueError, match="expected batch 2 like q"):
        flash_attn_func(q, k[:1], v[:1])
    assert issubclass(FlashAttnUnsupportedError, RuntimeError)


def test_softcap_with_dropout(qkv):
    assert "softcap: cannot be combined with dropout_p > 0" in message(*qkv, softcap=1.0, dropout_p=0.1)
