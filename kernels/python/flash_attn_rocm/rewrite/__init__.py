"""Calls in another form, which kernels have, with the same answer."""
