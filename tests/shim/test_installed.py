"""The distribution flash-attn, installed beside flash-attn-rocm as pip does it, on CPU tensors.

What libraries ask of it before they use it, and the names that they import; no GPU, no ROCm, no network.
"""

from importlib import import_module, metadata
from importlib.util import find_spec

import flash_attn
import flash_attn_rocm
import pytest
import torch
from packaging.requirements import Requirement
from packaging.version import Version

# Read in the released packages' sources: transformers 5.23.0 and diffusers 0.42.1.  vLLM looks up only the
# module, ring-flash-attention and ComfyUI take the functions by name.
IMPORTED = {
    "transformers": {
        "flash_attn": "flash_attn_func flash_attn_varlen_func flash_attn_with_kvcache",
        "flash_attn.bert_padding": "pad_input unpad_input index_first_axis",
    },
    "diffusers": {
        "flash_attn": "flash_attn_func flash_attn_varlen_func",
        "flash_attn.flash_attn_interface": "_wrapped_flash_attn_backward _wrapped_flash_attn_forward",
    },
    "vllm": {
        "flash_attn": "flash_attn_varlen_func",
        "flash_attn.layers.rotary": "apply_rotary_emb",
        "flash_attn.ops.triton.rotary": "apply_rotary",  # unasked, on every GPU
    },
    "ring-flash-attention": {
        "flash_attn.flash_attn_interface": (
            "_flash_attn_forward _flash_attn_backward _flash_attn_varlen_forward _flash_attn_varlen_backward"
        ),
    },
    "models on the hub": {
        "flash_attn.layers.rotary": "RotaryEmbedding apply_rotary_emb_func apply_rotary_emb_qkv_",
    },
    "ComfyUI": {"flash_attn": "flash_attn_func"},
    "xformers": {"flash_attn.flash_attn_interface": "flash_attn_gpu"},
}


@pytest.mark.parametrize("library", IMPORTED)
def test_what_libraries_import_is_there(library):
    for module, names in IMPORTED[library].items():
        assert [name for name in names.split() if not hasattr(import_module(module), name)] == []


def test_it_has_the_name_that_transformers_compares():
    assert metadata.packages_distributions()["flash_attn"] == ["flash-attn"]
    assert find_spec("flash_attn") is not None


def test_its_version_passes_the_comparisons_of_libraries():
    installed = Version(metadata.version("flash_attn"))  # as diffusers spells it
    assert installed.public == flash_attn.__version__ == "2.8.3"
    assert [int(part) for part in flash_attn.__version__.split(".")] == [2, 8, 3]  # as xformers reads it


def test_it_requires_the_release_that_it_was_verified_beside():
    [text] = metadata.requires("flash-attn")
    required = Requirement(text)
    assert required.name == "flash-attn-rocm"
    assert required.specifier.contains(metadata.version("flash-attn-rocm"))
    assert not required.specifier.contains("0.0.9")


@pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
def test_its_functions_compute_attention():
    q, k, v = (torch.randn(1, 33, heads, 64, dtype=torch.float16) for heads in (4, 2, 2))
    out = flash_attn.flash_attn_func(q, k, v, causal=True)
    assert torch.equal(out, flash_attn_rocm.flash_attn_func(q, k, v, causal=True))
    wide = (x.transpose(1, 2).double() for x in (q, k, v))
    exact = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True, enable_gqa=True)
    assert (out.double() - exact.transpose(1, 2)).abs().max() < 2**-9  # one step of fp16 below 4
