"""The C interface of attention in 8 bits: checks and launches."""

import pytest

from tests.engine.host.interface import (
    BF16,
    E4M3FN,
    FP16,
    FP32,
    INVALID,
    OK,
    UNSUPPORTED,
    Int8Call,
    tensor,
)


def floats(batch, rows, keys, heads, heads_k, head_dim):
    """Of the workspace, as fa_rocm.h says."""
    of_q, of_k = batch * rows * heads, batch * keys * heads_k
    codes = (of_q + 2 * of_k) * head_dim // 4
    return codes + of_q + batch * heads_k * (-(-keys // 64) * 2 + 1 + -(-keys // 256))


def call(rows=300, keys=200, *, batch=2, heads=(4, 2), dtype=FP16, head_dim=128, **changes):
    given = {
        "q": tensor([batch, rows, heads[0], head_dim], dtype),
        "k": tensor([batch, keys, heads[1], head_dim], dtype),
        "v": tensor([batch, keys, heads[1], head_dim], dtype),
        "workspace": tensor([floats(batch, rows, keys, *heads, head_dim)], FP32),
        "out": tensor([batch, rows, heads[0], head_dim], dtype),
        "lse": tensor([batch, heads[0], rows], FP32),
        "softmax_scale": 0.1, "window_left": -1, "window_right": -1,
    }  # fmt: skip
    return Int8Call(**given | changes)


def test_a_call_without_rows_launches_nothing(library):
    assert library.call(call(rows=0)) == (OK, "", [])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            call(workspace=tensor([100], FP32)),
            f"workspace: expected shape ({floats(2, 300, 200, 4, 2, 128)}), got shape (100)",
        ),
        (
            call(keys=257, workspace=tensor([68046], FP32)),
            f"expected shape ({floats(2, 300, 257, 4, 2, 128)})",
        ),
        (call(v=tensor([2, 200, 2, 64], FP16)), "v: expected shape (2, 200, 2, 128), got shape"),
        (call(k=tensor([2, 200, 2, 128], BF16)), "k: expected dtype fp16, got bf16"),
        (call(q=tensor([2, 300, 4, 128], E4M3FN)), "q: expected dtype fp16 or bf16, got"),
        (call(heads=(3, 2)), "q: expected a positive number of heads that is a multiple of k's 2, got 3"),
        (call(softmax_scale=float("nan")), "softmax_scale: expected a finite number, got nan"),
        (call(lse=tensor([4, 300], FP32)), "lse: expected 3 dimensions"),
        (call(rows=3, batch=30000), "3 * batch: expected at most 65535, got 90000"),
    ],
)
def test_wrong_arguments(library, given, words):
    status, found, launches = library.call(given)
    assert (status, launches) == (INVALID, [])
    assert found.startswith("flash_attn_rocm::fwd_int8 cannot use its arguments:\n  - ")
    assert words in found


def test_without_a_kernel(library):
    """On gfx942. Launches: tests/installed/fake_hip/test_int8.py."""
    status, found, launches = library.call(call())
    assert (status, launches) == (UNSUPPORTED, [])
    assert "fwd_int8" in found
