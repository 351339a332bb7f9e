"""transformers with attn_implementation="flash_attention_3": forward, generate and backward against eager."""

import pytest
import torch
from agreement import agree, gradients
from test_transformers import LANGUAGE, TEXT, text, trio, vision
from transformers.utils import is_flash_attn_3_available

FLASH_3 = "flash_attention_3"


def test_transformers_finds_it():
    assert is_flash_attn_3_available()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", LANGUAGE)
def test_forward(name, padded, calls, launched):
    given = text(padded=padded)
    with torch.no_grad():
        models = trio(*LANGUAGE[name](), flash=FLASH_3)
        found = [model(**given).logits[given["attention_mask"].bool()] for model in models]
    agree(*([x] for x in found))
    assert calls == {"3.flash_attn_varlen_func" if padded else "3.flash_attn_func": 2}
    assert launched() in (None, 2)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", LANGUAGE)
def test_generate_from_a_padded_batch(name, cache, calls):
    """The first tokens: every model must choose them where they are clear."""
    given = text(padded=True)
    options = {"max_new_tokens": 3, "do_sample": False, "cache_implementation": cache}
    flash, _, exact = trio(*LANGUAGE[name](), dtype=torch.float16, flash=FLASH_3)
    answers = [model.generate(**given, **options)[:, TEXT:] for model in (flash, exact)]
    assert torch.equal(*answers)
    assert calls.total() == 6
    assert all(name.startswith("3.") for name in calls)


@pytest.mark.parametrize("name", LANGUAGE)
def test_backward(name, calls):
    given = text(padded=True)
    models = trio(*LANGUAGE[name](), flash=FLASH_3)
    agree(*(gradients(m, m(**given).logits[given["attention_mask"].bool()]) for m in models))
    assert calls == {"3.flash_attn_varlen_func": 2}


def test_a_vision_encoder_with_packed_images(calls, launched):
    see, models = vision(FLASH_3)
    with torch.no_grad():
        found = [see(model) for model in models]
    agree(*([x] for x in found))
    assert calls == {"3.flash_attn_varlen_func": 2}
    assert launched() in (None, 2)
    agree(*(gradients(model, see(model)) for model in models))
