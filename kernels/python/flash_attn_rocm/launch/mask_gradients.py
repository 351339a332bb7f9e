"""The gradient of a bias: kernels write each score's, and PyTorch sums over the bias's size-1 dimensions.

The scores' gradients are as large as all scores, so each launch takes a part of the heads and sequences. With
dropout, which numbers heads and sequences, one launch takes all. Sums always have the same order, so equal
calls give equal bits.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.launch.watched import Part, part_of
from flash_attn_rocm.library.host import LIMITS

# most scores with gradients in memory at once, 256 MiB, unless one group of heads has more
MOST_SCORES = 1 << 26


def launch(bwd: Callable[..., None], arguments: Mapping[str, Any], gradient: Tensor) -> None:
    """Launch ``bwd`` part by part and add the bias's gradient to ``gradient``: fp32, shaped like the bias."""
    q, k = arguments["q"], arguments["k"]
    (batch, rows, nheads, _), (_, keys, nheads_k, _) = q.shape, k.shape
    width = keys + -keys % LIMITS.alignment
    most = MOST_SCORES if arguments["dropout_p"] == 0.0 else batch * nheads * rows * width
    for part in _parts(batch, nheads_k, nheads // nheads_k, rows * width, most):
        some = {name: part_of(name, x, part, packed=False, pages=False) for name, x in arguments.items()}
        sizes = (some["q"].shape[0], some["q"].shape[2], rows, width)
        some["dscores"] = q.new_zeros(sizes, dtype=torch.float32)
        bwd(*some.values())
        _add(some["dscores"][..., :keys], _of(gradient, part))


def _parts(batch: int, nheads_k: int, group: int, scores: int, most: int) -> Iterator[Part]:
    """All at once up to ``most`` scores, otherwise some heads of one sequence."""
    heads = min(nheads_k, max(1, most // max(1, group * scores)))
    step = batch if heads == nheads_k and batch * heads * group * scores <= most else 1
    for at in range(0, batch, step):
        for head in range(0, nheads_k, heads):
            yield Part(slice(at, at + step), slice(head, min(head + heads, nheads_k)), group)


def _of(gradient: Tensor, part: Part) -> Tensor:
    found = gradient if gradient.shape[0] == 1 else gradient[part.sequences]
    return found if gradient.shape[1] == 1 else found[:, part.heads_q]


def _add(scores: Tensor, to: Tensor) -> None:
    same = [axis for axis in range(4) if to.shape[axis] == 1 and scores.shape[axis] > 1]
    to += scores.sum(same, keepdim=True) if same else scores
