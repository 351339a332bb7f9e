"""The names of upstream's triton kernels, in PyTorch."""
