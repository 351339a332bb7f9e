"""Vision towers of transformers with several images: rocm_fa makes the calls of flash_attention_2.

Eager attention and sdpa make a call for each image.  Some run always. FA_FULL runs all.
"""

import os

import flash_attn_rocm.transformers as ours
import pytest
import torch
from tiny import class_of, config_of, weight_of

NAME = ours.register()
ALWAYS = "qwen2_vl_vision", "qwen3_vl_vision", "glm4v_vision"
MORE = (
    "cohere_compass_vision", "cosmos3_edge_vision", "ernie4_5_vl_moe_vision", "exaone4_5_vision",
    "glm4v_moe_vision", "glm_image_vision", "glm_ocr_vision", "hunyuan_vl_vision", "kimi_k25_vision",
    "paddleocr_vl_vision", "qwen2_5_omni_vision_encoder", "qwen2_5_vl_vision", "qwen3_5_vision",
    "qwen3_omni_moe_vision_encoder", "qwen3_vl_moe_vision", "video_llama_3_vision",
)  # fmt: skip
FULL = os.environ.get("FA_FULL", "") not in {"", "0"}
IMAGES = torch.tensor([[1, 4, 6], [1, 6, 8]])  # frames, rows and columns of patches
LAYERS, PATCH = 2, 4
SIZES = {
    "depth": LAYERS, "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2,
    "window_size": 16, "fullatt_block_indexes": [1], "deepstack_visual_indexes": [0],
    "num_position_embeddings": 64, "in_channels": 3, "in_chans": 3, "num_channels": 3, "out_hidden_size": 64,
}  # fmt: skip
# For the other families, a patch is a row of all its numbers.
PATCHES = {"kimi_k25_vision": (-1, 3, PATCH, PATCH), "paddleocr_vl_vision": (1, -1, 3, PATCH, PATCH)}
MORE_INPUTS = {"video_llama_3_vision": {"merge_sizes": torch.tensor([2, 2])}}


def config(family):
    found = config_of(family)
    return config_of(family, **{name: size for name, size in SIZES.items() if hasattr(found, name)})


def seen_by(family, attention):
    """The tower's output for the images with this attention. Its weights depend on their names."""
    small = config(family)
    tower = class_of(family)._from_config(small, attn_implementation=attention, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        for name, weight in tower.named_parameters():
            weight.copy_(weight_of(name, weight.shape))
        frames = 1 if family in {*PATCHES, "hunyuan_vl_vision"} else getattr(small, "temporal_patch_size", 1)
        shape = int(IMAGES.prod(1).sum()), 3 * frames * PATCH**2
        patches = torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        patches = patches.view(PATCHES.get(family, shape))
        return tower(patches, grid_thw=IMAGES, **MORE_INPUTS.get(family, {}))[0]


@pytest.mark.parametrize("family", [*ALWAYS, *(MORE if FULL else ())])
def test_the_calls_are_those_of_flash_attention_2(family, used, calls):
    expected = seen_by(family, "flash_attention_2")
    assert used.total() == 0
    assert calls == {"flash_attn_varlen_func": LAYERS}
    found = seen_by(family, NAME)
    assert used == calls
    assert torch.equal(found, expected)
