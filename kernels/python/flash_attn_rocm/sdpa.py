"""PyTorch's scaled_dot_product_attention on this package's kernels, on request.

    with flash_attn_rocm.sdpa.enable():
        model(…)

``enable()`` lasts until ``disable()`` or the end of its ``with`` block. An import alone changes nothing.
Unserved calls go to PyTorch's own function, as before ``enable()``. If no visible GPU has kernels,
``enable()`` only warns, or raises an error in strict mode.

It replaces three of PyTorch's operators, for fp16 or bf16 tensors (batch, nheads, seqlen, headdim) with a
headdim up to 512:

* ``_scaled_dot_product_attention_math``, on GPUs without flash attention in PyTorch (gfx908 and gfx1030, as
  of PyTorch 2.13), forward and backward. There it also answers calls asking for ``SDPBackend.MATH``.
* ``_scaled_dot_product_flash_attention``, on other GPUs, for calls without gradients and dropout. Training
  stays with PyTorch, because its forward and backward kernels belong together.
* ``_scaled_dot_product_efficient_attention``, on other GPUs, for calls with an attn_mask and without
  gradients and dropout. Flash attention takes no attn_mask.

Above a headdim of 256, calls with dropout or gradients go to PyTorch's own function. Calls with an attn_mask,
boolean or added, are served up to a headdim of 128. PyTorch turns a boolean mask into numbers before it calls
an operator, so unlike in ``attention`` the mask chooses no keys.

Jagged nested tensors (batch, nheads, ragged, headdim) arrive before any operator. They are served on GPUs
without flash attention in PyTorch, and on other GPUs without gradients and dropout.

In some builds of PyTorch for AMD GPUs, flash or memory-efficient attention fails (the doctor reports it).
``enable(replace_fused=True)`` turns both off in the whole process until the end of the use. Then these
kernels answer on every GPU that has some, forward and backward, and PyTorch's plain formula answers the other
calls.

Graphs compiled with the math operator during the use keep these kernels after ``disable()``.
The flash operator decides at each run of a graph.
"""

import importlib
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from flash_attn_rocm.arguments import preparation
from flash_attn_rocm.arguments.checks import FLOAT_MAX
from flash_attn_rocm.arguments.normal_form import DTYPES, Inputs, Options, scale_of
from flash_attn_rocm.autograd.dispatch import attend
from flash_attn_rocm.diagnosis.notice import (
    FlashAttnFallbackWarning,
    FlashAttnUnsupportedError,
    is_strict,
    with_mismatches,
)
from flash_attn_rocm.launch import forward_pass
from flash_attn_rocm.library import plans
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.serving import capture, machine
from flash_attn_rocm.serving.support import (
    Support,
    device_of,
    gradients_unserved,
    support_of,
    unserved,
)
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.wrapped import nested

MATH = "_scaled_dot_product_attention_math"
FLASH = "_scaled_dot_product_flash_attention"
EFFICIENT = "_scaled_dot_product_efficient_attention"
# Nested tensors send scaled_dot_product_attention to this function of a module.
NESTED = ("torch.nested._internal.ops", "jagged_scaled_dot_product_attention")
CANARY = (1, 1, 16, 64)
# fp16 has 11 bits, and the canary's log-sum-exps are below 8. In another base they are 1.4 times as large.
CANARY_TOLERANCE = 2**-6

Prepared: TypeAlias = tuple[Inputs, Options]


class _Call(NamedTuple):
    """The arguments of both operators and of scaled_dot_product_attention, in the order of the first."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    dropout_mask: Tensor | None = None
    scale: float | None = None
    enable_gqa: bool = False


class _State:
    lock = threading.RLock()
    users: set["Enabled"] = set()  # noqa: RUF012 - the one instance is the class
    library: Any = None
    nested: Callable[..., Any] | None = None  # PyTorch's function while ours replaces it
    flash_reached: dict[torch.device, bool] = {}  # noqa: RUF012
    natural: dict[torch.device, bool] = {}  # noqa: RUF012
    fused_before: tuple[bool, bool] | None = None  # PyTorch's switches before they were turned off


class Enabled(AbstractContextManager["Enabled"]):
    """One use of ``enable()``, until the end of its ``with`` block."""

    def __init__(self, *, replace_fused: bool = False) -> None:
        self.replace_fused = replace_fused

    def __exit__(self, *_error: object) -> None:
        _leave({self})


def enable(*, replace_fused: bool = False) -> Enabled:
    """Let kernels answer scaled_dot_product_attention if they can. Uses nest.

    Args:
        replace_fused: For builds of PyTorch with a broken flash or memory-efficient attention: turn both off
            until the last use with this argument ends.
    """
    use = Enabled(replace_fused=replace_fused)
    with _State.lock:
        if reason := _no_kernels():
            _stay(reason)
            return use
        if _State.library is None:
            _State.library = _installed()
            _take_nested()
        _State.users.add(use)
        _switch_fused()
    return use


def disable() -> None:
    """Give all operators back to PyTorch and end every use of ``enable()``."""
    with _State.lock:
        _leave(set(_State.users))


def is_enabled() -> bool:
    """Whether PyTorch's operators are replaced now. Always False without a GPU with kernels."""
    return _State.library is not None


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - the signature is PyTorch's
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> Support:
    """Whether a kernel could serve this call of scaled_dot_product_attention, with the reason."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        # PyTorch passes masks to its operators as numbers.
        attn_mask = torch.empty_like(attn_mask, dtype=query.dtype)
    named = {"scale": scale, "enable_gqa": enable_gqa}
    prepared = _prepared(_Call(query, key, value, attn_mask, dropout_p, is_causal, **named))  # type: ignore[arg-type]
    return Support(ok=False, reason=prepared) if isinstance(prepared, str) else support_of(*prepared)


def _leave(users: set[Enabled]) -> None:
    with _State.lock:
        _State.users -= users
        _switch_fused()
        if not _State.users and _State.library is not None:
            _State.library = None  # the last reference, so PyTorch removes the operators with it
            _give_nested_back()


def _switch_fused() -> None:
    """Turn PyTorch's fused attention off while a use requests it, then restore it."""
    switches = torch.backends.cuda
    wanted = any(use.replace_fused for use in _State.users)
    before = _State.fused_before
    if wanted and before is None:
        _State.fused_before = switches.flash_sdp_enabled(), switches.mem_efficient_sdp_enabled()
        flash, efficient = False, False
    elif before is not None and not wanted:
        _State.fused_before = None
        flash, efficient = before
    else:
        return
    switches.enable_flash_sdp(flash)
    switches.enable_mem_efficient_sdp(efficient)


def _no_kernels() -> str:
    """Why no visible GPU has kernels, or ""."""
    here = machine.current()
    if reason := here.unserved(torch.device(here.kind)):
        return reason
    archs = [here.device(torch.device(here.kind, i)).arch for i in range(here.count())]
    found = [plans.typical(arch, dtype, 64) for arch in archs for dtype in DTYPES.values()]
    if not found:
        return "PyTorch sees no GPU"
    return "" if any(each.path for each in found) else found[0].reason


def _stay(reason: str) -> None:
    message = with_mismatches(f"scaled_dot_product_attention stays PyTorch's own: {reason}")
    if is_strict():
        message += "\n  next: python -m flash_attn_rocm doctor lists the problems of this machine"
        raise FlashAttnUnsupportedError(message)
    warnings.warn(message, FlashAttnFallbackWarning, stacklevel=3)


def _installed() -> Given:
    """The library with our operators over PyTorch's. Each holds the operator below it."""
    backend = machine.current().kind.upper()
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        # PyTorch warns once per process about replaced kernels. Here the replacement is intended.
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for name, key, answer in (
            (MATH, f"Autograd{backend}", _math),
            (MATH, backend, _math),
            (FLASH, backend, _flash),  # Below autograd: calls with gradients stay with PyTorch.
            (EFFICIENT, backend, _efficient),
        ):
            if torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"aten::{name}", key):  # noqa: SLF001
                # Also over another library's operator. PyTorch before 2.13 refuses this by default.
                library.impl(name, _over(name, key, answer), key, with_keyset=True, allow_override=True)
    return library


def _over(name: str, key: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    original = torch.library.get_kernel(f"aten::{name}", key)

    def operator(keys: Given, *arguments: Given, **named: Given) -> Given:
        def originally(*others: Given, **options: Given) -> Given:
            return original.call_boxed(keys, *others, **options)

        found = answer(originally, *arguments, **named)
        return originally(*arguments, **named) if found is None else found

    return operator


def _math(_originally: Callable[..., Any], *arguments: Given, **named: Given) -> tuple[Tensor, Tensor] | None:
    # Inside an operator, transforms of torch.func work with PyTorch's formula but not with our autograd
    # function.
    transformed = torch._C._are_functorch_transforms_active()  # noqa: SLF001 - the only way to ask
    call = None if transformed else _call(arguments, named)
    prepared = None if call is None else _prepared(call)
    if prepared is None or isinstance(prepared, str):
        return None
    if _State.fused_before is None and _flash_reached(prepared[0].q.device):
        return None
    out = attend(*prepared)[0].transpose(1, 2)
    return out, out.new_empty(0)  # scaled_dot_product_attention drops the weights


def _flash(
    originally: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - the signature is PyTorch's
    return_debug_mask: bool = False,  # noqa: FBT001, FBT002
    *,
    scale: float | None = None,
    **others: Given,
) -> tuple[Any, ...] | None:
    tensors = (query, key, value)
    plain = all(type(x) is Tensor for x in tensors)  # Others trace: the graph asks again when it runs.
    gradient = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if not plain or gradient or dropout_p > 0.0 or return_debug_mask or others:
        return None
    # With unequal lengths, the operators place the diagonal differently.
    if is_causal and query.shape[-2] != key.shape[-2]:
        return None
    prepared = _prepared(_Call(query, key, value, None, 0.0, is_causal, None, scale, enable_gqa=True))
    if isinstance(prepared, str) or not _natural(originally, query.device):
        return None
    inputs, options = prepared
    out, lse = forward_pass.forward(inputs, options, None, device_of(query.device))
    result = torch.empty_like(query)
    ours = out.transpose(1, 2)
    result = ours if result.stride() == ours.stride() else result.copy_(ours)
    seed, offset = query.new_zeros(2, dtype=torch.int64).unbind()
    return result, lse, None, None, query.shape[2], key.shape[2], seed, offset, query.new_empty(0)


def _efficient(
    _originally: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,  # noqa: FBT001 - the signature is PyTorch's
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002
    *,
    scale: float | None = None,
    **others: Given,
) -> tuple[Tensor, ...] | None:
    tensors = (query, key, value, attn_bias)
    plain = all(type(x) is Tensor for x in tensors)  # Otherwise tracing, or no mask.
    gradient = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    # Callers that request the log-sum-exp compute gradients from it.
    if not plain or gradient or compute_log_sumexp or dropout_p > 0.0 or others:
        return None
    prepared = _prepared(_Call(query, key, value, attn_bias, 0.0, is_causal, None, scale, enable_gqa=True))
    if isinstance(prepared, str):
        return None
    out = forward_pass.forward(*prepared, None, device_of(query.device))[0].transpose(1, 2)
    seed, offset = query.new_zeros(2, dtype=torch.int64).unbind()
    lse = query.new_empty((*query.shape[:2], 0), dtype=torch.float32)
    return out, lse, seed, offset


def _take_nested() -> None:
    module, name = importlib.import_module(NESTED[0]), NESTED[1]
    originally = getattr(module, name, None)
    if originally is None:  # another structure of PyTorch: keep its function
        return

    def answer(*arguments: Given, **named: Given) -> Tensor:
        found = _of_nested(*arguments, **named)
        return originally(*arguments, **named) if found is None else found

    _State.nested = originally
    setattr(module, name, answer)


def _give_nested_back() -> None:
    if _State.nested is not None:
        setattr(importlib.import_module(NESTED[0]), NESTED[1], _State.nested)
        _State.nested = None


def _of_nested(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - the signature is PyTorch's
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> Tensor | None:
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = (x.to(dtype) for x in (query, key, value))
    prepared = _prepared(_Call(query, key, value, attn_mask, dropout_p, is_causal, None, scale, enable_gqa))
    trains = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    if isinstance(prepared, str) or not _may_answer(query.device, trains=trains or dropout_p > 0.0):
        return None
    out = attend(*prepared)[0]
    return nested.like(query.transpose(1, 2), out).transpose(1, 2)


def _may_answer(device: torch.device, *, trains: bool) -> bool:
    if _State.fused_before is None and _flash_reached(device):
        return not trains and torch.backends.cuda.flash_sdp_enabled()
    return torch.backends.cuda.math_sdp_enabled()


def _call(arguments: tuple[Any, ...], named: dict[str, Any]) -> _Call | None:
    """The operator's arguments, or None if a newer PyTorch has more of them."""
    positional = len(_Call._fields) - len(("scale", "enable_gqa"))
    if len(arguments) > positional or not set(_Call._fields).issuperset(named):
        return None
    return _Call(*arguments, **named)


def _prepared(call: _Call) -> Prepared | str:
    """The inputs and options for a kernel, or the reason against one."""
    query, key, value = call[:3]
    if any(map(nested.is_jagged, call[:3])):
        return _prepared_nested(call)
    if reason := _kind_problem(call) or _shape_problem(call):
        return reason
    rows, keys = query.shape[2], key.shape[2]
    if call.is_causal and rows < keys:
        # Row i sees keys 0 to i, so keys after the last row's are hidden.
        key, value, keys = key[:, :, :rows], value[:, :, :rows], rows
    mask = None if call.attn_mask is None else _mask_of(call.attn_mask)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    inputs = Inputs(q, k, v, attn_mask=mask)
    options = Options(
        softmax_scale=scale_of(call.scale, query.shape[3]),
        window_right=0 if call.is_causal else -1,
        dropout_p=call.dropout_p,
        max_seqlen_q=rows,
        max_seqlen_k=keys,
    )
    return _unserved(inputs, options) or (inputs, options)


def _mask_of(attn_mask: Tensor) -> Tensor:
    """(batch, nheads, seqlen_q, seqlen_k), with sizes of 1 for equal heads or rows."""
    found = preparation.four_dimensions(attn_mask[(None,) * (4 - attn_mask.dim())])
    assert found is not None, "given"
    return found


def _prepared_nested(call: _Call) -> Prepared | str:
    tensors = tuple(x.transpose(1, 2) if x.dim() == 4 else x for x in call[:3])
    if problems := nested.problems(tensors):
        return problems[0]
    if reason := _kind_problem(call) or _nested_problem(call):
        return reason
    (q, k, v, ends_q, ends_k), (rows, keys) = nested.packed(tensors)
    options = Options(
        softmax_scale=scale_of(call.scale, q.shape[-1]),
        window_right=0 if call.is_causal else -1,
        dropout_p=call.dropout_p,
        max_seqlen_q=rows,
        max_seqlen_k=keys,
    )
    inputs = Inputs(q, k, v, cu_seqlens_q=ends_q, cu_seqlens_k=ends_k)
    return _unserved(inputs, options) or (inputs, options)


def _unserved(inputs: Inputs, options: Options) -> str:
    """Why no kernel serves, or "". Gradients of large head dims stay with PyTorch's own function."""
    if inputs.wants_gradients and inputs.q.shape[-1] > LIMITS.head_dim:
        return gradients_unserved(inputs, options)
    return unserved(inputs, options)


def _nested_problem(call: _Call) -> str:
    if call.attn_mask is not None:
        return "kernels take no attn_mask beside nested tensors"
    (batch, nheads, rows, head_dim), (batch_k, nheads_k, keys, _) = call.query.shape, call.key.shape
    if batch_k != batch or call.key.shape[3] != head_dim or call.value.shape != call.key.shape:
        return "the batch, headdim or heads of query, key and value differ"
    if not 0 < head_dim <= LIMITS.wide_head_dim:
        return f"kernels take a headdim from 1 to {LIMITS.wide_head_dim}"
    if call.is_causal and rows != keys:
        return "causal with other lengths of keys than of queries may hide other keys here"
    return _heads_problem(nheads, nheads_k, enable_gqa=call.enable_gqa)


def _heads_problem(nheads: int, nheads_k: int, *, enable_gqa: bool) -> str:
    if nheads % nheads_k or (nheads != nheads_k and not enable_gqa):
        return "the numbers of heads differ, without enable_gqa or by no whole factor"
    return ""


def _kind_problem(call: _Call) -> str:
    tensors = call[:3]
    query = call.query
    rules = (
        (call.dropout_mask is not None, "kernels take no dropout_mask"),
        (not 0.0 <= call.dropout_p < 1.0, "dropout_p is not in 0 <= dropout_p < 1"),
        (call.scale is not None and not abs(call.scale) <= FLOAT_MAX, "scale is not a finite number"),
        (
            any(x.is_nested and not nested.is_jagged(x) for x in tensors),
            "kernels take nested tensors of the layout torch.jagged only",
        ),
        (query.dtype not in DTYPES, f"the dtype is {query.dtype}, and kernels have fp16 and bf16"),
        (any(x.dtype != query.dtype for x in tensors), "the dtypes differ"),
        (any(x.device != query.device for x in tensors), "the devices differ"),
    )
    return next((reason for broken, reason in rules if broken), "")


def _shape_problem(call: _Call) -> str:
    if any(x.dim() != 4 for x in call[:3]):
        return "kernels take tensors of 4 dimensions (batch, nheads, seqlen, headdim)"
    (batch, nheads, rows, head_dim), (_, nheads_k, keys, _) = call.query.shape, call.key.shape
    if call.key.shape != (batch, nheads_k, keys, head_dim) or call.value.shape != call.key.shape:
        return "the batch, headdim or seqlen of query, key and value differ"
    if 0 in {batch, nheads, rows, nheads_k, keys} or not 0 < head_dim <= LIMITS.wide_head_dim:
        return f"kernels take a headdim from 1 to {LIMITS.wide_head_dim}, and no empty tensors"
    if reason := _heads_problem(nheads, nheads_k, enable_gqa=call.enable_gqa):
        return reason
    if call.is_causal and rows > keys:
        return "causal with more queries than keys hides other keys in scaled_dot_product_attention"
    return "" if call.attn_mask is None else _mask_problem(call, call.attn_mask)


def _mask_problem(call: _Call, mask: Tensor) -> str:
    query, keys = call.query, call.key.shape[2]
    sizes = (*query.shape[:3], keys)
    rules = (
        (call.is_causal, "scaled_dot_product_attention takes no attn_mask beside is_causal"),
        (
            mask.dtype not in (torch.bool, torch.float32, query.dtype),
            f"attn_mask has {mask.dtype}, and kernels take torch.bool, torch.float32 and the dtype of query",
        ),
        (mask.device != query.device, "the devices differ"),
        (
            not 1 <= mask.dim() <= 4
            or any(have not in {1, want} for have, want in zip(mask.shape[::-1], sizes[::-1], strict=False)),
            "attn_mask does not broadcast to (batch, nheads, seqlen_q, seqlen_k)",
        ),
    )
    return next((reason for broken, reason in rules if broken), "")


def _flash_reached(device: torch.device) -> bool:
    """Whether PyTorch reports flash attention of its own for this device."""
    if device not in _State.flash_reached:
        x = torch.empty(CANARY, dtype=torch.float16, device=device)
        before = torch.backends.cuda.flash_sdp_enabled()
        torch.backends.cuda.enable_flash_sdp(True)  # noqa: FBT003
        try:
            parameters = torch.backends.cuda.SDPAParams(x, x, x, None, 0.0, False, False)  # noqa: FBT003
            _State.flash_reached[device] = torch.backends.cuda.can_use_flash_attention(parameters)
        finally:
            torch.backends.cuda.enable_flash_sdp(before)
    return _State.flash_reached[device]


def _natural(originally: Callable[..., Any], device: torch.device) -> bool:
    """Whether PyTorch's operator returns natural log-sum-exps, as our kernels do.

    A graph compiled for training runs forward and backward as two operators. Ours may replace the first only
    if the second can read its log-sum-exp.
    """
    if device not in _State.natural:
        if capture.is_capturing(device):
            return False
        x = torch.linspace(-1, 1, 16 * 64, device=device).half().view(CANARY)
        found = originally(x, x, x, 0.0, False, False)[1]  # noqa: FBT003
        wanted = torch.logsumexp(x.float() @ x.float().mT * 64**-0.5, dim=-1)
        same = found.shape == wanted.shape and (found - wanted).abs().max().item() <= CANARY_TOLERANCE
        _State.natural[device] = same
    return _State.natural[device]
