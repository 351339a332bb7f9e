"""Calls of vLLM's shape: a paged cache of fp8 in bytes, one scale of a tensor, tables longer than sequences.

vLLM keeps k and v of a layer in one tensor of bytes, views it as fp8, and gives its block tables and the
scale of the whole tensor as an expanded number. A step has prefills, chunks of them and decodes.
"""

import pytest

ARCHS = ("gfx942", "gfx1100")
FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz")
# Of the tensor (2, pages, 16, heads, head_dim), or with the pages before k and v.
LAYOUTS = ("kv first", "pages first")
# Queries and keys of each sequence of a step. The last one is padding, as in a captured graph.
PREFILL_AND_DECODE = ((20, 20), (1, 33), (5, 70), (1, 16), (0, 0))
DECODE = ((1, 40), (1, 1), (1, 16), (1, 17), (0, 0))
STEP = """
from flash_attn_rocm import flash_attn_varlen_func

PAGE, PAGES, HEADS_K, HEAD_DIM = 16, 24, 2, 64
NAN, STALE = {float8_e4m3fn: 0x7F, float8_e4m3fnuz: 0x80}[dtype], (-1, 1 << 30)
rows, keys = zip(*step)
draw = torch.Generator().manual_seed(0)
scales = torch.tensor(0.043), torch.tensor(0.0171)

# Free pages and the places behind a sequence's last key have codes of NaN.
shape = (2, PAGES, PAGE, HEADS_K, HEAD_DIM)
store = torch.full(shape, NAN, dtype=torch.uint8)
store = store if layout == "kv first" else store.transpose(0, 1).contiguous()
caches = store.unbind(0 if layout == "kv first" else 1)
free = iter(torch.randperm(PAGES, generator=draw).tolist())
table = torch.full((len(step), 8), STALE[0], dtype=torch.int32)
table[:, 1::2] = STALE[1]
numbers = []
for b, length in enumerate(keys):
    own = []
    for start in range(0, length, PAGE):
        table[b, start // PAGE] = page = next(free)
        for kv, cache in enumerate(caches):
            used = min(PAGE, length - start)
            x = torch.randn(used, HEADS_K, HEAD_DIM, generator=draw) / scales[kv]
            cache[page, :used] = x.clamp(-240, 240).to(dtype).view(torch.uint8)
    for kv, cache in enumerate(caches):
        pages = table[b, : -(-length // PAGE)].long()
        own.append(cache[pages].view(dtype).flatten(0, 1)[:length].double() * scales[kv].double())
    numbers.append(own)

q = torch.randn(sum(rows), 4, HEAD_DIM, generator=draw).half()
ends = [torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int() for lengths in (rows, keys)]
out = torch.empty_like(q)
descales = {
    name: scale.expand(len(step), HEADS_K) for name, scale in zip(("k_descale", "v_descale"), scales)
}
with torch.no_grad(), kernels_on_host_memory(fake_hip):
    found = flash_attn_varlen_func(
        q, *(cache.view(dtype) for cache in caches), *ends, max(rows), max(keys), causal=True,
        softmax_scale=0.11, block_table=table, **descales,
    )
worst = largest = 0.0
for b, (own, (k, v)) in enumerate(zip(q.split(rows), numbers)):
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    scores = torch.einsum("ihd,jhd->hij", own.double(), k) * 0.11
    at = torch.arange(rows[b])[:, None] + keys[b] - rows[b]
    weights = scores.masked_fill(torch.arange(keys[b]) > at, float("-inf")).softmax(-1)
    wanted = torch.einsum("hij,jhd->ihd", weights, v)
    difference = (found[ends[0][b] : ends[0][b + 1]] - wanted).abs()
    if rows[b]:
        worst, largest = max(worst, difference.max().item()), max(largest, wanted.abs().max().item())
launches = fake_hip.report().launches
shown["kernels"] = [launch.kernel for launch in launches]
shown["findings"] = sum(len(launch.findings) for launch in launches)
shown["error"], shown["strides"] = worst / largest, [x.stride(0) for x in caches]
"""
# Half a step of fp16 each: k and v where they are widened, P and out.
MOST = 4 * 2**-11


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(
    ("step", "kernels"),
    [
        (PREFILL_AND_DECODE, ["fa_widen_fp16", "fa_fwd_fp16_d64"]),
        (DECODE, ["fa_decode_8bit_fp16_d64"]),
    ],
    ids=["prefill and decode", "decode"],
)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_step(scenario, arch, step, kernels, dtype, layout):
    begin = (
        "from torch import float8_e4m3fn, float8_e4m3fnuz\n"
        f"dtype, layout, step = {dtype}, {layout!r}, {step}\n"
    )
    shown = scenario(begin + STEP, arch=arch)
    assert shown["kernels"] == kernels
    assert shown["findings"] == 0
    assert shown["error"] < MOST
    assert shown["strides"] == [2**11 * (1 if layout == "kv first" else 2)] * 2
