"""The commands of ``python -m flash_attn_rocm`` other than the doctor."""
