"""The number of floating-point operations of a call, for torch.utils.flop_counter.FlopCounterMode.

Counted as PyTorch counts its own attention: 2 FLOP for each multiplication and addition of a matrix product,
for all pairs of a query and a key, hidden pairs included. Gradients have five products, forward-mode
derivatives five.
"""

import sys
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from flash_attn_rocm.arguments.normal_form import Inputs, Options
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.values.tracing import constant_when_traced

COUNTER = "torch.utils.flop_counter"  # imported by users who count FLOP, because it loads Triton
FIELDS = len(Inputs._fields)


@constant_when_traced
def register() -> bool:
    """Register our operators with PyTorch's FLOP counter, and with counters that are already open.

    Returns False if this process has not imported the counter.
    """
    if (counter := sys.modules.get(COUNTER)) is None:
        return False
    formulas = _formulas()
    for operator, formula in formulas.items():
        if operator not in counter.flop_registry:
            counter.register_flop_formula(operator, get_raw=True)(formula)
    for mode in _get_current_dispatch_mode_stack():
        # An open counter holds a copy of the former registry.
        registry = getattr(getattr(mode, "counter", None), "flop_registry", None)
        if isinstance(registry, dict):
            registry.update(formulas)
    return True


def _formulas() -> dict[Any, Any]:
    ours = torch.ops.flash_attn_rocm
    forward, backward = (ours.forward, ours.pytorch_forward), (ours.backward, ours.pytorch_backward)
    return {
        **dict.fromkeys(forward, _of_forward),
        **dict.fromkeys(backward, _of_backward),
        ours.pytorch_tangent: _of_tangent,
        ours.latent: _of_latent,
        ours.attend_fp8: _of_fp8,
        ours.attend_int8: _of_int8,
    }


def _of_forward(*arguments: Given, **_out: Given) -> int:
    return _flops(arguments, 1, 1)


def _of_backward(_dout: Tensor, _out: Tensor, _lse: Tensor, *arguments: Given, **_more: Given) -> int:
    return _flops(arguments, 3, 2)


def _of_tangent(
    _q: Tensor, _k: Tensor, _v: Tensor, _out: Tensor, _lse: Tensor, *arguments: Given, **_more: Given
) -> int:
    return _flops(arguments, 3, 2)


def _of_latent(
    q: Tensor,
    kv_cache: Tensor,
    lengths: Tensor | None,
    block_table: Tensor | None,
    *_arguments: Given,
    out_val: Given,
) -> int:
    inputs = Inputs(q, kv_cache, out_val[0], seqused_k=lengths, block_table=block_table)
    options = Options(1.0, max_seqlen_q=q.shape[1], max_seqlen_k=inputs.key_capacity)
    return _flops((*inputs, *options), 1, 1)


def _of_fp8(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor | None, cu_seqlens_k: Tensor | None, *others: Given,
    **_out: Given,
) -> int:  # fmt: skip
    inputs = Inputs(q, k, v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    max_seqlen_q, max_seqlen_k = others[-4:-2]
    return _flops((*inputs, *Options(1.0, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k)), 1, 1)


def _of_int8(q: Tensor, k: Tensor, v: Tensor, *_others: Given, **_out: Given) -> int:
    options = Options(1.0, max_seqlen_q=q.shape[1], max_seqlen_k=k.shape[1])
    return _flops((*Inputs(q, k, v), *options), 1, 1)


def _flops(arguments: tuple[Any, ...], with_q_or_k: int, with_v: int) -> int:
    """FLOP of products over all pairs: ``with_q_or_k`` with q's headdim, ``with_v`` with v's."""
    inputs = Inputs(*arguments[:FIELDS])
    options = Options(*arguments[FIELDS : FIELDS + len(Options._fields)])
    pairs = sum(rows * keys for rows, keys in zip(*_lengths(inputs, options), strict=True))
    columns = with_q_or_k * inputs.q.shape[-1] + with_v * inputs.v.shape[-1]
    return 2 * int(pairs) * inputs.q.shape[-2] * columns


def _lengths(inputs: Inputs, options: Options) -> tuple[list[int], list[int]]:
    """The numbers of queries and keys of each sequence, or the maximum if the tensors have no values."""
    batch = inputs.batch
    rows, keys = [options.max_seqlen_q] * batch, [options.max_seqlen_k] * batch
    if ends := _values(inputs.cu_seqlens_q):
        rows = _differences(ends)
    if ends := _values(inputs.cu_seqlens_k):
        keys = _differences(ends)
    return rows, _values(inputs.seqused_k) or keys


def _values(x: Tensor | None) -> list[int]:
    """The tensor's values, or an empty list for None, fake tensors and the device meta."""
    return x.tolist() if x is not None and type(x) is Tensor and x.device.type != "meta" else []


def _differences(ends: list[int]) -> list[int]:
    return [end - begin for begin, end in pairwise(ends)]
