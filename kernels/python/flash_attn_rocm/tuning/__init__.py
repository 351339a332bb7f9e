"""``python -m flash_attn_rocm tune``: candidates of kernels' rows, timed on this machine's GPU."""
