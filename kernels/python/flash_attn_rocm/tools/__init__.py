"""What ``python -m flash_attn_rocm`` runs besides the doctor."""
