"""Names imported by libraries from flash_attn.ops, without triton."""
