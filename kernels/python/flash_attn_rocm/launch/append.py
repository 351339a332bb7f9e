"""Writing new keys and values into a cache, in place, and rotating queries and keys on the way."""

from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.arguments import lengths
from flash_attn_rocm.arguments.checks import refuse
from flash_attn_rocm.arguments.normal_form import Inputs, New, Options
from flash_attn_rocm.canary import first_use
from flash_attn_rocm.diagnosis.notice import fall_back
from flash_attn_rocm.launch import watched
from flash_attn_rocm.reference import codes
from flash_attn_rocm.reference.operators import LIBRARY, NAMESPACE, arguments_of
from flash_attn_rocm.reference.rotary import rotate
from flash_attn_rocm.reference.sequences import parts
from flash_attn_rocm.serving import resets
from flash_attn_rocm.serving.capture import refuse_capture
from flash_attn_rocm.serving.layouts import has_rows, in_rows
from flash_attn_rocm.serving.support import device_of

ARGUMENTS = (
    "(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k, Tensor v, "
    "Tensor? rotary_cos, Tensor? rotary_sin, Tensor cache_seqlens, Tensor? cache_leftpad, "
    "Tensor? block_table, Tensor? cache_batch_idx, Tensor(c!)? k_descale, Tensor(d!)? v_descale, "
    "bool rotary_interleaved, bool rotary_advances) "
    "-> (Tensor, Tensor)"
)

BY_PYTORCH, CHECKED = "pytorch_append", "checked_append"
NAME = "flash_attn_with_kvcache"
CALLERS = 6  # stack frames from the warning to the line that called it
KERNEL = torch.ops.flash_attn_rocm.append.default
if resets.THREATENED:
    KERNEL = watched.append(KERNEL, arguments_of(KERNEL))


def append(inputs: Inputs, options: Options, new: New, *, by_kernel: bool) -> Inputs:
    """Writes k and v behind the first seqused_k keys. Returns inputs with q rotated and new lengths.

    A cache of 8 bits gets codes, and each key's descales if keys have some.

    ``by_kernel``: the host reads no tensor. Keys with lengths or indices outside of the cache are dropped,
    and positions outside of the angles take the nearest. Otherwise these raise FlashAttnArgumentError before
    any write. In a graph of torch.compile the kernel is checked when the graph runs.
    """
    advances = lengths.advances(options)
    inputs = inputs._replace(k_descale=_apart(inputs.k_descale), v_descale=_apart(inputs.v_descale))
    by_kernel = by_kernel and has_rows(inputs.k) and has_rows(inputs.v)
    if by_kernel and not torch.compiler.is_compiling():
        return _by_kernel(inputs, new, advances)
    operators = torch.ops.flash_attn_rocm
    q, ends = (operators.checked_append if by_kernel else operators.pytorch_append)(
        inputs.q, inputs.k, inputs.v, new.k, new.v, new.cos, new.sin, inputs.seqused_k, inputs.leftpad_k,
        inputs.block_table, inputs.cache_batch_idx, inputs.k_descale, inputs.v_descale, bool(new.interleaved),
        advances,
    )  # fmt: skip
    return inputs._replace(q=inputs.q if new.cos is None else q, seqused_k=ends)


def proven(inputs: Inputs) -> bool | None:
    """Whether the kernel is right on this device, by a check at its first use (``canary.first_use``).

    None: not known yet, so the kernel answers, and the next call asks again.
    """
    failure = first_use.append_failure(_by_kernel, inputs, device_of(inputs.q.device).arch)
    if failure:
        fall_back(failure, stacklevel=CALLERS)
    return None if failure is None else not failure


def _by_kernel(inputs: Inputs, new: New, advances: bool) -> Inputs:  # noqa: FBT001
    begins = inputs.seqused_k
    assert begins is not None, "checked beside k"
    q = inputs.q
    rotated = None if new.cos is None else torch.empty(q.shape, dtype=q.dtype, device=q.device)
    KERNEL(
        _rows(q), inputs.k, inputs.v, _rows(new.k), _rows(new.v), _rows(new.cos), _rows(new.sin),
        in_rows(begins), _rows(inputs.block_table), _rows(inputs.cache_batch_idx), inputs.k_descale,
        inputs.v_descale, rotated, bool(new.interleaved), advances,
    )  # fmt: skip
    return inputs._replace(q=q if rotated is None else rotated, seqused_k=begins + new.k.shape[1])


def _apart(descale: Tensor | None) -> Tensor | None:
    """Descales of heads whose elements may share memory.

    torch.compile refuses such arguments of an operator that may write to them.
    """
    if descale is None or not torch.compiler.is_compiling() or 0 not in descale.stride():
        return descale
    return descale.contiguous()


def _rows(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else in_rows(tensor)


def _checked(*arguments: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - as the operator declares them
    q, k_cache, v_cache, k, v, cos, sin, begins, *others = arguments
    leftpad, table, batch_idx, k_descale, v_descale, interleaved, advances = others
    inputs = Inputs(
        q, k_cache, v_cache, seqused_k=begins, leftpad_k=leftpad, block_table=table,
        cache_batch_idx=batch_idx, k_descale=k_descale, v_descale=v_descale,
    )  # fmt: skip
    if proven(inputs) is False:
        return _append(*arguments)
    after = _by_kernel(inputs, New(k, v, cos, sin, interleaved), advances)
    return q.new_empty(0) if cos is None else after.q, after.seqused_k


def _append(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    begins: Tensor,
    leftpad: Tensor | None,
    block_table: Tensor | None,
    batch_idx: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    interleaved: bool,  # noqa: FBT001 - the operator passes by position
    advances: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor]:
    ends = begins + k.shape[1]
    inputs = Inputs(
        q, k_cache, v_cache, seqused_k=ends, leftpad_k=leftpad, block_table=block_table,
        cache_batch_idx=batch_idx,
    )  # fmt: skip
    refuse_capture(inputs)
    queries = begins[:, None] + torch.arange(q.shape[1], device=q.device) * int(advances)
    keys = begins[:, None] + torch.arange(k.shape[1], device=q.device)
    _require(inputs, begins.tolist(), k.shape[1], cos, advances=advances)
    rotated = q.new_empty(0)
    if cos is not None and sin is not None:
        rotated = rotate(q, cos, sin, queries, interleaved=interleaved)
        k = rotate(k, cos, sin, keys, interleaved=interleaved)
    where = _where(inputs, keys)
    if block_table is not None:
        _refuse_shared_places(*where)
    _write(k_cache, where, k, k_descale)
    _write(v_cache, where, v, v_descale)
    return rotated, ends


def _write(cache: Tensor, where: tuple[Tensor, Tensor], x: Tensor, descale: Tensor | None) -> None:
    if not codes.is_coded(cache):
        cache[where] = x
        return
    of: Tensor | float = 1.0 if descale is None else descale[:, None, :, None]
    if descale is not None and descale.dim() > 2:
        own = codes.own_descales(x, cache.dtype)
        descale[where] = own
        of = own[..., None]
    # PyTorch writes few elements of such dtypes by index.
    cache.view(torch.uint8)[where] = codes.encode(x, of, cache.dtype).view(torch.uint8)


def _require(inputs: Inputs, begins: list[int], rows: int, cos: Tensor | None, *, advances: bool) -> None:
    refuse(NAME, lengths.problems(inputs, begins, rows))
    parts(inputs, Options(1.0, max_seqlen_q=inputs.q.shape[1], max_seqlen_k=inputs.key_capacity))
    refuse(NAME, lengths.of_angles(inputs, begins, rows, cos, advances=advances))
    if inputs.cache_batch_idx is not None and rows:
        cache_rows = inputs.cache_batch_idx.tolist()
        if len(set(cache_rows)) != len(cache_rows):
            message = f"cache_batch_idx: expected different rows when k is given, got {cache_rows}"
            refuse(NAME, [message])


def _refuse_shared_places(pages: Tensor, rows: Tensor) -> None:
    places, times = torch.stack([pages.flatten(), rows.flatten()]).unique(dim=1, return_counts=True)
    if bool((times > 1).any()):
        page, row = places[:, times > 1][:, 0].tolist()
        message = f"block_table: expected a place for each new key, got row {row} of page {page} for two"
        refuse(NAME, [message])


def _where(inputs: Inputs, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Where each new row goes: indices into the cache's first two dimensions, both (batch, rows)."""
    if inputs.block_table is not None:
        page = inputs.k.shape[1]
        return inputs.block_table.gather(1, positions // page).long(), positions % page
    rows = inputs.cache_batch_idx
    if rows is None:
        rows = torch.arange(inputs.batch, device=positions.device)
    return rows[:, None].expand_as(positions).long(), positions


def _append_fake(q: Tensor, *arguments: Tensor | None) -> tuple[Tensor, Tensor]:
    *_, cos, _sin, begins = arguments[:7]
    assert begins is not None, "the operator's schema says so"
    return q.new_empty(0 if cos is None else q.shape), torch.empty_like(begins)


for name, answer in ((BY_PYTORCH, _append), (CHECKED, _checked)):
    LIBRARY.define(name + ARGUMENTS)
    LIBRARY.impl(name, answer, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", _append_fake, lib=LIBRARY)


@torch.library.register_fake(f"{NAMESPACE}::append")
def _kernel_fake(*_arguments: object) -> None:
    """Writes into its arguments and returns nothing, so there is no shape to infer."""
