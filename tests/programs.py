"""Compiles C++ of the host library and of tests with zig, as the wheel's library is, for this machine."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
ZIG = (sys.executable, "-m", "ziglang")
TARGET = ("-target", "x86_64-linux-gnu.2.28")
FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror")
INCLUDES = tuple(f"-I{CHECKOUT / folder}" for folder in ("kernels/host", "kernels/include"))


def zig(tool, *arguments):
    """Run ``zig cc`` or ``zig c++`` for the wheel's oldest glibc; fails with the compiler's words."""
    command = [*ZIG, tool, *TARGET, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def compile_program(program, *arguments):
    """Compile sources and further flags to the file ``program``; returns it."""
    zig("c++", *FLAGS, *INCLUDES, *arguments, "-o", program)
    return program
