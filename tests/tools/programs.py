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


def compile_zstd(builder_image, source, folder):
    """Compile zstd in ``folder`` as the wheel's library has it.

    Returns further arguments of programs with it.
    """
    files = {file.name: file.read_bytes() for file in source.glob("zstd*")}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    flags = [flag for flag in hatch_build._compiler_flags(hatch_build.LINUX) if not flag.startswith("-std=")]
    argv = [f"{INTERPRETER}/bin/python", "-m", "ziglang", "cc", *flags, "-c", "zstd.c", "-o", "zstd.o"]
    mounts = [Mount(folder, str(folder), writable=True)]
    run_in(builder_image, argv, mounts=mounts, user=caller(), workdir=str(folder))
    return (f"-isystem{folder}", folder / "zstd.o")


def compile_program(builder_image, program, *arguments):
    """Compile sources with further flags to the file ``program``, in the builder image.

    Returns ``program``.
    """
    zig = (f"{INTERPRETER}/bin/python", "-m", "ziglang", "c++", *TARGET, *FLAGS, *INCLUDES)
    folder = program.parent
    others = {each.parent for each in arguments if isinstance(each, Path)}
    outside = [each for each in others if each != folder and not each.is_relative_to(CHECKOUT)]
    mounts = [Mount(each, str(each)) for each in (CHECKOUT, *outside)]
    mounts.append(Mount(folder, str(folder), writable=True))
    argv = [*zig, *map(str, arguments), "-o", str(program)]
    run_in(builder_image, argv, mounts=mounts, user=caller(), workdir=str(folder))
    return program
