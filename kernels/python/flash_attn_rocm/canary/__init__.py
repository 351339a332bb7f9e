"""The check at first use of each family of kernels."""
