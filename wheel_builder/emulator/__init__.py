"""The numerics rule; the emulator is in machine_code."""
