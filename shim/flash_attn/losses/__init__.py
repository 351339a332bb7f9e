"""Losses, in PyTorch."""
