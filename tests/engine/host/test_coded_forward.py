"""The C interface of a forward over a cache of 8 bits: its plan, its launches, and refusals in words."""

import pytest

from tests.engine.host.interface import (
    BF16,
    FP16,
    FP32,
    INT8,
    INT32,
    INVALID,
    OK,
    UNSUPPORTED,
    FwdCall,
    PlanCall,
    tensor,
)

WIDEN = "no kernel reads this call's cache of 8 bits: {}: widen it"
NOT_CODED = (
    "flash_attn_rocm::fwd cannot use its arguments:\n  - path: matrix does not take this call: its kernels "
    "read no codes of 8 bits"
)
UNALIGNED = "an address or a stride is not a multiple of 16 bytes of codes or of 8 elements, or too large"


def plan(**changes):
    """Decode of a long cache on gfx942, which does not run here."""
    sizes = {
        "head_dim": 128, "batch": 1, "max_seqlen_q": 1, "max_seqlen_k": 32768, "nheads": 8, "nheads_k": 8,
        "compute_units": 304, "num_splits": 0,
    }  # fmt: skip
    return PlanCall(**sizes | {"arch": b"gfx942", "dtype": b"fp16", "aligned": 1, "coded": 1} | changes)


@pytest.mark.parametrize("dtype", [b"fp16", b"bf16"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_few_queries_have_a_kernel(library, dtype, head_dim):
    status, path, splits, words = library.plan(plan(dtype=dtype, head_dim=head_dim))
    assert (status, path) == (OK, "split")
    assert splits > 1
    assert words.startswith(
        "decode over a cache of 8 bits; 1 row of 1 head packed for each head of keys; 32768"
    )


@pytest.mark.parametrize(("wanted", "found"), [(1, 1), (3, 3), (512, 512)])
def test_wanted_parts(library, wanted, found):
    assert library.plan(plan(num_splits=wanted))[:3] == (OK, "split", found)


@pytest.mark.parametrize("nothing", ["batch", "max_seqlen_q", "max_seqlen_k"])
def test_nothing_to_compute(library, nothing):
    assert library.plan(plan(**{nothing: 0}))[:3] == (OK, "split", 1)
    assert library.plan(plan(nheads=0, nheads_k=0))[:3] == (OK, "split", 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_seqlen_q": 17}, "17 query rows, and its kernels take up to 16"),
        ({"head_dim": 80}, "gfx942 has none for fp16 with head_dim 80"),
        ({"head_dim": 512}, "gfx942 has none for fp16 with head_dim 512"),
        ({"arch": b"gfx1010", "dtype": b"bf16"}, "gfx1010 has none for bf16 with head_dim 128"),
        ({"aligned": 0}, UNALIGNED),
        ({"dropout": 1}, "its kernels have no dropout"),
        ({"masked": 1}, "its kernels read no mask"),
    ],
)
def test_other_calls_have_none(library, change, words):
    assert library.plan(plan(**change)) == (UNSUPPORTED, "", 1, WIDEN.format(words))


def forward(rows=5, head_dim=64, dtype=FP16, codes=INT8, **changes):
    q, kv = tensor([2, rows, 4, head_dim], dtype), tensor([2, 48, 2, head_dim], codes)
    given = {"q": q, "k": kv, "v": kv, "out": q, "lse": tensor([2, 4, rows], FP32)}
    rules = {"softmax_scale": 1.0, "window_left": -1, "window_right": -1}
    return FwdCall(**given | rules | changes)


def both(x):
    return {"k_descale": x, "v_descale": x}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        both(tensor([2, 2], FP32)),
        both(tensor([2, 2], FP32, strides=(0, 0))),
        both(tensor([2, 48, 2], FP32)),
        {"path": b"split"},
        {"softcap": 2.0, "alibi_slopes": tensor([4], FP32)},
    ],
)
def test_launches(library, changes):
    status, words, launches = library.call(forward(**changes))
    assert (status, words) == (OK, "")
    assert [each.kernel for each in launches] == ["fa_decode_8bit_fp16_d64"]
    assert launches[0].grid[1:] == (2, 2)


def test_pages_in_parts(library):
    pages = tensor([7, 16, 2, 128], INT8)
    parts = {"partial_out": tensor([2, 2, 4, 5, 128], FP32), "partial_lse": tensor([2, 2, 4, 5], FP32)}
    given = forward(
        head_dim=128, dtype=BF16, k=pages, v=pages, block_table=tensor([2, 3], INT32), **parts,
        **both(tensor([7, 16, 2], FP32)),
    )  # fmt: skip
    status, words, launches = library.call(given)
    assert (status, words) == (OK, "")
    assert [each.kernel for each in launches] == ["fa_decode_8bit_bf16_d128", "fa_combine_bf16"]


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        (forward(17), UNSUPPORTED, WIDEN.format("17 query rows, and its kernels take up to 16")),
        (forward(head_dim=80), UNSUPPORTED, WIDEN.format("gfx942 has none for fp16 with head_dim 80")),
        (
            forward(k=tensor([2, 48, 2, 64], INT8, data=(1 << 20) + 8)),
            UNSUPPORTED,
            WIDEN.format(UNALIGNED),
        ),
        (
            forward(path=b"matrix"),
            INVALID,
            NOT_CODED,
        ),
    ],
)
def test_other_calls_are_refused(library, call, status, words):
    assert library.call(call) == (status, words, [])
