"""Whether kernels serve a call, which, and how they read its tensors."""
