"""Scales and caps near fp32's least numbers: parts of kernels flush them, and parts divide by them."""

import pytest

TINY = """
from flash_attn_rocm import attention
q, k, v = (x.requires_grad_() for x in qkv(rows=70))
with kernels_on_host_memory(fake_hip):
    out, lse, _ = attention(q, k, v, softmax_scale=scale, return_attn_probs=True)
    gradients = torch.autograd.grad(out.float().sum(), (q, k, v))
mean = v.float().mean(1, keepdim=True).repeat_interleave(2, 2)
shown["out"] = (out.float() - mean).abs().max().item()
shown["lse"] = [lse.min().item(), lse.max().item()]
shown["gradients"] = [[x.float().min().item(), x.float().max().item()] for x in gradients]
"""


@pytest.mark.parametrize("scale", [1e-40, 1e-38, -1e-38, 1.2e-38, 8e-37])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_every_key_has_the_same_weight(scenario, arch, scale):
    """lse was -inf on CDNA and gradients NaN. On RDNA, dv was 0."""
    shown = scenario(f"scale = {scale}{TINY}", arch=arch)
    assert shown["out"] < 2**-9, "fp16"
    assert shown["lse"] == pytest.approx([4.248495] * 2), "the logarithm of 70"
    assert shown["gradients"] == [[0, 0], [0, 0], pytest.approx([2, 2], rel=2**-9)], (
        "2 heads of q for each of v"
    )


@pytest.mark.parametrize("softcap", [1e-60, 1e-45, 1e-38, 8e-37])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_the_least_softcap_makes_scores_equal(scenario, arch, softcap):
    """A smaller one than fp32 has counted as none, and its inverse times a score of 0 was NaN."""
    shown = scenario(
        f"""
q, k, v = (x.requires_grad_() for x in qkv(rows=70))
with torch.no_grad():
    q[:, :20] = 0
with kernels_on_host_memory(fake_hip):
    out, lse, _ = flash_attn_func(q, k, v, softcap={softcap}, return_attn_probs=True)
    dv = torch.autograd.grad(out.float().sum(), (v,))[0]
mean = v.float().mean(1, keepdim=True).repeat_interleave(2, 2)
shown["out"] = (out.float() - mean).abs().max().item()
shown["lse"], shown["dv"] = ([x.min().item(), x.max().item()] for x in (lse, dv))
""",
        arch=arch,
    )
    assert shown["out"] < 2**-9, "fp16"
    assert shown["lse"] == pytest.approx([4.248495] * 2), "the logarithm of 70"
    assert shown["dv"] == pytest.approx([2, 2], rel=2**-9)
