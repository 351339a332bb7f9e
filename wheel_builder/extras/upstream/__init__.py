"""Upstream's flash-attn with its Composable Kernel (CK) backend: a recipe, its cost, and a gate."""
