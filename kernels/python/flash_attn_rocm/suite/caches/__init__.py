"""Fuzz cases of the kernels that write into caches or copy them."""
