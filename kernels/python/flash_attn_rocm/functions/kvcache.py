"""``flash_attn_with_kvcache``: attention over a cache of keys and values, after appending to it."""
# ruff: noqa: FBT001, FBT002 - the signature is upstream's, and arguments are yet unchecked

from typing import Any, Literal, SupportsFloat, overload

import torch
from torch import Tensor

from flash_attn_rocm.arguments import checks, lengths, normal_form
from flash_attn_rocm.arguments.checks import Eight
from flash_attn_rocm.arguments.documentation import ARGUMENTS, Function, complete
from flash_attn_rocm.arguments.normal_form import (
    INT32_MAX,
    QUERY_CODES,
    FlashAttnArgumentError,
    Inputs,
    New,
    Options,
    WindowSize,
    resolve,
)
from flash_attn_rocm.arguments.preparation import DENSE_K, DENSE_Q, PAGED_K
from flash_attn_rocm.autograd import recall, transforms
from flash_attn_rocm.autograd.dispatch import attend, named
from flash_attn_rocm.diagnosis.notice import FlashAttnUnsupportedError
from flash_attn_rocm.launch.append import NAME, append, proven
from flash_attn_rocm.launch.dequantising import dequantised
from flash_attn_rocm.serving.support import unserved
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.wrapped import sharded

NEW = "(batch, seqlen_new, nheads_k, headdim)"
ANGLES = "(seqlen_rotary, rotary_dim / 2)"
ROTARY_STEP = 16
CACHED = ("q", "k_cache", "v_cache")  # always there
TENSORS = """
    All tensors are on q's device, and q, k, v and the caches of one dtype, or both caches of 8 bits. nheads
    is a multiple of nheads_k: query head h reads key head h // (nheads / nheads_k). Kernels take
    torch.float16 and torch.bfloat16 with a headdim of 1 to 256, and up to 512 without pages, softcap and
    ALiBi. PyTorch computes torch.float32, torch.float64, larger headdims, and caches of different headdims.
    seqlen_k is the number of keys of a sequence after writing k.
    """
RETURNS = """
    out, in q's shape and dtype, with the headdim of v_cache. A row without a visible key is 0. With
    return_softmax_lse=True a tuple (out, softmax_lse): (batch, nheads, seqlen_q), torch.float32, the natural
    logarithm of the sum of exp(score) over the visible keys of a row, +inf without one.
    """
RAISES = """
    FlashAttnArgumentError: the arguments break these rules. A ValueError and a RuntimeError. Its message
        names the function and every problem with the expected value. Only the PyTorch implementation checks
        lengths and indices in tensors. Kernels never read or write outside of the tensors, and drop new keys
        for places there.
    FlashAttnUnsupportedError: no kernel serves the call, in strict mode (set_strict, or
        FLASH_ATTN_ROCM_STRICT=1).
    """
SOURCE = """
    The interface is that of flash_attn 2.8. Split keys: Flash-Decoding, Dao et al., 2023; blocks:
    PagedAttention, Kwon et al., arXiv:2309.06180; rotary_cos: RoFormer, Su et al., arXiv:2104.09864; sink:
    gpt-oss, arXiv:2508.10925.
    """


def _documented(function: Function) -> Function:
    return complete(function, ARGUMENTS, TENSORS, RETURNS, RAISES, SOURCE)


@overload
def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None, cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None,
    num_splits: int = 0, return_softmax_lse: Literal[False] = False, *, sink: Tensor | None = None,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None, cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None,
    num_splits: int = 0, *, return_softmax_lse: Literal[True], sink: Tensor | None = None,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    rotary_cos: Tensor | None = None, rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None, cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None, block_table: Tensor | None = None,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, rotary_interleaved: bool = True, alibi_slopes: Tensor | None = None,
    num_splits: int = 0, return_softmax_lse: bool = False, *, sink: Tensor | None = None,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
@_documented
def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = False,
    window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    sink: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of new queries over a cache of keys and values, for decoding, without gradients.

    k and v, if given, are first written into the cache, in place, behind its keys.

    Args:
        q: (batch, seqlen_q, nheads, headdim). Beside a cache of torch.float8_e4m3fn or torch.float8_e4m3fnuz
            also of that dtype: it is dequantised to torch.bfloat16, the dtype of out and of new keys.
        k_cache: (batch_cache, seqlen_cache, nheads_k, headdim), or with block_table its blocks, (num_blocks,
            page, nheads_k, headdim) with a page of a multiple of 16 rows.
            Its elements may have 8 bits: torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2 or
            torch.int8 (docs/caches-8-bit.md).
        v_cache: in the shape and dtype of k_cache. Rows hidden by causal or window_size must be finite, too,
            because 0 times NaN is NaN: clear freed pages.
        k: (batch, seqlen_new, nheads_k, headdim): new keys, for the rows from cache_seqlens[b] on of sequence
            b. In q's dtype, also for a cache of 8 bits: they are rounded on the way.
        v: in the shape of k.
        rotary_cos: (seqlen_rotary, rotary_dim / 2), in q's dtype. It rotates k by its position in the cache,
            and q by cache_seqlens + i when causal or windowed, otherwise by cache_seqlens. rotary_dim
            is a multiple of 16 up to headdim. Needs k.
        rotary_sin: in the shape of rotary_cos.
        cache_seqlens: Number of keys in the cache before k is written: an int, or (batch,), torch.int32. By
            default all. Needed with k.
        cache_batch_idx: (batch,), torch.int32: the row of sequence b in the cache, by default b. With k, rows
            have to be different.
        cache_leftpad: (batch,), torch.int32: number of ignored keys at the start of the cache.
        block_table: (batch, max_blocks), torch.int32: the blocks of sequence b in the cache. Excludes
            cache_batch_idx and cache_leftpad.
        rotary_interleaved: If True, neighbours (0 and 1, 2 and 3, ...) are rotated together, otherwise the
            halves of rotary_dim.
        num_splits: Number of parts of the keys, up to 512. 0: chosen to fill the GPU. The result is the
            same.
        return_softmax_lse: If True, return (out, softmax_lse).
        q_descale: of q of 8 bits, torch.float32, (batch, nheads_k), with any strides, as in FlashAttention 3:
            elements of q times it are queries, for all heads that read a head of k. None is 1. Keyword only,
            an addition to flash_attn.
        k_descale: of a cache of 8 bits, torch.float32: elements of k_cache times their k_descale are keys.
            (batch, nheads_k), one for each head of a sequence, with any strides, as in FlashAttention 3. Or
            one for each key of a head, in the shape of k_cache without its headdim: then k, if given, writes
            its own. None is 1. Keyword only, an addition to flash_attn.
        v_descale: likewise of v_cache, beside k_descale.
    """
    number = cache_seqlens if type(cache_seqlens) is int else None
    tensors = (
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, _lengths(q, cache_seqlens), cache_batch_idx,
        cache_leftpad, block_table, alibi_slopes, sink, q_descale, k_descale, v_descale,
    )  # fmt: skip
    numbers = (rotary_interleaved, softmax_scale, causal, softcap, num_splits, window_size)
    out, lse = _answer(tensors, numbers, number)
    return (out, lse) if return_softmax_lse else out


def _answer(tensors: tuple[Any, ...], numbers: tuple[Any, ...], number: int | None) -> tuple[Tensor, Tensor]:
    """``number``: cache_seqlens, if it is one."""
    key = recall.signature(_unpack, tensors, numbers)
    found = None if key is None else recall.known().get(key)
    try:
        if found is not None and found.no_gradients is None:
            ready = _appended(_unpack(*tensors), found.options, tensors, numbers, number, by_kernel=True)
            return recall.launched(found, ready)
        transforms.refuse_tangents(NAME, tensors)
        sharded.refuse(NAME, tensors)
        with torch.no_grad():
            found, ready, options = _decided(key, tensors, numbers, number)
            return recall.launched(found, ready) if found else attend(ready, options)[:2]
    except (FlashAttnArgumentError, FlashAttnUnsupportedError) as error:
        raise named(error, NAME) from None


def _decided(
    key: recall.Signature | None, tensors: tuple[Any, ...], numbers: tuple[Any, ...], number: int | None
) -> tuple[recall.Decision | None, Inputs, Options]:
    """The decision, now stored if possible, and the call after writing k and v."""
    inputs, options = prepare(*tensors, *numbers)
    if normal_form.is_quantised(inputs):
        inputs, key = dequantised(inputs, tensors[-3], cached=True), None
    served = not unserved(inputs, options)
    writes = served and tensors[3] is not None
    # In a graph the operator asks, when it runs.
    right = proven(inputs) if writes and not torch.compiler.is_compiling() else True
    found = recall.decided(key, _unpack, tensors, inputs, options) if served and right else None
    by_kernel = served and right is not False
    return found, _appended(inputs, options, tensors, numbers, number, by_kernel=by_kernel), options


def _appended(
    inputs: Inputs,
    options: Options,
    tensors: tuple[Any, ...],
    numbers: tuple[Any, ...],
    number: int | None,
    *,
    by_kernel: bool,
) -> Inputs:
    """The inputs after writing k and v, if given, into the cache.

    It checks what no stored decision depends on.
    """
    k, v, cos, sin = tensors[3:7]
    problems = [] if number is None else _number_problems(inputs, options, number, k, cos)
    problems += [] if k is None else checks.shared(inputs)
    if problems:
        checks.refuse(NAME, problems)
    if k is None:
        return inputs
    return append(inputs, options, New(k, v, cos, sin, bool(numbers[0])), by_kernel=by_kernel)


def _unpack(q: Given, k_cache: Given, v_cache: Given, *rest: Given) -> Inputs:
    lengths, batch_idx, leftpad, table, slopes, sink, _, *others = rest[4:]
    places = (lengths, leftpad, table, batch_idx)
    return Inputs(q, k_cache, v_cache, slopes, None, None, *places, None, sink, *others)


def _number_problems(
    inputs: Inputs, options: Options, number: int, k: Tensor | None, cos: Tensor | None
) -> list[str]:
    """Problems of cache_seqlens, if it is a number: the host knows it."""
    new = None if k is None else k.shape[1]
    found = lengths.problems(inputs, [number], new)
    if new is None:
        return found
    return found + lengths.of_angles(inputs, [number], new, cos, advances=lengths.advances(options))


def _lengths(q: Given, cache_seqlens: Given) -> Given:
    """A valid number as a tensor: it changes with every decoding step, and has no part in decisions."""
    if type(cache_seqlens) is int and 0 <= cache_seqlens <= INT32_MAX and isinstance(q, Tensor):
        return torch.full(q.shape[:1], cache_seqlens, dtype=torch.int32, device=q.device)
    return cache_seqlens


def prepare(
    q: Given,
    k_cache: Given,
    v_cache: Given,
    k: Given,
    v: Given,
    rotary_cos: Given,
    rotary_sin: Given,
    cache_seqlens: Given,
    cache_batch_idx: Given,
    cache_leftpad: Given,
    block_table: Given,
    alibi_slopes: Given,
    sink: Given,
    q_descale: Given,
    k_descale: Given,
    v_descale: Given,
    rotary_interleaved: Given,
    softmax_scale: Given,
    causal: Given,
    softcap: Given,
    num_splits: Given,
    window_size: Given,
) -> tuple[Inputs, Options]:
    """Inputs whose seqused_k is cache_seqlens, before anything is appended."""
    del rotary_interleaved  # any value is right
    cache = DENSE_K if block_table is None else PAGED_K
    layouts = {
        "q": (q, DENSE_Q), "k_cache": (k_cache, cache), "v_cache": (v_cache, cache),
        "k": (k, NEW), "v": (v, NEW), "rotary_cos": (rotary_cos, ANGLES),
        "rotary_sin": (rotary_sin, ANGLES),
    }  # fmt: skip
    tensors = {name: x for name, (x, _) in layouts.items() if x is not None or name in CACHED}
    found = checks.tensors(tensors, {name: layouts[name][1] for name in tensors})
    found += _presence_problems(tensors, cache_seqlens, cache_batch_idx, cache_leftpad, block_table)
    found += checks.numbers(window_size=window_size, softcap=softcap, softmax_scale=softmax_scale)
    found += checks.splits(num_splits)
    checks.refuse(NAME, found)  # The checks below read the tensors.
    used = cache_seqlens if isinstance(cache_seqlens, Tensor) else None
    inputs = Inputs(
        q, k_cache, v_cache, alibi_slopes, seqused_k=used, leftpad_k=cache_leftpad,
        block_table=block_table, cache_batch_idx=cache_batch_idx, sink=sink, k_descale=k_descale,
        v_descale=v_descale,
    )  # fmt: skip
    eight = Eight(QUERY_CODES, q_descale, cached=True, written=k is not None)
    checks.refuse(NAME, _size_problems(inputs, tensors, eight))
    options = resolve(
        q, max_seqlen_q=q.shape[1], max_seqlen_k=normal_form.key_capacity(inputs),
        softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
        num_splits=num_splits,
    )  # fmt: skip
    if cache_seqlens is not None and used is None:
        checks.refuse(NAME, _number_problems(inputs, options, cache_seqlens, k, rotary_cos))
        used = torch.full(q.shape[:1], cache_seqlens, dtype=torch.int32, device=q.device)
        inputs = inputs._replace(seqused_k=used)
    return inputs, options


def _presence_problems(
    tensors: dict[str, Any], lengths: Given, batch_idx: Given, leftpad: Given, table: Given
) -> list[str]:
    k, v, cos, sin = (name in tensors for name in ("k", "v", "rotary_cos", "rotary_sin"))
    rules = (
        (k and not v, "v: expected beside k, got None"),
        (v and not k, "k: expected beside v, got None"),
        (k and lengths is None, "cache_seqlens: expected when k is given, got None"),
        (cos and not sin, "rotary_sin: expected beside rotary_cos, got None"),
        (sin and not cos, "rotary_cos: expected beside rotary_sin, got None"),
        ((cos or sin) and not k, "k: expected when rotary_cos is given, got None"),
        (
            table is not None and batch_idx is not None,
            "cache_batch_idx: cannot be combined with block_table",
        ),
        (table is not None and leftpad is not None, "cache_leftpad: cannot be combined with block_table"),
    )
    found = [text for broken, text in rules if broken]
    if lengths is not None and not isinstance(lengths, Tensor):
        found += checks.lengths({"cache_seqlens": lengths})
    return found


def _size_problems(inputs: Inputs, tensors: dict[str, Tensor], eight: Eight) -> list[str]:
    others = {name: x for name, x in tensors.items() if name not in CACHED}
    q, k_cache, v_cache = inputs[:3]
    batch, _, nheads, _ = q.shape
    integers = {
        "cache_seqlens": (inputs.seqused_k, (batch,)),
        "cache_batch_idx": (inputs.cache_batch_idx, (batch,)),
        "cache_leftpad": (inputs.leftpad_k, (batch,)),
        "block_table": (inputs.block_table, (batch, -1)),
    }
    return [
        *checks.heads(q, k_cache, v_cache, CACHED),
        *checks.dtypes(inputs, batch, eight, CACHED),
        *checks.placement("q", q, others, codes=eight.codes),
        *_cache_problems(inputs, tensors),
        *checks.integers(integers, q.device),
        *checks.alibi(inputs.alibi_slopes, batch, nheads, q.device),
        *checks.sinks(inputs.sink, nheads, q.device),
        *_rotary_problems(q, tensors),
    ]


def _cache_problems(inputs: Inputs, tensors: dict[str, Tensor]) -> list[str]:
    q, k_cache, v_cache = inputs[:3]
    found = checks.written({name: tensors[name] for name in CACHED[1:]}) if "k" in tensors else []
    if inputs.block_table is not None:
        found += checks.pages("k_cache", k_cache)
    elif inputs.cache_batch_idx is None and k_cache.shape[0] != q.shape[0]:
        found.append(f"k_cache: expected batch {q.shape[0]} like q, got shape {checks.shape(k_cache)}")
    for name, cache in (("k", k_cache), ("v", v_cache)):
        if name not in tensors:
            continue
        wanted = (q.shape[0], tensors["k"].shape[1], *cache.shape[2:])
        if tuple(tensors[name].shape) != wanted:
            found.append(f"{name}: expected shape {wanted}, got {checks.shape(tensors[name])}")
    return found


def _rotary_problems(q: Tensor, tensors: dict[str, Tensor]) -> list[str]:
    if "rotary_cos" not in tensors:
        return []
    cos, sin = tensors["rotary_cos"], tensors["rotary_sin"]
    rotary_dim = 2 * cos.shape[1]
    found = []
    if rotary_dim % ROTARY_STEP or rotary_dim > q.shape[3]:
        found.append(
            f"rotary_cos: expected a rotary_dim that is a multiple of {ROTARY_STEP} up to the headdim "
            f"{q.shape[3]}, got {rotary_dim}"
        )
    if sin.shape != cos.shape:
        found.append(
            f"rotary_sin: expected the shape of rotary_cos, {checks.shape(cos)}, got {checks.shape(sin)}"
        )
    return found
