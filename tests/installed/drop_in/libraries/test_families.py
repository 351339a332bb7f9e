"""attn_implementation="rocm_fa" against eager in float64, for tiny models of transformers' families.

families.json lists the families whose tiny models transformers can make and run in float64: the served ones,
and the refused ones, with words of the error.  Some run always. FA_FULL runs all.
"""

import json
import os
from contextlib import contextmanager
from pathlib import Path

import flash_attn_rocm.transformers as ours
import pytest
import torch
import transformers
from tiny import answer, config_of, exact_masks_for_eager, inputs_of, pair

NAME = ours.register()
FAMILIES = json.loads((Path(__file__).parent / "families.json").read_text())
FULL = os.environ.get("FA_FULL", "") not in {"", "0"}
# Norms and rotary embeddings compute in float32 even then, with steps of 2^-23. These errors add up.
TOLERANCE = 1e-5
# A wrong element of attention changes the answer this many times more than the two answers differ.
SENSITIVE = 100
PADDINGS = "none", "left", "right"
SERVED, EQUAL_HEADS = "served", "served, with as many heads of keys as of queries"
# Their masks have float64's lowest number. Eager attention, a softmax in float32, reads it as -inf.
AS_SDPA = "served, as by sdpa"
# One of each way of calling attention, and earlier failures.
ALWAYS = {
    "llama", "mistral", "gemma2", "gpt_oss", "llama4_text", "paligemma", "deepseek_v3", "bert", "modernbert",
    "vit", "bart", "pegasus_x", "openai_privacy_filter", "gpt_bigcode", "mllama", "t5", "mt5", "umt5", "doge",
    "falcon", "gptj", "bloom", "sam", "aimv2", "aimv2_text_model", "clip", "clipseg",
}  # fmt: skip


def families(*kinds):
    """Pairs of a kind and a family, for this run."""
    found = [(kind, family) for kind in kinds for family in FAMILIES[kind] if FULL or family in ALWAYS]
    return pytest.mark.parametrize(("kind", "family"), found, ids=[family for _, family in found])


@contextmanager
def attention_with_elements_moved():
    def moved(*arguments, **named):
        out, weights = ours.attend(*arguments, **named)
        return out.roll(1, -1), weights

    transformers.AttentionInterface.register(NAME, moved)
    try:
        yield
    finally:
        transformers.AttentionInterface.register(NAME, ours.attend)


def compare(family, config, plain="eager"):
    """For each padding, the relative difference of the answers, and that of a wrong attention."""
    expecting, own = pair(family, NAME, config, plain=plain)
    found = {}
    for padding in PADDINGS:
        given = inputs_of(own, padding)
        expected, got = answer(expecting, given), answer(own, given)
        with attention_with_elements_moved():
            wrong = answer(own, given)
        size = expected.abs().max()
        found[padding] = tuple(((x - expected).abs().max() / size).item() for x in (got, wrong))
        towers = {"input_ids", "pixel_values"} <= given.keys()
        if "input_ids" not in given or (padding == "none" and expected.dim() != 3 and not towers):
            break
    return found


@pytest.fixture(autouse=True)
def exact_masks():
    with exact_masks_for_eager():
        yield


def test_all_that_run_always_are_families():
    assert set().union(*FAMILIES.values()) >= ALWAYS


@families(SERVED, EQUAL_HEADS, AS_SDPA)
def test_served(kind, family):
    heads = {"heads_of_keys": 4} if kind == EQUAL_HEADS else {}
    plain = "sdpa" if kind == AS_SDPA else "eager"
    for padding, (own, wrong) in compare(family, config_of(family, **heads), plain).items():
        assert own <= TOLERANCE, padding
        assert own * SENSITIVE <= wrong, padding


@families(*(kind for kind in FAMILIES if kind.startswith("refused: ")))
def test_refused(kind, family):
    with pytest.raises(ValueError, match=kind.removeprefix("refused: ")) as caught:
        compare(family, config_of(family))
    assert "attn_implementation='rocm_fa'" in str(caught.value)
    assert "next: load " in str(caught.value)


SWIN = transformers.SwinConfig(embed_dim=16, depths=[2], num_heads=[2], image_size=32, window_size=4)


@pytest.mark.parametrize(
    ("family", "config"),
    [("beit", config_of("beit", use_relative_position_bias=True)), ("swin", SWIN)],
    ids=["beit", "swin"],
)
def test_a_relative_position_bias(family, config):
    """Swin also has a mask of shifted windows."""
    for own, wrong in compare(family, config).values():
        assert own <= TOLERANCE
        assert own * SENSITIVE <= wrong


@pytest.mark.parametrize("family", ["mistral", "llama"])
def test_padding_between_tokens(family):
    """Windows count the padding. Kernels leave it out, so they cannot serve these calls."""
    eager, own = pair(family, NAME, config_of(family))
    given = inputs_of(eager, "left")
    given["attention_mask"][0, 4:9] = 0
    expected, got = answer(eager, given), answer(own, given)
    assert (got - expected).abs().max() <= TOLERANCE * expected.abs().max()


@pytest.mark.parametrize("family", ["paligemma", "gemma3"])
def test_tokens_that_see_themselves_both_ways(family):
    """An image in the prompt. flash_attention_2 makes it causal."""
    eager, own = pair(family, NAME, config_of(family))
    given = inputs_of(eager, "left")
    ids = torch.zeros_like(given["input_ids"])
    ids[:, 8:12] = 1
    given["token_type_ids"] = ids if family == "gemma3" else 1 - ids
    expected, got = answer(eager, given), answer(own, given)
    assert (got - expected).abs().max() <= TOLERANCE * expected.abs().max()
    del given["token_type_ids"]
    assert (answer(own, given) - expected).abs().max() >= expected.abs().max() / 100


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "axk2"])
def test_keys_that_are_chosen_by_index_are_refused(family):
    """Implementations that get the indices have whole masks, so the answer would be wrong."""
    config = config_of(family, heads_of_keys=4, index_topk=4)
    model = pair(family, NAME, config, dtype=torch.bfloat16)[1]
    with pytest.raises(ValueError, match="does not serve the argument indices of"):
        answer(model, inputs_of(model, "none"))


def test_gemma_4_with_two_head_dims():
    config = transformers.Gemma4TextConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, head_dim=16,
        num_key_value_heads=2, global_head_dim=32, vocab_size=97, vocab_size_per_layer_input=97,
        hidden_size_per_layer_input=16, sliding_window=8, num_kv_shared_layers=0, pad_token_id=0,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    for own, wrong in compare("gemma4_text", config).values():
        assert own <= TOLERANCE
        assert own * SENSITIVE <= wrong


@pytest.mark.parametrize("family", ["pegasus_x", "mistral"])
def test_masks_in_a_graph_of_torch_compile(family, monkeypatch):
    """Pegasus-X was off by 0.6: its decoder's modules lack the causal flag."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # it would keep a GPU's random state
    eager, own = pair(family, NAME, config_of(family))
    given = inputs_of(eager, "none")
    expected = answer(eager, given)
    own.forward = torch.compile(own.forward, backend="eager")
    assert (answer(own, given) - expected).abs().max() <= TOLERANCE * expected.abs().max()


@pytest.mark.parametrize("family", ["aimv2_text_model", "paligemma", "pegasus_x"])
def test_masks_that_are_copied_to_another_device(family):
    """As in a model on several GPUs. Its modules lack the causal flag."""
    eager, own = pair(family, NAME, config_of(family))
    given = inputs_of(eager, "left")
    expected = answer(eager, given)

    def copied(*arguments, **named):
        return ours.attend(*(x.clone() if torch.is_tensor(x) else x for x in arguments), **named)

    transformers.AttentionInterface.register(NAME, copied)
    try:
        found = answer(own, given)
    finally:
        transformers.AttentionInterface.register(NAME, ours.attend)
    assert (found - expected).abs().max() <= TOLERANCE * expected.abs().max()
