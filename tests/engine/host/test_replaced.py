"""A kernel with another row of the table of tiles takes the place of the library's own, and gives it back."""

import pytest

from tests.engine.host.interface import FP32, INVALID, OK, RUNTIME_ERROR, BwdCall, FwdCall, tensor
from wheel_builder.files.device.packing import packed

FORWARD, KEYS = "fa_fwd_fp16_d64", "fa_bwd_dkdv_fp16_d64"
# The fake runtime's code objects are their kernels' names.
CODE = packed("gfx942", {"11111111": b"another", "22222222": FORWARD.encode(), "33333333": KEYS.encode()})


def forward(rows=1000, keys=None, *, heads_k=4, right=-1):
    """``keys``: as many as rows. ``right``: 0 is causal."""
    sizes = {"q": (rows, 4), "k": (keys or rows, heads_k), "v": (keys or rows, heads_k), "out": (rows, 4)}
    heads = {name: tensor([1, *each, 64]) for name, each in sizes.items()}
    given = {
        "lse": tensor([1, 4, rows], FP32),
        "softmax_scale": 1.0,
        "window_left": -1,
        "window_right": right,
    }
    return FwdCall(**heads | given)


def backward(rows=1000, *, right=-1):
    heads = {name: tensor([1, rows, 4, 64]) for name in ("q", "k", "v", "out", "dout", "dq", "dk", "dv")}
    sums = {name: tensor([1, 4, rows], FP32) for name in ("lse", "delta")}
    given = {"softmax_scale": 1.0, "window_left": -1, "window_right": right}
    return BwdCall(**heads | sums | given)


@pytest.fixture
def replace(library):
    """``fa_replace``: status and words. At the end all is as before."""

    def run(kernel=FORWARD, row="22222222", code=CODE, **given):
        given = {"device": 0, "place": 1, "rows": 96, "threads": 192, "regime": ""} | given
        return library.replace(kernel=kernel, row=row, code=code, **given)

    yield run
    for kernel in (FORWARD, KEYS):
        assert run(kernel, "")[0] == OK


def launched(library, call):
    status, words, launches = library.call(call)
    assert (status, words) == (OK, "")
    return {each.kernel: (each.grid[0], each.block[0]) for each in launches}


def test_a_candidate_divides_the_work_as_it_was_compiled(library, replace):
    shipped = launched(library, forward())
    assert replace() == (OK, "")
    assert launched(library, forward()) == {FORWARD: (11, 192)} != shipped
    assert replace(row="")[0] == OK
    assert launched(library, forward()) == shipped


def test_only_its_own_kernel_is_replaced(library, replace):
    shipped = launched(library, backward())
    assert replace(KEYS, "33333333", place=2, rows=100, threads=64) == (OK, "")
    assert launched(library, backward()) == shipped | {KEYS: (10, 64)}


CALLS = {
    "short": forward,
    "gqa": lambda: forward(heads_k=2),
    "causal": lambda: forward(heads_k=2, right=0),
    "long": lambda: forward(2048),
    "long-gqa": lambda: forward(2048, heads_k=1),
    "long-causal": lambda: forward(2048, right=0),
}


@pytest.mark.parametrize("regime", CALLS)
def test_a_row_of_a_regime_serves_its_calls_alone(library, replace, regime):
    shipped = {name: launched(library, call()) for name, call in CALLS.items()}
    assert replace(regime=regime) == (OK, "")
    found = {name: launched(library, call())[FORWARD][1] for name, call in CALLS.items()}
    assert [name for name, threads in found.items() if threads == 192] == [regime]
    assert replace(row="")[0] == OK, "of all regimes"
    assert {name: launched(library, call()) for name, call in CALLS.items()} == shipped


def test_two_regimes_have_two_rows(library, replace):
    assert replace(row="55555555", threads=64)[0] == OK
    assert replace(regime="causal")[0] == OK
    assert replace(row="", regime="long")[0] == OK
    found = {name: launched(library, call())[FORWARD][1] for name, call in CALLS.items()}
    assert (found.pop("causal"), found.pop("long") in (64, 192)) == (192, False)
    assert set(found.values()) == {64}


def test_gradients_have_regimes_too(library, replace):
    shipped = launched(library, backward())
    assert replace(KEYS, "33333333", place=2, rows=100, threads=64, regime="causal") == (OK, "")
    assert launched(library, backward()) == shipped
    assert launched(library, backward(right=0))[KEYS] == (40, 64)  # four heads beside each other


def test_a_loaded_row_is_not_loaded_again(library, replace):
    assert replace()[0] == OK
    assert replace(row="")[0] == OK
    assert replace(code=b"nothing")[0] == OK
    assert launched(library, forward()) == {FORWARD: (11, 192)}


def test_another_device_keeps_its_kernel(library, replace):
    assert replace(device=1)[0] == OK
    assert launched(library, forward())[FORWARD][1] != 192
    assert replace(row="", device=1)[0] == OK


REFUSED = {
    "an unknown kernel": ({"kernel": "fa_fwd_fp16_d65"}, "kernel: expected one with rows of its own on gfx9"),
    "no rows": ({"kernel": "fa_append_fp16"}, "kernel: expected one with rows of its own on gfx942"),
    "latent attention": ({"kernel": "fa_mla_fp16_d576"}, "kernel: expected one with rows of its own"),
    "latent attention over 8 bits": (
        {"kernel": "fa_mla_8bit_bf16_d576"},
        "kernel: expected one with rows of its own",
    ),
    "no bundle": ({"code": b"nothing"}, "code: it is no compressed bundle of code objects"),
    "damaged": ({"code": CODE[:-9]}, "code: it is no compressed bundle of code objects"),
    "another arch": (
        {"code": packed("gfx90a", {"a": b"a"})}, "code: it has no code objects for gfx942",
    ),
    "place": ({"place": 3}, "place: expected 0 to 2, got 3"),
    "before the first": ({"place": -1}, "place: expected 0 to 2, got -1"),
    "rows": ({"rows": 0}, "rows: expected 1 to 1024, got 0"),
    "threads": ({"threads": 2048}, "threads: expected 1 to 1024, got 2048"),
    "regime": ({"regime": "wide"}, "regime: expected one of decode, long-causal, long-gqa, "),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_candidate_that_does_not_fit_is_refused(library, replace, why):
    shipped = launched(library, forward())
    change, words = REFUSED[why]
    status, found = replace(**{"row": "44444444"} | change)
    assert status == INVALID
    assert f"flash_attn_rocm::replace cannot use its arguments:\n  - {words}" in found
    assert launched(library, forward()) == shipped


def test_a_candidate_that_does_not_load_changes_nothing(library, replace):
    """Its code object holds another kernel. The library's own is still used."""
    shipped = launched(library, forward())
    status, words = replace(row="11111111", place=0)
    assert status == RUNTIME_ERROR
    assert words.startswith(
        "finding the kernel fa_fwd_fp16_d64 with row 11111111 on device 0 (gfx942) failed"
    )
    assert launched(library, forward()) == shipped
