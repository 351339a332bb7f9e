"""The host library: loading it, and asking it for its kernels, its limits and its plans."""
