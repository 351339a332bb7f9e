"""The C interface of writing and widening caches of 8 bits: checks and launches."""

import pytest

from tests.engine.host.interface import (
    BF16,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    FP16,
    FP32,
    INT8,
    INT32,
    INVALID,
    OK,
    AppendCall,
    WidenCall,
    tensor,
)

CODES = (E4M3FN, E4M3FNUZ, E5M2, INT8)
HEADS, KEYS = tensor([2, 2], FP32), tensor([2, 48, 2], FP32)
PAGES = [7, 16, 2, 64]
TABLE = tensor([2, 3], INT32)
BLOCK = (256, 1, 1)


def append(new=1, *, dtype=FP16, codes=INT8, sizes=(2, 48, 2, 64), **changes):
    """Appends to a dense cache."""
    head_dim = sizes[-1]
    given = {
        "q": tensor([2, 1, 4, head_dim], dtype),
        **{name: tensor(sizes, codes) for name in ("k_cache", "v_cache")},
        **{name: tensor([2, new, 2, head_dim], dtype) for name in ("k", "v")},
        "cache_seqlens": tensor([2], INT32),
    }
    return AppendCall(**given | changes)


def widen(keys=48, *, dtype=FP16, codes=INT8, sizes=(2, 48, 2, 64), **changes):
    """Widens a dense cache."""
    given = {
        **{name: tensor(sizes, codes) for name in ("k_cache", "v_cache")},
        **{name: tensor([2, keys, *sizes[2:]], dtype) for name in ("k_out", "v_out")},
    }
    return WidenCall(**given | changes)


def both(x):
    return {"k_descale": x, "v_descale": x}


@pytest.mark.parametrize(
    ("given", "launches"),
    [
        *((append(codes=codes), [("fa_append_8bit_fp16", (1, 2, 2), BLOCK)]) for codes in CODES),
        (append(codes=FP16), [("fa_append_fp16", (1, 2, 2), BLOCK)]),
        (append(dtype=BF16, **both(HEADS)), [("fa_append_8bit_bf16", (1, 2, 2), BLOCK)]),
        (append(**both(KEYS)), [("fa_append_8bit_fp16", (1, 2, 2), BLOCK)]),
        (append(**both(tensor([2, 2], FP32, strides=(0, 0)))), [("fa_append_8bit_fp16", (1, 2, 2), BLOCK)]),
        (
            append(sizes=PAGES, block_table=TABLE, **both(tensor(PAGES[:3], FP32))),
            [("fa_append_8bit_fp16", (1, 2, 2), BLOCK)],
        ),
        # A thread has 16 elements of aligned rows, else 2.
        (append(100), [("fa_append_8bit_fp16", (4, 2, 2), BLOCK)]),
        (append(100, sizes=(2, 128, 2, 63)), [("fa_append_8bit_fp16", (25, 2, 2), BLOCK)]),
        (
            append(100, k_cache=tensor([2, 48, 2, 64], INT8, data=(1 << 20) + 4)),
            [("fa_append_8bit_fp16", (25, 2, 2), BLOCK)],
        ),
        (append(0), []),
        *((widen(codes=codes), [("fa_widen_fp16", (2, 2, 2), BLOCK)]) for codes in CODES),
        (widen(dtype=BF16, **both(HEADS)), [("fa_widen_bf16", (2, 2, 2), BLOCK)]),
        (widen(**both(KEYS), seqused_k=tensor([2], INT32)), [("fa_widen_fp16", (2, 2, 2), BLOCK)]),
        (
            widen(sizes=PAGES, block_table=TABLE, **both(tensor(PAGES[:3], FP32))),
            [("fa_widen_fp16", (2, 2, 2), BLOCK)],
        ),
        (
            widen(sizes=(7, 48, 2, 64), cache_batch_idx=tensor([2], INT32)),
            [("fa_widen_fp16", (2, 2, 2), BLOCK)],
        ),
        (widen(17), [("fa_widen_fp16", (1, 2, 2), BLOCK)]),
        (widen(sizes=(2, 48, 2, 63)), [("fa_widen_fp16", (12, 2, 2), BLOCK)]),
        (
            widen(k_out=tensor([2, 48, 2, 64], data=(1 << 20) + 16)),
            [("fa_widen_fp16", (12, 2, 2), BLOCK)],
        ),
        (widen(0), []),
        (widen(1 << 20, sizes=(2, 1 << 20, 2, 64)), [("fa_widen_fp16", (1 << 15, 2, 2), BLOCK)]),
        (widen(1 << 22, sizes=(2, 1 << 22, 2, 64)), [("fa_widen_fp16", (1 << 16, 2, 2), BLOCK)]),
    ],
)
def test_launches(library, given, launches):
    assert library.call(given) == (OK, "", launches)


FORMATS = "float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 or int8"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (append(codes=FP32), f"k_cache: expected dtype fp16 like q, {FORMATS}, got fp32"),
        (
            append(v_cache=tensor([2, 48, 2, 64], E5M2)),
            "v_cache: expected dtype int8 like k_cache, got float8_e5m2",
        ),
        (
            append(v_cache=tensor([2, 48, 2, 64])),
            "v_cache: expected dtype int8 like k_cache, got fp16",
        ),
        (append(codes=FP16, **both(HEADS)), "k_descale, v_descale: expected none beside a cache of fp16"),
        (append(k_descale=HEADS), "k_descale, v_descale: expected both or none, and both of a head or both"),
        (append(k_descale=HEADS, v_descale=KEYS), "k_descale, v_descale: expected both or none"),
        (append(**both(tensor([2, 2]))), "k_descale: expected dtype fp32, got fp16"),
        (append(**both(tensor([2], FP32))), "k_descale: expected 2 dimensions, got shape (2)"),
        (append(**both(tensor([1, 2], FP32))), "k_descale: expected shape (2, 2), got shape (1, 2)"),
        (append(**both(tensor([2, 47, 2], FP32))), "k_descale: expected shape (2, 48, 2), got shape"),
        (
            append(**both(tensor([2, 48, 2], FP32, strides=(96, 0, 1)))),
            "k_descale: expected memory for each element, got a stride of 0",
        ),
        (
            append(**both(tensor([2, 2], FP32, data=(1 << 20) + 2))),
            "k_descale: expected an address that is a multiple of its elements' 4 bytes",
        ),
        (append(k_cache=tensor([2, 48, 2, 64], INT8, strides=(0, 128, 64, 1))), "k_cache: expected memory"),
        (widen(codes=FP16), f"k_cache: expected dtype {FORMATS}, got fp16"),
        (widen(dtype=FP32), "k_out: expected dtype fp16 or bf16, got fp32"),
        (widen(v_out=tensor([2, 48, 2, 64], BF16)), "v_out: expected dtype fp16, got bf16"),
        (widen(v_out=tensor([2, 47, 2, 64])), "v_out: expected shape (2, 48, 2, 64), got shape (2, 47"),
        (
            widen(v_cache=tensor([2, 48, 2, 64], E5M2)),
            "v_cache: expected dtype int8 like k_cache, got float8_e5m2",
        ),
        (widen(v_cache=tensor([2, 48, 1, 64], INT8)), "v_cache: expected shape (2, 48, 2, 64), got shape"),
        (widen(k_cache=tensor([48, 2, 64], INT8)), "k_cache: expected 4 dimensions, got shape (48, 2, 64)"),
        (
            widen(49),
            "rows of k_out, which are keys of the cache: expected at most 48, got 49",
        ),
        (
            widen(1, sizes=(0, 16, 2, 64), block_table=TABLE),
            "rows of k_out, which are keys of the cache: expected at most 0, got 1",
        ),
        (widen(sizes=(3, 48, 2, 64)), "k_cache: expected shape (2, 48, 2, 64), got shape (3, 48, 2, 64)"),
        (widen(sizes=(2, 48, 2, 520)), "k_out: expected a headdim from 1 to 512, got 520"),
        (widen(sizes=(7, 24, 2, 64), block_table=TABLE), "k_cache: expected pages of a multiple of 16 rows"),
        (widen(sizes=PAGES, block_table=tensor([1, 3], INT32)), "block_table: expected shape (2, 3), got"),
        (widen(seqused_k=tensor([3], INT32)), "seqused_k: expected shape (2), got shape (3)"),
        (widen(cache_batch_idx=tensor([3], INT32)), "cache_batch_idx: expected shape (2), got shape (3)"),
        (
            widen(sizes=PAGES, block_table=TABLE, cache_batch_idx=tensor([2], INT32)),
            "cache_batch_idx: expected none together with block_table",
        ),
        (widen(v_descale=HEADS), "k_descale, v_descale: expected both or none, and both of a head or both"),
        (widen(**both(tensor([2, 3], FP32))), "k_descale: expected shape (2, 2), got shape (2, 3)"),
        (widen(seqused_k=tensor([2], INT32, device=1)), "seqused_k: expected device 0 like k_out, got 1"),
        (widen(k_out=tensor([2, 48, 2, 64], strides=(0, 128, 64, 1))), "k_out: expected memory for each"),
    ],
)
def test_wrong_arguments(library, given, words):
    status, found, launches = library.call(given)
    function = "append" if isinstance(given, AppendCall) else "widen"
    assert (status, launches) == (INVALID, [])
    assert found.startswith(f"flash_attn_rocm::{function} cannot use its arguments:\n  - ")
    assert words in found


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (append(v_cache=tensor([2, 48, 2, 64]), k_descale=HEADS, cache_seqlens=tensor([2])), 3),
        (widen(dtype=FP32, codes=FP16, k_descale=HEADS), 4),
        (widen(49, seqused_k=tensor([3], INT32), **both(tensor([2, 3], FP32))), 4),
    ],
)
def test_all_that_is_wrong_is_said_at_once(library, given, count):
    _, words, _ = library.call(given)
    assert words.count("\n  - ") == count
