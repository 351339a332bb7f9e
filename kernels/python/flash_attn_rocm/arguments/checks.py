"""Checks of arguments. Every problem states the expected and the given value.

``reference.sequences`` checks values inside of tensors, when it reads them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import (
    CODES,
    DTYPES,
    INT32_MAX,
    INTEGERS,
    WITHOUT_KERNELS,
    FlashAttnArgumentError,
    Inputs,
    integer,
    pair,
    real,
    requires_gradient,
    wants_gradients,
)
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.values import expectations
from flash_attn_rocm.values.given import Given

FLOAT_MAX = torch.finfo(torch.float32).max
Named = dict[str, Any]


def refuse(function: str, problems: Sequence[str]) -> None:
    """Raise FlashAttnArgumentError with all problems, if there are any."""
    if problems:
        raise refusal(function, problems)


def refusal(function: str, problems: Sequence[str]) -> FlashAttnArgumentError:
    """The error with all problems, each once."""
    found = tuple(dict.fromkeys(problems))
    lines = (f"  - {each}" for each in found)
    error = FlashAttnArgumentError("\n".join([f"{function} cannot use its arguments:", *lines]))
    error.problems = found
    return error


def tensors(named: Named, layouts: dict[str, str]) -> list[str]:
    """Problems: arguments other than tensors, or with other dimensions than ``layouts`` names."""
    found = []
    for name, tensor in named.items():
        layout = layouts[name]
        dims = layout.count(",") + 1
        if not isinstance(tensor, Tensor):
            found.append(f"{name}: expected a tensor {layout}, got {type(tensor).__name__}")
        elif tensor.is_nested:
            found.append(f"{name}: expected a tensor {layout}, got a nested one; use flash_attn_varlen_func")
        elif tensor.dim() != dims:
            found.append(f"{name}: expected {dims} dimensions {layout}, got shape {shape(tensor)}")
    return found


def heads(q: Tensor, k: Tensor, v: Tensor, names: Sequence[str] = ("q", "k", "v")) -> list[str]:
    """Problems of q (…, nheads, headdim), k (…, nheads_k, headdim) and v (…, nheads_k, any headdim)."""
    q_name, k_name, v_name = names
    nheads, head_dim = q.shape[-2:]
    nheads_k = k.shape[-2]
    found = []
    for name, tensor in ((q_name, q), (v_name, v)):
        if tensor.shape[-1] == 0:
            found.append(f"{name}: expected a headdim of 1 or more, got shape {shape(tensor)}")
    if k.shape[-1] != head_dim:
        found.append(f"{k_name}: expected headdim {head_dim} like {q_name}, got shape {shape(k)}")
    if v.shape[:-1] != k.shape[:-1]:
        expected = f"the shape of {k_name}, {shape(k)}, with any headdim"
        found.append(f"{v_name}: expected {expected}, got {shape(v)}")
    if nheads == 0 or nheads_k == 0 or nheads % nheads_k:
        found.append(f"{q_name}: expected {expectations.HEADS} {k_name}'s {nheads_k}, got {nheads}")
    return found


def placement(q_name: str, q: Tensor, others: Named) -> list[str]:
    """Problems: a dtype of q that is unsupported, and tensors of other dtypes or devices than q's."""
    found = []
    if q.dtype not in DTYPES and q.dtype not in WITHOUT_KERNELS:
        expected = "torch.float16, torch.bfloat16, or without kernels torch.float32 or torch.float64"
        found.append(f"{q_name}: expected dtype {expected}, got {q.dtype}{_way_out(q.dtype)}")
    for name, tensor in others.items():
        if tensor.dtype != q.dtype:
            got = f"{tensor.dtype}{_way_out(tensor.dtype)}"
            found.append(f"{name}: expected dtype {q.dtype} like {q_name}, got {got}")
        if tensor.device != q.device:
            found.append(f"{name}: expected device {q.device} like {q_name}, got {tensor.device}")
    return found


def _way_out(dtype: torch.dtype) -> str:
    """What to do with codes of 8 bits where only numbers are taken."""
    if dtype not in CODES:
        return ""
    return "; only a cache may have 8 bits: pass (x.float() * descale).to(torch.bfloat16)"


def caches(
    inputs: Inputs, batch: int, names: Sequence[str] = ("q", "k", "v"), *, written: bool = False
) -> list[str]:
    """Problems of the dtypes and devices of k and v, and of descales.

    A cache has q's dtype, or codes of 8 bits with descales of its heads or of its keys. ``written``: new keys
    write theirs.
    """
    q_name, k_name, v_name = names
    q, k, v = inputs[:3]
    descales = {"k_descale": inputs.k_descale, "v_descale": inputs.v_descale}
    is_cache = inputs.block_table is not None or inputs.cu_seqlens_q is None
    if not is_cache or k.dtype not in CODES:
        known = CODES if is_cache else ()
        return _placement(q_name, q, {k_name: k, v_name: v}, known) + [
            f"{name}: expected only beside a cache of 8 bits, got one beside {k.dtype}"
            for name, x in descales.items()
            if x is not None
        ]
    found = placement(q_name, q, {})
    if v.dtype != k.dtype:
        found.append(f"{v_name}: expected dtype {k.dtype} like {k_name}, got {v.dtype}")
    for name, x in ((k_name, k), (v_name, v)):
        if x.device != q.device:
            found.append(f"{name}: expected device {q.device} like {q_name}, got {x.device}")
    if wants_gradients(inputs):
        found.append(
            f"{q_name}: expected no gradients beside a cache of 8 bits, which has none: call under "
            "torch.no_grad(), or pass detached tensors"
        )
    for name, other in (("k_descale", "v_descale"), ("v_descale", "k_descale")):
        if descales[name] is None and descales[other] is not None:
            found.append(f"{name}: expected beside {other}, got None")
        found += _descale_problems(name, descales[name], batch, k, written=written)
    dims = [x.dim() for x in descales.values() if isinstance(x, Tensor)]
    if len(dims) == 2 and dims[0] != dims[1]:
        found.append("v_descale: expected one for what k_descale has one, for each head or for each key")
    return found


def dropped(inputs: Inputs, dropout_p: Given) -> list[str]:
    """Problems: dropout over a cache of 8 bits."""
    if inputs.k.dtype not in CODES or not (real(dropout_p) or 0.0) > 0.0:
        return []
    return [f"dropout_p: expected 0.0 beside a cache of 8 bits, got {dropout_p}"]


def _placement(q_name: str, q: Tensor, others: Named, known: Sequence[torch.dtype]) -> list[str]:
    """``placement``, whose words name dtypes that k and v may have instead of q's."""
    found = placement(q_name, q, others)
    if not known or all(x.dtype in (q.dtype, *known) for x in others.values()):
        return found
    one, other = f" like {q_name}, got", f" like {q_name}, or {', '.join(map(str, known))}, got"
    return [each.replace(one, other) if "expected dtype" in each else each for each in found]


def _descale_problems(name: str, x: Given, batch: int, k: Tensor, *, written: bool) -> list[str]:
    if x is None:
        return []
    heads, keys = (batch, k.shape[-2]), tuple(k.shape[:-1])
    if not isinstance(x, Tensor):
        return [f"{name}: expected a torch.float32 tensor {heads} or {keys}, got {type(x).__name__}"]
    found = []
    if tuple(x.shape) not in (heads, keys):
        wanted = f"{heads}, one for each head of a sequence, or {keys}, one for each key"
        found.append(f"{name}: expected shape {wanted}, got {shape(x)}")
    elif written and x.dim() == len(keys) and x.numel() > 1 and 0 in x.stride():
        why = "because new keys write theirs, got a stride of 0"
        found.append(f"{name}: expected memory for each key, {why}")
    return [*found, *_kind(name, x, torch.float32, k.device)]


def pages(name: str, cache: Tensor) -> list[str]:
    """Problems of a paged cache's page size."""
    page = cache.shape[1]
    if page and page % LIMITS.page == 0:
        return []
    return [f"{name}: expected {expectations.PAGES} {LIMITS.page} rows, got {page}"]


def batches(q_name: str, q: Tensor, others: Named) -> list[str]:
    """Problems: tensors whose batch dimension differs from q's."""
    return [
        f"{name}: expected batch {q.shape[0]} like {q_name}, got shape {shape(tensor)}"
        for name, tensor in others.items()
        if tensor.shape[0] != q.shape[0]
    ]


def integers(named: Named, device: torch.device) -> list[str]:
    """Problems of optional int32 tensors, given with their expected shapes (-1: any size)."""
    found = []
    for name, (tensor, sizes) in named.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            found.append(f"{name}: expected a torch.int32 tensor, got {type(tensor).__name__}")
            continue
        if not _fits(tensor, sizes):
            found.append(f"{name}: expected shape {_sizes(sizes)}, got {shape(tensor)}")
        found += _kind(name, tensor, torch.int32, device)
    return found


def alibi(slopes: Given, batch: int, nheads: int, device: torch.device) -> list[str]:
    """Problems of alibi_slopes."""
    if slopes is None:
        return []
    if not isinstance(slopes, Tensor):
        return [f"alibi_slopes: expected a torch.float32 tensor, got {type(slopes).__name__}"]
    found = []
    if tuple(slopes.shape) != (nheads,) and tuple(slopes.shape) != (batch, nheads):
        found.append(f"alibi_slopes: expected shape ({nheads},) or ({batch}, {nheads}), got {shape(slopes)}")
    return [*found, *_kind("alibi_slopes", slopes, torch.float32, device)]


def mask(attn_mask: Given, q: Tensor, k: Tensor) -> list[str]:
    """Problems of attn_mask."""
    if attn_mask is None:
        return []
    if not isinstance(attn_mask, Tensor):
        return [f"attn_mask: expected a tensor, got {type(attn_mask).__name__}"]
    batch, nheads, rows, keys = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    layouts = {2: (rows, keys), 3: (batch, rows, keys), 4: (batch, nheads, rows, keys)}
    sizes = layouts.get(attn_mask.dim(), ())
    found = []
    if not sizes or any(have not in {1, want} for have, want in zip(attn_mask.shape, sizes, strict=True)):
        *most, last = map(str, layouts.values())
        wanted = f"{', '.join(most)} or {last}, any size may be 1"
        found.append(f"attn_mask: expected shape {wanted}, got {shape(attn_mask)}")
    if attn_mask.dtype not in (torch.bool, *DTYPES, torch.float32, q.dtype):
        expected = "torch.bool, torch.float16, torch.bfloat16, torch.float32 or that of q"
        found.append(f"attn_mask: expected dtype {expected}, got {attn_mask.dtype}")
    if attn_mask.device != q.device:
        found.append(f"attn_mask: expected device {q.device} like q, got {attn_mask.device}")
    return found


def sinks(sink: Given, nheads: int, device: torch.device) -> list[str]:
    """Problems of sink."""
    if sink is None:
        return []
    if not isinstance(sink, Tensor):
        return [f"sink: expected a tensor ({nheads},), got {type(sink).__name__}"]
    found = []
    if tuple(sink.shape) != (nheads,):
        found.append(f"sink: expected shape ({nheads},), got {shape(sink)}")
    if not sink.is_floating_point():
        found.append(f"sink: expected a floating-point dtype, got {sink.dtype}")
    if sink.device != device:
        found.append(f"sink: expected device {device} like q, got {sink.device}")
    return found


def chunks(chunk: Given, block_table: Given = None) -> list[str]:
    """Problems of chunk."""
    width = integer(chunk)
    if width is None or width < 0:
        return [f"chunk: expected an integer of 0 (none) or more, got {chunk}"]
    return ["chunk: cannot be combined with block_table"] if width and block_table is not None else []


def numbers(
    *,
    window_size: Given,
    softcap: Given,
    softmax_scale: Given,
    dropout_p: Given = 0.0,
) -> list[str]:
    """Problems of the arguments other than tensors."""
    found = []
    if pair(window_size) is None:
        found.append(f"window_size: expected (left, right), got {window_size}")
    found += _number("dropout_p", dropout_p, expectations.DROPOUT_P, lambda p: 0.0 <= p < 1.0)
    found += _number("softcap", softcap, expectations.SOFTCAP, lambda c: 0.0 <= c <= FLOAT_MAX)
    if softmax_scale is not None:
        expected = f"{expectations.SOFTMAX_SCALE} or None"
        found += _number("softmax_scale", softmax_scale, expected, lambda s: abs(s) <= FLOAT_MAX)
    if not found and real(softcap) > 0.0 and real(dropout_p) > 0.0:
        found.append("softcap: cannot be combined with dropout_p > 0")
    return found


def _number(name: str, value: Given, expected: str, fits: Callable[[Any], bool]) -> list[str]:
    if requires_gradient(value):
        what = "got a tensor that requires a gradient, which it would not receive"
        instead = "; multiply q by it, and pass 1.0" if name == "softmax_scale" else ""
        return [f"{name}: expected {expected}, {what}{instead}"]
    number = real(value)
    return [] if number is not None and fits(number) else [f"{name}: expected {expected}, got {value}"]


def lengths(named: Named) -> list[str]:
    """Problems of lengths."""
    return [
        f"{name}: expected an integer from 0 to {INT32_MAX}, got {value}"
        for name, value in named.items()
        if not (_is_integer(value) and 0 <= value <= INT32_MAX)
    ]


def splits(num_splits: Given) -> list[str]:
    """Problems of num_splits."""
    if _is_integer(num_splits) and 0 <= num_splits <= LIMITS.splits:
        return []
    return [f"num_splits: expected an integer from 0 (automatic) to {LIMITS.splits}, got {num_splits}"]


def shape(tensor: Tensor) -> str:
    """A tensor's shape as users write it."""
    return str(tuple(tensor.shape))


def _kind(name: str, tensor: Tensor, dtype: torch.dtype, device: torch.device) -> list[str]:
    found = []  # torch.compile of 2.10 and 2.11 cannot add a generator to a list
    if tensor.dtype != dtype:
        found.append(f"{name}: expected dtype {dtype}, got {tensor.dtype}")
    if tensor.device != device:
        found.append(f"{name}: expected device {device} like q, got {tensor.device}")
    return found


def _fits(tensor: Tensor, sizes: Sequence[int]) -> bool:
    return tensor.dim() == len(sizes) and all(
        want in {-1, have} for want, have in zip(sizes, tensor.shape, strict=True)
    )


def _sizes(sizes: Sequence[int]) -> str:
    words = ", ".join("any" if size == -1 else str(size) for size in sizes)
    return f"({words},)" if len(sizes) == 1 else f"({words})"


def _is_integer(value: object) -> bool:
    return isinstance(value, INTEGERS) and not isinstance(value, bool)
