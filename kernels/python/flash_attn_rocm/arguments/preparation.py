"""From the arguments of each differentiable function to checked inputs and options."""

from typing import Any, NamedTuple

from torch import Tensor

from flash_attn_rocm.arguments import checks
from flash_attn_rocm.arguments.checks import Eight
from flash_attn_rocm.arguments.normal_form import QUERY_CODES, Inputs, Options, integer, resolve
from flash_attn_rocm.values.given import Given

DENSE_Q, DENSE_K = "(batch, seqlen_q, nheads, headdim)", "(batch, seqlen_k, nheads_k, headdim)"
PACKED_Q, PACKED_K = "(total_q, nheads, headdim)", "(total_k, nheads_k, headdim)"
PAGED_K = "(num_blocks, page, nheads_k, headdim)"
Prepared = tuple[Inputs, Options]


class Rules(NamedTuple):
    """The unchecked arguments after the tensors, common to all functions."""

    dropout_p: Any
    softmax_scale: Any
    causal: Any
    softcap: Any
    deterministic: Any
    window_size: Any

    def problems(self) -> list[str]:
        """Problems of the values. ``causal`` and ``deterministic`` accept every value."""
        return checks.numbers(
            window_size=self.window_size,
            softcap=self.softcap,
            softmax_scale=self.softmax_scale,
            dropout_p=self.dropout_p,
        )


class _Names(NamedTuple):
    """Names of the function and its arguments, for messages."""

    function: str
    q: str = "q"
    k: str = "k"
    v: str = "v"
    cu_q: str = "cu_seqlens_q"
    cu_k: str = "cu_seqlens_k"
    max_q: str = "max_seqlen_q"
    max_k: str = "max_seqlen_k"
    literal: bool = False  # of window_size, as ``resolve`` takes it


class _Descales(NamedTuple):
    """Those of 8 bits. Only functions for such tensors have them."""

    of_q: Any = None
    of_k: Any = None
    of_v: Any = None


def dense(
    q: Given,
    k: Given,
    v: Given,
    alibi_slopes: Given,
    sink: Given,
    q_descale: Given,
    k_descale: Given,
    v_descale: Given,
    *rules: Given,
) -> Prepared:
    """``flash_attn_func``."""
    names, descales = _Names("flash_attn_func"), _Descales(q_descale, k_descale, v_descale)
    problems = checks.tensors({"q": q, "k": k, "v": v}, {"q": DENSE_Q, "k": DENSE_K, "v": DENSE_K})
    return _dense(names, problems, q, k, v, alibi_slopes, sink, Rules(*rules), descales)


def masked(
    q: Given,
    k: Given,
    v: Given,
    alibi_slopes: Given,
    attn_mask: Given,
    sink: Given,
    q_descale: Given,
    k_descale: Given,
    v_descale: Given,
    chunk: Given,
    *rules: Given,
) -> Prepared:
    """``attention``."""
    names, descales = _Names("attention", literal=True), _Descales(q_descale, k_descale, v_descale)
    problems = checks.tensors({"q": q, "k": k, "v": v}, {"q": DENSE_Q, "k": DENSE_K, "v": DENSE_K})
    if not problems:
        problems += checks.mask(attn_mask, q, k)
    inputs, options = _dense(
        names, problems, q, k, v, alibi_slopes, sink, Rules(*rules), descales, chunk, attn_mask
    )
    return inputs._replace(attn_mask=four_dimensions(attn_mask)), options


def four_dimensions(attn_mask: Tensor | None) -> Tensor | None:
    """A checked mask as (batch, nheads, seqlen_q, seqlen_k). Any size may be 1.

    Expanded heads and rows (stride 0) become sizes of 1.
    """
    if attn_mask is None:
        return None
    found = attn_mask.unsqueeze(1) if attn_mask.dim() == 3 else attn_mask[(None,) * (4 - attn_mask.dim())]
    for axis in (1, 2):
        found = found.narrow(axis, 0, 1) if found.stride(axis) == 0 and found.shape[axis] else found
    return found


def qkvpacked(qkv: Given, alibi_slopes: Given, sink: Given, *rules: Given) -> Prepared:
    """``flash_attn_qkvpacked_func``."""
    names = _Names("flash_attn_qkvpacked_func", "qkv", "qkv", "qkv")
    problems = _unpackable("qkv", qkv, "(batch, seqlen, 3, nheads, headdim)")
    q, k, v = (None, None, None) if problems else qkv.unbind(2)
    return _dense(names, problems, q, k, v, alibi_slopes, sink, Rules(*rules))


def kvpacked(q: Given, kv: Given, alibi_slopes: Given, sink: Given, *rules: Given) -> Prepared:
    """``flash_attn_kvpacked_func``."""
    names = _Names("flash_attn_kvpacked_func", "q", "kv", "kv")
    problems = checks.tensors({"q": q}, {"q": DENSE_Q})
    problems += _unpackable("kv", kv, "(batch, seqlen_k, 2, nheads_k, headdim)")
    k, v = (None, None) if problems else kv.unbind(2)
    return _dense(names, problems, q, k, v, alibi_slopes, sink, Rules(*rules))


def varlen(
    q: Given,
    k: Given,
    v: Given,
    cu_seqlens_q: Given,
    cu_seqlens_k: Given,
    block_table: Given,
    alibi_slopes: Given,
    sink: Given,
    q_descale: Given,
    k_descale: Given,
    v_descale: Given,
    max_seqlen_q: Given,
    max_seqlen_k: Given,
    chunk: Given,
    *rules: Given,
) -> Prepared:
    """``flash_attn_varlen_func``."""
    names = _Names("flash_attn_varlen_func")
    keys = PACKED_K if block_table is None else PAGED_K
    problems = checks.tensors({"q": q, "k": k, "v": v}, {"q": PACKED_Q, "k": keys, "v": keys})
    cut = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    descales = _Descales(q_descale, k_descale, v_descale)
    return _varlen(
        names, problems, q, k, v, cut, alibi_slopes, sink, Rules(*rules), descales, block_table, chunk
    )


def with_lengths(inputs: Inputs, seqused_k: Given, leftpad_k: Given) -> Inputs:
    """Packed inputs with checked lengths and left padding of the keys."""
    sizes = (inputs.batch,)
    named = {"seqused_k": (seqused_k, sizes), "leftpad_k": (leftpad_k, sizes)}
    checks.refuse("varlen_fwd", checks.integers(named, inputs.q.device))
    return inputs._replace(seqused_k=seqused_k, leftpad_k=leftpad_k)


def varlen_qkvpacked(
    qkv: Given, cu_seqlens: Given, alibi_slopes: Given, sink: Given, max_seqlen: Given, *rules: Given
) -> Prepared:
    """``flash_attn_varlen_qkvpacked_func``."""
    names = _Names(
        "flash_attn_varlen_qkvpacked_func",
        *("qkv",) * 3, *("cu_seqlens",) * 2, *("max_seqlen",) * 2,
    )  # fmt: skip
    problems = _unpackable("qkv", qkv, "(total, 3, nheads, headdim)")
    q, k, v = (None, None, None) if problems else qkv.unbind(1)
    cut = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    return _varlen(names, problems, q, k, v, cut, alibi_slopes, sink, Rules(*rules))


def varlen_kvpacked(
    q: Given,
    kv: Given,
    cu_seqlens_q: Given,
    cu_seqlens_k: Given,
    alibi_slopes: Given,
    sink: Given,
    max_seqlen_q: Given,
    max_seqlen_k: Given,
    *rules: Given,
) -> Prepared:
    """``flash_attn_varlen_kvpacked_func``."""
    names = _Names("flash_attn_varlen_kvpacked_func", "q", "kv", "kv")
    problems = checks.tensors({"q": q}, {"q": PACKED_Q})
    problems += _unpackable("kv", kv, "(total_k, 2, nheads_k, headdim)")
    k, v = (None, None) if problems else kv.unbind(1)
    cut = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _varlen(names, problems, q, k, v, cut, alibi_slopes, sink, Rules(*rules))


def _unpackable(name: str, packed: Given, layout: str) -> list[str]:
    found = checks.tensors({name: packed}, {name: layout})
    parts = 3 if ", 3," in layout else 2
    if not found and packed.shape[-3] != parts:
        found.append(f"{name}: expected shape {layout}, got {checks.shape(packed)}")
    return found


def _dense(
    names: _Names,
    problems: list[str],
    q: Given,
    k: Given,
    v: Given,
    alibi_slopes: Given,
    sink: Given,
    rules: Rules,
    descales: _Descales | None = None,
    chunk: Given = 0,
    attn_mask: Given = None,
) -> Prepared:
    inputs = _inputs(descales, q, k, v, alibi_slopes, attn_mask=attn_mask, sink=sink)
    if not problems:
        problems += checks.batches(names.q, q, {names.k: k})
        problems += _common_problems(names, inputs, q.shape[0], descales, rules.dropout_p)
    problems += rules.problems() + checks.chunks(chunk)
    checks.refuse(names.function, problems)
    return inputs, resolve(
        q,
        max_seqlen_q=q.shape[1],
        max_seqlen_k=k.shape[1],
        chunk=chunk,
        literal=names.literal,
        **rules._asdict(),
    )


def _varlen(
    names: _Names,
    problems: list[str],
    q: Given,
    k: Given,
    v: Given,
    cut: tuple[Any, Any, Any, Any],
    alibi_slopes: Given,
    sink: Given,
    rules: Rules,
    descales: _Descales | None = None,
    block_table: Given = None,
    chunk: Given = 0,
) -> Prepared:
    cu_q, cu_k, max_q, max_k = (*cut[:2], _number(cut[2]), _number(cut[3]))
    problems += checks.lengths({names.max_q: max_q, names.max_k: max_k})
    problems += checks.tensors(
        {names.cu_q: cu_q, names.cu_k: cu_k}, dict.fromkeys((names.cu_q, names.cu_k), "(batch + 1)")
    )
    inputs = _inputs(descales, q, k, v, alibi_slopes, cu_q, cu_k, block_table=block_table, sink=sink)
    if not problems:
        batch = cu_q.shape[0] - 1
        problems += [f"{names.cu_q}: expected at least one element, got shape (0,)"] if batch < 0 else []
        problems += checks.integers(
            {
                names.cu_q: (cu_q, (batch + 1,)),
                names.cu_k: (cu_k, (batch + 1,)),
                "block_table": (block_table, (batch, -1)),
            },
            q.device,
        )
        problems += _common_problems(names, inputs, batch, descales, rules.dropout_p)
        if block_table is not None:
            problems += checks.pages(names.k, k)
    problems += rules.problems() + checks.chunks(chunk, block_table)
    checks.refuse(names.function, problems)
    return inputs, resolve(q, max_seqlen_q=max_q, max_seqlen_k=max_k, chunk=chunk, **rules._asdict())


def _inputs(descales: _Descales | None, *tensors: Given, **named: Given) -> Inputs:
    inputs = Inputs(*tensors, **named)
    if descales is None:
        return inputs
    return inputs._replace(k_descale=descales.of_k, v_descale=descales.of_v)


def _common_problems(
    names: _Names, inputs: Inputs, batch: int, descales: _Descales | None, dropout_p: Given
) -> list[str]:
    """``descales`` are None of functions without 8 bits."""
    q, k, v, alibi_slopes = inputs[:4]
    found = checks.heads(q, k, v, names[1:4])
    cached = inputs.block_table is not None
    eight = Eight() if descales is None else Eight(QUERY_CODES, descales.of_q, cached)
    found += checks.dtypes(inputs, batch, eight, names[1:4]) + checks.dropped(inputs, dropout_p)
    found += checks.sinks(inputs.sink, q.shape[-2], q.device)
    return found + checks.alibi(alibi_slopes, batch, q.shape[-2], q.device)


def _number(value: Given) -> Given:
    """A length as int, from an int, a tensor of one element or an integer of NumPy."""
    if isinstance(value, Tensor):
        is_one = value.numel() == 1 and not value.dtype.is_floating_point
        return int(value) if is_one and not value.dtype.is_complex else value
    found = integer(value)
    return value if found is None else found
