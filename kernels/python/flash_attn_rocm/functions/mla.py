"""``mla_decode``: attention of new queries over the cache of multi-head latent attention."""

from typing import Literal, SupportsFloat, SupportsIndex, overload

import torch
from torch import Tensor

from flash_attn_rocm.arguments import checks, lengths, normal_form
from flash_attn_rocm.arguments.checks import Eight
from flash_attn_rocm.arguments.documentation import Function, complete
from flash_attn_rocm.arguments.normal_form import FlashAttnArgumentError, Inputs, Options, integer, resolve
from flash_attn_rocm.arguments.packed_rows import is_packed, problems, way_out, with_head
from flash_attn_rocm.arguments.preparation import DENSE_Q
from flash_attn_rocm.autograd import transforms
from flash_attn_rocm.autograd.dispatch import named
from flash_attn_rocm.diagnosis.notice import FlashAttnUnsupportedError, fall_back
from flash_attn_rocm.launch import latent, packed_rows
from flash_attn_rocm.reference import operators
from flash_attn_rocm.values.given import Given
from flash_attn_rocm.wrapped import sharded

NAME = "mla_decode"
DENSE, PAGED = "(batch, seqlen_k, 1, headdim)", "(num_blocks, page, 1, headdim)"
TENSORS = """
    All tensors are on q's device, and q and kv_cache of one dtype, or kv_cache of 8 bits. Kernels take
    torch.float16 and torch.bfloat16 with a headdim of 576 and a head_dim_v of 512, as in DeepSeek V2 and V3
    and Kimi K2, on the GPUs listed in docs/features.md. PyTorch computes everything else. The caller writes
    new keys into the cache.
    """
RETURNS = """
    out, (batch, seqlen_q, nheads, head_dim_v), in q's dtype. A row without a visible key is 0. With
    return_softmax_lse=True a tuple (out, softmax_lse): (batch, nheads, seqlen_q), torch.float32, the natural
    logarithm of the sum of exp(score) over the visible keys of a row, +inf without one.
    """
RAISES = """
    FlashAttnArgumentError: the arguments break these rules. A ValueError and a RuntimeError. Its message
        names the function and every problem with the expected value. Only the PyTorch implementation checks
        lengths and indices in tensors. Kernels never read outside of the tensors.
    FlashAttnUnsupportedError: no kernel serves the call, in strict mode (set_strict, or
        FLASH_ATTN_ROCM_STRICT=1).
    """
SOURCE = """
    Multi-head latent attention: DeepSeek-V2, arXiv:2405.04434; the arguments are those of FlashMLA's
    flash_mla_with_kvcache, without its metadata. Split keys: Flash-Decoding, Dao et al., 2023; blocks:
    PagedAttention, Kwon et al., arXiv:2309.06180.
    """


def _documented(function: Function) -> Function:
    return complete(function, {}, TENSORS, RETURNS, RAISES, SOURCE)


@overload
def mla_decode(
    q: Tensor, kv_cache: Tensor, cache_seqlens: int | Tensor | None = None, *,
    block_table: Tensor | None = None, head_dim_v: SupportsIndex = 512,
    softmax_scale: SupportsFloat | None = None, causal: bool = True, num_splits: int = 0,
    return_softmax_lse: Literal[False] = False, kv_descale: Tensor | None = None,
) -> Tensor: ...  # fmt: skip
@overload
def mla_decode(
    q: Tensor, kv_cache: Tensor, cache_seqlens: int | Tensor | None = None, *,
    block_table: Tensor | None = None, head_dim_v: SupportsIndex = 512,
    softmax_scale: SupportsFloat | None = None, causal: bool = True, num_splits: int = 0,
    return_softmax_lse: Literal[True], kv_descale: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
@overload
def mla_decode(
    q: Tensor, kv_cache: Tensor, cache_seqlens: int | Tensor | None = None, *,
    block_table: Tensor | None = None, head_dim_v: SupportsIndex = 512,
    softmax_scale: SupportsFloat | None = None, causal: bool = True, num_splits: int = 0,
    return_softmax_lse: bool = False, kv_descale: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
@_documented
def mla_decode(
    q: Tensor,
    kv_cache: Tensor,
    cache_seqlens: int | Tensor | None = None,
    *,
    block_table: Tensor | None = None,
    head_dim_v: SupportsIndex = 512,
    softmax_scale: SupportsFloat | None = None,
    causal: bool = True,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    kv_descale: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of new queries over the cache of multi-head latent attention, outside of autograd.

    All heads share one head of keys, and the values are the first head_dim_v elements of the keys, so the
    cache holds one tensor. q is the result of the absorbed projections: head_dim_v elements for the
    compressed part of a key, then the elements for its rotated part.

    Args:
        q: (batch, seqlen_q, nheads, headdim).
        kv_cache: (batch, seqlen_k, 1, headdim), or with block_table its blocks, (num_blocks, page, 1,
            headdim) with a page of a multiple of 16 rows. Or rows of 656 bytes, torch.uint8, as in vLLM's
            fp8_ds_mla and FlashMLA: (…, 1, 656) or (…, 656). A row has 512 codes of torch.float8_e4m3fn,
            four scales in torch.float32, each for 128 codes, and 64 elements of torch.bfloat16. Then q is of
            torch.bfloat16 with a headdim of 576. MI200, MI300 and MI350 read such rows as they are. On other
            GPUs they are widened to torch.bfloat16 before each call.
        cache_seqlens: Number of keys of each sequence: an int, or (batch,), torch.int32. By default all.
        block_table: (batch, max_blocks), torch.int32: the blocks of sequence b in the cache.
        head_dim_v: Number of elements of a key that are its value, at most headdim.
        softmax_scale: Factor of q k^T, a finite number. None is headdim ** -0.5. Models with latent attention
            have that of their uncompressed heads, such as 192 ** -0.5.
        causal: If True, query i sees key j only if j <= i + seqlen_k - seqlen_q: the last query sees all.
        num_splits: Number of parts of the keys, up to 512. 0: chosen to fill the GPU. The result is the
            same.
        return_softmax_lse: If True, return (out, softmax_lse).
        kv_descale: of a cache of 8 bits (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2 or
            torch.int8), torch.float32: elements of kv_cache times it are keys. (batch, 1), or one for each
            key, in the shape of kv_cache without its headdim. None is 1. With q of torch.bfloat16 kernels
            of MI200, MI300, MI350, RX 7000 and Ryzen with RDNA 3 read such a cache as it is. Otherwise it is
            widened to q's dtype before each call.
    """
    tensors = (q, kv_cache, cache_seqlens, block_table, kv_descale)
    transforms.refuse_tangents(NAME, tensors)
    sharded.refuse(NAME, tensors)
    with torch.no_grad():
        inputs, options = prepare(*tensors, head_dim_v, softmax_scale, causal, num_splits)
        try:
            out, lse = _attend(inputs, options)
        except (FlashAttnArgumentError, FlashAttnUnsupportedError) as error:
            raise named(error, NAME, {"k": "kv_cache"}) from None
    return (out, lse) if return_softmax_lse else out


def _attend(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    if reason := latent.unserved(inputs):
        fall_back(reason, stacklevel=4)
    if is_packed(inputs.k) and (reason or not latent.reads_rows(inputs)):
        inputs = packed_rows.widened(inputs)
    if reason:
        return operators.forward(inputs, options, None, want_probabilities=False)[:2]
    return latent.attend(inputs, options)


def prepare(
    q: Given,
    kv_cache: Given,
    cache_seqlens: Given,
    block_table: Given,
    kv_descale: Given,
    head_dim_v: Given,
    softmax_scale: Given,
    causal: Given,
    num_splits: Given,
) -> tuple[Inputs, Options]:
    """Inputs whose v is a part of k and whose seqused_k is cache_seqlens."""
    kv_cache = with_head(kv_cache)
    layouts = {"q": DENSE_Q, "kv_cache": DENSE if block_table is None else PAGED}
    found = checks.tensors({"q": q, "kv_cache": kv_cache}, layouts)
    found += checks.numbers(window_size=(-1, -1), softcap=0.0, softmax_scale=softmax_scale)
    found += checks.splits(num_splits)
    used = cache_seqlens if isinstance(cache_seqlens, Tensor) else None
    if cache_seqlens is not None and used is None:
        found += checks.lengths({"cache_seqlens": cache_seqlens})
    checks.refuse(NAME, found)  # The checks below read the tensors.
    found = _shape_problems(q, kv_cache, block_table, head_dim_v)
    batch = q.shape[0]
    if is_packed(kv_cache):
        found += problems(q, kv_cache, head_dim_v, kv_descale)
    else:
        found += _dtype_problems(q, kv_cache, block_table, kv_descale)
    found += checks.integers(
        {"cache_seqlens": (used, (batch,)), "block_table": (block_table, (batch, -1))}, q.device
    )
    checks.refuse(NAME, found)
    v = kv_cache[..., : integer(head_dim_v)]
    inputs = Inputs(
        q, kv_cache, v, seqused_k=used, block_table=block_table, k_descale=kv_descale, v_descale=kv_descale
    )
    if cache_seqlens is not None and used is None:
        checks.refuse(NAME, lengths.problems(inputs, [cache_seqlens], None))
        used = torch.full((batch,), cache_seqlens, dtype=torch.int32, device=q.device)
        inputs = inputs._replace(seqused_k=used)
    return inputs, resolve(
        q, max_seqlen_q=q.shape[1], max_seqlen_k=normal_form.key_capacity(inputs),
        softmax_scale=softmax_scale, causal=bool(causal), window_size=(-1, -1), softcap=0.0,
        num_splits=num_splits,
    )  # fmt: skip


def _dtype_problems(q: Tensor, kv_cache: Tensor, block_table: Given, kv_descale: Given) -> list[str]:
    inputs = Inputs(
        q, kv_cache, kv_cache, block_table=block_table, k_descale=kv_descale, v_descale=kv_descale
    )
    found = checks.dtypes(inputs, q.shape[0], Eight(cached=True), ("q", "kv_cache", "kv_cache"))
    return [each.replace("k_descale", "kv_descale", 1) for each in found if not each.startswith("v_descale")]


def _described(kv_cache: Tensor) -> str:
    return f"{checks.shape(kv_cache)}{way_out(kv_cache)}"


def _shape_problems(q: Tensor, kv_cache: Tensor, block_table: Given, head_dim_v: Given) -> list[str]:
    head_dim, heads = q.shape[-1], kv_cache.shape[2]
    width = integer(head_dim_v)
    rules = (
        (q.shape[2] == 0, f"q: expected at least 1 head, got shape {checks.shape(q)}"),
        (head_dim == 0, f"q: expected a headdim of 1 or more, got shape {checks.shape(q)}"),
        (heads != 1, f"kv_cache: expected 1 head, got shape {checks.shape(kv_cache)}"),
        (
            kv_cache.shape[-1] != head_dim and not is_packed(kv_cache),
            f"kv_cache: expected headdim {head_dim} like q, got shape {_described(kv_cache)}",
        ),
        (
            width is None or not 1 <= width <= max(head_dim, 1),
            f"head_dim_v: expected an integer from 1 to the headdim {head_dim}, got {head_dim_v}",
        ),
    )
    found = [text for broken, text in rules if broken]
    if block_table is None:
        return found + checks.batches("q", q, {"kv_cache": kv_cache})
    return found + checks.pages("kv_cache", kv_cache)
