"""FlashAttention 3's attention of one sequence by its definition, in the inputs' dtype."""

import torch


def visible(rows, keys, causal=False, window_size=(-1, -1), attention_chunk=0):
    """(rows, keys) bool: row i is at the position i + keys - rows."""
    left, right = window_size
    right = 0 if causal else right
    at, key = torch.arange(rows)[:, None] + keys - rows, torch.arange(keys)[None]
    found = torch.ones(rows, keys, dtype=torch.bool)
    if left >= 0:
        found &= key >= at - left
    if right >= 0:
        found &= key <= at + right
    if attention_chunk:
        found &= key // attention_chunk == at.div(attention_chunk, rounding_mode="floor")
    return found


def attend(q, k, v, s_aux=None, **rules):
    """out (rows, heads, headdim of v) and the log-sum-exp (heads, rows), -inf for a row without keys.

    s_aux (heads) is the score of one more key with the value 0.
    """
    shown = visible(len(q), len(k), **rules)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~shown, -torch.inf)
    if s_aux is not None:
        scores = torch.cat((scores, s_aux[:, None, None].expand(-1, len(q), 1)), -1)
        v = torch.cat((v, v.new_zeros(1, *v.shape[1:])))
    empty = ~shown.any(-1)
    safe = scores.masked_fill(empty[:, None], 0.0)
    shares = safe.softmax(-1).masked_fill(empty[:, None], 0.0)
    return torch.einsum("hqk,khd->qhd", shares, v), scores.logsumexp(-1).masked_fill(empty, -torch.inf)


def rotated(x, cos, sin, positions, *, interleaved):
    """x (rows, heads, headdim) by the angles at its rows' positions."""
    half = cos.shape[1]
    c, s = cos[positions][:, None], sin[positions][:, None]
    first, second = (0, 1) if interleaved else (0, half)
    step = 2 if interleaved else 1
    a = slice(first, 2 * half if interleaved else half, step)
    b = slice(second, 2 * half, step)
    found = x.clone()
    found[..., a] = x[..., a] * c - x[..., b] * s
    found[..., b] = x[..., b] * c + x[..., a] * s
    return found


def close(found, wanted):
    """Equal except for rounding: sums of a few dozen float64 numbers in another order."""
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-12)
