"""FlashAttention 3's module on top of flash_attn_rocm. ``flash_attn_rocm doctor`` recognises it by that
name."""

from flash_attn_3.flash_attn_interface import (
    USE_TRITON_ROCM,
    _flash_attn_backward,
    _flash_attn_forward,
    flash_attn_3_cuda,
    flash_attn_3_gpu,
    flash_attn_combine,
    flash_attn_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
    get_scheduler_metadata,
)

__all__ = [
    "USE_TRITON_ROCM",
    "_flash_attn_backward",
    "_flash_attn_forward",
    "flash_attn_3_cuda",
    "flash_attn_3_gpu",
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]
