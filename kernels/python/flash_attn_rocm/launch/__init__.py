"""The operators that launch kernels, with the check at first use before them."""
