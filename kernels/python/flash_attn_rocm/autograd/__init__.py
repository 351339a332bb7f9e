"""Sends a call to kernels or to the PyTorch implementation, and connects it to autograd."""
