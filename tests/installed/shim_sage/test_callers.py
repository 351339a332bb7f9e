"""Calls as applications make them: small layers around the functions, compared with PyTorch's attention."""

import inspect
from types import SimpleNamespace

import pytest
import sageattention
import torch
from torch.nn.functional import scaled_dot_product_attention

HEADS, HEAD_DIM, ROWS = 2, 64, 12


@pytest.fixture
def layer():
    """Projections of a hidden state, (batch, length, heads * headdim), with weights that need gradients."""
    torch.manual_seed(0)
    width = HEADS * HEAD_DIM
    return SimpleNamespace(
        projections=torch.nn.Linear(width, 3 * width).half(), x=torch.randn(2, ROWS, width).half()
    )


def projected(layer):
    return layer.projections(layer.x).chunk(3, -1)


def heads_first(x):
    return x.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)


def plain(layer, **options):
    """PyTorch's attention in float32 as (batch, length, heads * headdim)."""
    q, k, v = (heads_first(x).float() for x in projected(layer))
    return scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).flatten(2)


def agree(found, wanted):
    """One rounding of the result, as in exact.py."""
    assert (found.float() - wanted).abs().max() <= 2.0**-11 * wanted.abs().max()


@pytest.mark.parametrize("skip_reshape", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_comfyui(layer, skip_reshape, masked):
    """ComfyUI's --use-sage-attention: two forms of tensors, masks of two and three dimensions."""
    assert "attn_mask" in inspect.signature(sageattention.sageattn).parameters
    mask = torch.ones(2, ROWS, ROWS, dtype=torch.bool).tril() if masked else None
    q, k, v = projected(layer)
    if skip_reshape:
        q, k, v, layout = *map(heads_first, (q, k, v)), "HND"
    else:
        q, k, v, layout = *(x.view(2, -1, HEADS, HEAD_DIM) for x in (q, k, v)), "NHD"
    given = mask.unsqueeze(1) if masked else None
    out = sageattention.sageattn(
        q, k, v, attn_mask=given, is_causal=False, tensor_layout=layout, sm_scale=None, smooth_k=False
    )
    out = out.transpose(1, 2) if layout == "HND" else out
    agree(out.reshape(2, -1, HEADS * HEAD_DIM), plain(layer, attn_mask=given))


@torch.no_grad()
def test_comfyui_falls_back_for_fp32(layer):
    """It catches any exception, and calls PyTorch's attention instead."""
    q, k, v = (heads_first(x).float() for x in projected(layer))
    with pytest.raises(Exception, match=r"expected dtype torch.float16 or .*, got torch.float32"):
        sageattention.sageattn(q, k, v, attn_mask=None, is_causal=False, tensor_layout="HND")


KERNELS = {
    "sageattn_qk_int8_pv_fp16_cuda": {"pv_accum_dtype": "fp32"},
    "sageattn_qk_int8_pv_fp16_triton": {},
    "sageattn_qk_int8_pv_fp8_cuda": {"pv_accum_dtype": "fp32+fp16"},
}


@pytest.mark.parametrize("name", KERNELS)
@torch.no_grad()
def test_kjnodes(layer, name):
    """The kernels by name, with attn_mask=None by keyword, inside of torch.compiler.disable."""
    function = torch.compiler.disable()(getattr(sageattention, name))
    q, k, v = (x.view(2, -1, HEADS, HEAD_DIM) for x in projected(layer))
    out = function(q, k, v, is_causal=False, attn_mask=None, tensor_layout="NHD", **KERNELS[name])
    agree(out.reshape(2, -1, HEADS * HEAD_DIM), plain(layer))


@torch.no_grad()
def test_wan_video_wrapper(layer):
    """The options of scaled_dot_product_attention by name, in its layout."""
    q, k, v = map(heads_first, projected(layer))
    out = sageattention.sageattn(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False)
    agree(out.transpose(1, 2).contiguous().view(2, ROWS, -1), plain(layer))


@torch.no_grad()
def test_wangp(layer):
    """Packed sequences by keyword, positions by its own wrapper."""
    q, k, v = (x.reshape(-1, HEADS, HEAD_DIM) for x in projected(layer))
    cut = torch.tensor([0, ROWS, 2 * ROWS], dtype=torch.int32)
    out = sageattention.sageattn_varlen(q, k, v, cut, cut, ROWS, ROWS)
    agree(out.unflatten(0, (2, ROWS)).flatten(2), plain(layer))


@torch.no_grad()
def test_context_parallel_callers(layer):
    """xDiT, diffusers and others merge parts by the log-sum-exp: (batch, length, heads) after permute."""
    q, k, v = (x.view(2, -1, HEADS, HEAD_DIM) for x in projected(layer))
    out, lse, *_ = sageattention.sageattn(
        q=q, k=k, v=v, tensor_layout="NHD", is_causal=False, sm_scale=None, return_lse=True
    )
    assert lse.permute(0, 2, 1).shape == q.shape[:-1]
    agree(out.flatten(2), plain(layer))
