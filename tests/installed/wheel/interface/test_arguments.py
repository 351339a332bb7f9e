"""Wrong arguments are reported in words, all in one error, before any computation."""

import warnings

import numpy as np
import pytest
import torch
from flash_attn_rocm import (
    FlashAttnArgumentError,
    FlashAttnUnsupportedError,
    attention,
    explain,
    flash_attn_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
    set_strict,
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
        "  - v: expected the shape of k, (1, 7, 2, 64), with any headdim, got (2, 7, 2, 64)",
        "  - q: expected a positive number of heads that is a multiple of k's 2, got 3",
        "  - v: expected dtype torch.float16 like q, got torch.float32",
        "  - alibi_slopes: expected shape (3,) or (2, 3), got (5,)",
        "  - alibi_slopes: expected dtype torch.float32, got torch.float64",
        "  - dropout_p: expected 0 <= dropout_p < 1, got 1.0",
        "  - softcap: expected 0 (none) or a positive number, got -1.0",
    ]


def test_dtype(qkv):
    text = message(*(x.to(torch.float8_e5m2) for x in qkv))
    eight = "torch.float8_e4m3fn, torch.float8_e4m3fnuz"
    served = f"torch.float16, torch.bfloat16, {eight}, or without kernels torch.float32 or torch.float64"
    assert f"q: expected dtype {served}, got torch.float8_e5m2; pass (x.float() * descale)" in text


def test_head_dim():
    x, nothing = torch.zeros(1, 2, 1, 8).half(), torch.zeros(1, 2, 1, 0).half()
    assert "q: expected a headdim of 1 or more, got shape (1, 2, 1, 0)" in message(nothing, nothing, nothing)
    assert "v: expected a headdim of 1 or more, got shape (1, 2, 1, 0)" in message(x, x, nothing)


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


ENDS, TOO_FAR = (torch.tensor(ends, dtype=torch.int32) for ends in ([0, 2, 5], [0, 2, 9]))
ROWS, PAIRS, TRIPLES = (torch.zeros(5, *sizes, 64).half() for sizes in ((2,), (2, 2), (3, 2)))
# Lengths read by the PyTorch implementation only: the call, and the error.
MISLED = {
    "flash_attn_varlen_func": (
        lambda: flash_attn_varlen_func(ROWS, ROWS, ROWS, ENDS, TOO_FAR, 3, 3),
        ["cu_seqlens_k: expected at most the number of rows, 5, last, got 9"],
    ),
    "flash_attn_varlen_kvpacked_func": (
        lambda: flash_attn_varlen_kvpacked_func(ROWS, PAIRS, ENDS, ENDS, 1, 3),
        ["max_seqlen_q: expected 2 or more, got 1", "max_seqlen_q: expected 3 or more, got 1"],
    ),
    "flash_attn_varlen_qkvpacked_func": (
        lambda: flash_attn_varlen_qkvpacked_func(TRIPLES, TOO_FAR, 3),
        ["cu_seqlens: expected at most the number of rows, 5, last, got 9"],
    ),
    "flash_attn_with_kvcache": (
        lambda: flash_attn_with_kvcache(ROWS[None], ROWS[None], ROWS[None], cache_seqlens=ENDS[2:] + 4),
        ["cache_seqlens: expected at most 5 keys, got 9 for sequence 0"],
    ),
}


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
@pytest.mark.parametrize("name", MISLED)
def test_an_error_names_the_function_that_was_called_and_its_arguments(name):
    """All errors used to say "attention cannot use its arguments"."""
    call, problems = MISLED[name]
    with pytest.raises(FlashAttnArgumentError) as caught:
        call()
    assert str(caught.value).splitlines() == [
        f"{name} cannot use its arguments:", *(f"  - {each}" for each in problems),
    ]  # fmt: skip
    assert caught.value.problems == tuple(problems)
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError, match=f"^{name}: no kernel serves this call: "):
        call()


NUMBERS = {
    "tensor": torch.tensor(0.25),
    "of_one_element": torch.tensor([0.25]).double(),
    "array": np.array(0.25),
    "scalar": np.float32(0.25),
    "learnt": torch.nn.Parameter(torch.tensor(0.25)),
}


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("argument", ["softmax_scale", "softcap"])
def test_whatever_is_one_number_is_a_number(qkv, argument, name):
    """flash_attn accepts softmax_scale=torch.tensor(0.1)."""
    q, *cache = qkv
    with torch.no_grad():
        expected = flash_attn_func(*qkv, **{argument: 0.25})
        assert not torch.equal(expected, flash_attn_func(*qkv))
        assert torch.equal(flash_attn_func(*qkv, **{argument: NUMBERS[name]}), expected)
        assert torch.equal(flash_attn_with_kvcache(q, *cache, **{argument: NUMBERS[name]}), expected)


NO_NUMBERS = ("0.1", torch.tensor([0.1, 0.2]), torch.tensor(1j), torch.tensor(0.1, device="meta"), [0.1], 1j)


@pytest.mark.parametrize("number", NO_NUMBERS, ids=str)
def test_what_is_no_number(qkv, number):
    text = message(*qkv, softmax_scale=number, softcap=number, dropout_p=number)
    assert text.count("expected") == 3
    assert f"softmax_scale: expected a finite number or None, got {number}" in text


def test_a_number_that_would_be_learnt_is_an_error(qkv):
    """It would get no gradient, and a model would train without it."""
    assert (
        "softmax_scale: expected a finite number or None, got a tensor that requires a gradient, which it "
        "would not receive; multiply q by it, and pass 1.0"
    ) in message(*qkv, softmax_scale=NUMBERS["learnt"])


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
@pytest.mark.parametrize("longest", [torch.tensor(3), np.int64(3), np.array(3)])
def test_a_length_is_any_integer(longest):
    expected = flash_attn_varlen_func(ROWS, ROWS, ROWS, ENDS, ENDS, 3, 3)
    assert torch.equal(flash_attn_varlen_func(ROWS, ROWS, ROWS, ENDS, ENDS, longest, longest), expected)


def test_explain_names_the_function_whose_arguments_are_missing_or_unknown(qkv):
    with pytest.raises(TypeError, match=r"^explain: flash_attn_func: missing a required argument: 'v'$"):
        explain(*qkv[:2])
    with pytest.raises(
        TypeError, match=r"^explain: flash_attn_with_kvcache: got an unexpected .* 'dropout_p'$"
    ):
        explain(flash_attn_with_kvcache, *qkv, dropout_p=0.1)


def by_words(rows, keys, left, right):
    diagonal = torch.arange(rows)[:, None] + keys - rows
    places = torch.arange(keys)
    return (places >= diagonal - left) & (places <= diagonal + right)


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning", "ignore:window_size")
def test_attention_keeps_a_right_bound_of_more_keys_than_there_are():
    """It was dropped where there are more queries than keys."""
    q, k, v = torch.randn(2, 60, 4, 32), *torch.randn(2, 2, 40, 4, 32)
    wanted = attention(q, k, v, attn_mask=by_words(60, 40, 3, 45))
    torch.testing.assert_close(attention(q, k, v, window_size=(3, 45)), wanted)
    assert not torch.allclose(flash_attn_func(q, k, v, window_size=(3, 45)), wanted), "as flash_attn has it"


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
def test_a_right_bound_that_flash_attn_drops_is_told_once():
    q, k, v = torch.randn(2, 60, 4, 32), *torch.randn(2, 2, 40, 4, 32)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", UserWarning)
        for window in ((3, 45), (3, 59), (3, 39), (-1, -1), (3, 50)):
            flash_attn_func(q, k, v, window_size=window)
        attention(q, k, v, window_size=(3, 46))
    (own,) = (each for each in told if "right bound" in str(each.message))
    assert own.filename == __file__
    assert "flash_attn_rocm.attention(q, k, v, window_size=...) keeps the bound" in str(own.message)
