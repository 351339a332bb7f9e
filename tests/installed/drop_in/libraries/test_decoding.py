"""attn_implementation="rocm_fa" against eager in float64: tokens and logits of ``generate``.

Each cache and each way to decode, with texts below, at and above the window of 8 keys. Some cases run always.
FA_FULL runs all.
"""

import os
from contextlib import nullcontext
from copy import deepcopy
from itertools import product

import flash_attn_rocm.transformers as ours
import pytest
import torch
from tiny import config_of, exact_masks_for_eager, pair
from transformers import DynamicCache, QuantizedCache, StaticCache

NAME = ours.register()
FULL = os.environ.get("FA_FULL", "") not in {"", "0"}
TOLERANCE = 1e-5  # as in test_families
# All layers are of one kind, with a window. generate makes one mask, and the model makes it again.
ONE_WINDOW = "mistral", "starcoder2", "mixtral", "phimoe"
# Layers with and without windows, with sinks, with chunks.
OTHERS = "gemma2", "gpt_oss", "llama4_text", "llama"
# transformers quantizes no windows.
CACHES = {
    "dynamic": lambda config: DynamicCache(config=config),
    "static": lambda config: StaticCache(config, MOST),
    "offloaded": lambda config: DynamicCache(config=config, **OFFLOADED),
    "offloaded static": lambda config: StaticCache(config, MOST, **OFFLOADED),
    "quantized": lambda config: QuantizedCache("fp8", config),
}
OFFLOADED = {"offloading": True, "offload_only_non_sliding": False}
WAYS = {
    "greedy": {}, "beams": {"num_beams": 3}, "in chunks": {"prefill_chunk_size": 3},
    "lookup": {"prompt_lookup_num_tokens": 2}, "second turn": {}, "assisted": {},
}  # fmt: skip
ONE_TEXT = "lookup", "assisted"  # at a time, with dynamic caches only
LENGTHS = 4, 8, 17
NEW, MOST = 7, 48


def cases():
    """(family, cache, way): all of one family. For others: earlier failures, and the usual ones."""
    everything = product((*ONE_WINDOW, *OTHERS), CACHES, WAYS)
    usual = {("dynamic", "greedy"), ("static", "greedy"), ("quantized", "greedy"), ("dynamic", "assisted")}
    return [
        (family, cache, way) for family, cache, way in everything
        if (way not in ONE_TEXT or cache == "dynamic") and (cache != "quantized" or family == "llama")
        and (FULL or family == "mistral" or (cache, way) in usual)
    ]  # fmt: skip


class Stream(nullcontext):
    """Replaces a GPU's stream, for caches moved between GPU and host."""

    def wait_stream(self, _other):
        pass


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch):
    monkeypatch.setattr(torch, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda _device: Stream())
    with exact_masks_for_eager():
        yield


def decoded(model, length, cache, way):
    """The tokens, and the logits of each step."""
    ids = torch.randint(
        3, 90, (1 if way in ONE_TEXT else 2, length), generator=torch.Generator().manual_seed(1)
    )
    mask = torch.ones_like(ids)
    if cache != "quantized":  # the results of padding rows differ, and would scale all others
        mask[1:, :2] = 0
    options = {
        "do_sample": False, "eos_token_id": None, "max_new_tokens": NEW, "return_dict_in_generate": True,
        "output_logits": True, "past_key_values": CACHES[cache](model.config), **WAYS[way],
    }  # fmt: skip
    if way == "assisted":
        options["assistant_model"] = assistant_of(model)
    first = model.generate(input_ids=ids, attention_mask=mask, **options)
    if way != "second turn":
        return first
    more = torch.cat([first.sequences, ids[:, :3]], dim=1)
    mask = torch.cat([mask, torch.ones_like(more[:, length:])], dim=1)
    return model.generate(input_ids=more, attention_mask=mask, **options)


def assistant_of(model):
    """The model with similar weights: some of its tokens are accepted and some rejected."""
    assistant, generator = deepcopy(model), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in assistant.parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.add_(noise, alpha=0.2 * weight.std().item())
    return assistant


@pytest.mark.parametrize(("family", "cache", "way"), cases())
def test_generate(family, cache, way):
    """Static caches of models with one window gave tokens without attention, at and above the window."""
    window = {"sliding_window": 8} if family in ONE_WINDOW else {}
    models = pair(family, NAME, config_of(family, **window))
    called = []
    models[1].register_forward_hook(lambda module, *_call: called.append(module))
    for length in LENGTHS:
        wanted, found = (decoded(model, length, cache, way) for model in models)
        assert torch.equal(found.sequences, wanted.sequences), length
        logits, expected = torch.stack(found.logits), torch.stack(wanted.logits)
        assert (logits - expected).abs().max() <= TOLERANCE * expected.abs().max(), length
    if way == "assisted":  # by a copy
        assert len(LENGTHS) < sum(each is models[1] for each in called) < NEW * len(LENGTHS)


@pytest.mark.parametrize("family", ["mistral", "llama"])
def test_a_compiled_step_with_a_static_cache(family, monkeypatch):
    """The default of generate on a GPU. With torch 2.10 and 2.11 it raised."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # it would keep a GPU's random state
    eager, own = pair(family, NAME, config_of(family))
    wanted = decoded(eager, 8, "static", "greedy")
    own.forward = torch.compile(own.forward, backend="eager")
    found = decoded(own, 8, "static", "greedy")
    assert torch.equal(found.sequences, wanted.sequences)
