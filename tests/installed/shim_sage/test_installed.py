"""The libraries' queries before they use the distribution, and the names and arguments they take."""

import importlib.util
import inspect
import json
import os
from importlib import import_module, metadata
from pathlib import Path

import pytest
import sageattention
from packaging.requirements import Requirement
from packaging.version import parse

# Names taken from it by released libraries (python -m tests.installed.drop_in.imports).
TAKEN = {
    row["library"]: [name for name in row["others"] if name.partition(".")[0] == "sageattention"]
    for row in json.loads(Path(os.environ["FA_IMPORTS"]).read_text())
}
# Only on Hopper: without it sglang falls back to flash attention.
NOT_THERE = {"sageattention.sm90_compile.qk_int8_sv_f8_accum_f32_fuse_v_scale_attn_inst_buf_fake_impl"}
# Positions as in SageAttention 2.2.0. attn_mask is ours, behind those, except in the one that has it.
SIGNATURES = {
    "sageattn": "q k v tensor_layout=HND is_causal=False sm_scale=None return_lse=False attn_mask=None "
        "kwargs",
    "sageattn_qk_int8_pv_fp16_triton": "q k v tensor_layout=HND quantization_backend=triton is_causal=False "
        "attn_mask=None sm_scale=None smooth_k=True return_lse=False kwargs",
    "sageattn_qk_int8_pv_fp16_cuda": "q k v tensor_layout=HND is_causal=False qk_quant_gran=per_thread "
        "sm_scale=None pv_accum_dtype=fp32 smooth_k=True smooth_v=False return_lse=False attn_mask=None "
        "kwargs",
    "sageattn_qk_int8_pv_fp8_cuda": "q k v tensor_layout=HND is_causal=False qk_quant_gran=per_thread "
        "sm_scale=None pv_accum_dtype=fp32+fp16 smooth_k=True smooth_v=False return_lse=False attn_mask=None "
        "kwargs",
    "sageattn_qk_int8_pv_fp8_cuda_sm90": "q k v tensor_layout=HND is_causal=False qk_quant_gran=per_thread "
        "sm_scale=None pv_accum_dtype=fp32+fp32 smooth_k=True return_lse=False attn_mask=None kwargs",
    "sageattn_varlen": "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k is_causal=False "
        "sm_scale=None smooth_k=True kwargs",
}  # fmt: skip


def test_some_library_takes_it():
    assert "diffusers" in {library for library, names in TAKEN.items() if names}


@pytest.mark.parametrize("library", [library for library, names in TAKEN.items() if names])
def test_what_libraries_take_is_there(library):
    for use in set(TAKEN[library]) - NOT_THERE:
        module, _, name = use.rpartition(".")
        assert hasattr(import_module(module), name) if module else import_module(name), use


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_those_of_2_2(name):
    found = inspect.signature(getattr(sageattention, name)).parameters.values()
    own = [each.name if each.default is inspect._empty else f"{each.name}={each.default}" for each in found]
    assert own == SIGNATURES[name].split()
    *named, rest = found
    assert {each.kind for each in named} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert rest.kind is rest.VAR_KEYWORD


def test_every_function_is_also_in_core():
    from sageattention import core

    assert sorted(SIGNATURES) == sorted(sageattention.__all__)
    for name in SIGNATURES:
        assert getattr(core, name) is getattr(sageattention, name)


def test_it_has_the_names_that_libraries_compare():
    version = metadata.version("sageattention")
    assert version == sageattention.__version__ == "2.2.0"
    assert parse(version) >= parse("2.1.1")  # diffusers
    assert version.startswith("2.2")  # WanGP
    assert "attn_mask" in inspect.signature(sageattention.sageattn).parameters  # ComfyUI


def test_what_only_nvidia_gpus_have_is_missing():
    """Libraries with quantisers of their own kernels, such as WanGP's, fall back when these imports fail."""
    from sageattention import core

    assert (core.SM80_ENABLED, core.SM89_ENABLED, core.SM90_ENABLED) == (False, False, False)
    for name in ("_fused", "_qattn_sm80", "quant", "triton"):
        assert importlib.util.find_spec(f"sageattention.{name}") is None


def test_it_requires_the_release_that_it_was_verified_beside():
    [text] = metadata.requires("sageattention")
    required = Requirement(text)
    assert required.name == "flash-attn-rocm"
    assert required.specifier.contains(metadata.version("flash-attn-rocm"))
    assert not required.specifier.contains("0.0.9")
