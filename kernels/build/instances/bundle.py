"""Join the code objects of all archs to one bundle per instance, and describe them to the host library.

    python3 kernels/build/instances/bundle.py --device DIR --out DIR [--llvm BIN] [--table FILE]

The device folder has one subfolder per arch, as written by build.py. The out folder gets <name>.hipfb per
instance (a standard uncompressed offload bundle with an empty host entry), registry.inc (instances and the
archs of their code) and fatbin.S (puts the bundles into .hip_fatbin).
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from generate import (
    TABLE,
    Instance,
    TableError,
    check_arch,
    fatbin_s,
    load_table,
    registry_inc,
    served,
)
from toolchain import DEFAULT_LLVM, BuildError

HOST = "host-x86_64-unknown-linux-gnu-"
DEVICE = "hipv4-amdgcn-amd-amdhsa--"


def bundle_command(llvm: Path, code_objects: Mapping[str, Path], out: Path) -> list[str]:
    """The bundler's argument list. ``code_objects`` maps arch to file."""
    targets = ",".join([HOST, *(DEVICE + arch for arch in code_objects)])
    inputs = [f"-input={path}" for path in (os.devnull, *code_objects.values())]
    return [
        str(llvm / "clang-offload-bundler"), "-type=o", "-bundle-align=4096", f"-targets={targets}",
        *inputs, f"-output={out}"
    ]  # fmt: skip


def bundle(device: Path, out: Path, *, llvm: Path, table: Path) -> None:
    """Bundle the contents of ``device``.

    Raises ``TableError`` (an unknown arch, or a bad table), or ``BuildError`` if code objects and table
    disagree or the bundler fails.
    """
    archs = [folder.name for folder in sorted(device.iterdir()) if folder.is_dir()]
    for arch in archs:
        check_arch(arch)
    instances = served(load_table(table), archs)
    problems = _disagreements(device, archs, instances)
    if problems:
        lines = [f"{device} is not what {table.name} says", *(f"  - {p}" for p in problems)]
        raise BuildError("\n".join(lines))
    out.mkdir(parents=True, exist_ok=True)
    for instance in instances:
        code_objects = {arch: device / arch / f"{instance.name}.hsaco" for arch in instance.archs}
        _run(bundle_command(llvm, code_objects, out / f"{instance.name}.hipfb"))
    (out / "fatbin.S").write_text(fatbin_s(instances), encoding="utf-8")
    (out / "registry.inc").write_text(registry_inc(instances, archs), encoding="utf-8")


def _disagreements(device: Path, archs: Sequence[str], instances: Sequence[Instance]) -> list[str]:
    if not instances:
        return ["no subfolder holds code for an arch of the table: run build.py --out <folder>/<arch> first"]
    wanted = {(arch, i.name) for i in instances for arch in i.archs}
    found = {(arch, path.stem) for arch in archs for path in (device / arch).glob("*.hsaco")}
    missing = [f"{arch}/{name}.hsaco is missing: run build.py --arch {arch}" for arch, name in wanted - found]
    foreign = [f"{arch}/{name}.hsaco is not in the table: remove it" for arch, name in found - wanted]
    return sorted(missing) + sorted(foreign)


def _run(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError as error:
        message = f"{argv[0]}: no such program; --llvm names the folder of clang-offload-bundler"
        raise BuildError(message) from error
    if done.returncode != 0:
        message = f"{argv[0]} failed: {done.stderr.strip()}"
        raise BuildError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, bundle, and print the problems. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Join the code objects of all gfx archs.")
    parser.add_argument("--device", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--llvm", type=Path, default=Path(os.environ.get("FA_LLVM", DEFAULT_LLVM)))
    parser.add_argument("--table", type=Path, default=TABLE)
    args = parser.parse_args(argv)
    try:
        bundle(args.device, args.out, llvm=args.llvm, table=args.table)
    except (TableError, BuildError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
