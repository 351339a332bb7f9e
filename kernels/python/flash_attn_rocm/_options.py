"""The arguments of attention: their rules, all problems at once, and their normal form."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
MAX_HEAD_DIM = 256


class FlashAttnArgumentError(ValueError):
    """The arguments break the function's rules; the message has all problems."""


@dataclass(frozen=True)
class Options:
    """How to attend.

    Row i, whose diagonal is d = i + seqlen_k - seqlen_q, sees the keys d - left <= j <= d + right;
    -1 is no bound, so causal attention is left -1, right 0.
    """

    softmax_scale: float
    left: int = -1
    right: int = -1
    softcap: float = 0.0
    dropout_p: float = 0.0

    @property
    def causal(self) -> bool:
        """Whether the mask is causal and nothing else."""
        return (self.left, self.right) == (-1, 0)

    @property
    def windowed(self) -> bool:
        """Whether the mask is more than causal."""
        return self.left >= 0 or self.right > 0


def resolve(
    q: Tensor,
    k: Tensor,
    *,
    softmax_scale: float | None,
    causal: bool,
    window_size: Sequence[int],
    softcap: float,
    dropout_p: float,
) -> Options:
    """The normal form of checked arguments."""
    left, right = (-1 if size < 0 or size >= k.shape[1] else size for size in window_size)
    return Options(
        softmax_scale=q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale,
        left=left,
        right=0 if causal else right,
        softcap=softcap,
        dropout_p=dropout_p,
    )


def require(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window_size: Sequence[int],
    softcap: float,
    dropout_p: float,
    alibi_slopes: Tensor | None,
) -> None:
    """Raise FlashAttnArgumentError with everything that is wrong, each with expected and given."""
    found = _dimension_problems(q, k, v) or _shape_problems(q, k, v)
    found += _placement_problems(q, k, v)
    found += _number_problems(window_size, softcap, dropout_p)
    if alibi_slopes is not None and q.dim() == 4:
        found += _alibi_problems(q, alibi_slopes)
    if found:
        message = "\n".join(["flash_attn_func cannot use its arguments:", *(f"  - {each}" for each in found)])
        raise FlashAttnArgumentError(message)


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _dimension_problems(q: Tensor, k: Tensor, v: Tensor) -> list[str]:
    names = {"q": "(batch, seqlen_q, nheads, headdim)"}
    kv = "(batch, seqlen_k, nheads_k, headdim)"
    return [
        f"{name}: expected 4 dimensions {names.get(name, kv)}, got shape {_shape(tensor)}"
        for name, tensor in (("q", q), ("k", k), ("v", v))
        if tensor.dim() != 4
    ]


def _shape_problems(q: Tensor, k: Tensor, v: Tensor) -> list[str]:
    batch, _, nheads, head_dim = q.shape
    nheads_k = k.shape[2]
    found = []
    if not 0 < head_dim <= MAX_HEAD_DIM:
        found.append(f"q: expected a headdim from 1 to {MAX_HEAD_DIM}, got {head_dim}")
    if (k.shape[0], k.shape[3]) != (batch, head_dim):
        found.append(f"k: expected batch {batch} and headdim {head_dim} like q, got shape {_shape(k)}")
    if v.shape != k.shape:
        found.append(f"v: expected the shape of k, {_shape(k)}, got {_shape(v)}")
    if nheads_k == 0 or nheads % nheads_k:
        found.append(f"q: expected a number of heads that is a multiple of k's {nheads_k}, got {nheads}")
    return found


def _placement_problems(q: Tensor, k: Tensor, v: Tensor) -> list[str]:
    found = []
    if q.dtype not in DTYPES:
        found.append(f"q: expected dtype torch.float16 or torch.bfloat16, got {q.dtype}")
    for name, tensor in (("k", k), ("v", v)):
        if tensor.dtype != q.dtype:
            found.append(f"{name}: expected dtype {q.dtype} like q, got {tensor.dtype}")
        if tensor.device != q.device:
            found.append(f"{name}: expected device {q.device} like q, got {tensor.device}")
    return found


def _number_problems(window_size: Sequence[int], softcap: float, dropout_p: float) -> list[str]:
    found = []
    if len(window_size) != 2:
        found.append(f"window_size: expected (left, right), got {window_size}")
    if not 0.0 <= dropout_p < 1.0:
        found.append(f"dropout_p: expected 0 <= dropout_p < 1, got {dropout_p}")
    if softcap < 0.0:
        found.append(f"softcap: expected 0 (none) or a positive number, got {softcap}")
    if softcap > 0.0 and dropout_p > 0.0:
        found.append("softcap: cannot be combined with dropout_p > 0")
    return found


def _alibi_problems(q: Tensor, slopes: Tensor) -> list[str]:
    batch, _, nheads, _ = q.shape
    found = []
    if tuple(slopes.shape) not in {(nheads,), (batch, nheads)}:
        found.append(f"alibi_slopes: expected shape ({nheads},) or ({batch}, {nheads}), got {_shape(slopes)}")
    if slopes.dtype != torch.float32:
        found.append(f"alibi_slopes: expected dtype torch.float32, got {slopes.dtype}")
    if slopes.device != q.device:
        found.append(f"alibi_slopes: expected device {q.device} like q, got {slopes.device}")
    return found
