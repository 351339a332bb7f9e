"""Upstream flash-attention's Composable Kernel (CK) backend: what its compiled kernels hold."""
