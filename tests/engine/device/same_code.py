"""Compiles instances for several GPUs: same_code.py GPU,GPU... NAME...  Runs inside the builder image.

Leaves <GPU>/<NAME>.hsaco in the current folder.  Default for NAME: all instances of the first GPU's arch.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, "/src/kernels/build/instances")
import build
import generate

LLVM = Path(os.environ["FA_LLVM"])
# For gfx1100, gfx1102 and gfx11-generic, LLVM pads a wave's initial SGPRs to 16. This works around a bug of
# those GPUs. The GPUs here lack the bug. The padding is the only difference.
PADDED = ("gfx1101", "gfx1103")
PAD = ("-Xclang", "-target-feature", "-Xclang", "+user-sgpr-init16-bug")


def compiled(gpu, arch, source):
    out = Path(gpu) / f"{source.stem}.hsaco"
    command = build.compile_command(LLVM, gpu, source, out.absolute())
    command += PAD if gpu in PADDED else ()
    if gpu.endswith("-generic"):  # absent from the tables: compiled with the tiles of that arch
        command += ("-U__amdgcn_processor__", f'-D__amdgcn_processor__="{arch}"', f"-D__{arch}__")
    subprocess.run(command, check=True)


def main(gpus, names):
    arch, *_ = gpus = gpus.split(",")
    instances = [each for each in generate.load_table(generate.TABLE) if arch in each.archs]
    sources = Path("sources")
    sources.mkdir()
    generate.write_sources(instances, sources)
    wanted = [sources / f"{name}.hip" for name in names or (each.name for each in instances)]
    for gpu in gpus:
        Path(gpu).mkdir()
    with ThreadPoolExecutor(1 if len(wanted) < 5 else os.cpu_count()) as pool:
        list(pool.map(lambda each: compiled(*each), [(gpu, arch, each) for gpu in gpus for each in wanted]))


main(sys.argv[1], sys.argv[2:])
