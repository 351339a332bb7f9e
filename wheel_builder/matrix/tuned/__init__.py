"""Candidates for kernels' rows, and reports of ``python -m flash_attn_rocm tune`` about them."""
