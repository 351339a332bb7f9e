# Overloads of each function.  Written by: python3 -m wheel_builder.tables.generated
# fmt: off

from typing import Literal, SupportsFloat, SupportsIndex, overload

from torch import Tensor

from flash_attn_rocm.arguments.normal_form import WindowSize
from flash_attn_rocm.autograd.dispatch import Answer, Three

@overload
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: Literal[False] = False, *, sink: Tensor | None = None, q_descale: Tensor | None = None,
    k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Tensor: ...
@overload
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False, *,
    return_attn_probs: Literal[True], sink: Tensor | None = None, q_descale: Tensor | None = None,
    k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Three: ...
@overload
def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: bool = False, *, sink: Tensor | None = None, q_descale: Tensor | None = None,
    k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Answer: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: Tensor, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: Literal[False] = False, *, sink: Tensor | None = None,
) -> Tensor: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: Tensor, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, *, return_attn_probs: Literal[True],
    sink: Tensor | None = None,
) -> Three: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: Tensor, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False, *,
    sink: Tensor | None = None,
) -> Answer: ...
@overload
def flash_attn_kvpacked_func(
    q: Tensor, kv: Tensor, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: Literal[False] = False, *, sink: Tensor | None = None,
) -> Tensor: ...
@overload
def flash_attn_kvpacked_func(
    q: Tensor, kv: Tensor, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, *, return_attn_probs: Literal[True],
    sink: Tensor | None = None,
) -> Three: ...
@overload
def flash_attn_kvpacked_func(
    q: Tensor, kv: Tensor, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False, *,
    sink: Tensor | None = None,
) -> Answer: ...
@overload
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: SupportsIndex,
    max_seqlen_k: SupportsIndex, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: Literal[False] = False, block_table: Tensor | None = None, *,
    sink: Tensor | None = None, chunk: SupportsIndex = 0, q_descale: Tensor | None = None,
    k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Tensor: ...
@overload
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: SupportsIndex,
    max_seqlen_k: SupportsIndex, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, *, return_attn_probs: Literal[True],
    block_table: Tensor | None = None, sink: Tensor | None = None, chunk: SupportsIndex = 0,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Three: ...
@overload
def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: SupportsIndex,
    max_seqlen_k: SupportsIndex, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False,
    block_table: Tensor | None = None, *, sink: Tensor | None = None, chunk: SupportsIndex = 0,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None, v_descale: Tensor | None = None,
) -> Answer: ...
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: SupportsIndex, dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: Literal[False] = False, *, sink: Tensor | None = None,
) -> Tensor: ...
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: SupportsIndex, dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False, *,
    return_attn_probs: Literal[True], sink: Tensor | None = None,
) -> Three: ...
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: SupportsIndex, dropout_p: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: SupportsFloat = 0.0, alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: bool = False, *, sink: Tensor | None = None,
) -> Answer: ...
@overload
def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: SupportsIndex,
    max_seqlen_k: SupportsIndex, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: Literal[False] = False, *, sink: Tensor | None = None,
) -> Tensor: ...
@overload
def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: SupportsIndex,
    max_seqlen_k: SupportsIndex, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, *, return_attn_probs: Literal[True],
    sink: Tensor | None = None,
) -> Three: ...
@overload
def flash_attn_varlen_kvpacked_func(
    q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: SupportsIndex,
    max_seqlen_k: SupportsIndex, dropout_p: SupportsFloat = 0.0, softmax_scale: SupportsFloat | None = None,
    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: SupportsFloat = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False, return_attn_probs: bool = False, *,
    sink: Tensor | None = None,
) -> Answer: ...
