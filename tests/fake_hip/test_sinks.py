"""Attention with sinks on kernels: forward, and gradients from the log-sum-exp that has the sink in it."""

import pytest

PATHS = {
    "gfx1030": ["fa_fwd_fp16_d64", "fa_bwd_delta_fp16", "fa_bwd_dkdv_fp16_d64", "fa_bwd_dq_fp16_d64"],
    "gfx942": ["fa_fwd_fp16_d64", "fa_bwd_delta_fp16", "fa_bwd_fused_fp16_d64", "fa_bwd_convert_fp16"],
}


@pytest.mark.parametrize("arch", PATHS)
def test_forward_and_gradients(scenario, arch):
    """Each largest error against the formula in float64, as a share of the largest number."""
    shown = scenario(
        """
from flash_attn_rocm import _prepare, _sinks

given = [*qkv(rows=70), torch.tensor([-2.0, 0.0, 1.0, 3.0]).half()]
weights = torch.randn(1, 70, 4, 64, generator=torch.Generator().manual_seed(1)).half()

def results(attention, tensors):
    out = attention(*(x.requires_grad_() for x in tensors))
    return [out, *torch.autograd.grad((out * weights.to(out.dtype)).sum(), tensors)]

def own(q, k, v, sinks):
    return _sinks.attend(*_prepare.dense(q, k, v, None, 0.0, None, True, 0.0, False, (-1, -1)), sinks)

def formula(q, k, v, sinks):
    k, v = (x.repeat_interleave(2, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / 8
    hidden = torch.ones(70, 70, dtype=torch.bool).triu(1)
    column = sinks.view(1, -1, 1, 1).expand(1, 4, 70, 1)
    shares = torch.cat([scores.masked_fill(hidden, float("-inf")), column], dim=-1).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", shares[..., :-1], v)

with kernels_on_host_memory(fake_hip):
    found = results(own, given)
launches = fake_hip.report().launches
expected = results(formula, [x.detach().double() for x in given])
shown["kernels"] = [launch.kernel for launch in launches]
shown["findings"] = sum(len(launch.findings) for launch in launches)
shown["errors"] = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, expected)]
""",
        arch=arch,
    )
    assert shown["kernels"] == PATHS[arch]
    assert shown["findings"] == 0
    # Steps of fp16 are 2^-10; without the sink they would be off by a tenth and more.
    assert max(shown["errors"]) < 2**-9
