"""From SageAttention's arguments to a call of flash_attn_rocm, its answer, and the words of ``explain``."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from flash_attn_rocm import Support, attention, explain, flash_attn_varlen_func, quantised
from torch import Tensor

from sageattention import _checks

# How the reason of every call begins.
IN_16_BITS = (
    "sageattention of flash-attn-rocm: products of {} with sums in fp32, more exact than 8 bits, because {}"
)
IN_8_BITS = "sageattention of flash-attn-rocm: q and k are rotated and quantised to int8; "
# Why a function stays in 16 bits.
VARLEN = "kernels with products of int8 take no packed sequences"
HND = "HND"


class Dense(NamedTuple):
    """Arguments with an effect of the functions for tensors of four dimensions."""

    q: Any
    k: Any
    v: Any
    tensor_layout: Any
    is_causal: Any
    sm_scale: Any
    return_lse: Any
    attn_mask: Any


class Packed(NamedTuple):
    """Arguments with an effect of ``sageattn_varlen``."""

    q: Any
    k: Any
    v: Any
    cu_seqlens_q: Any
    cu_seqlens_k: Any
    max_seqlen_q: Any
    max_seqlen_k: Any
    is_causal: Any
    sm_scale: Any


class Call(NamedTuple):
    """A call of flash_attn_rocm. Its out goes to the caller in ``layout``, "" if it is packed.

    ``in_16_bits``: why kernels of 8 bits are not asked, or "". ``keeps_v``: only those that have v as given.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    layout: str = ""
    return_lse: bool = False
    in_16_bits: str = ""
    keeps_v: bool = False

    @property
    def rules(self) -> Mapping[str, Any]:
        """The options of ``quantised``."""
        given = {name: self.options[name] for name in ("softmax_scale", "causal")}
        return {**given, "keeps_v": self.keeps_v}


def dense(name: str, given: Dense, others: Mapping[str, Any]) -> Call:
    """The call for checked arguments. Raises FlashAttnArgumentError with all problems."""
    causal, layout = bool(given.is_causal), given.tensor_layout
    named = {"q": given.q, "k": given.k, "v": given.v}
    found = _checks.dense(named, layout, given.attn_mask, is_causal=causal)
    found += _checks.others(others, given.sm_scale)
    found += _checks.gradients({**named, "attn_mask": given.attn_mask})
    _checks.refuse(name, found)
    q, k, v = (x.transpose(1, 2) if layout == HND else x for x in named.values())
    options = {**_rules(given, others), "return_attn_probs": bool(given.return_lse)}
    arguments, of_sums = (q, k, v, given.attn_mask), bool(given.return_lse)
    return Call(attention, arguments, options, layout, of_sums, keeps_v="pv_fp16" in name)


def packed(name: str, given: Packed, others: Mapping[str, Any]) -> Call:
    """The call for checked arguments. Raises FlashAttnArgumentError with all problems."""
    q, k, v, of_q, of_k, most_q, most_k, causal, scale = given
    named, places = {"q": q, "k": k, "v": v}, {"cu_seqlens_q": of_q, "cu_seqlens_k": of_k}
    longest = {"max_seqlen_q": most_q, "max_seqlen_k": most_k}
    found = _checks.packed(named, places, longest, is_causal=bool(causal))
    found += _checks.others(others, scale) + _checks.gradients(named)
    _checks.refuse(name, found)
    cut = (x.to(torch.int32) for x in places.values())
    arguments = (q, k, v, *cut, most_q, most_k)
    return Call(flash_attn_varlen_func, arguments, _rules(given, others), in_16_bits=VARLEN)


def attend(call: Call) -> Any:  # noqa: ANN401 - out, or out and the log-sum-exp
    """The answer, in the caller's layout."""
    found: Any = None if call.in_16_bits else quantised.attend(*call.arguments, **call.rules)
    if found is None:
        found = call.function(*call.arguments, **call.options)
    elif not call.return_lse:
        found = found[0]
    out = found[0] if call.return_lse else found
    out = out.transpose(1, 2) if call.layout == HND else out
    return (out, _of_sums(found[1])) if call.return_lse else out


def explains(
    function: Callable[..., Any],
    kind: Callable[..., Any],
    prepare: Callable[[str, Any, Mapping[str, Any]], Call],
) -> Callable[..., Support]:
    """What ``flash_attn_rocm.explain`` calls for a function, with the function's arguments."""

    def explained(*arguments: Any, **options: Any) -> Support:  # noqa: ANN401 - as given
        bound = inspect.signature(function).bind(*arguments, **options)
        bound.apply_defaults()
        others = bound.arguments.pop("kwargs")
        fields = inspect.signature(kind).parameters
        own = kind(**{name: value for name, value in bound.arguments.items() if name in fields})
        call = prepare(function.__name__, own, others)
        found = call.in_16_bits or quantised.explain(*call.arguments, **call.rules)
        if not isinstance(found, str):
            return replace(found, reason=f"{IN_8_BITS}{found.reason}")
        support: Support = explain(call.function, *call.arguments, **call.options)
        dtype = str(own.q.dtype).removeprefix("torch.")
        reasons = dict.fromkeys((found, support.reason))  # one may be the reason for both
        return replace(support, reason=IN_16_BITS.format(dtype, "; ".join(reasons)))

    return explained


def _rules(given: Dense | Packed, others: Mapping[str, Any]) -> dict[str, Any]:
    scale = others.get("scale") if given.sm_scale is None else given.sm_scale
    return {"softmax_scale": scale, "causal": bool(given.is_causal)}


def _of_sums(lse: Tensor) -> Tensor:
    """The log-sum-exp, -inf for a row that sees no key, where flash_attn has +inf."""
    return torch.where(lse.isposinf(), -torch.inf, lse)
