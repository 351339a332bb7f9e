"""The library's operators where Windows resets GPUs that are busy for long (``resets``).

A call that may take too long in one launch is cut into several, by sequences and heads. Calls that cannot be
cut give a warning.

Each head of each sequence keeps its bits, because it is independent of the others, and all parts have the
call's path. The exception is dq of the fused kernels, whose sums have no fixed order.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import OF_KEYS
from flash_attn_rocm.diagnosis import notice
from flash_attn_rocm.library import host
from flash_attn_rocm.reference import quantising
from flash_attn_rocm.serving import resets
from flash_attn_rocm.serving.capture import is_capturing
from flash_attn_rocm.serving.resets import Sizes, Work
from flash_attn_rocm.serving.support import device_of
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.values.paths import REFERENCE

Launch = Callable[..., Any]
OF_Q = ("q", "out", "dout", "dq")
OF_K = ("k", "v", "dk", "dv", "kv_cache")
OF_ROWS = ("lse", "delta")
OF_SCORES = ("attn_mask", "dscores")
OF_DESCALES = ("q_descale", "k_descale", "v_descale")
OF_SEQUENCES = ("seqused_k", "leftpad_k", "block_table", "cache_batch_idx", "cache_seqlens")


class Part(NamedTuple):
    """Some sequences, all with these heads of k. ``group`` heads of q share one."""

    sequences: slice
    heads: slice
    group: int

    @property
    def heads_q(self) -> slice:
        """Their heads of q."""
        return slice(self.heads.start * self.group, self.heads.stop * self.group)


def forward(launch: Launch, names: Sequence[str]) -> Launch:
    """The operator ``fwd``, whose arguments have these names."""

    def launched(*arguments: Given) -> None:
        call = dict(zip(names, arguments, strict=True))
        partial = call["partial_lse"]
        splits = 1 if partial is None else partial.shape[0]
        work = resets.forward(
            _sizes(call), reference=call["path"] == REFERENCE, splits=splits, dropout=call["dropout_p"] > 0.0
        )
        _cut(launch, call, work)

    return launched


def fp8(launch: Launch, names: Sequence[str]) -> Launch:
    """The operator ``fwd_fp8``, likewise."""

    def launched(*arguments: Given) -> None:
        call = dict(zip(names, arguments, strict=True))
        _cut(launch, call, resets.forward(_sizes(call), reference=False, splits=1, dropout=False))

    return launched


def int8(launch: Launch, names: Sequence[str]) -> Launch:
    """The operator ``fwd_int8``, likewise. Its parts use the beginning of the same workspace."""

    def whole(*arguments: Given) -> None:
        call = dict(zip(names, arguments, strict=True))
        used = quantising.floats(call["q"].shape, call["k"].shape)
        launch(*(call | {"workspace": call["workspace"][:used]}).values())

    def launched(*arguments: Given) -> None:
        call = dict(zip(names, arguments, strict=True))
        rows = {"max_seqlen_q": call["q"].shape[1], "max_seqlen_k": call["k"].shape[1], "cu_seqlens_q": None}
        work = resets.forward(_sizes(call | rows), reference=False, splits=1, dropout=False)
        _cut(whole, call, work)

    return launched


def backward(launch: Launch, names: Sequence[str]) -> Launch:
    """The operator ``bwd``, likewise."""

    def launched(*arguments: Given) -> None:
        call = dict(zip(names, arguments, strict=True))
        _cut(launch, call, resets.backward(_sizes(call), dropout=call["dropout_p"] > 0.0))

    return launched


def append(launch: Launch, names: Sequence[str]) -> Launch:
    """The operator ``append`` with a warning for long calls. Its launch is always whole."""

    def launched(*arguments: Given) -> None:
        call = dict(zip(names, arguments, strict=True))
        _cut(launch, call, resets.append(2 * call["k"].numel()))

    return launched


def latent(launch: Launch, names: Sequence[str]) -> Launch:
    """The operator ``mla``, likewise."""

    def launched(*arguments: Given) -> None:
        call = dict(zip(names, arguments, strict=True))
        (batch, rows, heads, head_dim), cache, table = call["q"].shape, call["kv_cache"], call["block_table"]
        keys = cache.shape[1] if table is None else cache.shape[1] * table.shape[1]
        sizes = Sizes(
            batch=batch,
            rows=rows,
            max_seqlen_q=rows,
            max_seqlen_k=keys,
            nheads=heads,
            nheads_k=1,
            head_dim=head_dim,
            window_left=-1,
            window_right=-1,
            packed=False,
        )
        partial = call["partial_lse"]
        splits = 1 if partial is None else partial.shape[0]
        _cut(launch, call, resets.forward(sizes, reference=False, splits=splits, dropout=False))

    return launched


def part_of(name: str, x: Given, part: Part, *, packed: bool, pages: bool) -> Given:
    """A part's share of an operator's argument.

    ``pages``: k and v are pages of all sequences, or places in an index.
    """
    if not isinstance(x, Tensor):
        return x
    by_sequences = not packed
    if name in OF_Q:
        x = _narrow(x, -2, part.heads_q)
    elif name in OF_K:
        x, by_sequences = _narrow(x, -2, part.heads), by_sequences and not pages
    elif name in OF_ROWS:
        x = _narrow(x, -2, part.heads_q)
    elif name in OF_SCORES:
        x = _narrow(x, 1, part.heads_q) if x.shape[1] > 1 else x
        by_sequences = x.shape[0] > 1
    elif name == "alibi_slopes":
        x, by_sequences = _narrow(x, -1, part.heads_q), by_sequences and x.dim() == 2
    elif name == "sink":
        return _narrow(x, 0, part.heads_q)
    elif name in OF_DESCALES:
        x = _narrow(x, -1, part.heads)
        by_sequences = by_sequences and not (pages and x.dim() == OF_KEYS)
    elif name not in OF_SEQUENCES:
        return x
    return _narrow(x, 0, part.sequences) if by_sequences else x


def _cut(launch: Launch, call: dict[str, Any], work: Work) -> None:
    q = call["q"]
    arch, units = device_of(q.device)
    code = host.code_of(arch)
    longest = resets.seconds(work, code, units)
    if longest <= resets.LONGEST:
        launch(*call.values())
        return
    if message := resets.warning(work, code, units):
        notice.tell_long(work.kind, message)
    step = resets.steps(work, longest)
    if resets.launches(work, step) == 1:
        launch(*call.values())
        return
    sums, taken = call.get("dq_sums"), 0
    packed, pages = call.get("cu_seqlens_q") is not None, _are_pages(call)
    keys = call.get("k", call.get("kv_cache"))
    assert keys is not None, "each of the operators has one of them"
    for part in _parts(work, step, q.shape[-2] // keys.shape[-2]):
        some = {name: part_of(name, x, part, packed=packed, pages=pages) for name, x in call.items()}
        if sums is not None:
            share = (part.sequences.stop - part.sequences.start) * (part.heads.stop - part.heads.start)
            size = sums.numel() // (work.batch * work.heads) * share
            some["dq_sums"], taken = sums[taken : taken + size], taken + size
        _submit(q.device)
        launch(*some.values())


def _parts(work: Work, step: tuple[int, int], group: int) -> list[Part]:
    return [
        Part(slice(at, min(at + step[0], work.batch)), slice(head, min(head + step[1], work.heads)), group)
        for at in range(0, work.batch, step[0])
        for head in range(0, work.heads, step[1])
    ]


def _submit(device: torch.device) -> None:
    """Makes the driver start the queued launches.

    It hands launches to Windows in batches, and Windows times each batch.
    """
    if device.type == "cuda" and not is_capturing(device):
        torch.cuda.current_stream(device).query()


def _sizes(call: dict[str, Any]) -> Sizes:
    q, ends = call["q"], call["cu_seqlens_q"]
    packed = ends is not None
    return Sizes(
        batch=ends.shape[0] - 1 if packed else q.shape[0],
        rows=q.shape[-3],
        max_seqlen_q=call["max_seqlen_q"],
        max_seqlen_k=call["max_seqlen_k"],
        nheads=q.shape[-2],
        nheads_k=call["k"].shape[-2],
        head_dim=max(q.shape[-1], call["v"].shape[-1]),
        window_left=call["window_left"],
        window_right=call["window_right"],
        packed=packed,
    )


def _are_pages(call: dict[str, Any]) -> bool:
    return call.get("block_table") is not None or call.get("cache_batch_idx") is not None


def _narrow(x: Tensor, dim: int, some: slice) -> Tensor:
    return x.narrow(dim, some.start, some.stop - some.start)
