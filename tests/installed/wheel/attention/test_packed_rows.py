"""Latent attention over rows of 656 bytes, on CPU tensors: against float64 on what their bytes are.

Rows are written as vLLM's fp8_ds_mla writes them, with PyTorch's own conversions.
"""

import math
import re
import struct
import warnings

import pytest
import torch
from archs import UNKNOWN, archs_with
from flash_attn_rocm import (
    FlashAttnArgumentError,
    FlashAttnUnsupportedError,
    explain,
    mla_decode,
    set_strict,
)
from flash_attn_rocm.launch import latent, packed_rows
from flash_attn_rocm.machine import remembered
from test_mla import exact, holds, launched  # noqa: F401 - a fixture

QUIET = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
LENGTHS, PAGE, CAPACITY = (41, 7), 16, 48
NAN_BYTE = 0xFF  # a code of NaN; four of them are a scale of NaN, two an element of NaN
STORES = ("dense", "pages")
INT = {"dtype": torch.int32}
HALF_STEP = 2.0**-9  # of bf16


def packed(keys):
    """Rows (…, 656) of keys (…, 576)."""
    latent = keys[..., :512].float().unflatten(-1, (4, 128))
    scales = latent.abs().amax(-1).clamp(min=2.0**-126) / 448
    codes = (latent / scales[..., None]).to(torch.float8_e4m3fn).flatten(-2)
    rotated = keys[..., 512:].bfloat16().contiguous()
    return torch.cat([x.view(torch.uint8) for x in (codes, scales, rotated)], -1)


def numbers_of(rows):
    """(…, 576) in float64: each code times its scale, exactly."""
    codes = rows[..., :512].contiguous().view(torch.float8_e4m3fn).double().unflatten(-1, (4, 128))
    scales = rows[..., 512:528].contiguous().view(torch.float32).double()
    rotated = rows[..., 528:].contiguous().view(torch.bfloat16).double()
    return torch.cat(((codes * scales[..., None]).flatten(-2), rotated), -1)


class Cache:
    """Two sequences of random rows. What belongs to no key is NaN."""

    def __init__(self, store):
        keys = torch.randn(2, CAPACITY, 576) * torch.tensor([0.02, 1.0, 50.0, 3000.0]).repeat_interleave(144)
        self.rows = packed(keys / keys.std(-1, keepdim=True))
        for b, length in enumerate(LENGTHS):
            self.rows[b, length:] = NAN_BYTE
        self.numbers = numbers_of(self.rows)[:, :, None]
        self.given, self.places = self.rows[:, :, None], {}
        if store == "pages":
            table = torch.tensor([[5, 0, 3], [6, 1, 4]], **INT)
            self.given = torch.full((8, PAGE, 1, 656), NAN_BYTE, dtype=torch.uint8)
            self.given[table.long()] = self.rows.unflatten(1, (3, PAGE))[..., None, :]
            table[1, 1:] = -1  # behind its keys
            self.places = {"block_table": table}

    def attend(self, q, rows=None, **options):
        lengths = torch.tensor(LENGTHS, **INT)
        rows = self.given if rows is None else rows
        return mla_decode(q, rows, lengths, **self.places, return_softmax_lse=True, **options)

    def holds(self, found, q):
        out, lse = exact(q, self.numbers.nan_to_num(0.0), LENGTHS)
        holds((found[0], lse), (out, lse), self.numbers[0, :1], q.dtype)
        # A row is rounded to bf16, so a score errs by half a step of its products.
        scores = q.double().abs().amax() * self.numbers.nan_to_num(0.0).abs().amax() * math.sqrt(576)
        assert (found[1] - lse).abs().max() <= HALF_STEP * 576**-0.5 * scores


def query(rows=3):
    return torch.randn(2, rows, 4, 576).bfloat16() / 8


@QUIET
@pytest.mark.parametrize("store", STORES)
def test_against_float64(store):
    cache, q = Cache(store), query()
    found = cache.attend(q)
    assert found[0].shape == (2, 3, 4, 512)
    cache.holds(found, q)


@QUIET
@pytest.mark.parametrize("store", STORES)
def test_the_result_is_that_of_the_numbers_rounded_to_bf16(store):
    cache, q = Cache(store), query()
    wanted = mla_decode(q, cache.numbers.bfloat16(), torch.tensor(LENGTHS, **INT), return_softmax_lse=True)
    found = cache.attend(q)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@QUIET
@pytest.mark.parametrize("store", STORES)
def test_rows_without_the_head_and_at_odd_places(store):
    cache, q = Cache(store), query()
    wanted = cache.attend(q)
    wide = torch.zeros((*cache.given.shape[:-1], 660), dtype=torch.uint8)
    odd = wide[..., 3:659].copy_(cache.given)
    turned = cache.given.transpose(1, 3).contiguous().transpose(1, 3)
    for rows in (cache.given.squeeze(-2), odd, turned):
        assert all(torch.equal(a, b) for a, b in zip(cache.attend(q, rows), wanted, strict=True))


def test_each_byte_is_read_as_documented():
    """One key, so that out is its first 512 numbers. Without codes of NaN, whose products are NaN."""
    scales, rotated = (0.5, 2.0, -3.0, 2.0**-130), torch.arange(64).bfloat16()
    codes = torch.arange(512) % 256
    codes[codes % 128 == 0x7F] = 0
    row = bytes(codes.tolist()) + struct.pack("<4f", *scales) + rotated.view(torch.uint8).numpy().tobytes()
    rows = torch.frombuffer(bytearray(row), dtype=torch.uint8).view(1, 1, 656)
    q = torch.zeros(1, 1, 1, 576).bfloat16()
    q[..., 512:] = torch.eye(64)[5]
    with warnings.catch_warnings(action="ignore"):
        out, lse = mla_decode(q, rows, softmax_scale=1.0, return_softmax_lse=True)
    numbers = codes.byte().view(torch.float8_e4m3fn).double()
    wanted = numbers * torch.tensor(scales, dtype=torch.float64).repeat_interleave(128)
    assert torch.equal(out.flatten(), wanted.bfloat16())
    assert lse.item() == 5.0


def test_finite_keys_are_written_as_finite_rows():
    """What the page of 8 bits tells callers to write."""
    keys = torch.randn(50, 576)
    keys[0], keys[1], keys[2] = 0.0, torch.finfo(torch.bfloat16).max, 2.0**-133
    keys[3:5] *= torch.tensor([[1e30], [1e-38]])
    rows = packed(keys.bfloat16())
    found = numbers_of(rows)
    assert found.isfinite().all()
    scales = rows[..., 512:528].contiguous().view(torch.float32).double().repeat_interleave(128, -1)
    allowed = keys[:, :512].bfloat16().double().abs() * 2.0**-4 + scales * 2.0**-10
    assert ((found[:, :512] - keys[:, :512].bfloat16().double()).abs() <= allowed * (1 + 1e-6)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": query().half()}, "q: expected dtype torch.bfloat16 beside a kv_cache in rows of 656 bytes"),
        (
            {"q": torch.zeros(2, 3, 4, 512).bfloat16()},
            "q: expected headdim 576 beside a kv_cache in rows of 656 bytes, got shape (2, 3, 4, 512)",
        ),
        ({"head_dim_v": 128}, "head_dim_v: expected 512 beside a kv_cache in rows of 656 bytes, got 128"),
        (
            {"kv_descale": torch.ones(2, 1)},
            "kv_descale: expected None beside a kv_cache in rows of 656 bytes, which hold their scales",
        ),
        (
            {"kv_cache": torch.zeros(2, 40, 2, 656, dtype=torch.uint8)},
            "kv_cache: expected 1 head, got shape (2, 40, 2, 656)",
        ),
        (
            {"kv_cache": torch.zeros(40, 656, dtype=torch.uint8)},
            "kv_cache: expected 4 dimensions (batch, seqlen_k, 1, headdim), got shape (40, 656)",
        ),
        (
            {"kv_cache": torch.zeros(3, 40, 656, dtype=torch.uint8)},
            "kv_cache: expected batch 2 like q, got shape (3, 40, 1, 656)",
        ),
        (
            {"kv_cache": torch.zeros(2, 40, 1, 584, dtype=torch.uint8)},
            "kv_cache: expected headdim 576 like q, got shape (2, 40, 1, 584); torch.uint8 is for rows",
        ),
        (
            {"kv_cache": torch.zeros(2, 40, 1, 656, dtype=torch.uint8).view(torch.float8_e4m3fn)},
            "kv_cache: expected headdim 576 like q, got shape (2, 40, 1, 656); pass rows of 656 bytes as kv_",
        ),
        (
            {"kv_cache": torch.zeros(2, 40, 656, dtype=torch.uint8, device="meta")},
            "kv_cache: expected device cpu like q, got meta",
        ),
        ({"cache_seqlens": 41}, "cache_seqlens: expected at most 40 keys, got 41"),
        (
            {"block_table": torch.zeros(2, 3, **INT)},
            "kv_cache: expected pages of a multiple of 16 rows, got 40",
        ),
    ],
)  # fmt: skip
def test_wrong_arguments(change, words):
    call = {"q": query(), "kv_cache": torch.zeros(2, 40, 656, dtype=torch.uint8)} | change
    with pytest.raises(FlashAttnArgumentError, match=r"^mla_decode cannot use its arguments") as caught:
        mla_decode(**call)
    assert any(each.startswith(words) for each in caught.value.problems), caught.value.problems


@QUIET
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"block_table": torch.tensor([[0, 9]] * 2, **INT)},
            "block_table: expected indices of the cache's blocks, which are below 3, got 9",
        ),
        (
            {"cache_seqlens": torch.tensor([16, 33], **INT), "block_table": torch.zeros(2, 2, **INT)},
            "cache_seqlens: expected at most 32 keys, as block_table has pages for, got 33 for sequence 1",
        ),
    ],
)
def test_lengths_and_indices_outside_of_the_cache(change, words):
    rows = torch.zeros(3, PAGE, 656, dtype=torch.uint8)
    with pytest.raises(FlashAttnArgumentError, match=f"mla_decode cannot.*\n  - {re.escape(words)}"):
        mla_decode(query(), rows, **change)


def test_strict_mode_raises_before_rows_are_widened(monkeypatch):
    monkeypatch.setattr(packed_rows, "widened", None)
    set_strict(True)
    with pytest.raises(FlashAttnUnsupportedError, match=r"^mla_decode: no kernel serves this call"):
        Cache("dense").attend(query())


@QUIET
@pytest.mark.parametrize("store", STORES)
def test_torch_compile(store):
    cache, q = Cache(store), query()
    torch.compiler.reset()
    compiled = torch.compile(cache.attend, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(compiled(q), cache.attend(q), strict=True))


NATIVE = archs_with("mla_rows", "bf16")
MLA, ROWS = map(pytest.mark.needs_kernels, ("mla", "mla_rows"))
WIDEN = pytest.mark.needs_kernels("widen")


@WIDEN
@pytest.mark.usefixtures("host_operators")
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("store", STORES)
def test_a_kernel_widens_groups_of_codes_as_heads(kernels_on, monkeypatch, store, at):
    cache, q = Cache(store), query()
    with warnings.catch_warnings(action="ignore"):
        wanted = cache.attend(q)
    kernels_on(next(iter(archs_with("widen", "bf16"))))
    monkeypatch.setattr(packed_rows, "_by_pytorch", None)
    wide = torch.zeros((*cache.given.shape[:-1], 656 + at), dtype=torch.uint8)
    cache.given = wide[..., at:].copy_(cache.given)
    monkeypatch.setattr("flash_attn_rocm.launch.latent.unserved", lambda _inputs: "not of interest here")
    with warnings.catch_warnings(action="ignore"):
        found = cache.attend(q)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.fixture
def without_rows(monkeypatch):
    """As on GPUs without a kernel that reads rows, which a wheel may lack."""
    monkeypatch.setattr(latent, "reads_rows", lambda _inputs: False)


@MLA
@pytest.mark.usefixtures("without_rows")
def test_a_kernel_is_given_a_dense_copy_in_bf16(launched, monkeypatch):  # noqa: F811
    cache, q = Cache("pages"), query()
    monkeypatch.setattr(packed_rows, "_by_kernel", packed_rows._by_pytorch)
    cache.holds(cache.attend(q, num_splits=1), q)
    (call,) = launched
    assert (call["kv_cache"].shape, call["kv_cache"].dtype) == ((2, CAPACITY, 1, 576), torch.bfloat16)
    assert (call["block_table"], call["kv_descale"]) == (None, None)


@WIDEN
def test_no_value_is_read_on_the_host(kernels_on, monkeypatch):
    """So that calls can be captured in a graph."""
    cache, q = Cache("pages"), query()
    inputs = packed_rows.Inputs(
        q, cache.given, cache.given[..., :512], block_table=cache.places["block_table"]
    )
    kernels_on(next(iter(archs_with("widen", "bf16"))))
    launches = []
    monkeypatch.setattr("flash_attn_rocm.launch.widening.WIDEN", lambda *given: launches.append("widen"))

    def read(_tensor):
        raise AssertionError

    for name in ("tolist", "item", "__int__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, read)
    packed_rows.widened(inputs)
    assert launches == ["widen"]


@WIDEN
@QUIET
def test_a_disabled_kernel_leaves_widening_to_pytorch(kernels_on, monkeypatch):
    cache, q = Cache("pages"), query()
    wanted = cache.attend(q)
    kernels_on(next(iter(archs_with("widen", "bf16"))))
    monkeypatch.setattr(
        "flash_attn_rocm.canary.first_use.codes_failure", lambda *_given: "wrong in its check"
    )
    monkeypatch.setattr(packed_rows, "_by_kernel", None)
    monkeypatch.setattr("flash_attn_rocm.launch.latent.unserved", lambda _inputs: "not of interest here")
    assert all(torch.equal(a, b) for a, b in zip(cache.attend(q), wanted, strict=True))


PAGES = {"kv_cache": torch.zeros(9, 16, 656, dtype=torch.uint8), "block_table": torch.zeros(2, 3, **INT)}


def unaligned(count):
    return torch.zeros(2, count, 657, dtype=torch.uint8)[..., 1:]


@MLA
@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize("arch", archs_with("mla", "bf16"))
def test_explain_says_that_rows_are_widened(kernels_on, arch):
    kernels_on(arch)
    q, rows = query(), torch.zeros(2, 40, 656, dtype=torch.uint8)
    copy = 2 * 40 * 576 * 2
    for given, size in ((rows, copy), (unaligned(40), copy + 2 * 40 * 656)):
        found = explain(mla_decode, q, given)
        assert (bool(found), found.path) == (True, "latent")
        assert found.reason.startswith(
            f"rows of 656 bytes widened to bfloat16 first, {size} bytes; all heads"
        )
        assert found.row.startswith("fa_mla_bf16_d576: row ")
    assert f"first, {2 * 48 * (576 + 64) * 2} bytes; " in explain(mla_decode, q, **PAGES).reason


@ROWS
@pytest.mark.parametrize("arch", NATIVE)
def test_explain_says_that_a_kernel_reads_rows(kernels_on, arch):
    kernels_on(arch)
    q, rows = query(), torch.zeros(2, 40, 656, dtype=torch.uint8)
    for given in ({"kv_cache": rows}, PAGES):
        found = explain(mla_decode, q, **given)
        assert (bool(found), found.path) == (True, "latent")
        assert found.reason.startswith("over rows of 656 bytes; all heads packed; ")
        assert found.row.startswith("fa_mla_rows_bf16_d576: row ")
    words = f"kv_cache copied to aligned rows first, {2 * 40 * 656} bytes; over rows of 656 bytes; "
    assert explain(mla_decode, q, unaligned(40)).reason.startswith(words)


@ROWS
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("arch", NATIVE)
def test_a_kernel_is_given_the_rows(kernels_on, launched, monkeypatch, arch, store):  # noqa: F811
    monkeypatch.setattr(packed_rows, "widened", None)
    kernels_on(arch)
    cache, q = Cache(store), query()
    cache.attend(q, num_splits=1)
    (call,) = launched
    assert call["kv_cache"].shape == cache.given.shape
    assert call["kv_cache"].dtype == torch.float8_e4m3fn
    assert call["kv_cache"].data_ptr() == cache.given.data_ptr()
    assert (call["block_table"] is None, call["kv_descale"]) == (store == "dense", None)


@ROWS
@pytest.mark.parametrize("broken", [remembered.LATENT, remembered.CODED, remembered.ROWS])
@pytest.mark.parametrize("arch", NATIVE)
def test_rows_fail_with_their_own_kernel_only(kernels_on, monkeypatch, arch, broken):
    kernels_on(arch)
    family = remembered.Family(arch, "bf16", 576, broken)
    monkeypatch.setitem(latent.FAILURES, family, "wrong in its check")
    rows = torch.zeros(2, 40, 656, dtype=torch.uint8)
    assert explain(mla_decode, query(), rows).ok == (broken != remembered.ROWS)


def test_explain_without_kernels(kernels_on):
    q, rows = query(), torch.zeros(2, 40, 656, dtype=torch.uint8)
    assert "the tensors are on cpu" in explain(mla_decode, q, rows).reason
    kernels_on(UNKNOWN)
    found = explain(mla_decode, q, rows)
    assert (bool(found), found.path) == (False, "pytorch")
    assert f"no kernels for {UNKNOWN}" in found.reason


@QUIET
def test_no_sequences_no_rows_and_no_pages():
    rows, q = torch.zeros(0, 16, 656, dtype=torch.uint8), query(1)
    assert mla_decode(q[:0], rows).shape == (0, 1, 4, 512)
    none = torch.zeros(2, 0, **INT)
    assert not mla_decode(q, rows, block_table=none).any()
    assert not mla_decode(q, torch.zeros(2, 0, 656, dtype=torch.uint8)).any()
