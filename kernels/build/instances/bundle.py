"""Describe the code objects of all archs to the host library and to the assembler.

    python3 kernels/build/instances/bundle.py --device DIR --out DIR [--table FILE]

The device folder has one subfolder per arch, as written by build.py. The out folder gets registry.inc
(instances, the archs of their code, and its compiler) and fatbin.S, which puts each arch's bundle
<arch>.hipfb into .hip_fatbin. wheel_builder/files/device/packing.py writes the bundles.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from generate import (
    TABLE,
    Instance,
    TableError,
    check_arch,
    fatbin_s,
    held_archs,
    load_table,
    registry_inc,
    served,
)
from toolchain import BuildError

SHOWN = 5  # code objects in a message
# clang writes its version into every code object.
CLANG = re.compile(rb"clang version (\d+)\.")


def bundle(device: Path, out: Path, *, table: Path) -> None:
    """Describe the contents of ``device``.

    Raises ``TableError`` (an unknown arch, or a bad table), or ``BuildError`` if code objects and table
    disagree.
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
    (out / "fatbin.S").write_text(fatbin_s(held_archs(instances, archs)), encoding="utf-8")
    registry = registry_inc(instances, archs, _clang_of(device))
    (out / "registry.inc").write_text(registry, encoding="utf-8")


def _clang_of(device: Path) -> int:
    """The major version of the compiler of all code objects."""
    said = {file: CLANG.search(file.read_bytes()) for file in device.glob("*/*.hsaco")}
    found = {int(words[1]) if words else 0 for words in said.values()}
    if len(found) != 1 or 0 in found:
        lines = [
            f"  - {file}: clang {words[1].decode() if words else 'unknown'}" for file, words in said.items()
        ]
        title = f"{device}: expected the code of one version of clang: compile it with build.py"
        raise BuildError("\n".join([title, *lines[:SHOWN]]))
    return found.pop()


def _disagreements(device: Path, archs: Sequence[str], instances: Sequence[Instance]) -> list[str]:
    if not instances:
        return ["no subfolder holds code for an arch of the table: run build.py --out <folder>/<arch> first"]
    wanted = {(arch, i.name) for i in instances for arch in i.archs}
    found = {(arch, path.stem) for arch in archs for path in (device / arch).glob("*.hsaco")}
    missing = [f"{arch}/{name}.hsaco is missing: run build.py --arch {arch}" for arch, name in wanted - found]
    foreign = [f"{arch}/{name}.hsaco is not in the table: remove it" for arch, name in found - wanted]
    return sorted(missing) + sorted(foreign)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, describe, and print the problems. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Describe the code objects of all gfx archs.")
    parser.add_argument("--device", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", type=Path, default=TABLE)
    args = parser.parse_args(argv)
    try:
        bundle(args.device, args.out, table=args.table)
    except (TableError, BuildError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
