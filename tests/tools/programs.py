"""Compiles C++ of the host library and of tests for this machine, with zig as the wheel's library is."""

import sys
from pathlib import Path

from kernels.build import hatch_build
from wheel_builder.images.docker import Mount, caller, run_in
from wheel_builder.images.stages import INTERPRETER

CHECKOUT = Path(__file__).parents[2]
ZIG = (sys.executable, "-m", "ziglang")
TARGET = hatch_build.ZIG_FLAGS[hatch_build.LINUX][:2]
# Stripped like the wheel's library: the builder image's cache has zig's C++ library only in that form.
FLAGS = ("-std=c++17", "-O1", "-g0", "-Wl,-s", "-Wall", "-Wextra", "-Werror")
INCLUDES = (f"-I{CHECKOUT / 'kernels'}",)


def compile_program(builder_image, program, *arguments):
    """Compile sources with further flags to the file ``program``, in the builder image.

    Returns ``program``.
    """
    zig = (f"{INTERPRETER}/bin/python", "-m", "ziglang", "c++", *TARGET, *FLAGS, *INCLUDES)
    folder = program.parent
    mounts = [Mount(CHECKOUT, str(CHECKOUT)), Mount(folder, str(folder), writable=True)]
    argv = [*zig, *map(str, arguments), "-o", str(program)]
    run_in(builder_image, argv, mounts=mounts, user=caller(), workdir=str(folder))
    return program
