"""What SageAttention's functions cannot use here: each problem with the expected and the given value."""
# ruff: noqa: ANN401 - arguments are yet unchecked

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from flash_attn_rocm import FlashAttnArgumentError
from flash_attn_rocm.interfaces import integer, real
from torch import Tensor

Names = tuple[str, ...]
DENSE: Mapping[str, Names] = {
    "HND": ("batch", "heads", "length", "headdim"), "NHD": ("batch", "length", "heads", "headdim"),
}  # fmt: skip
PACKED: Names = ("total", "heads", "headdim")
DTYPES = (torch.float16, torch.bfloat16)
OF_MASKS = (torch.bool, *DTYPES, torch.float32)
PLACES = (torch.int32, torch.int64)
FLOAT_MAX = torch.finfo(torch.float32).max
# Of quantising, and of k and v with fewer heads, which need no permission.
WITHOUT_EFFECT = (
    "smooth_k", "smooth_v", "qk_quant_gran", "pv_accum_dtype", "quantization_backend", "enable_gqa",
)  # fmt: skip
KNOWN = ("scale", "dropout_p", *WITHOUT_EFFECT)
BY_POSITION = (
    "; scaled_dot_product_attention has other arguments by position: name them (attn_mask=, dropout_p=, "
    "is_causal=, scale=), or use flash_attn_rocm.sdpa.enable()"
)
OTHER_ALIGNMENT = (
    "flash_attn_rocm.attention aligns the last query with the last key, and an attn_mask hides any keys"
)


def refuse(function: str, problems: Sequence[str]) -> None:
    """Raise FlashAttnArgumentError with all problems, if there are any."""
    if problems:
        error = FlashAttnArgumentError(
            "\n".join([f"{function} cannot use its arguments:", *(f"  - {each}" for each in problems)])
        )
        error.problems = tuple(problems)
        raise error


def dense(named: Mapping[str, Any], layout: Any, attn_mask: Any, *, is_causal: bool) -> list[str]:
    """Problems of q, k, v, their layout and the mask."""
    names = DENSE.get(layout, ()) if isinstance(layout, str) else ()
    found = []
    if not names:
        got = repr(layout) if isinstance(layout, str) else type(layout).__name__
        more = "" if isinstance(layout, str) else BY_POSITION
        found.append(f'tensor_layout: expected "HND" or "NHD", got {got}{more}')
    several = _tensors(named, names or DENSE["HND"])
    found += several
    if not several:
        found += _kinds(named)
    if names and not several:
        found += _sizes(named, names)
        rows, keys = (named[name].shape[names.index("length")] for name in "qk")
        if is_causal and rows != keys:
            found.append(
                f"is_causal: expected as many queries as keys, got {rows} and {keys}; {OTHER_ALIGNMENT}"
            )
        found += _mask(attn_mask, named["q"], (*_of(named["q"], names, "batch", "heads", "length"), keys))
    return found


def packed(
    named: Mapping[str, Any], places: Mapping[str, Any], longest: Mapping[str, Any], *, is_causal: bool
) -> list[str]:
    """Problems of packed q, k, v, of cu_seqlens_q and cu_seqlens_k, and of the longest lengths."""
    found = _tensors(named, PACKED)
    if not found:
        found += _kinds(named) + _sizes(named, PACKED)
    wrong = _places(places, named["q"])
    found += wrong
    for name, value in longest.items():
        number = integer(value)
        if number is None or number < 0:
            found.append(f"{name}: expected an integer of 0 or more, got {value}")
    if is_causal and not wrong and _differ(*places.values()):
        what = "sequences of as many queries as keys, got other cu_seqlens_q than cu_seqlens_k"
        found.append(
            f"is_causal: expected {what}; flash_attn_rocm.flash_attn_varlen_func aligns the last query with "
            "the last key"
        )
    return found


def others(given: Mapping[str, Any], sm_scale: Any) -> list[str]:
    """Problems of the scale, and of arguments that SageAttention's functions take by name."""
    found = []
    scales = {"sm_scale": sm_scale, "scale": given.get("scale")}
    for name, value in scales.items():
        number = real(value)
        if value is not None and (number is None or not abs(number) <= FLOAT_MAX):
            found.append(f"{name}: expected a number of fp32 or None, got {value}")
    if None not in scales.values():
        found.append("scale: expected only one of sm_scale and scale, got both")
    dropout_p = given.get("dropout_p")
    if dropout_p is not None and real(dropout_p) != 0.0:
        found.append(f"dropout_p: expected 0.0, got {dropout_p}; flash_attn_rocm.attention has dropout")
    known = ", ".join(KNOWN)
    more = [name for name in given if name not in KNOWN]
    found += [f"{name}: unknown here, and SageAttention would ignore it; known: {known}" for name in more]
    return found


def gradients(named: Mapping[str, Any]) -> list[str]:
    """Problems: tensors whose gradients would be missing."""
    wanting = [name for name, x in named.items() if isinstance(x, Tensor) and x.requires_grad]
    if not wanting or not torch.is_grad_enabled():
        return []
    way_out = "call under torch.no_grad(), or use flash_attn_rocm.attention, which has them"
    return [f"{', '.join(wanting)}: expected no gradients, which SageAttention does not compute; {way_out}"]


def _tensors(named: Mapping[str, Any], names: Names) -> list[str]:
    found, wanted = [], f"({', '.join(names)})"
    for name, x in named.items():
        if not isinstance(x, Tensor):
            found.append(f"{name}: expected a tensor {wanted}, got {type(x).__name__}")
        elif x.is_nested or x.dim() != len(names):
            got = "a nested one" if x.is_nested else f"shape {tuple(x.shape)}"
            found.append(f"{name}: expected {len(names)} dimensions {wanted}, got {got}")
    return found


def _kinds(named: Mapping[str, Tensor]) -> list[str]:
    """Problems of dtypes and devices."""
    found, q = [], named["q"]
    if q.dtype not in DTYPES:
        found.append(f"q: expected dtype {DTYPES[0]} or {DTYPES[1]}, got {q.dtype}")
    for name in ("k", "v"):
        x = named[name]
        if x.dtype != q.dtype:
            found.append(f"{name}: expected dtype {q.dtype} like q, got {x.dtype}")
        if x.device != q.device:
            found.append(f"{name}: expected device {q.device} like q, got {x.device}")
    return found


def _sizes(named: Mapping[str, Tensor], names: Names) -> list[str]:
    """Problems: sizes of q, k and v that do not belong together."""
    found, (q, k, v) = [], (named[name] for name in "qkv")
    like_q = [each for each in names if each in {"batch", "headdim"}]
    if _of(k, names, *like_q) != _of(q, names, *like_q):
        found.append(f"k: expected {' and '.join(like_q)} like q, {tuple(q.shape)}, got {tuple(k.shape)}")
    if v.shape[:-1] != k.shape[:-1]:
        found.append(f"v: expected the shape of k, {tuple(k.shape)}, with any headdim, got {tuple(v.shape)}")
    (heads,), (heads_k,) = _of(q, names, "heads"), _of(k, names, "heads")
    if heads == 0 or heads_k == 0 or heads % heads_k:
        found.append(f"q: expected a multiple of k's {heads_k} heads, got {heads}")
    if q.shape[-1] == 0 or v.shape[-1] == 0:
        found.append("q, v: expected a headdim of 1 or more, got 0")
    return found


def _of(x: Tensor, names: Names, *wanted: str) -> tuple[int, ...]:
    return tuple(x.shape[names.index(each)] for each in wanted)


def _mask(attn_mask: Any, q: Tensor, sizes: tuple[int, ...]) -> list[str]:
    """Problems of a mask for (batch, heads, queries, keys)."""
    if attn_mask is None:
        return []
    if not isinstance(attn_mask, Tensor):
        return [f"attn_mask: expected a tensor, got {type(attn_mask).__name__}"]
    found, shape = [], tuple(attn_mask.shape)
    fits = len(shape) in {2, 4} and all(
        have in {1, want} for have, want in zip(shape[::-1], sizes[::-1], strict=False)
    )
    if not fits:
        more = "; insert that of the heads, attn_mask[:, None], or of the batch" if len(shape) == 3 else ""
        wanted = f"{sizes[2:]} or {sizes}, any size may be 1"
        found.append(f"attn_mask: expected shape {wanted}, got {shape}{more}")
    if attn_mask.dtype not in OF_MASKS:
        found.append(f"attn_mask: expected dtype {', '.join(map(str, OF_MASKS))}, got {attn_mask.dtype}")
    if attn_mask.device != q.device:
        found.append(f"attn_mask: expected device {q.device} like q, got {attn_mask.device}")
    return found


def _places(places: Mapping[str, Any], q: Any) -> list[str]:
    found = []
    for name, x in places.items():
        if not isinstance(x, Tensor):
            found.append(f"{name}: expected a tensor (batch + 1,), got {type(x).__name__}")
            continue
        if x.dim() != 1 or not len(x):
            found.append(f"{name}: expected shape (batch + 1,), got {tuple(x.shape)}")
        if x.dtype not in PLACES:
            found.append(f"{name}: expected dtype {PLACES[0]} or {PLACES[1]}, got {x.dtype}")
        if isinstance(q, Tensor) and x.device != q.device:
            found.append(f"{name}: expected device {q.device} like q, got {x.device}")
    if not found:
        of_q, of_k = places.values()
        if len(of_q) != len(of_k):
            found.append(f"cu_seqlens_k: expected {len(of_q)} numbers like cu_seqlens_q, got {len(of_k)}")
    return found


def _differ(of_q: Tensor, of_k: Tensor) -> bool:
    """Whether sequences have other numbers of queries than of keys. Waits for the GPU for two tensors."""
    return of_q is not of_k and not bool((of_q == of_k).all())
