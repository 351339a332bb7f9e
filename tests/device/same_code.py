"""Compiles instances for several GPUs: same_code.py GPU,GPU... NAME...  Runs inside the builder image.

Leaves <GPU>/<NAME>.hsaco in the current folder.  Without a NAME all instances of the first GPU's arch.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, "/src/kernels/instances")
import build
import generate

LLVM = Path(os.environ["FA_LLVM"])


def compiled(gpu, source):
    out = Path(gpu) / f"{source.stem}.hsaco"
    command = build.compile_command(LLVM, gpu, source, out.absolute())
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
        list(pool.map(lambda pair: compiled(*pair), [(gpu, each) for gpu in gpus for each in wanted]))


main(sys.argv[1], sys.argv[2:])
