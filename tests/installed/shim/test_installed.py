"""The distribution flash-attn, installed by pip along with flash-attn-rocm, on CPU tensors.

The libraries' queries before they use it, and their imported names. Needs no GPU, ROCm or network.
"""

import json
import os
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import flash_attn
import flash_attn_rocm
import pytest
import torch
from packaging.requirements import Requirement
from packaging.version import Version

# Names taken from flash_attn by released libraries (tests/installed/drop_in/imports.py), and those found by
# reading.
LIBRARIES = {row["library"]: row for row in json.loads(Path(os.environ["FA_IMPORTS"]).read_text())}
READ = {
    "vllm": [
        "flash_attn.flash_attn_varlen_func", "flash_attn.layers.rotary.apply_rotary_emb",
        "flash_attn.ops.triton.rotary.apply_rotary",  # unasked, on every GPU
    ],
    "models on the hub": [
        f"flash_attn.layers.rotary.{name}"
        for name in ("RotaryEmbedding", "apply_rotary_emb_func", "apply_rotary_emb_qkv_")
    ],
    "ComfyUI": ["flash_attn.flash_attn_func"],
    "upstream's own tests": [
        "flash_attn.flash_attn_interface.USE_TRITON_ROCM",
        "flash_attn.flash_attn_interface._get_block_size_n",
    ],
}  # fmt: skip


def taken(use):
    """The object of a dotted name, up to the first that is no module. Raises if it is missing."""
    first, *names = use.split(".")
    found, path = import_module(first), first
    for name in names:
        path = f"{path}.{name}"
        if isinstance(found, ModuleType):
            found = getattr(found, name) if hasattr(found, name) else import_module(path)
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_libraries_take_is_there(library):
    row = LIBRARIES[library]
    for use in set(row["uses"]) - {*row["missing"], *row["gone"]}:
        assert taken(use) is not None, use


@pytest.mark.parametrize("library", READ)
def test_what_others_take_is_there(library):
    for use in READ[library]:
        assert taken(use) is not None, use


def test_what_is_not_there_is_noticed():
    for use in ("flash_attn.models", "flash_attn.bert_padding.repeat", "flash_attn_2_cuda.fwd_v3"):
        with pytest.raises(ImportError):
            taken(use)
    assert not hasattr(torch.ops.flash_attn, "other")


def test_it_has_the_name_that_transformers_compares():
    assert metadata.packages_distributions()["flash_attn"] == ["flash-attn"]
    assert find_spec("flash_attn") is not None


def test_its_version_passes_the_comparisons_of_libraries():
    installed = Version(metadata.version("flash_attn"))  # as diffusers spells it
    assert installed == Version(flash_attn.__version__) == Version("2.8.3")
    assert Version("2.1.1") <= installed <= Version("2.8.3")  # Transformer Engine 2.12
    assert not Version("2.8.3+rocm1") <= Version("2.8.3"), "why it has no local label"
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
