"""FlashAttention 3's interface on top of flash_attn_rocm."""

__version__ = "3.0.0"
