"""SageAttention 2.2's functions, answered by flash_attn_rocm's kernels.

Long calls on GPUs with kernels for it are computed in 8 bits. All others are as exact and as fast as
``flash_attn_rocm.attention``. ``flash_attn_rocm.explain(sageattn, q, k, v, …)`` says which, and why.

All functions take these arguments by name:

* ``attn_mask``, except ``sageattn_varlen``: of two or four dimensions, any size may be 1. torch.bool, True
  where a query sees a key, or numbers that are added to the scores
* ``scale``: another name of ``sm_scale``, from ``scaled_dot_product_attention``
* ``dropout_p``: 0.0
* ``smooth_k``, ``smooth_v``, ``qk_quant_gran``, ``pv_accum_dtype``, ``quantization_backend``: of quantising,
  without effect: all calls in 8 bits quantise alike
* ``enable_gqa``: without effect, k and v may always have fewer heads

Other names raise an error. SageAttention ignores them. There are no gradients.
"""
# ruff: noqa: ANN401, ARG001, FBT001, FBT002 - the signatures are upstream's, and arguments are yet unchecked

from typing import Any, TypeAlias

from flash_attn_rocm.interfaces import EXPLAINED
from torch import Tensor

from sageattention._calls import Dense, Packed, attend, dense, explains, packed

Answer: TypeAlias = Tensor | tuple[Tensor, Tensor]

# Upstream's compiled modules for NVIDIA's GPUs, missing here.
SM80_ENABLED = SM89_ENABLED = SM90_ENABLED = False


def sageattn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensor_layout: str = "HND",
    is_causal: bool = False,
    sm_scale: float | None = None,
    return_lse: bool = False,
    attn_mask: Tensor | None = None,
    **kwargs: Any,
) -> Answer:
    """Attention without gradients.

    q, k and v are torch.float16 or torch.bfloat16: (batch, heads, length, headdim) in the layout "HND",
    (batch, length, heads, headdim) in "NHD". The heads of q are a multiple of those of k and v. is_causal
    needs as many queries as keys.
    ComfyUI passes masks because attn_mask is in this signature.
    Returns out in q's layout and dtype. With return_lse also the natural log-sum-exp, (batch, heads, length)
    fp32 in both layouts. A row that sees no key has 0 and -inf.
    Raises FlashAttnArgumentError, a ValueError, with all problems.
    """
    return attend(
        dense("sageattn", Dense(q, k, v, tensor_layout, is_causal, sm_scale, return_lse, attn_mask), kwargs)
    )


def sageattn_qk_int8_pv_fp16_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensor_layout: str = "HND",
    quantization_backend: str = "triton",
    is_causal: bool = False,
    attn_mask: Tensor | None = None,
    sm_scale: float | None = None,
    smooth_k: bool = True,
    return_lse: bool = False,
    **kwargs: Any,
) -> Answer:
    """``sageattn`` with v in 16 bits, under the name of one of upstream's kernels."""
    given = Dense(q, k, v, tensor_layout, is_causal, sm_scale, return_lse, attn_mask)
    return attend(dense("sageattn_qk_int8_pv_fp16_triton", given, kwargs))


def sageattn_qk_int8_pv_fp16_cuda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensor_layout: str = "HND",
    is_causal: bool = False,
    qk_quant_gran: str = "per_thread",
    sm_scale: float | None = None,
    pv_accum_dtype: str = "fp32",
    smooth_k: bool = True,
    smooth_v: bool = False,
    return_lse: bool = False,
    attn_mask: Tensor | None = None,
    **kwargs: Any,
) -> Answer:
    """``sageattn`` with v in 16 bits, under the name of one of upstream's kernels."""
    given = Dense(q, k, v, tensor_layout, is_causal, sm_scale, return_lse, attn_mask)
    return attend(dense("sageattn_qk_int8_pv_fp16_cuda", given, kwargs))


def sageattn_qk_int8_pv_fp8_cuda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensor_layout: str = "HND",
    is_causal: bool = False,
    qk_quant_gran: str = "per_thread",
    sm_scale: float | None = None,
    pv_accum_dtype: str = "fp32+fp16",
    smooth_k: bool = True,
    smooth_v: bool = False,
    return_lse: bool = False,
    attn_mask: Tensor | None = None,
    **kwargs: Any,
) -> Answer:
    """``sageattn``, under the name of one of upstream's kernels."""
    given = Dense(q, k, v, tensor_layout, is_causal, sm_scale, return_lse, attn_mask)
    return attend(dense("sageattn_qk_int8_pv_fp8_cuda", given, kwargs))


def sageattn_qk_int8_pv_fp8_cuda_sm90(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensor_layout: str = "HND",
    is_causal: bool = False,
    qk_quant_gran: str = "per_thread",
    sm_scale: float | None = None,
    pv_accum_dtype: str = "fp32+fp32",
    smooth_k: bool = True,
    return_lse: bool = False,
    attn_mask: Tensor | None = None,
    **kwargs: Any,
) -> Answer:
    """``sageattn``, under the name of one of upstream's kernels."""
    given = Dense(q, k, v, tensor_layout, is_causal, sm_scale, return_lse, attn_mask)
    return attend(dense("sageattn_qk_int8_pv_fp8_cuda_sm90", given, kwargs))


def sageattn_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    is_causal: bool = False,
    sm_scale: float | None = None,
    smooth_k: bool = True,
    **kwargs: Any,
) -> Tensor:
    """Attention of packed sequences without gradients.

    q is (total_q, heads, headdim), k and v (total_k, heads_k, headdim). cu_seqlens_q and cu_seqlens_k
    (batch + 1,), int32 or int64, are the places of the sequences. is_causal needs sequences of as many
    queries as keys: for two different tensors of places, their numbers are compared, which waits for the GPU.
    The rest is as in ``sageattn``, without a log-sum-exp.
    """
    places = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return attend(packed("sageattn_varlen", Packed(q, k, v, *places, is_causal, sm_scale), kwargs))


for _function in (
    sageattn,
    sageattn_qk_int8_pv_fp16_triton,
    sageattn_qk_int8_pv_fp16_cuda,
    sageattn_qk_int8_pv_fp8_cuda,
    sageattn_qk_int8_pv_fp8_cuda_sm90,
):
    EXPLAINED[_function] = explains(_function, Dense, dense)
EXPLAINED[sageattn_varlen] = explains(sageattn_varlen, Packed, packed)
