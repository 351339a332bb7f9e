"""Readers and runners of GPU machine code: disassembly, emulator, static checks, fake HIP runtime."""
