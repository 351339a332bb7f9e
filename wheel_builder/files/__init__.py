"""Reading untrusted files: ELF, fat binaries, zip, wheels."""
