"""Public functions beyond flash_attn's or in another form, and ``explain``."""
