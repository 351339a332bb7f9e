"""The functions of flash_attn's compiled module, called by some libraries: see ``flash_attn_rocm.raw``."""

from flash_attn_rocm.raw import bwd, fwd, fwd_kvcache, varlen_bwd, varlen_fwd

__all__ = ["bwd", "fwd", "fwd_kvcache", "varlen_bwd", "varlen_fwd"]
