"""ELF and DLL files, read as loaders read them, and the rules for ours."""
