"""The libraries' queries before they use the distribution, and the names and arguments they take."""

import inspect
import json
import os
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import flash_attn_3
import flash_attn_interface as fa3
import pytest
import torch
from flash_attn_rocm import flash_attn_func
from packaging.requirements import Requirement

# Names taken from FlashAttention 3 by released libraries (python -m tests.installed.drop_in.imports).
MODULES = "flash_attn_interface", "flash_attn_3"
NOT_THERE = {"flash_attn_3.flash_attn_interface._flash_attn_forward._init_fn"}  # of torch's own custom_op
TAKEN = {
    row["library"]: [name for name in row["others"] if name.partition(".")[0] in MODULES]
    for row in json.loads(Path(os.environ["FA_IMPORTS"]).read_text())
}
SIGNATURES = {
    "flash_attn_func": "q k v softmax_scale=None causal=False qv=None q_descale=None k_descale=None "
        "v_descale=None window_size=(-1,-1) attention_chunk=0 softcap=0.0 num_splits=1 pack_gqa=None "
        "deterministic=False sm_margin=0 return_attn_probs=False",
    "flash_attn_varlen_func": "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k seqused_q=None "
        "seqused_k=None softmax_scale=None causal=False qv=None q_descale=None k_descale=None v_descale=None "
        "window_size=(-1,-1) attention_chunk=0 softcap=0.0 num_splits=1 pack_gqa=None deterministic=False "
        "sm_margin=0 return_attn_probs=False",
    "flash_attn_qkvpacked_func": "qkv softmax_scale=None causal=False q_descale=None k_descale=None "
        "v_descale=None window_size=(-1,-1) attention_chunk=0 softcap=0.0 deterministic=False "
        "num_heads_q=None sm_margin=0 return_attn_probs=False",
    "flash_attn_with_kvcache": "q k_cache v_cache k=None v=None qv=None rotary_cos=None rotary_sin=None "
        "cache_seqlens=None cache_batch_idx=None cache_leftpad=None page_table=None cu_seqlens_q=None "
        "cu_seqlens_k_new=None max_seqlen_q=None rotary_seqlens=None q_descale=None k_descale=None "
        "v_descale=None softmax_scale=None causal=False window_size=(-1,-1) attention_chunk=0 softcap=0.0 "
        "rotary_interleaved=True scheduler_metadata=None num_splits=0 pack_gqa=None sm_margin=0 "
        "return_softmax_lse=False",
    "flash_attn_combine": "out_partial lse_partial out=None out_dtype=None",
    "get_scheduler_metadata": "batch_size max_seqlen_q max_seqlen_k num_heads_q num_heads_kv headdim "
        "cache_seqlens qkv_dtype=torch.bfloat16 headdim_v=None cu_seqlens_q=None cu_seqlens_k_new=None "
        "cache_leftpad=None page_size=None max_seqlen_k_new=0 causal=False window_size=(-1,-1) "
        "attention_chunk=0 has_softcap=False num_splits=0 pack_gqa=None sm_margin=0",
}  # fmt: skip


def taken(use):
    """The object of a dotted name. Raises if it is missing."""
    first, *names = use.split(".")
    found, path = import_module(first), first
    for name in names:
        path = f"{path}.{name}"
        there = hasattr(found, name) or not isinstance(found, ModuleType)
        found = getattr(found, name) if there else import_module(path)
    return found


@pytest.mark.parametrize("library", [library for library, names in TAKEN.items() if names])
def test_what_libraries_take_is_there(library):
    for use in set(TAKEN[library]) - NOT_THERE - {"flash_attn_3_cuda"}:
        assert taken(use) is not None, use


def test_what_is_not_there_is_noticed():
    for use in ("flash_attn_interface.other", "flash_attn_3.other"):
        with pytest.raises(ImportError):
            taken(use)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_of_3_0(name):
    found = inspect.signature(getattr(fa3, name)).parameters.values()
    more = [each.name for each in found if each.kind is each.KEYWORD_ONLY]
    assert more == (["s_aux"] if name.startswith("flash_attn_") and name != "flash_attn_combine" else [])
    found = [each for each in found if each.name not in more]
    own = [
        each.name if each.default is inspect._empty else f"{each.name}={each.default}".replace(" ", "")
        for each in found
    ]
    assert own == SIGNATURES[name].split()
    assert {each.kind for each in found} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def test_it_has_the_names_that_libraries_compare():
    assert metadata.packages_distributions()["flash_attn_interface"] == ["flash-attn-3"]  # transformers
    assert metadata.version("flash_attn_3") == flash_attn_3.__version__ == "3.0.0"  # diffusers
    assert find_spec("flash_attn_3") is not None


def test_it_requires_the_release_that_it_was_verified_beside():
    [text] = metadata.requires("flash-attn-3")
    required = Requirement(text)
    assert required.name == "flash-attn-rocm"
    assert required.specifier.contains(metadata.version("flash-attn-rocm"))
    assert not required.specifier.contains("0.0.9")


def test_its_functions_compute_attention():
    q, k, v = (torch.randn(1, 33, heads, 64, dtype=torch.float16) for heads in (4, 2, 2))
    out, lse = fa3.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    wanted = flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    assert torch.equal(out, wanted[0])
    assert torch.equal(lse, wanted[1])
