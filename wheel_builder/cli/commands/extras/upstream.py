"""Upstream's own kernels, built with the same pipeline."""

import argparse
import re
import shutil
import sys
from pathlib import Path

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, handover_options, release_options, run_options
from wheel_builder.cli.runs import handing_over, ran, run_context
from wheel_builder.cli.selected import compiler_of, compiler_option, read_matrix
from wheel_builder.extras.upstream.costs import COSTS
from wheel_builder.extras.upstream.run import (
    ALL,
    PARTS,
    Wanted,
    accept,
    build_upstream,
    check_arch,
    measure_upstream,
)
from wheel_builder.extras.upstream.torch import Torch
from wheel_builder.matrix.model import Selection
from wheel_builder.matrix.plan import jobs_to_build, plan


def run(args: argparse.Namespace) -> None:
    wanted = _wanted(args)
    context = run_context(args)
    with handing_over(args, context):
        if args.measure:
            steps, costs = measure_upstream(wanted, args.measure, context)
            if ran(steps, args):
                accept(costs.result, ROOT)
                print(f"written to {COSTS}", file=sys.stderr)
            return
        steps, results = build_upstream(wanted, context)
        if ran(steps, args):
            for made in (result() for result in results):
                print(copied(made, args.to) if args.to and made.is_file() else made)
            if wanted.refused and wanted.shard == ALL:
                print(wanted.refused, file=sys.stderr)


def copied(file: Path, folder: Path) -> Path:
    """The file's copy in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(file, folder))


def _wanted(args: argparse.Namespace) -> Wanted:
    matrix = read_matrix()
    check_arch(matrix.upstream, args.arch)
    selection = Selection(rocm=(compiler_of(args, matrix),))
    job = jobs_to_build(plan(matrix, selection))[0]
    torch = Torch(args.torch or matrix.package.torch_headers, args.torch_index)
    return Wanted(job, matrix.package, matrix.upstream, args.arch, args.shard, args.kernels, torch)


def shard(text: str) -> tuple[int, int]:
    """``3/24`` as numbers."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not found or int(found[1]) > int(found[2]):
        message = f"expected a shard such as 3/24, found {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(found[1]), int(found[2])


def release(text: str) -> str:
    """``2.13.0``, without a label: pip finds the build."""
    if not re.fullmatch(r"\d+(\.\d+)+", text):
        message = f"expected a release such as 2.13.0, found {text!r}"
        raise argparse.ArgumentTypeError(message)
    return text


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arch", required=True, metavar="A", help="one gfx arch, for example gfx942")
    compiler_option(parser)
    parser.add_argument(
        "--shard", type=shard, default=ALL, metavar="K/N",
        help="compile every N-th object from the K-th; without this option: link all objects",
    )  # fmt: skip
    parser.add_argument(
        "--kernels",
        default="*",
        metavar="PATTERN",
        help="compile only objects with matching names; * matches any text",
    )
    parser.add_argument(
        "--torch", type=release, metavar="V",
        help="PyTorch release in --torch-index (default: torch_headers of matrix.yaml)",
    )  # fmt: skip
    parser.add_argument("--to", type=Path, metavar="DIR", help="copy the library and the wheel here")
    parser.add_argument(
        "--measure", nargs="?", const=PARTS[0], choices=PARTS,
        help=f"measure a sample, and one kernel with the omitted flags; write {COSTS}",
    )  # fmt: skip


COMMAND = Command(
    "upstream",
    "build upstream flash-attn's CK kernels for an arch and gate each one",
    run,
    (options, run_options, release_options, handover_options),
)
