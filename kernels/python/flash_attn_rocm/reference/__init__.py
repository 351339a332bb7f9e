"""The PyTorch implementation: every feature on every device."""
