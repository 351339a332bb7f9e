"""Differentiable attention of dense and packed sequences, with FlashAttention 3's arguments."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from flash_attn_rocm import FlashAttnArgumentError, flash_attn_func, flash_attn_varlen_func
from flash_attn_rocm.interfaces import integer, pair
from flash_attn_rocm.pieces import Pieces, Span, cut, dense, flat, packed
from torch import Tensor

from flash_attn_3._refused import is_fp8

Two = tuple[Tensor, Tensor]


class Rules(NamedTuple):
    """How to attend, as the public functions are told."""

    softmax_scale: float | None = None
    causal: bool = False
    window_size: Any = (-1, -1)
    attention_chunk: int = 0
    softcap: float = 0.0
    deterministic: bool = False
    s_aux: Tensor | None = None

    @property
    def of_flash_attn(self) -> dict[str, Any]:
        """The arguments of flash_attn_rocm's functions."""
        return {
            "softmax_scale": self.softmax_scale, "causal": self.causal, "softcap": self.softcap,
            "window_size": self.window_size, "deterministic": self.deterministic, "return_attn_probs": True,
            "sink": self.s_aux,
        }  # fmt: skip


class Descales(NamedTuple):
    """Of q, k and v of 8 bits, (batch, nheads_k) fp32. None is 1."""

    q: Tensor | None = None
    k: Tensor | None = None
    v: Tensor | None = None

    @property
    def of_flash_attn(self) -> dict[str, Any]:
        """The arguments of flash_attn_rocm's functions."""
        return {f"{name}_descale": x for name, x in self._asdict().items()}

    def problems(self, size: tuple[int, int]) -> list[str]:
        """Those with another shape."""
        given = {name: x for name, x in self.of_flash_attn.items() if x is not None}
        return [
            f"{name}: expected shape {size}, got {tuple(x.shape)}"
            for name, x in given.items()
            if tuple(x.shape) != size
        ]

    def of_pieces(self, count: int) -> "Descales":
        """Of sequences in so many pieces each."""
        return Descales(*(None if x is None else x.repeat_interleave(count, 0) for x in self))


NUMBERS = Descales()  # of tensors of 16 bits


class Lengths(NamedTuple):
    """The places of sequences in q, k and v, packed ones by cu_seqlens_q and cu_seqlens_k, and their used
    lengths.
    ``leftpad_k`` is only for a dense k."""

    cu_seqlens_q: Tensor | None = None
    cu_seqlens_k: Tensor | None = None
    seqused_q: Tensor | None = None
    seqused_k: Tensor | None = None
    leftpad_k: Tensor | None = None
    max_seqlen_q: Any = None
    max_seqlen_k: Any = None

    def batch(self, q: Tensor) -> int:
        """How many sequences there are."""
        return q.shape[0] if self.cu_seqlens_q is None else len(self.cu_seqlens_q) - 1

    def most(self, q: Tensor, k: Tensor) -> tuple[Any, Any]:
        """Rows and keys of the longest sequence: integers, or tensors of one element, for valid arguments."""
        most_q = _length(q) if self.cu_seqlens_q is None else self.max_seqlen_q
        return most_q, _length(k) if self.cu_seqlens_k is None else self.max_seqlen_k


def attend(
    q: Tensor, k: Tensor, v: Tensor, lengths: Lengths, rules: Rules, descales: Descales = NUMBERS
) -> Two:
    """out, shaped like q with the headdim of v, and the log-sum-exp: (batch, nheads, seqlen_q), or (nheads,
    total_q) for packed q; +inf for a row that sees no key, as in flash_attn 2."""
    check_chunk(rules.attention_chunk)
    most = lengths.most(q, k)
    beyond = right_beyond_keys(rules, *most)
    if not beyond and not rules.attention_chunk and _all_none(lengths[2:5]):
        if _all_none(lengths[:2]):
            return flash_attn_func(q, k, v, **rules.of_flash_attn, **descales.of_flash_attn)[:2]
        if lengths.cu_seqlens_q is not None and lengths.cu_seqlens_k is not None:
            given = {**rules.of_flash_attn, **descales.of_flash_attn}
            return flash_attn_varlen_func(q, k, v, *lengths[:2], *lengths[5:], **given)[:2]
    return _in_pieces(q, k, v, lengths, rules, beyond, descales)


def pieces_of(q: Tensor, k: Tensor, lengths: Lengths, chunk: int) -> Pieces:
    """The pieces of checked arguments."""
    most_q, most_k = map(int, lengths.most(q, k))
    if chunk and lengths.cu_seqlens_q is None and _all_none(lengths[1:5]):
        # With all lengths known, a piece has at most a chunk of rows, or the rows before position 0 if more.
        most_q = max(most_q - most_k, min(chunk, most_q))
    return cut(_rows(q, lengths), _keys(k, lengths), chunk, most_q, most_k)


def as_3(lse: Tensor) -> Tensor:
    """The log-sum-exp in FlashAttention 3's form: -inf for a row that sees no key."""
    return torch.where(lse.isposinf(), -torch.inf, lse)


def as_2(lse: Tensor) -> Tensor:
    """The reverse."""
    return torch.where(lse.isneginf(), torch.inf, lse)


def _in_pieces(
    q: Tensor, k: Tensor, v: Tensor, lengths: Lengths, rules: Rules, beyond: int, descales: Descales
) -> Two:
    _check(q, k, v, lengths, descales)
    batch = lengths.batch(q)
    if not batch:
        dtype = torch.bfloat16 if is_fp8(q) else q.dtype
        out = q.new_empty(*q.shape[:-1], v.shape[-1], dtype=dtype)
        return out, q.new_empty(_lse_shape(q), dtype=torch.float32)
    made = pieces_of(q, k, lengths, rules.attention_chunk)
    made = made._replace(max_seqlen_k=max(made.max_seqlen_k, beyond))
    own = descales.of_pieces((len(made.cu_seqlens_q) - 1) // batch)
    given = {**rules.of_flash_attn, **own.of_flash_attn}
    out, lse, _ = flash_attn_varlen_func(flat(q), flat(k), flat(v), *made, **given)
    if q.dim() == 3:
        return out, lse
    return out.unflatten(0, q.shape[:2]), lse.unflatten(-1, q.shape[:2]).transpose(0, 1).contiguous()


def _length(x: Any) -> int:  # noqa: ANN401 - yet unchecked
    return x.shape[1] if isinstance(x, Tensor) and x.dim() == 4 else 0


def _lse_shape(q: Tensor) -> tuple[int, ...]:
    *rows, nheads, _ = q.shape
    return (*rows[:-1], nheads, rows[-1])


def _rows(q: Tensor, lengths: Lengths) -> Span:
    if lengths.cu_seqlens_q is None:
        return dense(q.shape[0], q.shape[1], q.device, last=lengths.seqused_q)
    return packed(lengths.cu_seqlens_q, lengths.seqused_q)


def _keys(k: Tensor, lengths: Lengths) -> Span:
    if lengths.cu_seqlens_k is None:
        batch, length = k.shape[:2]
        return dense(batch, length, k.device, first=lengths.leftpad_k, last=lengths.seqused_k)
    return packed(lengths.cu_seqlens_k, lengths.seqused_k)


def with_sides_that_hide(rules: Rules, max_seqlen_q: Any, max_seqlen_k: Any) -> Rules:  # noqa: ANN401
    """The rules without a side of the window that hides no key. FlashAttention 3 drops it too."""
    window, most_q, most_k = pair(rules.window_size), integer(max_seqlen_q), integer(max_seqlen_k)
    if window is None or most_q is None or most_k is None:
        return rules  # flash_attn_rocm reports the problem
    left, right = window
    return rules._replace(
        window_size=(left if left < most_k - 1 else -1, right if right < most_q - 1 else -1)
    )


def right_beyond_keys(rules: Rules, max_seqlen_q: Any, max_seqlen_k: Any) -> int:  # noqa: ANN401
    """The max_seqlen_k to pass so that flash_attn 2 keeps the window, or 0.

    flash_attn 2 drops a right side of max_seqlen_k or more. With more rows than keys such a side hides keys.
    FlashAttention 3 drops a side of max_seqlen_q - 1 or more, which hides none.
    """
    window = pair(rules.window_size)
    if rules.causal or window is None or window[1] <= 0:  # flash_attn_rocm reports the problem of a window
        return 0
    most_q, most_k = integer(max_seqlen_q), integer(max_seqlen_k)
    if most_q is None or most_k is None:
        return 0
    return window[1] + 1 if most_k <= window[1] < most_q - 1 else 0


def check_chunk(chunk: Any) -> None:  # noqa: ANN401 - that it is one is the question
    """Raise FlashAttnArgumentError for an invalid attention_chunk."""
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 0:
        problem = f"attention_chunk: expected an integer of 0 (none) or more, got {chunk!r}"
        raise FlashAttnArgumentError(problem)


def _all_none(found: Iterable[object]) -> bool:
    return all(each is None for each in found)


def _check(q: Tensor, k: Tensor, v: Tensor, lengths: Lengths, descales: Descales) -> None:
    """Raise FlashAttnArgumentError for arguments unfit for cutting. Then flash_attn_varlen_func checks the
    rest."""
    batch = lengths.batch(q)
    found = []
    for name, x, cut_by in (("q", q, lengths[0]), ("k", k, lengths[1]), ("v", v, lengths[1])):
        dims = 4 if cut_by is None else 3
        if x.dim() != dims:
            found.append(f"{name}: expected {dims} dimensions, got shape {tuple(x.shape)}")
    for name, longest, cut_by in zip(Lengths._fields[5:], lengths[5:], lengths[:2], strict=True):
        if cut_by is not None and integer(longest) is None:
            found.append(f"{name}: expected an integer, got {longest}")
    if lengths.cu_seqlens_k is None and k.shape[0] != batch:
        found.append(f"k: expected batch {batch} like q, got shape {tuple(k.shape)}")
    for name, x in zip(Lengths._fields[:5], lengths[:5], strict=True):
        size = (batch + 1,) if name.startswith("cu_") else (batch,)
        if x is not None and (tuple(x.shape) != size or x.dtype != torch.int32 or x.device != q.device):
            got = f"{x.dtype} {tuple(x.shape)} on {x.device}"
            found.append(f"{name}: expected torch.int32 {size} on {q.device}, got {got}")
    found += descales.problems((batch, k.shape[-2]))
    if found:
        raise FlashAttnArgumentError("\n".join(["flash-attn-3 cannot use its arguments:", *found]))
