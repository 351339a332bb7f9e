"""Checks of arguments. Every problem states the expected and the given value.

``reference.sequences`` checks values inside of tensors, when it reads them.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.arguments.memory import begin_together
from flash_attn_rocm.arguments.normal_form import (
    CODES,
    DEQUANTISED,
    DTYPES,
    INT32_MAX,
    INTEGERS,
    OF_KEYS,
    WITHOUT_KERNELS,
    FlashAttnArgumentError,
    Inputs,
    integer,
    is_quantised,
    pair,
    real,
    requires_gradient,
    wants_gradients,
)
from flash_attn_rocm.library.host import LIMITS
from flash_attn_rocm.values import expectations
from flash_attn_rocm.values.given import Given

FLOAT_MAX = torch.finfo(torch.float32).max
A_CACHE = "a cache"
Named = dict[str, Any]
Size = tuple[tuple[int, ...], str]  # of a tensor, in words too


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


def placement(q_name: str, q: Tensor, others: Named, *, codes: Sequence[torch.dtype] = ()) -> list[str]:
    """Problems: a dtype of q that is unsupported, and tensors of other dtypes or devices than q's.

    q may have one of ``codes`` of 8 bits. Then the others have the dtype of its numbers.
    """
    found = []
    if q.dtype not in (*DTYPES, *WITHOUT_KERNELS, *codes):
        kernels = ", ".join(map(str, (*DTYPES, *codes)))
        expected = f"{kernels}, or without kernels torch.float32 or torch.float64"
        found.append(f"{q_name}: expected dtype {expected}, got {q.dtype}{_way_out(q.dtype)}")
    dtype, how = q.dtype, f"like {q_name}"
    if q.dtype in codes:
        dtype, how = DEQUANTISED, f"beside {q_name} of 8 bits"
    for name, tensor in others.items():
        if tensor.dtype != dtype:
            got = f"{tensor.dtype}{_way_out(tensor.dtype)}"
            found.append(f"{name}: expected dtype {dtype} {how}, got {got}")
        found += devices(q_name, q, {name: tensor})
    return found


def devices(q_name: str, q: Tensor, others: Named) -> list[str]:
    """Problems: tensors on other devices than q's."""
    return [
        f"{name}: expected device {q.device} like {q_name}, got {tensor.device}"
        for name, tensor in others.items()
        if tensor.device != q.device
    ]


def _way_out(dtype: torch.dtype) -> str:
    """What to do with codes of 8 bits where only numbers are taken."""
    return "; pass (x.float() * descale).to(torch.bfloat16)" if dtype in CODES else ""


class Eight(NamedTuple):
    """How a function takes 8 bits: the dtypes of ``codes`` that q may have, and q's descale.

    ``cached``: k and v are a cache, which may have CODES beside any q. ``written``: new keys write theirs.
    """

    codes: Sequence[torch.dtype] = ()
    q_descale: Any = None
    cached: bool = False
    written: bool = False


def dtypes(inputs: Inputs, batch: int, eight: Eight, names: Sequence[str] = ("q", "k", "v")) -> list[str]:
    """Problems of the dtypes and devices of q, k and v, and of descales.

    All three have one dtype, or k and v are a cache with codes of 8 bits beside any q.
    """
    q_name, k_name, v_name = names
    q, k, v = inputs[:3]
    two, written = {k_name: k, v_name: v}, eight.written
    q_descale = {"q_descale": eight.q_descale}
    others = {"k_descale": inputs.k_descale, "v_descale": inputs.v_descale}
    heads = ((batch, k.shape[-2]), "one for each head of a sequence")
    if q.dtype in eight.codes:
        found = _alike(q_name, q, two) + devices(q_name, q, two)
        found += _differentiable(inputs, q_name, {**q_descale, **others}, "of 8 bits, which have none")
        found += _descales(q_descale, [heads], k)
        if eight.cached:
            return found + _cache_descales(others, heads, k, written=written)
        return found + _descales(others, [heads], k)
    if eight.cached and k.dtype in CODES:
        found = placement(q_name, q, {}, codes=eight.codes) + _alike(k_name, k, {v_name: v})
        found += devices(q_name, q, two)
        found += _differentiable(inputs, q_name, others, f"beside {A_CACHE} of 8 bits, which has none")
        return found + _alone(q_descale, q_name, q) + _cache_descales(others, heads, k, written=written)
    found = _placement(q_name, q, two, CODES if eight.cached else (), eight.codes)
    beside = (A_CACHE, k) if eight.cached else (q_name, q)
    return found + _alone(q_descale, q_name, q) + _alone(others, *beside)


def shared(inputs: Inputs) -> list[str]:
    """Problems: one tensor for keys and for values, where new ones are written."""
    found = _shared({"k_descale": inputs.k_descale, "v_descale": inputs.v_descale})
    if inputs.k is inputs.v or begin_together(inputs.k, inputs.v):
        found.append("v_cache: expected memory of its own, because new keys are written, got that of k_cache")
    return found


def written(caches: Named) -> list[str]:
    """Problems of caches into which new keys are written."""
    return [
        f"{name}: expected memory for each element, because new keys are written, got a stride of 0"
        for name, cache in caches.items()
        if _repeats(cache)
    ]


def dropped(inputs: Inputs, dropout_p: Given) -> list[str]:
    """Problems: dropout beside 8 bits."""
    quantised = is_quantised(inputs)
    if not quantised and (inputs.block_table is None or inputs.k.dtype not in CODES):
        return []
    if not (real(dropout_p) or 0.0) > 0.0:
        return []
    what = "q" if quantised else A_CACHE
    return [f"dropout_p: expected 0.0 beside {what} of 8 bits, got {dropout_p}"]


def _placement(
    q_name: str, q: Tensor, others: Named, known: Sequence[torch.dtype], codes: Sequence[torch.dtype]
) -> list[str]:
    """``placement``, whose words name dtypes that k and v may have instead of q's."""
    found = placement(q_name, q, others, codes=codes)
    if not known or all(x.dtype in (q.dtype, *known) for x in others.values()):
        return found
    one, other = f" like {q_name}, got", f" like {q_name}, or {', '.join(map(str, known))}, got"
    return [each.replace(one, other) if "expected dtype" in each else each for each in found]


def _alike(name: str, like: Tensor, others: Named) -> list[str]:
    """Problems: tensors of another dtype of 8 bits."""
    return [
        f"{other}: expected dtype {like.dtype} like {name}, got {x.dtype}"
        for other, x in others.items()
        if x.dtype != like.dtype
    ]


def _differentiable(inputs: Inputs, q_name: str, descales: Named, what: str) -> list[str]:
    wanting = [q_name] if wants_gradients(inputs) else []
    if torch.is_grad_enabled():
        wanting += [name for name, x in descales.items() if isinstance(x, Tensor) and x.requires_grad]
    way_out = "call under torch.no_grad(), or pass detached tensors"
    return [f"{name}: expected no gradients {what}: {way_out}" for name in wanting]


def _alone(descales: Named, what: str, numbers: Tensor) -> list[str]:
    """Problems: descales of tensors that are numbers already. Other codes are refused themselves."""
    if numbers.dtype in CODES:
        return []
    return [
        f"{name}: expected only beside {what} of 8 bits, got one beside {numbers.dtype}"
        for name, x in descales.items()
        if x is not None
    ]


def _cache_descales(descales: Named, heads: Size, k: Tensor, *, written: bool) -> list[str]:
    found = [
        f"{name}: expected beside {other}, got None"
        for name, other in (("k_descale", "v_descale"), ("v_descale", "k_descale"))
        if descales[name] is None and descales[other] is not None
    ]
    keys = tuple(k.shape[:-1])
    found += _descales(descales, [heads, (keys, "one for each key")], k)
    there = {name: x for name, x in descales.items() if isinstance(x, Tensor)}
    for name, x in there.items():
        if written and tuple(x.shape) == keys and _repeats(x):
            why = "because new keys write theirs, got a stride of 0"
            found.append(f"{name}: expected memory for each key, {why}")
    if written:
        found += _shared(descales)
    dims = [x.dim() for x in there.values()]
    if len(dims) == 2 and dims[0] != dims[1]:
        found.append("v_descale: expected one for what k_descale has one, for each head or for each key")
    return found


def _shared(descales: Named) -> list[str]:
    own, other = descales["v_descale"], descales["k_descale"]
    if own is not other or not isinstance(own, Tensor) or own.dim() != OF_KEYS:
        return []
    return ["v_descale: expected memory of its own, because new keys write theirs, got k_descale"]


def _repeats(x: Tensor) -> bool:
    """Whether elements share memory by a stride of 0."""
    return any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))


def _descales(descales: Named, sizes: Sequence[Size], k: Tensor) -> list[str]:
    """Problems of optional descales, given with the shapes that they may have."""
    found = []
    for name, x in descales.items():
        if x is None:
            continue
        if not isinstance(x, Tensor):
            wanted = " or ".join(str(size) for size, _ in sizes)
            found.append(f"{name}: expected a torch.float32 tensor {wanted}, got {type(x).__name__}")
            continue
        if tuple(x.shape) not in [size for size, _ in sizes]:
            wanted = ", or ".join(f"{size}, {words}" for size, words in sizes)
            found.append(f"{name}: expected shape {wanted}, got {shape(x)}")
        found += _kind(name, x, torch.float32, k.device)
    return found


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
    own = () if q.dtype in CODES else (q.dtype,)
    if attn_mask.dtype not in (torch.bool, *DTYPES, torch.float32, *own):
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
