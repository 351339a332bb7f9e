"""Tiny models of any family of transformers, made from the default values of its config."""

import importlib
import inspect
import zlib
from contextlib import contextmanager
from copy import deepcopy

import torch
import transformers
from transformers import CONFIG_MAPPING, masking_utils
from transformers.models.auto import modeling_auto as auto

TEXT = 17
END = 1  # eos_token_id below
# The families' names of sizes.  Windows and chunks are shorter than TEXT.
SIZES = {
    64: "hidden_size d_model n_embd embed_dim dim hidden_dim embedding_size word_embed_proj_dim "
        "decoder_hidden_size projection_dim encoder_hidden_size cross_attention_hidden_size "
        "hidden_size_per_layer_input intermediate_size ffn_dim d_ff encoder_ffn_dim decoder_ffn_dim n_inner "
        "ffn_hidden_size mlp_dim "
        "intermediate_size_mlp",
    2: "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_decoder_layers "
       "num_encoder_layers depth num_experts_per_tok moe_k num_experts_per_token moe_topk",
    4: "num_attention_heads n_head num_heads n_heads encoder_attention_heads decoder_attention_heads "
       "num_experts num_local_experts n_routed_experts moe_num_experts",
    16: "head_dim d_kv q_lora_rank kv_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim global_head_dim "
        "attention_head_dim index_head_dim",
    32: "moe_intermediate_size shared_expert_intermediate_size moe_shared_expert_intermediate_size "
        "image_size",
    8: "sliding_window attention_chunk_size local_attention patch_size",
    97: "vocab_size vocab_size_per_layer_input",
    128: "max_position_embeddings n_positions max_sequence_length max_target_positions max_source_positions",
    1: "n_group topk_group first_k_dense_replace eos_token_id",
    0: "pad_token_id bos_token_id",
}  # fmt: skip
HEADS_OF_KEYS = "num_key_value_heads", "n_head_kv", "num_kv_heads"
MAPPINGS = "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM"
SHARP = "q_proj", "k_proj", "qkv", "query", "key", "c_attn"


def class_of(family):
    """A family's language model, plain model, or the model of its module with this config."""
    names = [getattr(auto, f"MODEL_FOR_{each}_MAPPING_NAMES").get(family) for each in MAPPINGS]
    name = next(filter(None, [*names, auto.MODEL_MAPPING_NAMES.get(family)]), None)
    if name is not None:
        return getattr(transformers, name if isinstance(name, str) else name[0])
    kind = CONFIG_MAPPING[family]
    module = importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
    found = [
        each for label, each in vars(module).items()
        if getattr(each, "config_class", None) is kind and label.endswith(("Model", "Encoder"))
        and not label.endswith("PreTrainedModel")
    ]  # fmt: skip
    return min(found, key=lambda each: len(each.__name__))


def config_of(family, heads_of_keys=2, **more):
    """A small config. Some families need equal numbers of key and query heads."""
    config = _small(CONFIG_MAPPING[family], heads_of_keys)
    for name, value in more.items():
        setattr(config, name, value)
    return config


def _small(kind, heads_of_keys):
    default = kind()
    wanted = {name: size for size, names in SIZES.items() for name in names.split()}
    wanted |= dict.fromkeys(HEADS_OF_KEYS, heads_of_keys)
    given = {}
    for name, size in wanted.items():
        old = getattr(default, name, None)
        unset = old is None and hasattr(default, name) and name in {"head_dim", *HEADS_OF_KEYS}
        if (unset or type(old) is int) and not isinstance(getattr(kind, name, None), property):
            given[name] = size
    if type(kinds := getattr(default, "layer_types", None)) is list and not kind.sub_configs:
        given["layer_types"] = [*dict.fromkeys(kinds)] * (2 if len(set(kinds)) == 1 else 1)
        given["num_hidden_layers"] = len(given["layer_types"])
    for name in kind.sub_configs or ():
        if (part := getattr(default, name, None)) is not None:
            given[name] = _small(type(part), heads_of_keys).to_dict()
    return kind(**given)


def pair(family, name, config, dtype=torch.float64, plain="eager"):
    """The family's model with ``plain`` attention and with the named one, with equal weights.

    The weights are uneven: attention is uneven too, so errors of it show.
    """
    models = []
    for implementation in (plain, name):
        model = class_of(family)._from_config(
            deepcopy(config), attn_implementation=implementation, dtype=dtype
        )
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")  # PyTorch's grouped products lack float64
        models.append(model.eval())
    with torch.no_grad():
        for label, weight in models[0].named_parameters():
            weight.copy_(weight_of(label, weight.shape))
    models[1].load_state_dict(models[0].state_dict())
    return models


@contextmanager
def exact_masks_for_eager():
    """Eager masks of float64 have numbers below float32's range. Eager softmax reads them as -inf: NaN."""
    plain = masking_utils.eager_mask
    masks = transformers.AttentionMaskInterface
    masks.register("eager", lambda *a, **named: plain(*a, **{**named, "dtype": torch.float32}))
    try:
        yield
    finally:
        masks.register("eager", plain)


def weight_of(label, shape):
    """Equal values for parameters of equal name and shape. Norms are near 1."""
    generator = torch.Generator().manual_seed(zlib.crc32(label.encode()))
    found = torch.randn(shape, generator=generator, dtype=torch.float64)
    if len(shape) < 2:
        return found / 10 + (1 if "norm" in label.lower() and label.endswith("weight") else 0)
    sharpness = 3 if any(each in label for each in SHARP) else 1
    return found * sharpness / shape[-1] ** 0.5


def inputs_of(model, padding):
    """Texts, the second with ``padding`` "none", "left" or "right". Images for models that need them."""
    generator = torch.Generator().manual_seed(1)
    accepted = inspect.signature(model.forward).parameters
    given = {}
    if "input_ids" in accepted and model.main_input_name == "input_ids":
        given["input_ids"] = torch.randint(3, 90, (2, TEXT), generator=generator)
        given["input_ids"][:, -1] = END
        if padding != "none":
            given["attention_mask"] = torch.ones(2, TEXT, dtype=torch.long)
            given["attention_mask"][1, slice(6) if padding == "left" else slice(-6, None)] = 0
            given["input_ids"] *= given["attention_mask"]  # models look for the highest number, and for END
            given["input_ids"][1, -1 if padding == "left" else -7] = END
        if model.config.is_encoder_decoder:
            given["decoder_input_ids"] = torch.randint(3, 90, (2, TEXT + 2), generator=generator)
    if not given or all(hasattr(model, name) for name in ("text_model", "vision_model", "logit_scale")):
        size = getattr(model.config, "vision_config", model.config).image_size
        given["pixel_values"] = torch.randn(2, 3, size, size, generator=generator, dtype=torch.float64)
    return given


def answer(model, given):
    """The logits or hidden states of all positions except padding, or the outputs of two towers."""
    with torch.no_grad():
        out = model(**given)
    if {"text_model_output", "image_embeds"} <= out.keys():
        found, mask = out["text_model_output"][0], given.get("attention_mask", torch.ones(2, TEXT)).bool()
        return torch.cat([x.flatten() for x in (found[mask], out["text_embeds"], out["image_embeds"])])
    found = out.get("logits") if out.get("logits") is not None else out[0]
    mask = given.get("attention_mask")
    return found if mask is None or model.config.is_encoder_decoder else found[mask.bool()]
