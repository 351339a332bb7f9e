"""The public functions that flash_attn does not have in this form, and ``explain``."""
