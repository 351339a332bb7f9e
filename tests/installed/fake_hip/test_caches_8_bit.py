"""Caches of 8 bits from the public functions to the kernels: few queries, more by widening, and appending."""

import pytest

ARCHS = ("gfx942", "gfx1100")
# What mla_decode launches over a cache of 8 bits.
LATENT = {
    ("gfx942", "bfloat16"): ["fa_mla_8bit_bf16_d576"],
    ("gfx942", "float16"): ["fa_widen_fp16", "fa_mla_fp16_d576"],
    ("gfx1100", "bfloat16"): ["fa_mla_8bit_bf16_d576"],
    ("gfx1100", "float16"): ["fa_widen_fp16", "fa_mla_fp16_d576"],
    ("gfx1201", "bfloat16"): ["fa_mla_8bit_bf16_d576"],
}
FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "int8")
CACHE = """
import warnings
from flash_attn_rocm import flash_attn_varlen_func, flash_attn_with_kvcache, mla_decode

LARGEST = {
    torch.float8_e4m3fn: 448.0, torch.float8_e4m3fnuz: 240.0, torch.float8_e5m2: 57344.0, torch.int8: 127.0,
}
LENGTHS, PAGE = (70, 33), 16
TABLE = torch.tensor([[5, 0, 3, 8, 2], [6, 1, 4, 7, 9]], dtype=torch.int32)
generator = torch.Generator().manual_seed(0)

def random(*sizes, dtype=torch.float16):
    return torch.randn(*sizes, generator=generator).to(dtype)

def rounded(x, dtype):
    x = x.clamp(-LARGEST[dtype], LARGEST[dtype])
    codes = (x.round() if dtype == torch.int8 else x).to(dtype)
    return codes if dtype == torch.int8 else torch.where(codes.float() == 0, 0.0, codes.float()).to(dtype)

def cache(dtype, per_key, head_dim=64):
    # Codes in pages, their descales, and what they are, in float64.
    found = []
    for _ in "kv":
        x = random(2, 80, 2, head_dim).float()
        most = x.abs().amax(-1)
        descale = most / LARGEST[dtype] if per_key else most.amax(1) / LARGEST[dtype]
        of = descale[..., None] if per_key else descale[:, None, :, None]
        codes = rounded(x / of, dtype)
        pages = torch.full((10, PAGE, 2, head_dim), 0x7F, dtype=torch.uint8)
        pages[TABLE.long()] = codes.view(torch.uint8).unflatten(1, (5, PAGE))
        if per_key:
            own = torch.full((10, PAGE, 2), 1e6)
            own[TABLE.long()] = descale.unflatten(1, (5, PAGE))
            descale = own
        found.append((pages.view(dtype), descale, codes.double() * of.double()))
    return found

def packed(*sizes):
    # Rows of 656 bytes, whose thirds have other sizes, and what they are.
    x = random(2, 80, 576).float() * torch.tensor(sizes or (0.1, 1.0, 8.0)).repeat_interleave(192)
    latent = x[..., :512].unflatten(-1, (4, 128))
    scales = latent.abs().amax(-1) / 448.0
    codes = rounded(latent / scales[..., None], torch.float8_e4m3fn)
    of = (codes.flatten(-2), scales, x[..., 512:].bfloat16())
    numbers = (codes.double() * scales[..., None].double()).flatten(-2)
    rows = torch.cat([each.view(torch.uint8) for each in of], -1)
    return rows, torch.cat((numbers, of[2].double()), -1)[:, :, None]

def formula(q, numbers, lengths=LENGTHS):
    # Causal attention of each sequence.
    outs = []
    for b, length in enumerate(lengths):
        k, v = (x[b, :length].repeat_interleave(2, dim=1) for x in numbers)
        scores = torch.einsum("ihd,jhd->hij", q[b].double(), k) * q.shape[-1] ** -0.5
        at = torch.arange(q.shape[1])[:, None] + length - q.shape[1]
        scores = scores.masked_fill(torch.arange(length) > at, float("-inf"))
        outs.append(torch.einsum("hij,jhd->ihd", scores.softmax(-1), v))
    return torch.stack(outs)

def report(found, expected):
    launches = fake_hip.report().launches
    shown["kernels"] = [launch.kernel for launch in launches]
    shown["findings"] = sum(len(launch.findings) for launch in launches)
    shown["error"] = ((found.double() - expected).abs().max() / expected.abs().max()).item()
"""
ATTEND = """
(k, k_descale, k_numbers), (v, v_descale, v_numbers) = cache(torch.{dtype}, {per_key}, {head_dim})
k, v = {layout}(k), {layout}(v)
q = random(2, {rows}, 4, {head_dim}, dtype=torch.{kept})
with kernels_on_host_memory(fake_hip):
    found = flash_attn_with_kvcache(
        q, k, v, cache_seqlens=torch.tensor(LENGTHS, dtype=torch.int32), block_table=TABLE, causal=True,
        num_splits={parts}, k_descale=k_descale, v_descale=v_descale,
    )
report(found, formula(q, (k_numbers, v_numbers)))
"""
# Out is rounded once, and P and a widened cache to q's dtype: a step each.
STEPS = {"float16": 2**-9, "bfloat16": 2**-6}


def attended(scenario, arch, **call):
    call = {"rows": 1, "head_dim": 64, "kept": "float16", "parts": 1, "layout": ""} | call
    shown = scenario(CACHE + ATTEND.format(**call), arch=arch)
    assert shown["findings"] == 0
    assert shown["error"] < STEPS[call["kept"]]
    return shown["kernels"]


@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
def test_few_queries(scenario, arch, dtype, per_key):
    kernels = attended(scenario, arch, dtype=dtype, per_key=per_key, rows=3)
    assert kernels == ["fa_decode_8bit_fp16_d64"]


@pytest.mark.parametrize("arch", ARCHS)
def test_few_queries_in_parts(scenario, arch):
    kernels = attended(
        scenario, arch, dtype="float8_e4m3fn", per_key=True, parts=3, head_dim=128, kept="bfloat16"
    )
    assert kernels == ["fa_decode_8bit_bf16_d128", "fa_combine_bf16"]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
def test_more_queries_are_widened(scenario, arch, dtype):
    kernels = attended(scenario, arch, dtype=dtype, per_key=dtype == "int8", rows=20)
    assert kernels == ["fa_widen_fp16", "fa_fwd_fp16_d64"]


@pytest.mark.parametrize("arch", ARCHS)
def test_another_head_dim_is_widened(scenario, arch):
    kernels = attended(scenario, arch, dtype="float8_e5m2", per_key=False, head_dim=32)
    assert kernels == ["fa_widen_fp16", "fa_decode_fp16_d32"]


def test_queries_of_bf16_are_widened_on_archs_without_their_kernel(scenario):
    kernels = attended(scenario, "gfx1010", dtype="int8", per_key=True, kept="bfloat16")
    assert kernels == ["fa_widen_bf16", "fa_decode_bf16_d64"]


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_that_are_not_contiguous_are_copied_and_widened(scenario, arch):
    turned = "(lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2))"
    kernels = attended(scenario, arch, dtype="int8", per_key=True, layout=turned)
    assert kernels == ["fa_widen_fp16", "fa_decode_fp16_d64"]


@pytest.mark.parametrize(("arch", "kept"), LATENT)
def test_rows_of_latent_attention_that_are_not_contiguous(scenario, arch, kept):
    shown = scenario(
        f"{CACHE}\nkept = torch.{kept}\n"
        """
codes = rounded(random(1, 576, 1, 40).float(), torch.int8).transpose(1, 3)
q = random(1, 1, 4, 576, dtype=kept)
with kernels_on_host_memory(fake_hip):
    found = mla_decode(q, codes, num_splits=1)
numbers = codes.double().expand(-1, -1, 2, -1)
report(found, formula(q, (numbers, numbers), [40])[..., :512])
""",
        arch=arch,
    )
    assert shown["kernels"] == LATENT[arch, kept]
    assert shown["findings"] == 0
    assert shown["error"] < STEPS[kept]


def test_no_sequences_of_fp8(scenario):
    shown = scenario(
        """
from flash_attn_rocm import flash_attn_with_kvcache
x = torch.zeros(0, 20, 2, 64).to(torch.float8_e4m3fn)
with kernels_on_host_memory(fake_hip):
    shown["sizes"] = [(*attend(x, x, x).shape,) for attend in (flash_attn_func, flash_attn_with_kvcache)]
"""
    )
    assert shown["sizes"] == [(0, 20, 2, 64)] * 2


def test_caches_without_rows_or_pages(scenario):
    shown = scenario(
        """
from flash_attn_rocm import flash_attn_with_kvcache, mla_decode

def attended(batch, pages, heads, head_dim, attend):
    places = {"block_table": torch.zeros(batch, 3, dtype=torch.int32)} if pages else {}
    q = torch.zeros(batch, 20, heads, head_dim).half()
    cache = torch.zeros(0, 16, 1, head_dim, dtype=torch.int8)
    caches = (cache,) if attend is mla_decode else (cache, cache)
    with kernels_on_host_memory(fake_hip):
        found = attend(q, *caches, cache_seqlens=torch.full((batch,), 5, dtype=torch.int32), **places)
    return found.shape[0] == batch and not found.any().item()

shown["zeros"] = [
    attended(batch, pages, 4, head_dim, attend)
    for batch, pages in ((0, False), (0, True), (2, True))
    for attend, head_dim in ((flash_attn_with_kvcache, 64), (mla_decode, 576))
]
"""
    )
    assert shown["zeros"] == [True] * 6


@pytest.mark.parametrize("rows", [(1, 1), (20, 5)])
@pytest.mark.parametrize("arch", ARCHS)
def test_packed_queries_with_one_scale_of_all_as_vllm_calls(scenario, arch, rows):
    shown = scenario(
        f"rows = {rows}\n{CACHE}"
        """
(k, _, k_numbers), (v, _, v_numbers) = cache(torch.float8_e4m3fn, False)
scale = torch.tensor(0.25).expand(2, 2)
numbers = [x.double() for x in (k, v)]
numbers = [x[TABLE.long()].flatten(1, 2) * 0.25 for x in numbers]
q = random(sum(rows), 4, 64)
ends = [torch.tensor([0, *x], dtype=torch.int32) for x in ((rows[0], sum(rows)), (LENGTHS[0], sum(LENGTHS)))]
with torch.no_grad(), kernels_on_host_memory(fake_hip):
    found = flash_attn_varlen_func(
        q, k, v, *ends, max(rows), max(LENGTHS), causal=True, block_table=TABLE, k_descale=scale,
        v_descale=scale,
    )
apart = [x[None] for x in q.split(rows)]
expected = [formula(x, [n[b : b + 1] for n in numbers], LENGTHS[b : b + 1])[0] for b, x in enumerate(apart)]
report(found, torch.cat(expected))
""",
        arch=arch,
    )
    few = ["fa_decode_8bit_fp16_d64"]
    assert shown["kernels"] == (few if max(rows) == 1 else ["fa_widen_fp16", "fa_fwd_fp16_d64"])
    assert shown["findings"] == 0
    assert shown["error"] < STEPS["float16"]


@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("arch", ARCHS)
def test_new_keys_are_appended_then_attended(scenario, arch, dtype, per_key):
    shown = scenario(
        f"dtype, per_key = torch.{dtype}, {per_key}\n{CACHE}"
        """
(k, k_descale, k_numbers), (v, v_descale, v_numbers) = cache(dtype, per_key)
q, new = random(2, 2, 4, 64), [random(2, 2, 2, 64) for _ in "kv"]
with kernels_on_host_memory(fake_hip):
    found = flash_attn_with_kvcache(
        q, k, v, *new, cache_seqlens=torch.tensor(LENGTHS, dtype=torch.int32), block_table=TABLE, causal=True,
        num_splits=1, k_descale=k_descale, v_descale=v_descale,
    )
for x, descale, numbers in zip(new, (k_descale, v_descale), (k_numbers, v_numbers)):
    of = x.float().abs().amax(-1) / LARGEST[dtype] if per_key else descale[:, None].expand(2, 2, 2)
    for b, length in enumerate(LENGTHS):
        codes = rounded(x[b].float() / of[b][..., None], dtype)
        numbers[b, length : length + 2] = codes.double() * of[b][..., None].double()
report(found, formula(q, (k_numbers, v_numbers), [length + 2 for length in LENGTHS]))
codes = [x.view(torch.uint8)[TABLE[1, 2]][1:3] for x in (k, v)]
shown["negative zeros"] = sum(int((x == 0x80).sum()) for x in codes) if dtype != torch.int8 else 0
""",
        arch=arch,
    )
    assert shown["kernels"] == ["fa_append_8bit_fp16", "fa_decode_8bit_fp16_d64"]
    assert shown["findings"] == 0
    assert shown["error"] < STEPS["float16"]
    assert shown["negative zeros"] == 0


@pytest.mark.parametrize(("arch", "kept"), LATENT)
def test_latent_attention(scenario, arch, kept):
    shown = scenario(
        f"{CACHE}\nkept = torch.{kept}\n"
        """
x = random(2, 80, 1, 576).float()
descale = x.abs().amax((1, 3)) / 448.0
codes = rounded(x / descale[:, None, :, None], torch.float8_e4m3fn)
numbers = codes.double() * descale[:, None, :, None].double()
q = random(2, 1, 4, 576, dtype=kept)
with kernels_on_host_memory(fake_hip):
    found = mla_decode(q, codes, torch.tensor(LENGTHS, dtype=torch.int32), num_splits=1, kv_descale=descale)
numbers = numbers.expand(-1, -1, 2, -1)
report(found, formula(q, (numbers, numbers))[..., :512])
""",
        arch=arch,
    )
    assert shown["kernels"] == LATENT[arch, kept]
    assert shown["findings"] == 0
    assert shown["error"] < STEPS[kept]


# Archs with kernels of latent attention, and one without.
PACKED = {
    "gfx90a": ["fa_mla_rows_bf16_d576"],
    "gfx942": ["fa_mla_rows_bf16_d576"],
    "gfx950": ["fa_mla_rows_bf16_d576"],
    "gfx1100": ["fa_widen_bf16", "fa_mla_bf16_d576"],
    "gfx1201": ["fa_widen_bf16", "fa_mla_bf16_d576"],
    "gfx1030": ["fa_widen_bf16"],
}


@pytest.mark.parametrize("places", ["dense", "pages", "odd"])
@pytest.mark.parametrize("arch", PACKED)
def test_rows_of_656_bytes(scenario, arch, places):
    shown = scenario(
        f"{CACHE}\nplaces = '{places}'\n"
        """
rows, numbers = packed()
q, lengths = random(2, 1, 4, 576, dtype=torch.bfloat16), torch.tensor(LENGTHS, dtype=torch.int32)
for b, length in enumerate(LENGTHS):
    rows[b, length:] = 0xFF
table = None
if places == "pages":
    table = TABLE.clone()
    pages = torch.full((10, PAGE, 656), 0xFF, dtype=torch.uint8)
    pages[table.long()] = rows.unflatten(1, (5, PAGE))
    rows, table[1, 3:] = pages, torch.tensor([99, -1], dtype=torch.int32)
if places == "odd":
    rows = torch.zeros(2, 80, 660, dtype=torch.uint8)[..., 1:657].copy_(rows)
flash_attn_rocm.set_strict(False)
with kernels_on_host_memory(fake_hip):
    with warnings.catch_warnings():  # gfx1030 has no kernel behind the copy
        warnings.simplefilter("ignore")
        found = mla_decode(q, rows, lengths, block_table=table, num_splits=1)
report(found, formula(q, (numbers.expand(-1, -1, 2, -1),) * 2)[..., :512])
""",
        arch=arch,
    )
    assert shown["kernels"] == PACKED[arch]
    assert shown["findings"] == 0
    assert shown["error"] < STEPS["bfloat16"]


# What few queries take the codes of NaN for. Widening gives NaN for all of them.
NO_NUMBERS = [
    ("float8_e4m3fn", 0x7F, 480.0), ("float8_e4m3fn", 0xFF, -480.0), ("float8_e4m3fnuz", 0x80, 0.0),
    ("float8_e5m2", 0x7D, float("nan")), ("float8_e5m2", 0xFF, float("nan")),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "code", "number"), NO_NUMBERS)
@pytest.mark.parametrize("arch", ARCHS)
def test_codes_of_nan(scenario, arch, dtype, code, number):
    shown = scenario(
        f"dtype, code = torch.{dtype}, {code}"
        """
from flash_attn_rocm import flash_attn_with_kvcache
k = torch.zeros(1, 4, 2, 64, dtype=torch.uint8)
v = k.clone()
v[:, 2, :, 5] = code
k, v = k.view(dtype), v.view(dtype)
with kernels_on_host_memory(fake_hip):
    few, many = (flash_attn_with_kvcache(torch.zeros(1, rows, 2, 64).half(), k, v) for rows in (1, 20))
shown["few"], shown["many"] = few[..., 5].flatten().tolist(), many[..., 5].isnan().all().item()
shown["others"] = (few[..., 6] == 0).all().item() and (many[..., 6] == 0).all().item()
""",
        arch=arch,
    )
    assert shown["few"] == pytest.approx([number / 4] * 2, nan_ok=True)
    assert shown["many"]
    assert shown["others"]
