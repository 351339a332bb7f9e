"""Users' reports from hardware: taken into the tree, and what follows from all of them."""

import argparse
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from wheel_builder.base.errors import SelectionError
from wheel_builder.base.process import run as run_process
from wheel_builder.base.words import shown
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, index_option
from wheel_builder.cli.selected import read_matrix
from wheel_builder.extras.timings.calibrate import ERRORS, calibrate
from wheel_builder.extras.timings.evidence import EVIDENCE, merge
from wheel_builder.matrix import measured
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.provenance.tuning_report import add_tuning, is_tuning
from wheel_builder.provenance.user_report import add_report


def run(args: argparse.Namespace) -> None:
    ACTIONS[args.action](args)


def _add(args: argparse.Namespace) -> None:
    if args.file is None:
        title = "report add needs a FILE"
        raise SelectionError(title, ["name the file written by python -m flash_attn_rocm selftest or tune"])
    wheels = args.wheel or [*(ROOT / "dist").glob("*.whl"), *args.index.rglob("*.whl")]
    name = args.signed_off_by or _committer()
    add = add_tuning if is_tuning(args.file) else add_report
    catalogue = catalogue_of(read_matrix())
    path = add(args.file, wheels, ROOT, catalogue=catalogue, signed_off_by=name, now=datetime.now(UTC))
    if add is add_tuning:
        print(f"{shown(path)}: commit it")
        return
    measured.write(ROOT)
    pages = "pages show it when written again: scripts/wheel-builder index pages"
    print(f"{shown(path)}, {measured.MEASURED}: commit them; {pages}")


def _committer() -> str:
    """The user of git here, as git signs commits off."""
    name, email = (
        run_process(["git", "-C", ROOT, "config", f"user.{key}"], check=False).stdout.strip()
        for key in ("name", "email")
    )
    return f"{name} <{email}>"


def _merge(_args: argparse.Namespace) -> None:
    print(*_with_advice(EVIDENCE, merge, "commit it"), sep="\n")


def _calibrate(_args: argparse.Namespace) -> None:
    advice = "commit it, with the tables of the documents that show it"
    print(*_with_advice(ERRORS, calibrate, advice), sep="\n")


def _with_advice(file: Path, write: Callable[[Path], str], advice: str) -> Iterator[str]:
    """What ``write`` says, and what to do with its file if that is another one than before."""
    before = _content(ROOT / file)
    yield write(ROOT)
    if _content(ROOT / file) != before:
        yield f"{file}: {advice}"


def _content(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


ACTIONS = {"add": _add, "merge": _merge, "calibrate": _calibrate}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=tuple(ACTIONS),
        help="add: check a report and add it to the tree; "
        f"merge: write rows that were better on several GPUs to {EVIDENCE}; "
        f"calibrate: write how far off the models are to {ERRORS}",
    )
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE",
        help="of add: the file written by python -m flash_attn_rocm selftest or tune",
    )  # fmt: skip
    parser.add_argument(
        "--wheel", type=Path, action="append", default=[], metavar="WHEEL",
        help="a wheel or candidates that the report may be about (default: all in dist and in the index)",
    )  # fmt: skip
    parser.add_argument("--signed-off-by", metavar="NAME", help="'Name <name@host>' (default: git's user)")
    index_option(parser)


COMMAND = Command(
    "report", "users' reports from hardware: add them, merge better rows, calibrate models", run, (options,)
)
