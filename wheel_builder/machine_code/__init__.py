"""What reads or runs GPU machine code: its text, the emulator, the static checks, the fake HIP runtime."""
