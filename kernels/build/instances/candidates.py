"""Compile one instance with candidates for its rows of the table of tiles, beside each other.

    PYTHONPATH=. python3 kernels/build/instances/candidates.py --arch gfx908 --kernel fa_fwd_fp16_d64
                                --rows DIR --out DIR [--llvm BIN] [--jobs N] [--memory MiB]

Runs inside the builder image. --rows has a folder per candidate, with the file of rows at its place below
kernels/. --out gets <candidate>.hsaco, or <candidate>.txt with the compiler's words, each when it is done.
The headers of kernels are read once for all of them.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from build import (
    RESERVED_MIB,
    Compiler,
    Cost,
    How,
    compile_command,
    compile_instance,
    precompile_headers,
    scratch_in,
)
from costs import load_peaks, peak_mib
from generate import OPS, Instance, TableError, check_arch, load_table, write_sources
from kernels.build.jobs import Task, run_all
from kernels.build.machine import usable_memory
from toolchain import DEFAULT_LLVM, BuildError


def compile_candidates(arch: str, kernel: str, rows: Path, out: Path, *, llvm: Path, how: How) -> None:
    """Compile ``kernel`` once for each folder in ``rows``. Raises ``TableError`` for an unknown one."""
    instance = instance_of(arch, kernel)
    names = sorted(folder.name for folder in rows.iterdir() if folder.is_dir())
    with scratch_in(out) as scratch:
        headers = precompile_headers(llvm, arch, [instance] * len(names), scratch, how)

        def work(name: str) -> None:
            _compile_candidate(llvm, arch, instance, rows / name, scratch, out, headers)

        mib = peak_mib(load_peaks(), instance.op)
        run_all([Task(name, mib) for name in names], work, most=how.jobs, mib=how.mib - RESERVED_MIB)


def instance_of(arch: str, kernel: str) -> Instance:
    """The instance of that name. Raises ``TableError`` if the arch has none."""
    check_arch(arch)
    found = {each.name: each for each in load_table() if arch in each.archs}
    if kernel not in found or not OPS[found[kernel].op].per_head_dim:
        title = f"{kernel} of {arch} has no rows"
        raise TableError(title, [f"expected one of {', '.join(found)}"])
    return found[kernel]


def _compile_candidate(
    llvm: Path,
    arch: str,
    instance: Instance,
    rows: Path,
    scratch: Path,
    out: Path,
    headers: Mapping[str, Path],
) -> None:
    [src] = write_sources([instance], scratch / rows.name)
    made, precompiled = src.with_suffix(".hsaco"), headers.get(OPS[instance.op].shared)
    compiler, *arguments = compile_command(llvm, arch, src, made, precompiled)
    # The first folder with the file of rows counts.
    command = [compiler, f"-I{rows}", *arguments]
    found = compile_instance(llvm, arch, instance, src, command, Compiler(None, Cost(), phases=False))
    if isinstance(found, str):
        made.write_text(found, encoding="utf-8")
    made.replace(out / f"{rows.name}{'.txt' if isinstance(found, str) else '.hsaco'}")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, compile, and print the problems. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Compile one instance with candidates for its rows.")
    parser.add_argument("--arch", required=True)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--llvm", type=Path, default=Path(os.environ.get("FA_LLVM", DEFAULT_LLVM)))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--memory", type=int, default=usable_memory() >> 20, metavar="MiB")
    args = parser.parse_args(argv)
    try:
        how = How(args.jobs, args.memory)
        compile_candidates(args.arch, args.kernel, args.rows, args.out, llvm=args.llvm, how=how)
    except (TableError, BuildError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
