"""What libraries import from flash_attn.ops; without triton."""
