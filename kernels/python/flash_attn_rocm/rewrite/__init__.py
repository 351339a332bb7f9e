"""Calls rewritten into an equivalent form with kernels."""
