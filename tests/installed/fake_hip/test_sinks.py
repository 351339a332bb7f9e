"""Sinks, and chunks and masks of keys on kernels without such arguments.

Forward, and gradients from the log-sum-exp with the sink.
"""

import pytest

GRADIENTS = {
    "gfx1030": ["fa_bwd_delta_fp16", "fa_bwd_dkdv_fp16_d64", "fa_bwd_dq_fp16_d64"],
    "gfx942": ["fa_bwd_delta_fp16", "fa_bwd_fused_fp16_d64", "fa_bwd_convert_fp16"],
}
FORMULA = """
from flash_attn_rocm import attention, flash_attn_with_kvcache

sinks = torch.tensor([-2.0, 0.0, 1.0, 3.0])

def formula(q, k, v, sinks, chunk):
    rows, keys = q.shape[1], k.shape[1]
    k, v = (x.repeat_interleave(2, dim=2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / 8
    at, key = torch.arange(rows)[:, None] + keys - rows, torch.arange(keys)
    hidden = (key > at) | (key // (chunk or keys) != at // (chunk or keys))
    column = sinks.view(1, -1, 1, 1).expand(1, 4, rows, 1)
    shares = torch.cat([scores.masked_fill(hidden, float("-inf")), column], dim=-1).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", shares[..., :-1], v)

def report(found, expected):
    # Each largest error, as a share of the largest number.
    launches = fake_hip.report().launches
    shown["kernels"] = [launch.kernel for launch in launches]
    shown["findings"] = sum(len(launch.findings) for launch in launches)
    shown["errors"] = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, expected)]
"""


@pytest.mark.parametrize("chunk", [0, 32])
@pytest.mark.parametrize("arch", GRADIENTS)
def test_forward_and_gradients(scenario, arch, chunk):
    shown = scenario(
        FORMULA
        + f"chunk = {chunk}"
        + """
given = [*qkv(rows=70), sinks.half()]
weights = torch.randn(1, 70, 4, 64, generator=torch.Generator().manual_seed(1)).half()

def results(attend, tensors):
    out = attend(*(x.requires_grad_() for x in tensors), chunk)
    return [out, *torch.autograd.grad((out * weights.to(out.dtype)).sum(), tensors)]

def own(q, k, v, sinks, chunk):
    return attention(q, k, v, causal=True, sink=sinks, chunk=chunk)

with kernels_on_host_memory(fake_hip):
    found = results(own, given)
report(found, results(formula, [x.detach().double() for x in given]))
""",
        arch=arch,
    )
    assert shown["kernels"] == ["fa_fwd_fp16_d64", *GRADIENTS[arch]]
    assert shown["findings"] == 0
    # Steps of fp16 are 2^-10. Without the sink or the chunks the error would be a tenth and more.
    assert max(shown["errors"]) < 2**-9


@pytest.mark.parametrize("arch", GRADIENTS)
def test_parts_of_the_keys_are_joined_before_the_sink(scenario, arch):
    shown = scenario(
        FORMULA
        + """
q, k, v = qkv(rows=96)
q = q[:, :2].contiguous()
with kernels_on_host_memory(fake_hip):
    found = flash_attn_with_kvcache(q, k, v, causal=True, num_splits=3, sink=sinks)
report([found], [formula(*(x.double() for x in (q, k, v, sinks)), 0)])
""",
        arch=arch,
    )
    assert shown["kernels"] == ["fa_decode_fp16_d64", "fa_combine_fp16"]
    assert shown["findings"] == 0
    assert max(shown["errors"]) < 2**-9


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("arch", GRADIENTS)
def test_a_mask_of_keys(scenario, arch, dropout):
    shown = scenario(
        f"""
dropout = {dropout}
"""
        """
from flash_attn_rocm import attention
from flash_attn_rocm.reference import philox

# Two sequences, of which dropout knows the second by its own number.
given = [torch.cat((x, x.flip(1))) for x in qkv(rows=70)]
mask = torch.rand(2, 1, 70, generator=torch.Generator().manual_seed(2)) < 0.5
weights = torch.randn(2, 70, 4, 64, generator=torch.Generator().manual_seed(1)).half()

def results(attend, tensors):
    torch.manual_seed(3)
    out = attend(*(x.requires_grad_() for x in tensors))
    return [out, *torch.autograd.grad((out * weights.to(out.dtype)).sum(), tensors)]

def formula(q, k, v):
    kept = philox.keep(
        philox.new_state(torch.device("cpu")), dropout, batches=torch.arange(2)[:, None, None, None],
        heads=torch.arange(4)[:, None, None], rows=torch.arange(70)[:, None], columns=range(70),
    ) / (1 - dropout)
    k, v = (x.repeat_interleave(2, dim=2) for x in (k, v))
    outs = []
    for b, seen in enumerate(mask[:, 0]):  # as if there were only the keys that are seen
        shares = (torch.einsum("ihd,jhd->hij", q[b], k[b, seen]) / 8).softmax(-1)
        outs.append(torch.einsum("hij,jhd->ihd", shares * kept[b, ..., : seen.sum()], v[b, seen]))
    return torch.stack(outs)

with kernels_on_host_memory(fake_hip):
    found = results(lambda q, k, v: attention(q, k, v, mask, dropout_p=dropout), given)
launches = fake_hip.report().launches
expected = results(formula, [x.detach().double() for x in given])
shown["kernels"] = [launch.kernel for launch in launches]
shown["findings"] = sum(len(launch.findings) for launch in launches)
shown["errors"] = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, expected)]
""",
        arch=arch,
    )
    assert shown["kernels"] == ["fa_fwd_fp16_d64", *(GRADIENTS["gfx1030"] if dropout else GRADIENTS[arch])]
    assert shown["findings"] == 0
    assert max(shown["errors"]) < 2**-9


MASKS = {"none": "None", "bias": "torch.zeros(70, 70).half()"}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("arch", GRADIENTS)
def test_gradients_of_a_nan_sink_are_nan_as_in_pytorch(scenario, arch, deterministic, mask):
    """Zeros would hide it: an optimizer would go on, and a GradScaler see nothing."""
    shown = scenario(
        f"mask, deterministic = {MASKS[mask]}, {deterministic}"
        """
import warnings
from flash_attn_rocm import attention
sinks = torch.tensor([-2.0, float("nan"), 1.0, 3.0])

def results():
    given = [x.requires_grad_() for x in (*qkv(rows=70), sinks.clone())]
    out = attention(*given[:3], mask, causal=mask is None, sink=given[3], deterministic=deterministic)
    return [out, *torch.autograd.grad(out.sum(), given)]

with kernels_on_host_memory(fake_hip):
    found = results()
flash_attn_rocm.set_strict(None)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    expected = results()
shown["kernels"] = [launch.kernel for launch in fake_hip.report().launches]
def share(x):
    x = x.isnan().float()
    return (x if x.dim() == 1 else x.mean((0, 1, 3))).tolist()

# The share of NaN in each head of out, dq, dk and dv, and in dsink.
shown["nan"] = [[share(x) for x in of] for of in (found, expected)]
""",
        arch=arch,
    )
    assert len(shown["kernels"]) > 1
    heads, heads_k = [0.0, 1.0, 0.0, 0.0], [1.0, 0.0]
    assert shown["nan"] == [[heads, heads, heads_k, heads_k, heads]] * 2
