"""Calls the C interface with random arguments: fuzzed_calls.py LIBRARY.

Each call ends in a status. Any status except FA_OK comes with words. Launches are within the hardware's
limits.  test_interface.py runs this in a separate process: undefined behaviour kills it.
"""

import faulthandler
import sys

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.host.interface import (
    BF16,
    BOOL,
    E4M3FN,
    FP16,
    FP32,
    INT8,
    INT32,
    INT64,
    INTERNAL,
    MOST_DIMS,
    OK,
    AppendCall,
    BwdCall,
    FaTensor,
    FwdCall,
    Library,
    MlaCall,
    tensor,
)
from wheel_builder.tables.kinds import BACKWARD, FORWARD, FP8, LATENT, answering, known_kinds

SOME = settings(
    max_examples=1500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
MOST_GRID_YZ, MOST_THREADS_X, MOST_BLOCK = 65535, 2**32 - 1, 1024
EDGES = [0, 1, 2, 3, 8, 16, 64, 2**16, 2**24, 2**30, 2**31 - 1, 2**31, 2**32, 2**40, 2**46, 2**62, 2**63 - 1]
integers = st.one_of(st.sampled_from(EDGES + [-each for each in EDGES] + [-(2**63)]), st.integers(-9, 300))
NAMED = {**answering(known_kinds(), FORWARD, LATENT, FP8), **answering(known_kinds(), BACKWARD)}
PATHS = [None, b"", b"other", *map(str.encode, NAMED)]
LIBRARY = Library(sys.argv[1])


def forward(**more):
    q, k, v, out = (tensor([2, n, h, 64]) for n, h in ((5, 4), (7, 2), (7, 2), (5, 4)))
    call = {"q": q, "k": k, "v": v, "out": out, "lse": tensor([2, 4, 5], FP32)}
    rules = {"softmax_scale": 0.125, "window_left": -1, "window_right": -1}
    return FwdCall(**call | rules | more)


def long():
    q = {name: tensor([2, 5000, 4, 64]) for name in ("q", "out")}
    return forward(**q, lse=tensor([2, 4, 5000], FP32), dropout_p=0.5, rng_state=tensor([2], INT64))


def in_parts():
    cache = {name: tensor([2, 300, 2, 64]) for name in ("k", "v")}
    return forward(
        **cache, partial_out=tensor([3, 2, 4, 5, 64], FP32), partial_lse=tensor([3, 2, 4, 5], FP32)
    )


def any_head_dim():
    q, k, v, out = (tensor([2, n, h, 80]) for n, h in ((5, 4), (7, 2), (7, 2), (5, 4)))
    return forward(q=q, k=k, v=v, out=out)


def masked():
    return forward(attn_mask=tensor([2, 4, 5, 8], BOOL))


def packed():
    cu = {name: tensor([3], INT32) for name in ("cu_seqlens_q", "cu_seqlens_k")}
    q, k, v, out = (tensor([n, h, 64]) for n, h in ((10, 4), (14, 2), (14, 2), (10, 4)))
    sizes = {"lse": tensor([4, 10], FP32), "max_seqlen_q": 5, "max_seqlen_k": 7}
    return forward(q=q, k=k, v=v, out=out, **sizes, **cu)


def paged():
    pages = {name: tensor([9, 16, 2, 64]) for name in ("k", "v")}
    return forward(**pages, block_table=tensor([2, 3], INT32), seqused_k=tensor([2], INT32))


def append(**more):
    new = {name: tensor([2, 3, 2, 64]) for name in ("k", "v")}
    caches = {name: tensor([2, 32, 2, 64]) for name in ("k_cache", "v_cache")}
    q, lengths = tensor([2, 5, 4, 64]), tensor([2], INT32)
    return AppendCall(**{"q": q, "cache_seqlens": lengths} | new | caches | more)


def rotary():
    angles = {name: tensor([40, 16]) for name in ("cos", "sin")}
    return append(**angles, q_out=tensor([2, 5, 4, 64]), cache_batch_idx=tensor([2], INT32))


def append_to_pages():
    return append(block_table=tensor([2, 2], INT32))


def latent(*, dtype=FP16, **more):
    q, out, cache = (tensor([2, *sizes], dtype) for sizes in ((3, 20, 576), (3, 20, 512), (70, 1, 576)))
    call = {"q": q, "kv_cache": cache, "out": out, "lse": tensor([2, 20, 3], FP32), "softmax_scale": 0.1}
    return MlaCall(**call | more)


def latent_in_parts():
    parts = {"partial_out": tensor([3, 2, 20, 3, 512], FP32), "partial_lse": tensor([3, 2, 20, 3], FP32)}
    return latent(**parts, cache_seqlens=tensor([2], INT32))


def latent_codes():
    cache = {"kv_cache": tensor([9, 16, 1, 576], INT8), "block_table": tensor([2, 3], INT32)}
    return latent(**cache, dtype=BF16, kv_descale=tensor([9, 16, 1], FP32), causal=1)


def latent_rows():
    cache = {"kv_cache": tensor([9, 16, 1, 656], E4M3FN), "block_table": tensor([2, 3], INT32)}
    return latent(**cache, dtype=BF16, causal=1)


def latent_pages():
    return latent(kv_cache=tensor([9, 16, 1, 576]), block_table=tensor([2, 3], INT32), causal=1)


def backward(*, ragged=False):
    batch, lengths = ([], (10, 14)) if ragged else ([2], (5, 7))
    rows, keys = lengths
    q = {name: tensor([*batch, rows, 4, 64]) for name in ("q", "out", "dout", "dq")}
    kv = {name: tensor([*batch, keys, 2, 64]) for name in ("k", "v", "dk", "dv")}
    sums = {name: tensor([*batch, 4, rows], FP32) for name in ("lse", "delta")}
    return BwdCall(**q | kv | sums, softmax_scale=0.125, window_left=-1, window_right=-1)


def masked_gradients():
    call = backward()
    call.attn_mask, call.dscores = tensor([2, 4, 5, 8]), tensor([2, 4, 5, 8], FP32)
    return call


def fused_gradients():
    call = backward()
    call.dq_sums = tensor([2 * 32 * 4 * 64], FP32)
    return call


def ragged_backward():
    call = backward(ragged=True)
    call.cu_seqlens_q = call.cu_seqlens_k = tensor([3], INT32)
    call.max_seqlen_q, call.max_seqlen_k = 5, 7
    return call


@st.composite
def changed(draw, call):
    """The call with a few changes."""
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from([name for name, _ in call._fields_ if name != "stream"]))
        field = getattr(call, name)
        if isinstance(field, FaTensor):
            change(draw, field)
        elif name == "path":
            setattr(call, name, draw(st.sampled_from(PATHS)))
        elif isinstance(field, float):
            setattr(call, name, draw(st.floats(width=32)))
        else:
            setattr(call, name, draw(integers))
    return call


def change(draw, field):
    what = draw(st.sampled_from(["size", "size", "stride", "stride", "data", "dtype", "device", "dims"]))
    if what in {"size", "stride"}:
        place = draw(st.integers(0, MOST_DIMS - 1))
        getattr(field, what)[place] = draw(integers)
    elif what == "data":
        field.data = draw(st.sampled_from([None, 1, 2, 8, 2**64 - 2]))
    else:
        setattr(field, what, draw(st.one_of(st.integers(-2, 7), st.sampled_from([-(2**31), 2**31 - 1]))))


CALLS = [
    forward, long, in_parts, any_head_dim, masked, packed, paged, append, rotary, append_to_pages, backward,
    ragged_backward, fused_gradients, masked_gradients, latent, latent_in_parts, latent_codes, latent_rows,
    latent_pages,
]  # fmt: skip
calls = st.sampled_from(CALLS).flatmap(lambda make: changed(make()))


@SOME
@given(calls)
def answers(call):
    status, words, launches = LIBRARY.call(call)
    assert OK <= status < INTERNAL, words
    assert bool(words) == (status != OK)
    assert status == OK or not launches
    for _, grid, block in launches:
        assert min(grid + block) >= 1, (grid, block)
        assert max(grid[1:]) <= MOST_GRID_YZ, grid
        assert grid[0] * block[0] <= MOST_THREADS_X, (grid, block)
        assert block[0] * block[1] * block[2] <= MOST_BLOCK, block


if __name__ == "__main__":
    faulthandler.enable()
    for make in CALLS:
        status, words, launches = LIBRARY.call(make())
        assert status == OK, words
        assert launches, "the calls that are changed are right to begin with"
    answers()
