"""The path taken by a call of any public function."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from flash_attn_rocm import flash_attn_interface as interface
from flash_attn_rocm.arguments import packed_rows, preparation
from flash_attn_rocm.arguments.normal_form import Inputs, Options, is_quantised
from flash_attn_rocm.arguments.preparation import Rules
from flash_attn_rocm.functions import attention, kvcache, mla
from flash_attn_rocm.interfaces import EXPLAINED
from flash_attn_rocm.launch import fp8, latent
from flash_attn_rocm.launch import packed_rows as widened_rows
from flash_attn_rocm.rewrite import dequantised
from flash_attn_rocm.serving.support import NO_GRADIENTS_OF_CODES, PYTORCH, Support, support_of
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.wrapped import sharded, unwrapping

PREPARE: dict[Callable[..., Any], Callable[..., tuple[Inputs, Options]]] = {
    interface.flash_attn_func: preparation.dense,
    interface.flash_attn_qkvpacked_func: preparation.qkvpacked,
    interface.flash_attn_kvpacked_func: preparation.kvpacked,
    interface.flash_attn_varlen_func: preparation.varlen,
    interface.flash_attn_varlen_qkvpacked_func: preparation.varlen_qkvpacked,
    interface.flash_attn_varlen_kvpacked_func: preparation.varlen_kvpacked,
    kvcache.flash_attn_with_kvcache: kvcache.prepare,
    attention.attention: preparation.masked,
    mla.mla_decode: mla.prepare,
}
WITHOUT_WRAPPERS = (kvcache.flash_attn_with_kvcache, mla.mla_decode)  # nested tensors and DTensors


def explain(*arguments: Given, **options: Given) -> Support:  # the arguments of any public function
    """The path of a call on this machine, and the reason: ``explain(flash_attn_varlen_func, q, k, v, …)``.

    Takes the arguments of the function in front, by default of ``flash_attn_func``, and only checks them. The
    function may also be one of sageattention's, the distribution on top of this one.
    Raises FlashAttnArgumentError as the function does, except for lengths and indices in tensors: these stay
    unread. Raises TypeError for unknown arguments.
    """
    function, arguments = (
        (arguments[0], arguments[1:])
        if arguments and inspect.isfunction(arguments[0])
        else (interface.flash_attn_func, arguments)
    )
    if own := EXPLAINED.get(function):
        support: Support = own(*arguments, **options)
        return support
    if function not in PREPARE:
        names = ", ".join(each.__name__ for each in (*PREPARE, *EXPLAINED))
        message = f"explain: expected one of {names} first, got {function.__name__}"
        raise TypeError(message)
    try:
        bound = inspect.signature(function).bind(*arguments, **options)
    except TypeError as error:
        message = f"explain: {function.__name__}: {error}"
        raise TypeError(message) from None
    bound.apply_defaults()
    inputs, found = PREPARE[function](*_plain(function, [*_in_order(PREPARE[function], bound.arguments)]))
    if function is mla.mla_decode:
        of = widened_rows if packed_rows.is_packed(inputs.k) else latent
        return of.support_of(inputs, found)
    want_probabilities = bool(bound.arguments.get("return_attn_probs"))
    if not is_quantised(inputs):
        return support_of(inputs, found, want_probabilities=want_probabilities)
    cached = function is kvcache.flash_attn_with_kvcache
    why_not = "" if cached else fp8.unserved(inputs, found)
    if not cached and not why_not:
        return fp8.support_of(inputs, found)
    served = support_of(dequantised.form(inputs, cached=cached), found, want_probabilities=want_probabilities)
    words = dequantised.words(inputs, cached=cached) if served else ""
    end = f"; {why_not}" if served and why_not else ""
    return replace(
        served, reason=f"{words}{served.reason}{end}", backward=PYTORCH, backward_reason=NO_GRADIENTS_OF_CODES
    )


def _plain(function: Callable[..., Any], arguments: list[Any]) -> list[Any]:
    """The arguments. For nested tensors and DTensors, the arguments for the tensors inside."""
    names = inspect.signature(PREPARE[function]).parameters
    if function in WITHOUT_WRAPPERS:
        sharded.refuse(function.__name__, arguments)
        return arguments
    tensors = len(names) - 1 - sum(name == "chunk" or name.startswith("max_seqlen") for name in names)
    together = 3 if "qkv" in names else 2 if "kv" in names else 0
    given = tuple(arguments[:tensors]), tuple(arguments[tensors:])
    inside = unwrapping.inside(function.__name__, together, *given)
    return arguments if inside is None else [*inside.tensors, *inside.numbers]


def _in_order(prepare: Callable[..., Any], given: dict[str, Any]) -> Iterator[Any]:
    for parameter in inspect.signature(prepare).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from (given[name] for name in Rules._fields)
        else:
            yield given[parameter.name]
