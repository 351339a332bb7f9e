"""The C interface of latent attention: checks, plan and launches."""

import pytest

from tests.engine.host.interface import (
    BF16,
    E4M3FN,
    FP16,
    FP32,
    INT8,
    INT32,
    INVALID,
    OK,
    UNSUPPORTED,
    MlaCall,
    MlaPlanCall,
    tensor,
)


def call(rows=1, heads=16, keys=200, *, batch=2, dtype=FP16, head_dim=576, **changes):
    """A call on a dense cache."""
    given = {
        "q": tensor([batch, rows, heads, head_dim], dtype),
        "kv_cache": tensor([batch, keys, 1, head_dim], dtype),
        "out": tensor([batch, rows, heads, max(head_dim - 64, 0)], dtype),
        "lse": tensor([batch, heads, rows], FP32),
        "softmax_scale": 0.1,
    }
    return MlaCall(**given | changes)


def parts(splits, rows=1, heads=16, batch=2):
    lse = [splits, batch, heads, rows]
    return {"partial_out": tensor([*lse, 512], FP32), "partial_lse": tensor(lse, FP32)}


def coded(rows=1, heads=16, keys=200, *, batch=2, codes=INT8, **changes):
    """Over a cache of 8 bits."""
    return call(
        rows,
        heads,
        keys,
        batch=batch,
        **{"kv_cache": tensor([batch, keys, 1, 576], codes), "dtype": BF16} | changes,
    )


def scaled(rows=1, heads=16, keys=200, *, batch=2, **changes):
    """Over rows of 656 bytes."""
    cache = {"kv_cache": tensor([batch, keys, 1, 656], E4M3FN), "dtype": BF16}
    return call(rows, heads, keys, batch=batch, **cache | changes)


PAGES = {"kv_cache": tensor([9, 16, 1, 576]), "block_table": tensor([2, 3], INT32)}
KERNEL, CODED, COMBINE = "fa_mla_fp16_d576", "fa_mla_8bit_bf16_d576", "fa_combine_fp16"
SCALED, SCALED_PAGES = "fa_mla_rows_bf16_d576", PAGES | {"kv_cache": tensor([9, 16, 1, 656], E4M3FN)}
CODED_PAGES = PAGES | {"kv_cache": tensor([9, 16, 1, 576], E4M3FN)}


@pytest.mark.parametrize(
    ("given", "launches"),
    [
        (call(), [(KERNEL, (1, 1, 2), (256, 1, 1))]),
        (call(4), [(KERNEL, (1, 1, 2), (256, 1, 1))]),
        (call(5), [(KERNEL, (2, 1, 2), (256, 1, 1))]),
        (call(dtype=BF16), [("fa_mla_bf16_d576", (1, 1, 2), (256, 1, 1))]),
        (call(**PAGES, cache_seqlens=tensor([2], INT32)), [(KERNEL, (1, 1, 2), (256, 1, 1))]),
        (call(5, **parts(3, 5)), [(KERNEL, (6, 1, 2), (256, 1, 1)), (COMBINE, (5, 16, 2), (256, 1, 1))]),
        (call(**parts(1)), [(KERNEL, (1, 1, 2), (256, 1, 1))]),
        (call(keys=0), [(KERNEL, (1, 1, 2), (256, 1, 1))]),
        (coded(2), [(CODED, (1, 1, 2), (256, 1, 1))]),
        (coded(3, codes=E4M3FN, kv_descale=tensor([2, 1], FP32)), [(CODED, (2, 1, 2), (256, 1, 1))]),
        (coded(**CODED_PAGES, kv_descale=tensor([9, 16, 1], FP32)), [(CODED, (1, 1, 2), (256, 1, 1))]),
        (
            coded(3, **parts(3, 3)),
            [(CODED, (6, 1, 2), (256, 1, 1)), ("fa_combine_bf16", (3, 16, 2), (256, 1, 1))],
        ),
        (scaled(3), [(SCALED, (2, 1, 2), (256, 1, 1))]),
        (scaled(**SCALED_PAGES), [(SCALED, (1, 1, 2), (256, 1, 1))]),
        (
            scaled(3, **parts(3, 3)),
            [(SCALED, (6, 1, 2), (256, 1, 1)), ("fa_combine_bf16", (3, 16, 2), (256, 1, 1))],
        ),
        (call(batch=0), []),
        (call(0), []),
    ],
)
def test_launches(library, given, launches):
    assert library.call(given) == (OK, "", launches)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (call(kv_cache=tensor([2, 200, 2, 576])), "kv_cache: expected shape (2, 200, 1, 576), got shape"),
        (call(kv_cache=tensor([3, 200, 1, 576])), "kv_cache: expected shape (2, 200, 1, 576), got shape"),
        (call(kv_cache=tensor([2, 200, 1, 512])), "kv_cache: expected shape (2, 200, 1, 576), got shape"),
        (call(kv_cache=tensor([2, 200, 576])), "kv_cache: expected 4 dimensions, got shape (2, 200, 576)"),
        (
            call(kv_cache=tensor([2, 200, 1, 576], BF16)),
            "kv_cache: expected dtype fp16 like q, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 or int8, got",
        ),
        (call(kv_descale=tensor([2, 1], FP32)), "kv_descale: expected none beside kv_cache of fp16"),
        (coded(kv_descale=tensor([2, 2], FP32)), "kv_descale: expected shape (2, 1), got shape (2, 2)"),
        (coded(kv_descale=tensor([2, 9, 1], FP32)), "kv_descale: expected shape (2, 200, 1), got shape"),
        (coded(kv_descale=tensor([2, 1, 1, 1], FP32)), "kv_descale: expected 2 dimensions, got shape"),
        (coded(kv_descale=tensor([2, 1])), "kv_descale: expected dtype fp32, got fp16"),
        (
            coded(kv_cache=tensor([2, 200, 1, 576], INT8, strides=(116800, 584, 576, 1))),
            "an address and other strides that are multiples of 16 elements, and rows less than 2^24",
        ),
        (
            coded(kv_descale=tensor([2, 1], FP32, data=2)),
            "kv_descale: expected an address that is a multiple of its elements' 4 bytes",
        ),
        (coded(**parts(8)), "partial_out, partial_lse: expected at most 7 parts of its keys, got 8"),
        (call(kv_cache=tensor([2, 200, 1, 576], data=8)), "kv_cache: expected a contiguous last dimension"),
        (
            scaled(kv_descale=tensor([2, 1], FP32)),
            "kv_descale: expected none beside rows of 656 bytes, which hold their scales",
        ),
        (scaled(kv_cache=tensor([2, 200, 1, 656], INT8)), "kv_cache: expected shape (2, 200, 1, 576), got"),
        (
            scaled(kv_cache=tensor([2, 200, 1, 656], E4M3FN, strides=(132000, 660, 660, 1))),
            "an address and other strides that are multiples of 16 elements, and rows less than 2^24",
        ),
        (scaled(**parts(8)), "partial_out, partial_lse: expected at most 7 parts of its keys, got 8"),
        (call(out=tensor([2, 1, 16, 576])), "out: expected shape (2, 1, 16, 512), got shape"),
        (
            call(out=tensor([2, 1, 16, 512], strides=(0, 8192, 512, 1))),
            "out: expected memory for each element",
        ),
        (call(lse=tensor([2, 16, 2], FP32)), "lse: expected shape (2, 16, 1), got shape (2, 16, 2)"),
        (call(heads=0), "q: expected at least 1 head, got 0"),
        (call(head_dim=64), "q: expected a headdim above 64, got 64"),
        (call(cache_seqlens=tensor([3], INT32)), "cache_seqlens: expected shape (2), got shape (3)"),
        (
            call(**PAGES | {"kv_cache": tensor([9, 24, 1, 576])}),
            "kv_cache: expected pages of a multiple of 16",
        ),
        (call(**PAGES | {"block_table": tensor([3, 3], INT32)}), "block_table: expected shape (2, 3), got"),
        (call(partial_lse=tensor([2, 2, 16, 1], FP32)), "partial_out, partial_lse: expected both or none"),
        (call(**parts(0)), "partial_lse: expected at least 1 split, got 0"),
        (call(**parts(600)), "splits: expected at most 512, got 600"),
        (
            call(**parts(8)),
            "partial_out, partial_lse: expected at most 7 parts of its keys, got 8",
        ),
        (call(softmax_scale=float("inf")), "softmax_scale: expected a finite number, got inf"),
        (
            call(2**20, 2**12),
            "rows of q times its heads: expected at most 1073737728, got 1048576 * 4096",
        ),
    ],
)
def test_wrong_arguments(library, given, words):
    status, found, launches = library.call(given)
    assert (status, launches) == (INVALID, [])
    assert found.startswith("flash_attn_rocm::mla cannot use its arguments:\n  - ")
    assert words in found


def test_all_that_is_wrong_is_said_at_once(library):
    wrong = call(kv_cache=tensor([2, 200, 1, 576], BF16), lse=tensor([2, 16, 1]))
    _, words, _ = library.call(wrong)
    assert words.count("\n  - ") == 2


def plan(**changes):
    given = {
        "arch": b"gfx942:sramecc+:xnack-", "dtype": b"fp16", "head_dim": 576, "batch": 1, "seqlen_q": 1,
        "seqlen_k": 32768, "nheads": 16, "compute_units": 304, "num_splits": 0,
    }  # fmt: skip
    return MlaPlanCall(**given | changes)


@pytest.mark.parametrize(
    ("given", "splits", "words"),
    [
        (plan(), 274, "all heads packed; 32768 keys in 274 parts give 274 workgroups for 304 compute units"),
        (plan(nheads=128), 137, "32768 keys in 137 parts give 274 workgroups for 304 compute units"),
        (plan(arch=b"gfx1100", compute_units=96), 87, "in 87 parts give 87 workgroups for 96"),
        (plan(batch=300), 1, "32768 keys in 1 part give 300 workgroups for 304 compute units"),
        (plan(seqlen_k=100), 2, "100 keys in 2 parts give 2 workgroups for 304 compute units"),
        (plan(compute_units=0), 1, "in 1 part give 1 workgroup for 0 compute units"),
        (plan(num_splits=5), 5, "all heads packed; 5 parts wanted, 5 used for 32768 keys"),
        (plan(num_splits=5, seqlen_k=40), 2, "5 parts wanted, 2 used for 40 keys"),
        (plan(nheads=0), 1, "give 0 workgroups"),
        (
            plan(coded=1, dtype=b"bf16"),
            512,
            "over a cache of 8 bits; all heads packed; 32768 keys in 512 parts give 512",
        ),
        (
            plan(coded=1, dtype=b"bf16", nheads=128),
            137,
            "32768 keys in 137 parts give 548 workgroups for 304 compute units",
        ),
        (
            plan(arch=b"gfx1100", coded=1, dtype=b"bf16", compute_units=96),
            173,
            "32768 keys in 173 parts give 173 workgroups for 96 compute units",
        ),
        (
            plan(arch=b"gfx1201", coded=1, dtype=b"bf16", compute_units=64),
            116,
            "32768 keys in 116 parts give 116 workgroups for 64 compute units",
        ),
        (
            plan(coded=1, dtype=b"bf16", num_splits=5),
            5,
            "over a cache of 8 bits; all heads packed; 5 parts wanted, 5 used",
        ),
        (
            plan(scaled=1, dtype=b"bf16"),
            512,
            "over rows of 656 bytes; all heads packed; 32768 keys in 512 parts give 512",
        ),
        (plan(scaled=1, dtype=b"bf16", nheads=128), 137, "in 137 parts give 548 workgroups for 304"),
        (plan(batch=2**31 - 1, seqlen_q=2**31 - 1, nheads=2**31 - 1), 1, "workgroups for 304 compute units"),
    ],
)
def test_plans(library, given, splits, words):
    status, path, found, reason = library.plan(given)
    assert (status, path, found) == (OK, "latent", splits)
    assert words in reason


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        (
            plan(arch=b"gfx1030"),
            UNSUPPORTED,
            "no mla kernel for fp16 with head_dim 576 on gfx1030: this wheel has none",
        ),
        (plan(head_dim=512), UNSUPPORTED, "no mla kernel for fp16 with head_dim 512 on gfx942: this wheel"),
        (
            plan(arch=b"gfx1100", dtype=b"bf16", scaled=1),
            UNSUPPORTED,
            "no mla_rows kernel for bf16 with head_dim 576 on gfx1100",
        ),
        (plan(coded=1), UNSUPPORTED, "no mla_8bit kernel for fp16 with head_dim 576 on gfx942"),
        (plan(dtype=b"fp32"), UNSUPPORTED, "no mla kernel for fp32 with head_dim 576 on gfx942"),
        (plan(batch=-1), INVALID, "plan: expected counts from 0 to 2^31 - 1, got -1"),
    ],
)
def test_what_cannot_be_planned(library, given, status, words):
    found = library.plan(given)
    assert found[0] == status
    assert words in found[3]
