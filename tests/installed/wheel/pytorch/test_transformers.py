"""The attention function for transformers, tested without it: the wheel's tests lack transformers.

With transformers: tests/installed/drop_in/libraries.
"""

import sys
from types import SimpleNamespace

import pytest
import torch
from flash_attn_rocm import transformers

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")

ATTEND = transformers.attend
CAUSAL = SimpleNamespace(is_causal=True)


def tensors(rows=5, keys=5, value_dim=16, dtype=torch.float64):
    """Query, key and value (2, nheads, seqlen, headdim), as transformers has them."""
    q = torch.randn(2, 4, rows, 16, dtype=dtype)
    return q, torch.randn(2, 2, keys, 16, dtype=dtype), torch.randn(2, 2, keys, value_dim, dtype=dtype)


def by_formula(q, k, v, seen, scale=16**-0.5):
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2)


def causal(rows, keys=None):
    keys = rows if keys is None else keys
    return torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)


def test_without_transformers_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="needs transformers with AttentionInterface") as caught:
        transformers.register()
    assert "next: python -m pip install --upgrade transformers" in str(caught.value)


LAZY = """\
def __getattr__(name):
    try:
        import torchvision
    except Exception as error:
        raise {} from error
"""


@pytest.mark.parametrize(
    "wrapped",
    [
        'ModuleNotFoundError(f"Could not import module {name!r}. Are this object\'s requirements correct?")',
        'RuntimeError("Failed to import transformers.masking_utils because of the following error")',
    ],
)
def test_beside_a_torchvision_of_another_torch_the_real_error_comes_first(monkeypatch, tmp_path, wrapped):
    """transformers only reported a failing import of its module, and we reported too old a version."""
    for name, text in {
        "transformers": LAZY.format(wrapped),
        "torchvision": "raise RuntimeError('operator torchvision::nms does not exist')\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as caught:
        transformers.register()
    first, second = str(caught.value).splitlines()
    assert first == (
        "torchvision does not work with this torch, and transformers imports it: "
        "RuntimeError: operator torchvision::nms does not exist"
    )
    assert second.startswith(
        "  next: python -m pip uninstall --yes torchvision, then install the torchvision of"
    )
    monkeypatch.delitem(sys.modules, "transformers", raising=False)


def test_another_error_below_is_told_before_what_transformers_says(monkeypatch, tmp_path):
    (tmp_path / "transformers").mkdir()
    text = LAZY.format('ModuleNotFoundError("Could not import module")').replace("torchvision", "not_there")
    (tmp_path / "transformers" / "__init__.py").write_text(text)
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ImportError, match="AttentionMaskInterface: No module named 'not_there'; transformers says"
    ):
        transformers.register()
    monkeypatch.delitem(sys.modules, "transformers", raising=False)


@pytest.mark.parametrize(
    "given",
    [
        {"position_biases": torch.zeros(1, 4, 5, 5)},
        {"block_table": torch.zeros(1, 1)},
        {"cache": object()},
        {"indices": torch.zeros(1)},
        {"head_mask": torch.ones(4)},
        {"never_heard_of": 0},
    ],
)
def test_an_argument_that_is_not_known_raises(given):
    [name] = given
    with pytest.raises(ValueError, match=f"'rocm_fa' does not serve the argument {name} of") as caught:
        ATTEND(CAUSAL, *tensors(), None, **given)
    assert "next: load the model with attn_implementation='eager' or 'sdpa'" in str(caught.value)


def test_the_error_has_the_name_that_was_registered():
    module = SimpleNamespace(is_causal=True, config=SimpleNamespace(_attn_implementation="mine"))
    with pytest.raises(ValueError, match="attn_implementation='mine' does not serve"):
        ATTEND(module, *tensors(), torch.zeros(1, 1, 5, 5).long())


def test_what_changes_nothing_is_let_through():
    given = {"use_cache": True, "num_items_in_batch": 3, "position_bias": None, "head_mask": False}
    q, k, v = tensors()
    out, weights = ATTEND(CAUSAL, q, k, v, None, **given)
    assert weights is None
    torch.testing.assert_close(out, by_formula(q, k, v, causal(5)))


def test_attention_weights_cannot_be_had():
    with pytest.raises(ValueError, match="does not serve output_attentions=True") as caught:
        ATTEND(CAUSAL, *tensors(), None, output_attentions=True)
    assert "attn_implementation='eager';" in str(caught.value)


def test_sinks_that_are_not_passed_raise():
    module = SimpleNamespace(is_causal=True, sinks=torch.zeros(4))
    with pytest.raises(ValueError, match="does not serve sinks that are not passed as s_aux"):
        ATTEND(module, *tensors(), None)
    ATTEND(module, *tensors(), None, s_aux=module.sinks)


def test_sinks_take_their_share():
    q, k, v = tensors()
    out, _ = ATTEND(CAUSAL, q, k, v, None, s_aux=torch.full((4,), 1e9))
    assert out.abs().max() < 1e-6


def test_it_has_to_be_said_whether_attention_is_causal():
    with pytest.raises(ValueError, match="does not serve attention without is_causal"):
        ATTEND(SimpleNamespace(), *tensors(), None)
    ATTEND(SimpleNamespace(), *tensors(rows=1), None)
    q, k, v = tensors()
    out, _ = ATTEND(SimpleNamespace(), q, k, v, None, is_causal=False)
    torch.testing.assert_close(out, by_formula(q, k, v, torch.ones(5, 5, dtype=torch.bool)))


@pytest.mark.parametrize("floats", [False, True])
def test_a_mask_of_four_dimensions_is_all_that_counts(floats):
    """It was an IndexError."""
    q, k, v = tensors(keys=7)
    seen = torch.rand(2, 1, 5, 9) < 0.6
    seen[..., 0] = True
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min) if floats else seen
    out, _ = ATTEND(CAUSAL, q, k, v, mask)
    torch.testing.assert_close(out, by_formula(q, k, v, seen[..., :7]))


def with_bias(q, k, v, bias, seen):
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2) / 4 + bias).masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2)


def test_a_mask_of_other_floats_is_added():
    """Doge and Swin raised here."""
    q, k, v = tensors(keys=7)
    bias = torch.randn(2, 1, 5, 9, dtype=torch.float64)
    bias[..., 3] = torch.finfo(torch.float32).min
    out, _ = ATTEND(CAUSAL, q, k, v, bias)
    torch.testing.assert_close(out, with_bias(q, k, v, bias[..., :7], torch.ones(5, 7).bool()))


BOOLEAN = torch.ones(2, 1, 5, 9).bool().tril(4)
FLOATS = torch.zeros(BOOLEAN.shape).masked_fill(~BOOLEAN, torch.finfo(torch.float32).min)
OTHERS = torch.randn(2, 1, 5, 9, dtype=torch.float64).masked_fill(~BOOLEAN, -torch.inf)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("mask", [BOOLEAN, FLOATS, OTHERS], ids=["boolean", "0 and lowest", "numbers"])
def test_position_bias_beside_a_mask(mask, heads):
    """T5: its bias was first lost, and in a later version raised."""
    q, k, v = tensors(keys=7)
    bias = torch.randn(1, heads, 5, 9, dtype=torch.float64, requires_grad=True)
    out, _ = ATTEND(SimpleNamespace(is_causal=True), q, k, v, mask, position_bias=bias)
    more = mask if mask is OTHERS else torch.zeros(mask.shape)
    expected = with_bias(q, k, v, (bias + more)[..., :7], BOOLEAN[..., :7])
    torch.testing.assert_close(out, expected)
    weights = torch.randn_like(out)
    (found,), (wanted,) = (torch.autograd.grad((x * weights).sum(), bias) for x in (out, expected))
    torch.testing.assert_close(found, wanted)
    assert found[..., 7:].abs().max() == 0 < found[..., :7].abs().max()


@pytest.mark.parametrize(("is_causal", "window"), [(True, None), (False, None), (True, 2)])
def test_position_bias_without_a_mask(is_causal, window):
    """T5's decoder is causal by its module alone. Its cache may have more keys than rows."""
    q, k, v = tensors(rows=3)
    bias = torch.randn(1, 4, 3, 5, dtype=torch.float64)
    out, _ = ATTEND(
        SimpleNamespace(is_causal=is_causal), q, k, v, None, position_bias=bias, sliding_window=window
    )
    seen = causal(3, 5) if is_causal else torch.ones(3, 5).bool()
    if window:
        seen &= ~causal(3, 5).tril(2 - window)
    torch.testing.assert_close(out, with_bias(q, k, v, bias, seen))


@pytest.mark.parametrize(
    ("mask", "given", "words"),
    [
        (
            torch.ones(2, 5, dtype=torch.int8),
            {},
            r"position_bias beside attention_mask of shape \(2, 5\), that",
        ),
        (
            None,
            {"cu_seq_lens_q": torch.tensor([0, 2, 10])},
            "position_bias beside several sequences that are packed into one, that",
        ),
    ],
)
def test_what_is_not_served_beside_a_position_bias_raises(mask, given, words):
    with pytest.raises(ValueError, match=f"'rocm_fa' does not serve {words} of"):
        ATTEND(CAUSAL, *tensors(), mask, position_bias=torch.zeros(1, 1, 5, 5), **given)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (torch.ones(2, 5, dtype=torch.int8), causal(5)),  # a copy: only the dtype is left
        (torch.empty(2, 0, 0, dtype=torch.int8), causal(5)),
        (torch.empty(2, 0, 2, dtype=torch.int8), causal(5) & ~causal(5).tril(-2)),
        (torch.empty(2, 0, 1, dtype=torch.bool), torch.ones(5, 5).tril(1).triu(-1).bool()),
    ],
)
@pytest.mark.parametrize("said", [True, False])
def test_the_mask_counts_and_not_is_causal(mask, expected, said):
    """AIMv2's text passes is_causal=False with a causal mask. Eager attention reads the mask."""
    q, k, v = tensors()
    out, _ = ATTEND(SimpleNamespace(is_causal=False), q, k, v, mask, is_causal=said)
    torch.testing.assert_close(out, by_formula(q, k, v, expected))


@pytest.mark.parametrize("padded", [False, True])
def test_a_mask_of_int16_has_the_chunks_of_the_config(padded):
    """As copies of Llama 4's masks on several GPUs: only the dtype is left."""
    module = SimpleNamespace(
        is_causal=True,
        config=SimpleNamespace(attention_chunk_size=2, layer_types=["chunked_attention"]),
    )
    q, k, v = tensors()
    mask = torch.ones(2, 5, dtype=torch.int16)
    mask[1, 0] = int(not padded)
    out, _ = ATTEND(module, q, k, v, mask)
    begin = torch.tensor([0, int(padded)])[:, None]
    number = (torch.arange(5) - begin).div(2, rounding_mode="floor")
    seen = (number[:, :, None] == number[:, None]) & causal(5) & mask.bool()[:, None]
    torch.testing.assert_close(out, by_formula(q, k, v, seen[:, None]) * mask[:, :, None, None])


@pytest.mark.parametrize("mask", [torch.ones(2, 1, 5), torch.ones(3, 5), torch.ones(2, 6)])
def test_other_masks_raise(mask):
    with pytest.raises(ValueError, match=r"does not serve attention_mask of shape \("):
        ATTEND(CAUSAL, *tensors(), mask)


def test_rows_of_another_text_are_no_padding():
    """Cross attention: the mask has the keys' padding, and rows may be as many as keys."""
    q, k, v = tensors()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    out, _ = ATTEND(SimpleNamespace(is_causal=False), q, k, v, mask)
    torch.testing.assert_close(out, by_formula(q, k, v, mask.bool()[:, None, None]))


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("said", [True, False])
def test_sequences_by_number(is_causal, said):
    """A copy on another device has only the numbers. It followed the module's flag, or the call's."""
    q, k, v = tensors()
    numbers = torch.tensor([[2, 2, 3, 3, 3], [3, 3, 4, 4, 4]], dtype=torch.int32)
    out, _ = ATTEND(
        SimpleNamespace(is_causal=said), q, k, v, numbers if is_causal else -numbers, is_causal=said
    )
    same = numbers[:, None, :, None] == numbers[:, None, None, :]
    torch.testing.assert_close(out, by_formula(q, k, v, same & causal(5) if is_causal else same))


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_model_s_own_mask_of_int32_says_nothing_of_causal_rows(is_causal):
    q, k, v = tensors()
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], dtype=torch.int32)
    out, _ = ATTEND(SimpleNamespace(is_causal=is_causal), q, k, v, mask)
    seen = mask.bool()[:, None, None] & (causal(5) if is_causal else torch.ones(5, 5).bool())
    torch.testing.assert_close(out, by_formula(q, k, v, seen) * mask[:, :, None, None])


def test_ends_of_sequences_without_the_longest():
    q, k, v = (x[:1] for x in tensors())
    ends = torch.tensor([0, 2, 5])
    out, _ = ATTEND(CAUSAL, q, k, v, None, cu_seq_lens_q=ends, cu_seq_lens_k=ends)
    number = torch.tensor([0, 0, 1, 1, 1])
    torch.testing.assert_close(out, by_formula(q, k, v, (number[:, None] == number) & causal(5)))
    with pytest.raises(ValueError, match="does not serve one of cu_seq_lens_q and cu_seq_lens_k"):
        ATTEND(CAUSAL, q, k, v, None, cu_seq_lens_q=ends)


def test_packed_sequences_beside_padding_or_a_cache_raise():
    q, k, v = (x[:1] for x in tensors())
    ends = torch.tensor([0, 2, 5])
    with pytest.raises(ValueError, match="does not serve cu_seq_lens_q beside an attention_mask"):
        ATTEND(CAUSAL, q, k, v, torch.tensor([[0, 1, 1, 1, 1]]), cu_seq_lens_q=ends, cu_seq_lens_k=ends)
    q, k, v = (x[:1] for x in tensors(keys=7))
    with pytest.raises(ValueError, match="does not serve position_ids of several sequences beside"):
        ATTEND(CAUSAL, q, k, v, None, position_ids=torch.tensor([[0, 1, 0, 1, 2]]))


def module_with(*, is_causal, **config):
    return SimpleNamespace(is_causal=is_causal, layer_idx=0, config=SimpleNamespace(**config))


def test_a_window_that_is_not_passed_raises(monkeypatch):
    monkeypatch.setattr("flash_attn_rocm.transformers.calls.supports_flash", lambda _config: True)
    module = module_with(is_causal=True, layer_types=["sliding_attention"], sliding_window=3)
    with pytest.raises(ValueError, match=r"does not serve the window of config\.sliding_window"):
        ATTEND(module, *tensors(), None)
    q, k, v = tensors()
    out, _ = ATTEND(module, q, k, v, None, sliding_window=3)
    torch.testing.assert_close(out, by_formula(q, k, v, causal(5) & ~causal(5).tril(-3)))
    ATTEND(module, *tensors(keys=3, rows=3), None)


@pytest.mark.parametrize("passed", [2, 3])
def test_windows_of_encoders_are_as_wide_as_their_masks(monkeypatch, passed):
    """ModernBERT passes one more than config.sliding_window, T5Gemma passes it unchanged."""
    monkeypatch.setattr("flash_attn_rocm.transformers.calls.supports_flash", lambda _config: True)
    module, (q, k, v) = module_with(is_causal=False, sliding_window=2), tensors(rows=9, keys=9)
    out, _ = ATTEND(module, q, k, v, None, sliding_window=passed)
    near = (torch.arange(9)[:, None] - torch.arange(9)).abs() <= 2
    torch.testing.assert_close(out, by_formula(q, k, v, near))
    with pytest.raises(ValueError, match="does not serve sliding_window=5 where"):
        ATTEND(module, q, k, v, None, sliding_window=5)


@pytest.mark.parametrize("value_dim", [8, 24])
def test_values_of_another_head_dim(value_dim):
    q, k, v = tensors(value_dim=value_dim)
    out, _ = ATTEND(CAUSAL, q, k, v, None)
    assert out.shape[-1] == value_dim
    torch.testing.assert_close(out, by_formula(q, k, v, causal(5)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_is_followed_where_the_weights_are_fp32(dtype):
    """It was "expected dtype"."""
    with torch.autocast("cpu", dtype):
        out, _ = ATTEND(CAUSAL, *tensors(dtype=torch.float32), None)
    assert out.dtype == dtype


def test_fp32_of_norms_is_computed_as_the_weights_are():
    module = torch.nn.Module()
    module.is_causal, module.o_proj = True, torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    assert ATTEND(module, *tensors(dtype=torch.float32), None)[0].dtype == torch.bfloat16
    module.config = SimpleNamespace(_is_quantized=True, dtype=torch.float16)
    quantized = SimpleNamespace(is_causal=True, config=module.config)
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    assert ATTEND(quantized, *tensors(dtype=torch.float32), mask)[0].dtype == torch.float16
