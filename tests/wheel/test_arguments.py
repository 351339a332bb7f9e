"""Wrong arguments are reported in words, all at once, before anything is computed."""

import pytest
import torch
from flash_attn_rocm import FlashAttnArgumentError, explain, flash_attn_func


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
    assert "q: expected dtype torch.float16 or torch.bfloat16, got torch.float32" in text


@pytest.mark.parametrize("head_dim", [0, 257])
def test_head_dim(head_dim):
    x = torch.zeros(1, 2, 1, head_dim).half()
    assert f"q: expected a headdim from 1 to 256, got {head_dim}" in message(x, x, x)


def test_device(qkv):
    q, k, v = qkv
    assert "k: expected device cpu like q, got meta" in message(q, k.to("meta"), v)


@pytest.mark.parametrize("window", [(1,), (1, 2, 3)])
def test_window(qkv, window):
    assert f"window_size: expected (left, right), got {window}" in message(*qkv, window_size=window)


def test_softcap_with_dropout(qkv):
    assert "softcap: cannot be combined with dropout_p > 0" in message(*qkv, softcap=1.0, dropout_p=0.1)
