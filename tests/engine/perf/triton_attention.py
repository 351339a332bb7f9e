"""FlashAttention-2 in Triton, forward and backward: the peer of our kernels' measurements.

A plain first version by someone who knows Triton: online softmax in base 2, one K/V tile a step, a backward
of two kernels that recompute the scores and use no atomics.  Whole tiles only.

All tensors are (heads, seqlen, head_dim), contiguous. ``lse`` and ``delta`` are (heads, seqlen) float32.
``lse`` is in base 2 and includes the scale.  ``scale`` is softmax_scale * log2(e).
"""

import triton
import triton.language as tl


@triton.jit
def _tile(base, head, seqlen, start, ROWS: tl.constexpr, D: tl.constexpr):
    """Addresses of ROWS whole rows of one head, from row ``start``."""
    rows = start + tl.arange(0, ROWS)
    return base + (head * seqlen + rows)[:, None] * D + tl.arange(0, D)[None, :]


@triton.jit
def forward(
    q, k, v, out, lse, seqlen_q, seqlen_k, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Grid: (seqlen_q / BLOCK_M, heads).  Causal is for seqlen_q == seqlen_k."""
    head = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_M
    rows = start + tl.arange(0, BLOCK_M)
    queries = tl.load(_tile(q, head, seqlen_q, start, BLOCK_M, D))
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    whole = seqlen_k
    if CAUSAL:
        whole = start
    for begin in range(0, whole, BLOCK_N):
        keys = tl.load(_tile(k, head, seqlen_k, begin, BLOCK_N, D))
        scores = tl.dot(queries, tl.trans(keys)) * scale
        new_top = tl.maximum(top, tl.max(scores, 1))
        p = tl.math.exp2(scores - new_top[:, None])
        shrink = tl.math.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(_tile(v, head, seqlen_k, begin, BLOCK_N, D))
        acc = tl.dot(p.to(v.dtype.element_ty), values, acc * shrink[:, None])
        top = new_top
    if CAUSAL:
        for begin in range(start, start + BLOCK_M, BLOCK_N):
            keys = tl.load(_tile(k, head, seqlen_k, begin, BLOCK_N, D))
            scores = tl.dot(queries, tl.trans(keys)) * scale
            seen = (begin + tl.arange(0, BLOCK_N))[None, :] <= rows[:, None]
            scores = tl.where(seen, scores, float("-inf"))
            new_top = tl.maximum(top, tl.max(scores, 1))
            p = tl.math.exp2(scores - new_top[:, None])
            shrink = tl.math.exp2(top - new_top)
            total = total * shrink + tl.sum(p, 1)
            values = tl.load(_tile(v, head, seqlen_k, begin, BLOCK_N, D))
            acc = tl.dot(p.to(v.dtype.element_ty), values, acc * shrink[:, None])
            top = new_top
    acc = acc / total[:, None]
    tl.store(_tile(out, head, seqlen_q, start, BLOCK_M, D), acc.to(out.dtype.element_ty))
    tl.store(lse + head * seqlen_q + rows, top + tl.math.log2(total))


@triton.jit
def masked(
    q, k, v, mask, out, lse, seqlen_q, seqlen_k, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """``forward`` with ``mask`` (seqlen_q, seqlen_k), common to all heads.

    Bytes: 0 hides a key. With ``BIAS``: numbers added to scores.  Every row sees a key.  Grid: as of
    ``forward``.
    """
    head = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_M
    rows = start + tl.arange(0, BLOCK_M)
    queries = tl.load(_tile(q, head, seqlen_q, start, BLOCK_M, D))
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for begin in range(0, seqlen_k, BLOCK_N):
        keys = tl.load(_tile(k, head, seqlen_k, begin, BLOCK_N, D))
        scores = tl.dot(queries, tl.trans(keys)) * scale
        found = tl.load(mask + rows[:, None] * seqlen_k + (begin + tl.arange(0, BLOCK_N))[None, :])
        if BIAS:
            scores += found.to(tl.float32) * 1.44269504088896341
        else:
            scores = tl.where(found != 0, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        # Before a row's first visible key, the subtrahend must be finite.
        shift = tl.where(new_top == float("-inf"), 0.0, new_top)
        p = tl.math.exp2(scores - shift[:, None])
        shrink = tl.math.exp2(top - shift)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(_tile(v, head, seqlen_k, begin, BLOCK_N, D))
        acc = tl.dot(p.to(v.dtype.element_ty), values, acc * shrink[:, None])
        top = new_top
    acc = acc / total[:, None]
    tl.store(_tile(out, head, seqlen_q, start, BLOCK_M, D), acc.to(out.dtype.element_ty))
    tl.store(lse + head * seqlen_q + rows, top + tl.math.log2(total))


@triton.jit
def backward_delta(out, dout, delta, seqlen_q, D: tl.constexpr, BLOCK_M: tl.constexpr):
    """delta = rowsum(out * dout).  Grid: (seqlen_q / BLOCK_M, heads)."""
    head = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_M
    o = tl.load(_tile(out, head, seqlen_q, start, BLOCK_M, D)).to(tl.float32)
    do = tl.load(_tile(dout, head, seqlen_q, start, BLOCK_M, D)).to(tl.float32)
    tl.store(delta + head * seqlen_q + start + tl.arange(0, BLOCK_M), tl.sum(o * do, 1))


@triton.jit
def backward_dkdv(
    q, k, v, dout, lse, delta, dk, dv, seqlen_q, seqlen_k, scale, softmax_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dk and dv of BLOCK_N keys.  Grid: (seqlen_k / BLOCK_N, heads).  Causal is for seqlen_q == seqlen_k."""
    head = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_N
    keys = tl.load(_tile(k, head, seqlen_k, start, BLOCK_N, D))
    values = tl.load(_tile(v, head, seqlen_k, start, BLOCK_N, D))
    dkeys = tl.zeros([BLOCK_N, D], tl.float32)
    dvalues = tl.zeros([BLOCK_N, D], tl.float32)
    first = 0
    if CAUSAL:
        first = start // BLOCK_M * BLOCK_M
    for begin in range(first, seqlen_q, BLOCK_M):
        rows = begin + tl.arange(0, BLOCK_M)
        queries = tl.load(_tile(q, head, seqlen_q, begin, BLOCK_M, D))
        do = tl.load(_tile(dout, head, seqlen_q, begin, BLOCK_M, D))
        row_lse = tl.load(lse + head * seqlen_q + rows)
        row_delta = tl.load(delta + head * seqlen_q + rows)
        p = tl.math.exp2(tl.dot(keys, tl.trans(queries)) * scale - row_lse[None, :])
        if CAUSAL:
            p = tl.where((start + tl.arange(0, BLOCK_N))[:, None] <= rows[None, :], p, 0.0)
        dvalues = tl.dot(p.to(do.dtype), do, dvalues)
        ds = p * (tl.dot(values, tl.trans(do)) - row_delta[None, :])
        dkeys = tl.dot(ds.to(queries.dtype), queries, dkeys)
    tl.store(_tile(dk, head, seqlen_k, start, BLOCK_N, D), (dkeys * softmax_scale).to(dk.dtype.element_ty))
    tl.store(_tile(dv, head, seqlen_k, start, BLOCK_N, D), dvalues.to(dv.dtype.element_ty))


@triton.jit
def backward_dq(
    q, k, v, dout, lse, delta, dq, seqlen_q, seqlen_k, scale, softmax_scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dq of BLOCK_M queries.  Grid: (seqlen_q / BLOCK_M, heads).  Causal is for seqlen_q == seqlen_k."""
    head = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_M
    rows = start + tl.arange(0, BLOCK_M)
    queries = tl.load(_tile(q, head, seqlen_q, start, BLOCK_M, D))
    do = tl.load(_tile(dout, head, seqlen_q, start, BLOCK_M, D))
    row_lse = tl.load(lse + head * seqlen_q + rows)
    row_delta = tl.load(delta + head * seqlen_q + rows)
    dqueries = tl.zeros([BLOCK_M, D], tl.float32)
    end = seqlen_k
    if CAUSAL:
        end = start + BLOCK_M
    for begin in range(0, end, BLOCK_N):
        keys = tl.load(_tile(k, head, seqlen_k, begin, BLOCK_N, D))
        values = tl.load(_tile(v, head, seqlen_k, begin, BLOCK_N, D))
        p = tl.math.exp2(tl.dot(queries, tl.trans(keys)) * scale - row_lse[:, None])
        if CAUSAL:
            p = tl.where((begin + tl.arange(0, BLOCK_N))[None, :] <= rows[:, None], p, 0.0)
        ds = p * (tl.dot(do, tl.trans(values)) - row_delta[:, None])
        dqueries = tl.dot(ds.to(keys.dtype), keys, dqueries)
    tl.store(_tile(dq, head, seqlen_q, start, BLOCK_M, D), (dqueries * softmax_scale).to(dq.dtype.element_ty))
