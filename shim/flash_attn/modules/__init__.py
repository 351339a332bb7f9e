"""Attention modules on top of the public functions."""
