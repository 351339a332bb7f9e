"""Attention over every code of each format that is a number, as k and as v, and as q of products of fp8.

A window shows each query one key. So out is the numbers of that key's codes, without an error, and the
log-sum-exp is its score. Keys of 256 queries hold each code at each place of a row.
"""

import pytest
from test_fp8 import KERNEL, with_formats

FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "int8")
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")  # a way to unpack codes each
# Few queries and their kernel, more and theirs. Together 256 queries at least.
CALLS = [(16, 16, ["fa_decode_8bit_{}_d64"]), (20, 13, ["fa_widen_{}", "fa_fwd_{}_d64"])]
KEPT = {"fp16": "float16", "bf16": "bfloat16"}
# MI200's matrix unit takes denormals of fp16 as 0. The numbers of the other formats are above them.
FLUSHES, LEAST_NORMAL = "gfx90a", 2.0**-14
CODES = """
import math
from flash_attn_rocm import flash_attn_func, flash_attn_with_kvcache

NUMBERS = torch.arange(256, dtype=torch.uint8)
NUMBERS[~NUMBERS.view(dtype).float().isfinite()] = 0
HEADS = 2
LEAST = {torch.float8_e4m3fn: -9, torch.float8_e4m3fnuz: -10, torch.float8_e5m2: -16, torch.int8: 0}
SCALE = 2.0 ** -(LEAST[dtype] + 5)  # with a descale of 2^-2 the least number's score is 2^-7

def every(count, head_dim):
    # The codes of 256 rows and more: in each place of a row, every code of the format.
    n = torch.arange(count)[:, None, None] + torch.arange(HEADS)[:, None] * 77 + torch.arange(head_dim)
    return NUMBERS[n % 256]

def one_hot(count, head_dim, one):
    # A query of each head has one element that is not 0. Groups of two heads read a head of k.
    q = torch.zeros(count, 2 * HEADS, head_dim, dtype=one.dtype)
    for head in range(2 * HEADS):
        q[:, head, (head * 21 + 5) % head_dim] = one
    return q

def scores(q, k):
    return (q.double() * k.double().repeat_interleave(2, -2)).sum(-1).transpose(-1, -2) * SCALE

def same(out, lse, v, sums):
    shown["out"] = (out.double() != v.repeat_interleave(2, -2)).sum().item()
    told(lse, sums)

def told(lse, sums):
    shown["sums"] = ((lse - sums).abs() / sums.abs().clamp(min=1)).max().item()
    launches = fake_hip.report().launches
    shown["kernels"] = [launch.kernel for launch in launches]
    shown["findings"] = sum(len(launch.findings) for launch in launches)
"""
CACHE = """
lengths = rows + 3 * torch.arange(batch, dtype=torch.int32)
seen = [slice(length - rows, length) for length in lengths.tolist()]
k, v = (torch.full((batch, 64, HEADS, 64), 0x35, dtype=torch.uint8) for _ in "kv")
for x, turned in ((k, 0), (v, 100)):
    for b, part in enumerate(every(rows * batch, 64).roll(turned, 0).split(rows)):
        x[b, seen[b]] = part
descales = [torch.tensor([[1.0, 0.25]]).expand(batch, HEADS), torch.tensor([[0.5, 1.0]]).expand(batch, HEADS)]
numbers = []
for x, of in zip((k, v), descales):
    x = torch.stack([x[b, own].view(dtype).double() for b, own in enumerate(seen)])
    of = of[:, None, :, None]
    x, of = (x * of, 1.0) if rows > 16 else (x, of)  # widened
    numbers.append(x.masked_fill(x.abs() < least, 0) * of)
q = one_hot(batch * rows, 64, torch.ones((), dtype=kept)).unflatten(0, (batch, rows))
with kernels_on_host_memory(fake_hip):
    out, lse = flash_attn_with_kvcache(
        q, k.view(dtype), v.view(dtype), cache_seqlens=lengths, window_size=(0, 0), softmax_scale=SCALE,
        k_descale=descales[0], v_descale=descales[1], num_splits=1, return_softmax_lse=True,
    )
same(out, lse, numbers[1], scores(q, numbers[0]))
"""
# 32 equal keys, so weights are 1. Queries of a sequence have each of its first 256 elements, of the other its
# last.
LATENT = """
from flash_attn_rocm import mla_decode

row = NUMBERS[torch.arange(576) % 256]
codes, descale = row.expand(2, 32, 1, 576).contiguous(), torch.tensor([[0.25], [1.0]])
q = torch.zeros(2, 256, 576, dtype=kept)
q[0, :, :256], q[1, :, 320:] = torch.eye(256), torch.eye(256)
with kernels_on_host_memory(fake_hip):
    out, lse = mla_decode(
        q.unflatten(1, (4, 64)), codes.view(dtype), causal=False, softmax_scale=SCALE, num_splits=1,
        return_softmax_lse=True, kv_descale=descale,
    )
numbers = row.view(dtype).double()
numbers = numbers.masked_fill(numbers.abs() < least, 0) * descale
sums = (q.double() @ numbers[:, :, None])[..., 0] * SCALE + math.log(32)
wanted = numbers[:, None, None, :512].expand(2, 4, 64, 512)
shown["out"] = (out.double() != wanted).sum().item()
told(lse, sums.unflatten(1, (4, 64)).mT)
"""
ROWS_OF_656_BYTES = """
from flash_attn_rocm import mla_decode

codes, scales = NUMBERS[torch.arange(512) % 256], torch.tensor([0.25, 1.0, 2.0, 0.5])
rotated = torch.arange(64)
parts = (codes, scales, rotated.bfloat16())
rows = torch.cat([part.view(torch.uint8) for part in parts]).expand(2, 32, 656).contiguous()
q = torch.zeros(2, 256, 576, dtype=kept)
q[0, :, :256], q[1, :, 320:] = torch.eye(256), torch.eye(256)
with kernels_on_host_memory(fake_hip):
    out, lse = mla_decode(
        q.unflatten(1, (4, 64)), rows, causal=False, softmax_scale=SCALE, num_splits=1,
        return_softmax_lse=True,
    )
numbers = (codes.view(dtype).double().unflatten(0, (4, 128)) * scales[:, None]).flatten()
numbers = torch.cat((numbers, rotated.double()))
sums = q.double() @ numbers * SCALE + math.log(32)
shown["out"] = (out.double() != numbers[:512]).sum().item()
told(lse, sums.unflatten(1, (4, 64)).mT)
"""
PRODUCTS = """
k, v = (every(256, head_dim).roll(turned, 0) for turned in (0, 100))
q = one_hot(256, head_dim, torch.ones(()).to(dtype).view(torch.uint8))
if of_q:
    place = q.ne(0)
    k = torch.ones(()).to(dtype).view(torch.uint8).expand(k.shape).contiguous()
    q = torch.where(place, NUMBERS[:, None, None], 0)
tensors = [x[None].view(dtype) for x in (q, k, v)]
with kernels_on_host_memory(fake_hip), torch.no_grad():
    out, lse, _ = flash_attn_func(
        *tensors, window_size=(0, 0), softmax_scale=SCALE, return_attn_probs=True
    )
q, k, v = (x.double() for x in tensors)
same(out, lse, v, scores(q, k))
"""
# Of a log-sum-exp, beside 1 or itself: roundings to fp32 of softmax_scale times log2(e), of a descale times
# it, of their product with the score, of log2(e) and ln(2), and of two products and a sum for the result. The
# least number's score is 2^14 times as large, and scores of two codes differ by a 128th or more.
MOST = 8 * 2.0**-24


def exact(shown, kernels):
    assert shown["kernels"] == kernels
    assert shown["findings"] == 0
    assert shown["out"] == 0
    assert shown["sums"] <= MOST


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize(("rows", "batch", "kernels"), CALLS, ids=["few", "more"])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
def test_a_cache(scenario, arch, dtype, rows, batch, kernels, kept):
    in_fp16 = kept == "fp16" or rows <= 16
    least = LEAST_NORMAL if arch == FLUSHES and in_fp16 else 0.0
    begin = f"dtype, kept, rows, batch = torch.{dtype}, torch.{KEPT[kept]}, {rows}, {batch}\n"
    begin += f"least = {least}\n"
    exact(scenario(begin + CODES + CACHE, arch=arch), [each.format(kept) for each in kernels])


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100"])
def test_latent_attention(scenario, arch, dtype):
    least = LEAST_NORMAL if arch == FLUSHES else 0.0
    begin = f"dtype, kept, least = torch.{dtype}, torch.bfloat16, {least}\n"
    exact(scenario(begin + CODES + LATENT, arch=arch), ["fa_mla_8bit_bf16_d576"])


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_rows_of_656_bytes(scenario, arch):
    """Also of the least codes, whose fp16 is subnormal."""
    begin = "dtype, kept = torch.float8_e4m3fn, torch.bfloat16\n"
    exact(scenario(begin + CODES + ROWS_OF_656_BYTES, arch=arch), ["fa_mla_rows_bf16_d576"])


@pytest.mark.parametrize("of_q", [False, True], ids=["k", "q"])
@with_formats
def test_products_of_fp8(scenario, arch, head_dim, dtype, of_q):
    begin = f"dtype, head_dim, of_q = torch.{dtype}, {head_dim}, {of_q}\n"
    exact(scenario(begin + CODES + PRODUCTS, arch=arch), [KERNEL.format(head_dim)])
