"""ELF files and DLLs as loaders read them, and the rules for those that we ship."""
