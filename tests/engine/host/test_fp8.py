"""The C interface of products of fp8: checks and launches."""

import pytest

from tests.engine.host.interface import (
    BF16,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    FP16,
    FP32,
    INT32,
    INVALID,
    OK,
    UNSUPPORTED,
    Fp8Call,
    tensor,
)

KERNEL = "fa_fwd_fp8_bf16_d128"


def call(rows=300, keys=200, *, batch=2, heads=(4, 2), dtype=E4M3FN, answers=BF16, head_dim=128, **changes):
    given = {
        "q": tensor([batch, rows, heads[0], head_dim], dtype),
        "k": tensor([batch, keys, heads[1], head_dim], dtype),
        "v": tensor([batch, keys, heads[1], head_dim], dtype),
        "out": tensor([batch, rows, heads[0], head_dim], answers),
        "lse": tensor([batch, heads[0], rows], FP32),
        "softmax_scale": 0.1, "window_left": -1, "window_right": -1,
    }  # fmt: skip
    return Fp8Call(**given | changes)


PACKED = {
    "q": tensor([300, 4, 128], E4M3FN), "k": tensor([200, 2, 128], E4M3FN),
    "v": tensor([200, 2, 128], E4M3FN), "out": tensor([300, 4, 128], BF16), "lse": tensor([4, 300], FP32),
    "cu_seqlens_q": tensor([4], INT32), "cu_seqlens_k": tensor([4], INT32), "max_seqlen_q": 250,
    "max_seqlen_k": 100,
}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "grids"),
    [
        (call(), [(2, 4, 2)]),
        (call(256), [(1, 4, 2)]),
        (call(dtype=E4M3FNUZ), [(2, 4, 2)]),
        (call(keys=0), [(2, 4, 2)]),
        (call(**PACKED), [(1, 4, 3)]),
        (call(q_descale=tensor([2, 2], FP32), v_descale=tensor([2, 2], FP32, strides=(0, 0))), [(2, 4, 2)]),
        (call(batch=0), []),
        (call(0), []),
    ],
)
def test_launches(library, given, grids):
    status, words, launches = library.call(given)
    assert (status, words) == (OK, "")
    # The order of heads and blocks may change the grid, not its size.
    assert [(each.kernel, each.block) for each in launches] == [(KERNEL, (512, 1, 1))] * len(grids)
    for each, (x, y, z) in zip(launches, grids, strict=True):
        assert (each.grid[0] * each.grid[1], each.grid[2]) == (x * y, z)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (call(dtype=E5M2), "q: expected dtype float8_e4m3fn or float8_e4m3fnuz, got"),
        (call(k=tensor([2, 200, 2, 128], E4M3FNUZ)), "k: expected dtype"),
        (call(answers=FP32), "out: expected dtype fp16 or bf16"),
        (call(v=tensor([2, 100, 2, 128], E4M3FN)), "v: expected shape (2, 200, 2, 128), got shape"),
        (call(heads=(3, 2)), "q: expected a positive number of heads that is a multiple of k's 2, got 3"),
        (call(k_descale=tensor([2, 4], FP32)), "k_descale: expected shape (2, 2), got shape (2, 4)"),
        (call(cu_seqlens_k=tensor([3], INT32)), "cu_seqlens_q, cu_seqlens_k: expected both or none"),
        (
            call(q=tensor([2, 300, 4, 128], E4M3FN, strides=(400000, 520, 130, 1))),
            "q: expected a contiguous last dimension, an address and other strides that are multiples of 16",
        ),
        (call(softmax_scale=float("nan")), "softmax_scale: expected a finite number, got nan"),
        (call(**PACKED | {"max_seqlen_q": -1}), "max_seqlen_q, max_seqlen_k: expected at least 0"),
    ],
)
def test_wrong_arguments(library, given, words):
    status, found, launches = library.call(given)
    assert (status, launches) == (INVALID, [])
    assert found.startswith("flash_attn_rocm::fwd_fp8 cannot use its arguments:\n  - ")
    assert words in found


@pytest.mark.parametrize("given", [call(head_dim=32), call(answers=FP16)])
def test_without_a_kernel(library, given):
    status, found, launches = library.call(given)
    assert (status, launches) == (UNSUPPORTED, [])
    assert "fwd_fp8" in found
