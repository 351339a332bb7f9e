"""Slopes, lengths and indices with any strides, and memory that is given twice, on kernels."""

import pytest

ARCHS = ("gfx942", "gfx1100")
STRIDED = """
from flash_attn_rocm import flash_attn_varlen_func, flash_attn_with_kvcache, mla_decode
INT = {"dtype": torch.int32}
def apart(x):
    "An equal tensor with other elements between its own."
    return torch.stack([x, x + 3], dim=-1)[..., 0]
def attended(function, tensors, **small):
    leaves = [x.clone().requires_grad_(small.get("gradients", False)) for x in tensors]
    out = function(*leaves, **{name: x for name, x in small.items() if name != "gradients"})
    if not out.requires_grad:
        return [out]
    return [out.detach(), *torch.autograd.grad(out.float().square().sum(), leaves)]
def compare(function, tensors, others=(), **small):
    fixed = dict(others)
    call = lambda *leaves, **more: function(*leaves, **fixed, **more)
    with kernels_on_host_memory(fake_hip):
        wanted = attended(call, tensors, **small)
        split = {name: apart(x) if isinstance(x, torch.Tensor) else x for name, x in small.items()}
        found = [attended(call, tensors, **split) for _ in range(2)]
    assert not all(x.is_contiguous() for x in split.values() if isinstance(x, torch.Tensor))
    shown["kernels"] = sorted({launch.kernel for launch in fake_hip.report().launches})
    shown["equal"] = [torch.equal(a, b) for each in found for a, b in zip(each, wanted, strict=True)]
q, k, v = qkv()
"""
CALLS = {
    "slopes": "compare(flash_attn_func, (q, k, v), alibi_slopes=torch.rand(4), gradients=True)",
    "slopes of a sequence": "compare(flash_attn_func, (q, k, v), alibi_slopes=torch.rand(1, 4))",
    "ends": """
ends = torch.tensor([0, 5, 17], **INT)
compare(
    flash_attn_varlen_func, (q[0], k[0], v[0]), {"max_seqlen_q": 12, "max_seqlen_k": 12, "causal": True},
    cu_seqlens_q=ends, cu_seqlens_k=ends.clone(), gradients=True,
)
""",
    "rows of a cache": """
cache = torch.stack([k[0], k[0].flip(0)]), torch.stack([v[0], v[0].flip(0)])
compare(
    flash_attn_with_kvcache, (torch.cat([q, q])[:, :3], *cache),
    cache_seqlens=torch.tensor([9, 17], **INT), cache_batch_idx=torch.tensor([1, 0], **INT),
    cache_leftpad=torch.tensor([2, 0], **INT),
)
""",
    "pages": """
cache = qkv(rows=64)[1:]
compare(
    flash_attn_with_kvcache, (q[:, :3], *(x.view(4, 16, 2, 64) for x in cache)),
    cache_seqlens=torch.tensor([40], **INT), block_table=torch.tensor([[3, 0, 1]], **INT),
)
""",
    "pages of 8 bits": """
cache = [(x * 40).to(torch.int8).view(4, 16, 2, 64) for x in qkv(rows=64)[1:]]
compare(
    flash_attn_with_kvcache, (q[:, :3], *cache),
    cache_seqlens=torch.tensor([40], **INT), block_table=torch.tensor([[3, 0, 1]], **INT),
)
""",
    "latent": """
cache = torch.randn(4, 16, 1, 576).bfloat16()
compare(
    mla_decode, (torch.randn(2, 2, 16, 576).bfloat16(), cache),
    cache_seqlens=torch.tensor([40, 20], **INT), block_table=torch.tensor([[3, 0, 1], [2, 0, 0]], **INT),
)
""",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("arch", ARCHS)
def test_small_tensors_may_have_any_strides(scenario, arch, call):
    """PyTorch took them, and kernels ended in an error."""
    shown = scenario(STRIDED + CALLS[call], arch=arch)
    assert shown["kernels"], "no fallback"
    assert set(shown["equal"]) == {True}


@pytest.mark.parametrize("path", ["separate", "fused"])
@pytest.mark.parametrize("arch", ARCHS)
def test_a_gradient_may_be_written_over_what_it_is_made_of(scenario, monkeypatch, arch, path):
    """dk and dv were written over k and v, and dq was made of these."""
    monkeypatch.setenv("FLASH_ATTN_ROCM_BACKWARD", path)
    shown = scenario(
        """
from flash_attn_rocm import raw
q, k, v = qkv(rows=70)
rules = (0.0, 0.125, True, -1, -1, 0.0)
out, lse = q.flip(1), torch.rand(1, 4, 70) + 4
def gradients(dout, q, k, v, *places):
    with kernels_on_host_memory(fake_hip):
        return raw.bwd(dout, q, k, v, out, lse, *places, None, *rules, False)[:3]
wanted = gradients(q + 1, q, k, v, None, None, None)
given = [x.clone() for x in (q + 1, q, k, v)]
found = gradients(*given, given[0], *given[2:])
shown["in place"] = [a is b for a, b in zip(found, (given[0], *given[2:]))]
shown["errors"] = [(a.float() - b.float()).abs().max().item() for a, b in zip(found, wanted)]
shown["kernels"] = len(fake_hip.report().launches)
""",
        arch=arch,
    )
    assert shown["in place"] == [True] * 3
    assert max(shown["errors"]) < 2**-6, "dq's sums have any order"
    assert shown["kernels"]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_number_of_keys_beyond_the_cache_is_an_error(scenario, arch):
    """The host knows a number, also in a call like an earlier one. Kernels answered from fewer keys."""
    shown = scenario(
        """
from flash_attn_rocm import flash_attn_with_kvcache
q, k, v = qkv()
angles = {name: torch.randn(17, 16).half() for name in ("rotary_cos", "rotary_sin")}
def refused(lengths, **more):
    said = []
    for length in lengths:
        with kernels_on_host_memory(fake_hip):
            try:
                flash_attn_with_kvcache(q[:, :1], k, v, cache_seqlens=length, causal=True, **more)
                said.append("")
            except ValueError as error:
                said.append(str(error).splitlines()[1])
    return said
new = {"k": k[:, :2].clone(), "v": v[:, :2].clone()}
shown["kept"] = refused([17, 17, 18])
shown["written"] = refused([15, 15, 16], **new)
k, v = (torch.cat([x, x], 1) for x in (k, v))
shown["rotated"] = refused([15, 15, 16], **new, **angles)
""",
        arch=arch,
    )
    assert shown == {
        "kept": ["", "", "  - cache_seqlens: expected at most 17 keys, got 18"],
        "written": ["", "", "  - cache_seqlens: expected 0 to 15, so that 2 new keys fit, got 16"],
        "rotated": ["", "", "  - rotary_cos: expected 18 rows for these cache_seqlens, got 17"],
    }
