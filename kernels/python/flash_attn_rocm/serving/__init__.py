"""Which kernels serve a call, and how they read its tensors."""
