"""The operators that launch kernels, after the check at first use."""
