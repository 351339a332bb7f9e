"""transformers with flash_attn_rocm.transformers.register(): the models without flash-attn's name."""

import flash_attn_rocm.transformers as ours
import pytest
import torch
from agreement import agree, gradients
from test_transformers import LANGUAGE, SIZES, TEXT, text, trio, vision, whisper
from tiny import exact_masks_for_eager
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.utils import generic

NAME = ours.register()
# Families unsupported by flash_attention_2.
MORE = {
    "gpt_oss": lambda: (
        GptOssForCausalLM,
        GptOssConfig(**SIZES, sliding_window=8, num_local_experts=2, num_experts_per_tok=1),
    ),
    "llama4": lambda: (
        Llama4ForCausalLM,
        Llama4TextConfig(
            **{**SIZES, "num_hidden_layers": 4}, intermediate_size_mlp=64, num_local_experts=2,
            attention_chunk_size=8, moe_layers=[1],
        ),
    ),
    # The head dims of the real model.
    "deepseek_v3": lambda: (
        DeepseekV3ForCausalLM,
        DeepseekV3Config(
            **{**SIZES, "num_key_value_heads": 4, "head_dim": 64}, moe_intermediate_size=32,
            n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, first_k_dense_replace=1,
            q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", LANGUAGE)
def test_forward(name, padded, used, calls, launched):
    given = text(padded=padded)
    with torch.no_grad():
        models = trio(*LANGUAGE[name](), flash=NAME)
        found = [model(**given).logits[given["attention_mask"].bool()] for model in models]
    agree(*([x] for x in found))
    assert used == {"flash_attn_varlen_func" if padded else "flash_attn_func": 2}
    assert calls.total() == 0, "flash_attn was not asked"
    assert launched() in (None, 2)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", LANGUAGE)
def test_generate_from_a_padded_batch(name, cache, used):
    """The first tokens: each of the three models must choose them where they are clear."""
    given, options = (
        text(padded=True),
        {"max_new_tokens": 3, "do_sample": False, "cache_implementation": cache},
    )
    flash, _, exact = trio(*LANGUAGE[name](), dtype=torch.float16, flash=NAME)
    answers = [model.generate(**given, **options)[:, TEXT:] for model in (flash, exact)]
    assert torch.equal(*answers)
    assert used.total() == 6
    assert used["flash_attn_varlen_func"] >= 4  # a window may leave the padding behind


@pytest.mark.parametrize("name", LANGUAGE)
def test_backward(name, used):
    given = text(padded=True)
    models = trio(*LANGUAGE[name](), flash=NAME)
    agree(*(gradients(m, m(**given).logits[given["attention_mask"].bool()]) for m in models))
    assert used.total() == 2


def test_sequences_packed_into_one(used):
    """Restarting positions begin another sequence: the result is as for each alone."""
    model = trio(*LANGUAGE["llama"](), flash=NAME)[0]
    ids = text(padded=False)["input_ids"][:1]
    positions = torch.cat([torch.arange(7), torch.arange(TEXT - 7)])[None]
    with torch.no_grad():
        packed = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        assert used["flash_attn_varlen_func"] == 2
        alone = torch.cat([model(input_ids=x).logits for x in (ids[:, :7], ids[:, 7:])], dim=1)
    assert (packed - alone).abs().max() <= 2**-5 * alone.abs().max()  # bf16 has 8 bits


def test_an_encoder_and_a_decoder(used):
    generator = torch.Generator().manual_seed(1)
    features, ids = (
        torch.randn(2, 8, 40, generator=generator),
        torch.randint(3, 97, (2, 5), generator=generator),
    )
    with torch.no_grad():
        found = [
            m(input_features=features.to(m.dtype), decoder_input_ids=ids).logits
            for m in trio(*whisper(), flash=NAME)
        ]
    agree(*([x] for x in found))
    assert used.total() == 3


def t5():
    """As of T5 1.1. Rounding turns relu on and off, so its gradients would be a poor measure."""
    return T5ForConditionalGeneration, T5Config(
        d_model=64, d_kv=32, d_ff=64, num_layers=2, num_heads=2, vocab_size=97, pad_token_id=0,
        eos_token_id=1, decoder_start_token_id=0, relative_attention_num_buckets=8,
        relative_attention_max_distance=16, feed_forward_proj="gated-gelu",
    )  # fmt: skip


@pytest.mark.parametrize("padded", [False, True])
def test_a_bias_of_positions(padded, used, ran, request):
    """T5, in both directions, causal and across. It raised."""
    ids = torch.randint(3, 97, (2, 5), generator=torch.Generator().manual_seed(1))
    models = trio(*t5(), flash=NAME)
    given = {**text(padded=padded), "decoder_input_ids": ids}
    with torch.no_grad():
        found = [model(**given).logits for model in models]
    agree(*([x] for x in found))
    assert used == {"attention": 6}
    kernels = ran()
    assert kernels is None or kernels.count("fa_fwd_masked_bf16_d64") == 6
    request.node.user_properties.append(("kernels", " ".join(kernels or ())))


def test_gradients_of_a_bias_of_positions():
    """In float64: the bf16 rounding of a few numbers is luck. Kernels: tests/installed/numerics."""
    own, eager = (model.double() for model in trio(*t5(), dtype=torch.float32, flash=NAME)[:2])
    ids = torch.randint(3, 97, (2, 5), generator=torch.Generator().manual_seed(1))
    given = {**text(padded=True), "decoder_input_ids": ids}
    with exact_masks_for_eager():
        for model in (own, eager):
            gradients(model, model(**given).logits)
    found, wanted = (
        {name: table.grad for name, table in model.named_parameters() if "attention_bias" in name}
        for model in (own, eager)
    )
    assert len(found) == len(wanted) == 2
    for name, grad in wanted.items():
        assert grad.abs().max() > 0
        torch.testing.assert_close(found[name], grad, rtol=1e-5, atol=1e-5 * grad.abs().max().item())


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_bias_of_positions_with_a_cache(cache):
    model = trio(*t5(), dtype=torch.float32, flash=NAME)[0].double()
    options = {
        "max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True, "output_logits": True,
    }  # fmt: skip
    given = text(padded=True)
    cached = model.generate(**given, **options, cache_implementation=cache)
    plain = model.generate(**given, **options, use_cache=False)
    assert torch.equal(cached.sequences, plain.sequences)
    torch.testing.assert_close(cached.logits, plain.logits, rtol=1e-4, atol=1e-5)


def test_a_name_that_transformers_takes_for_a_kernel_of_its_hub_is_refused():
    with pytest.raises(ValueError, match="next: choose another name, such as 'rocm_fa'"):
        ours.register("my_flash")


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MORE)
def test_forward_of_families_that_flash_attention_2_does_not_serve(name, padded, ran, request):
    """Llama 4 beyond its chunk was off by 0.97, eager by 0.006. gpt-oss raised."""
    given = text(padded=padded)
    with torch.no_grad():
        models = trio(*MORE[name](), flash=NAME)
        found = [model(**given).logits[given["attention_mask"].bool()] for model in models]
    agree(*([x] for x in found))
    kernels = ran()
    assert kernels is None or len(kernels) == (4 if name == "llama4" else 2)
    request.node.user_properties.append(("kernels", " ".join(kernels or ())))


@pytest.mark.parametrize("name", MORE)
def test_backward_of_families_that_flash_attention_2_does_not_serve(name):
    given = text(padded=True)
    models = trio(*MORE[name](), flash=NAME)
    found = [gradients(m, m(**given).logits[given["attention_mask"].bool()]) for m in models]
    # The larger error of four numbers is luck. tests/installed/wheel has sinks in float64.
    agree(*([each for each in all_of_them if each.numel() > 4] for all_of_them in found))


def test_sinks_have_gradients():
    model = trio(*MORE["gpt_oss"](), flash=NAME)[0]
    gradients(model, model(**text(padded=False)).logits)
    assert all(layer.self_attn.sinks.grad.abs().max() > 0 for layer in model.model.layers)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", [*LANGUAGE, *MORE])
def test_logits_with_a_cache_are_those_without(name, cache, padded):
    """A static cache has unwritten keys. Without padding they counted."""
    model = trio(*({**LANGUAGE, **MORE})[name](), dtype=torch.float32, flash=NAME)[0].double()
    model.set_experts_implementation("eager")  # PyTorch's grouped products lack float64
    given = text(padded=padded)
    options = {
        "max_new_tokens": 4, "do_sample": False, "return_dict_in_generate": True, "output_logits": True,
    }  # fmt: skip
    cached = model.generate(**given, **options, cache_implementation=cache)
    plain = model.generate(**given, **options, use_cache=False)
    assert torch.equal(cached.sequences, plain.sequences)
    torch.testing.assert_close(cached.logits, plain.logits, rtol=1e-4, atol=1e-5)


def test_packed_sequences_of_a_batch():
    """The mask marks them, with or without position_ids of attention itself."""
    model = trio(*LANGUAGE["gemma2"](), flash=NAME)[0].double()
    ids = text(padded=False)["input_ids"]
    positions = torch.stack([torch.cat([torch.arange(n), torch.arange(TEXT - n)]) for n in (7, 12)])
    with torch.no_grad():
        packed = model(input_ids=ids, position_ids=positions, use_cache=False).logits
        alone = [
            torch.cat([model(input_ids=x[None]).logits for x in (row[:n], row[n:])], dim=1)
            for row, n in zip(ids, (7, 12), strict=True)
        ]
    torch.testing.assert_close(packed, torch.cat(alone), rtol=1e-4, atol=1e-5)


def test_packed_images_take_the_calls_of_flash_attention_2(used):
    """They took a dense call for each image."""
    see, models = vision(flash=NAME)
    with torch.no_grad():
        found = [see(model) for model in models]
    agree(*([x] for x in found))
    assert used == {"flash_attn_varlen_func": 2}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_with_float32_weights(dtype, used):
    """As Trainer's bf16=True. It raised "expected dtype"."""
    own, _, exact = trio(*LANGUAGE["llama"](), dtype=torch.float32, flash=NAME)
    given = text(padded=False)
    with torch.autocast("cpu", dtype):
        found = [gradients(m, m(**given).logits) for m in (own, exact)]
    expected = gradients(exact, exact(**given).logits)
    agree(*found, expected)
    assert used.total() == 2


@pytest.mark.parametrize(("name", "supported"), [("llama", True), ("gpt_oss", True), ("llama4", False)])
def test_models_that_do_not_support_flash_attention_are_not_taken_for_others(name, supported):
    config = ({**LANGUAGE, **MORE})[name]()[1]
    assert not generic.is_flash_attention_requested(config)
    config._attn_implementation = NAME
    assert generic.is_flash_attention_requested(config) == supported
    assert not generic.is_flash_attention_requested(requested_attention_implementation=NAME)


def test_models_are_asked_when_they_are_made():
    """Falcon was a KeyError."""
    from transformers import BloomConfig, BloomModel, FalconConfig, FalconModel

    small = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "n_layer": 1, "n_head": 4}
    with pytest.raises(
        ValueError, match="FalconModel does not run with attn_implementation='rocm_fa'"
    ) as caught:
        FalconModel._from_config(FalconConfig(**small), attn_implementation=NAME)
    assert "its own table of attention classes, FALCON_ATTENTION_CLASSES" in str(caught.value)
    assert "attn_implementation='eager' or 'sdpa', or install the distribution flash-attn" in str(
        caught.value
    )
    with pytest.raises(ValueError, match="supports neither flash attention nor sdpa"):
        BloomModel._from_config(BloomConfig(**small), attn_implementation=NAME)
    BloomModel._from_config(BloomConfig(**small), attn_implementation="eager")
