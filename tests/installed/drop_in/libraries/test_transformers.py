"""transformers with attn_implementation="flash_attention_2": forward, generate and backward against eager."""

from copy import deepcopy

import pytest
import torch
from agreement import agree, gradients
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.utils import is_flash_attn_2_available, is_flash_attn_greater_or_equal

FLASH, EAGER = "flash_attention_2", "eager"
SIZES = {
    "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 97, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
LANGUAGE = {
    "llama": lambda: (LlamaForCausalLM, LlamaConfig(**SIZES)),
    "gemma2": lambda: (
        Gemma2ForCausalLM,
        Gemma2Config(**SIZES, sliding_window=8, attn_logit_softcapping=5.0, query_pre_attn_scalar=32),
    ),
}
TEXT = 17


def trio(kind, config, dtype=torch.bfloat16, flash=FLASH):
    """The model with flash attention, without it, and without it in float32. The weights are equal."""
    torch.manual_seed(0)
    exact = kind._from_config(deepcopy(config), attn_implementation=EAGER, dtype=torch.float32).eval()
    # Larger than usual: attention is uneven, so errors of it show.
    with torch.no_grad():
        for name, weight in exact.named_parameters():
            if weight.dim() > 1 and ("q_proj" in name or "k_proj" in name or "qkv" in name):
                weight.mul_(8)
            weight.copy_(weight.to(dtype))
    models = []
    for implementation in (flash, EAGER):
        model = kind._from_config(deepcopy(config), attn_implementation=implementation, dtype=dtype).eval()
        model.load_state_dict(exact.state_dict())
        models.append(model)
    return (*models, exact)


def text(*, padded):
    ids = torch.randint(2, 97, (2, TEXT), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if padded:
        mask[1, :6] = 0
    return {"input_ids": ids, "attention_mask": mask}


def test_transformers_finds_it():
    assert is_flash_attn_2_available()
    assert is_flash_attn_greater_or_equal("2.8.0")


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", LANGUAGE)
def test_forward(name, padded, calls, launched):
    given = text(padded=padded)
    with torch.no_grad():
        found = [model(**given).logits[given["attention_mask"].bool()] for model in trio(*LANGUAGE[name]())]
    agree(*([x] for x in found))
    assert calls.total() == 2
    assert launched() in (None, 2)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", LANGUAGE)
def test_generate(name, cache, padded, calls, launched):
    """The logits of each step, given the exact model's tokens."""
    tokens = 4
    flash, eager, exact = trio(*LANGUAGE[name]())
    given = text(padded=padded)
    options = {
        "max_new_tokens": tokens, "do_sample": False, "return_dict_in_generate": True, "output_logits": True,
        "cache_implementation": cache,
    }  # fmt: skip
    chosen = exact.generate(**given, **options)
    forced = chosen.sequences[:, TEXT:]

    def force(_, scores):
        force.step += 1
        return torch.full_like(scores, -1e9).scatter(1, forced[:, force.step - 1, None], 0.0)

    answers = []
    for model in (flash, eager):
        force.step = 0
        answers.append(model.generate(**given, **options, logits_processor=[force]).logits)
    agree(*([torch.stack(x)] for x in (*answers, chosen.logits)))
    assert calls.total() == 2 * tokens
    assert launched() in (None, *range(2 * tokens, 4 * tokens + 1))


@pytest.mark.parametrize("name", LANGUAGE)
def test_backward(name, calls):
    given = text(padded=True)
    found = [gradients(m, m(**given).logits[given["attention_mask"].bool()]) for m in trio(*LANGUAGE[name]())]
    agree(*found)
    assert calls.total() == 2


def whisper():
    return WhisperForConditionalGeneration, WhisperConfig(
        d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=97, max_source_positions=20,
        max_target_positions=20, num_mel_bins=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip


def test_an_encoder_and_a_decoder(calls, launched):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(2, 8, 40, generator=generator)
    ids = torch.randint(3, 97, (2, 5), generator=generator)
    models = trio(*whisper())
    with torch.no_grad():
        found = [m(input_features=features.to(m.dtype), decoder_input_ids=ids).logits for m in models]
    agree(*([x] for x in found))
    assert calls.total() == 3  # the encoder's, the decoder's, and across
    assert launched() in (None, 3)
    found = [
        gradients(m, m(input_features=features.to(m.dtype), decoder_input_ids=ids).logits) for m in models
    ]
    agree(*found)


def vision(flash=FLASH):
    """A model's view of two images in one sequence, and the three models."""
    config = Qwen2_5_VLVisionConfig(
        depth=2, hidden_size=64, out_hidden_size=64, intermediate_size=64, num_heads=2, patch_size=4,
        spatial_merge_size=2, temporal_patch_size=2, window_size=16, fullatt_block_indexes=[1],
    )  # fmt: skip
    grid = torch.tensor([[1, 4, 6], [1, 6, 8]])
    patches = torch.randn(int(grid.prod(1).sum()), 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(1))

    def see(model):
        return model(patches.to(model.dtype), grid_thw=grid).pooler_output

    return see, trio(Qwen2_5_VisionTransformerPretrainedModel, config, flash=flash)


def test_a_vision_encoder_with_packed_images(calls, launched):
    see, models = vision()
    with torch.no_grad():
        found = [see(model) for model in models]
    agree(*([x] for x in found))
    assert calls["flash_attn_varlen_func"] == calls.total() == 2
    assert launched() in (None, 2)
    agree(*(gradients(model, see(model)) for model in models))
