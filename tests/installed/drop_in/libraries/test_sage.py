"""Calls as ComfyUI and its nodes make them: a small transformer on sageattention, beside plain attention."""

import inspect

import pytest
import sageattention
import torch
from agreement import agree
from torch.nn.functional import scaled_dot_product_attention

HEADS, HEAD_DIM, ROWS = 2, 64, 40


class Block(torch.nn.Module):
    """Self attention and cross attention with residuals.

    ``attention(q, k, v, heads, mask)`` takes and returns (batch, length, heads * headdim), as ComfyUI's
    functions.
    """

    def __init__(self):
        super().__init__()
        width = HEADS * HEAD_DIM
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(8))

    def forward(self, x, context, mask, attention):
        own, own_k, own_v, own_out, cross, cross_k, cross_v, cross_out = self.layers
        x = x + own_out(attention(own(x), own_k(x), own_v(x), HEADS, None))
        return x + cross_out(attention(cross(x), cross_k(context), cross_v(context), HEADS, mask))


def heads_first(x):
    return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)


def plain(q, k, v, heads, mask):
    mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
    out = scaled_dot_product_attention(*map(heads_first, (q, k, v)), attn_mask=mask)
    return out.transpose(1, 2).flatten(2)


def by_sage(name, layout, **options):
    """ComfyUI's two forms: tensors cut into heads in place, or with heads first."""

    def attention(q, k, v, heads, mask):
        parts = [heads_first(x) if layout == "HND" else x.unflatten(-1, (heads, -1)) for x in (q, k, v)]
        function = getattr(sageattention, name)
        out = function(*parts, attn_mask=mask, is_causal=False, tensor_layout=layout, **options)
        return (out.transpose(1, 2) if layout == "HND" else out).reshape(q.shape)

    return attention


def masks():
    """None, of padded text, and a bias of each query, as models give them."""
    text = torch.ones(2, 1, 1, 11, dtype=torch.bool)
    text[1, ..., 7:] = False
    generator = torch.Generator().manual_seed(2)
    return {"none": None, "text": text, "bias": torch.randn(2, 1, ROWS, 11, generator=generator).bfloat16()}


CALLS = {
    "ComfyUI": ("sageattn", "NHD", {"sm_scale": None, "smooth_k": False}),
    "ComfyUI, heads first": ("sageattn", "HND", {"sm_scale": None, "smooth_k": False}),
    "KJNodes, fp16": ("sageattn_qk_int8_pv_fp16_cuda", "NHD", {"pv_accum_dtype": "fp32"}),
    "KJNodes, Triton": ("sageattn_qk_int8_pv_fp16_triton", "HND", {}),
    "KJNodes, fp8++": ("sageattn_qk_int8_pv_fp8_cuda", "NHD", {"pv_accum_dtype": "fp32+fp16"}),
}


@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("call", CALLS)
def test_a_block(call, mask, calls, ran):
    assert "attn_mask" in inspect.signature(sageattention.sageattn).parameters  # ComfyUI asks this first
    name, layout, options = CALLS[call]
    torch.manual_seed(0)
    exact = Block().bfloat16().float()
    own = Block().bfloat16()
    own.load_state_dict(exact.state_dict())
    x, context = (
        torch.randn(2, ROWS, HEADS * HEAD_DIM).bfloat16(),
        torch.randn(2, 11, HEADS * HEAD_DIM).bfloat16(),
    )
    given = masks()[mask]
    with torch.no_grad():
        found = own(x, context, given, by_sage(name, layout, **options))
        eager = own(x, context, given, plain)
        wanted = exact(x.float(), context.float(), given, plain)
    agree([found], [eager], [wanted])
    assert calls[f"sage.{name}"] == calls.total() == 2
    if (kernels := ran()) is not None:  # a bias has one more, for the keys that it hides
        assert [name.startswith("fa_fwd_") for name in kernels].count(True) == 2, kernels
