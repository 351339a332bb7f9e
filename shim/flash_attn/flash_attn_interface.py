"""The public functions, and the lower entry points called by libraries."""

from flash_attn_rocm import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from flash_attn_rocm import raw as flash_attn_gpu
from torch import device as Device  # noqa: N812 - a class

from flash_attn._classes import (
    FlashAttnFunc,
    FlashAttnKVPackedFunc,
    FlashAttnQKVPackedFunc,
    FlashAttnVarlenFunc,
    FlashAttnVarlenKVPackedFunc,
    FlashAttnVarlenQKVPackedFunc,
)
from flash_attn._entry_points import (
    _flash_attn_backward,
    _flash_attn_forward,
    _flash_attn_varlen_backward,
    _flash_attn_varlen_forward,
)
from flash_attn._operators import register

__all__ = [
    "USE_TRITON_ROCM",
    "FlashAttnFunc",
    "FlashAttnKVPackedFunc",
    "FlashAttnQKVPackedFunc",
    "FlashAttnVarlenFunc",
    "FlashAttnVarlenKVPackedFunc",
    "FlashAttnVarlenQKVPackedFunc",
    "flash_attn_cuda",
    "flash_attn_func",
    "flash_attn_gpu",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]

USE_TRITON_ROCM = False  # upstream's other implementation for AMD GPUs, missing here
flash_attn_cuda = flash_attn_gpu  # its name before 2.7

_wrapped_flash_attn_forward = _flash_attn_forward
_wrapped_flash_attn_varlen_forward = _flash_attn_varlen_forward
_wrapped_flash_attn_backward = _flash_attn_backward
_wrapped_flash_attn_varlen_backward = _flash_attn_varlen_backward

register()


def _get_block_size_n(device: Device, head_dim: int, is_dropout: bool, is_causal: bool) -> int:  # noqa: FBT001
    """The number of keys over which the raw functions' probabilities are normalised: above any seqlen.

    Upstream normalises them per tile, and its tests ask for a tile's width. Ours are normalised over whole
    rows.
    """
    del device, head_dim, is_dropout, is_causal
    return 2**31 - 1
