"""Give a freshly built wheel its manylinux tag without bundling any library.

    python -m wheel_builder.build.repair WHEEL DEST --plat TAG

cibuildwheel runs this inside the builder image. It has the standard library, packaging, auditwheel, patchelf
and the files of wheel_builder named in ``wheel_inputs.toml``.
"""

import argparse
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from wheel_builder.base.errors import CommandFailedError, RepairError, WheelBuilderError
from wheel_builder.base.process import Runner, run
from wheel_builder.files.foreign import PATTERNS


def repair_wheel(wheel: Path, dest_dir: Path, *, plat: str, run: Runner = run) -> Path:
    """Retag ``wheel`` as ``plat`` ("manylinux_2_28_x86_64") into ``dest_dir``. Returns the new file.

    Libraries of ROCm and torch stay outside. Symbols and device code are kept. SOURCE_DATE_EPOCH, if set,
    gives the file times in the wheel. Raises ``RepairError``.
    """
    if not wheel.is_file():
        message = f"{wheel}: the wheel to repair does not exist"
        raise RepairError(message, advice="build it first; cibuildwheel passes it as {wheel}")
    dest_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".repair-", dir=dest_dir) as aside:
        _auditwheel(wheel, Path(aside), plat, run)
        repaired = _only_wheel(wheel, Path(aside))
        _check_tag(repaired.name, plat)
        return _without_folders(repaired, Path(aside) / "files").rename(dest_dir / repaired.name)


def _without_folders(wheel: Path, to: Path) -> Path:
    """A copy without the folder entries added by auditwheel: installers leave such folders behind."""
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(to, "w") as new:
        for entry in old.infolist():
            if not entry.is_dir():
                new.writestr(entry, old.read(entry))
    return to


def _auditwheel(wheel: Path, aside: Path, plat: str, run: Runner) -> None:
    excludes = [argument for pattern in PATTERNS for argument in ("--exclude", pattern)]
    try:
        run(["auditwheel", "repair", "--plat", plat, "--only-plat", *excludes, "-w", aside, wheel])
    except CommandFailedError as error:
        message = f"auditwheel cannot give {wheel.name} the tag {plat}\n{error.message}"
        raise RepairError(message, advice=_advice(error.message, plat)) from error


def _advice(output: str, plat: str) -> str:
    if "too-recent versioned symbols" in output:
        return f"link the library for the glibc of {plat}: zig's -target decides it"
    if "could not be located" in output or "required library" in output:
        return "link nothing but libtorch.so and glibc, or add the library to wheel_builder/files/foreign.py"
    return "the lines above are auditwheel's; `auditwheel show` on the wheel tells more"


def _only_wheel(wheel: Path, folder: Path) -> Path:
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        message = f"auditwheel made {len(found)} wheels of {wheel.name} ({names}), expected one"
        raise RepairError(
            message, advice="a wheel without a compiled library is not repaired; see what it holds"
        )
    return found[0]


def _check_tag(name: str, plat: str) -> None:
    try:
        platforms = {tag.platform for tag in parse_wheel_filename(name)[3]}
    except InvalidWheelFilename as error:
        message = f"auditwheel named its wheel {name}, which is no wheel's file name"
        raise RepairError(message, advice="see the wheel's name before the repair") from error
    if platforms != {plat}:
        message = f"{name} is tagged {', '.join(sorted(platforms))}, expected {plat} alone"
        raise RepairError(message, advice="build the wheel as py3-none-linux_x86_64, with no tag of its own")


def main(argv: Sequence[str] | None = None, *, run: Runner = run) -> int:
    """Repair one wheel and print its path. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m wheel_builder.build.repair", allow_abbrev=False)
    parser.add_argument("wheel", type=Path, metavar="WHEEL")
    parser.add_argument("dest", type=Path, metavar="DEST", help="the folder for the repaired wheel")
    parser.add_argument("--plat", required=True, metavar="TAG", help="for example manylinux_2_28_x86_64")
    args = parser.parse_args(argv)
    try:
        print(repair_wheel(args.wheel, args.dest, plat=args.plat, run=run))
    except WheelBuilderError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
