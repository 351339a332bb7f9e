"""The matrix, and the plan for a command's options."""

import argparse

from wheel_builder.cli.options import ROOT
from wheel_builder.matrix.catalogue import Catalogue, catalogue_of
from wheel_builder.matrix.hardware import read_reports
from wheel_builder.matrix.model import LINUX, Matrix, Plan, Selection
from wheel_builder.matrix.plan import plan
from wheel_builder.matrix.reading import load_matrix

# Values for "no selection": a form always sends something.
ALL, DEFAULT = "all", "default"


def read_matrix() -> Matrix:
    """The checkout's matrix.yaml."""
    return load_matrix(ROOT / "matrix.yaml")


def read_catalogue() -> Catalogue:
    """Data for the pages of an index besides its wheels: the matrix, and reports from hardware."""
    return catalogue_of(read_matrix(), read_reports(ROOT))


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan for ``selection_options``, and for ``platforms_option`` if the command has it."""
    rocm = tuple(version for version in args.rocm if version not in (ALL, DEFAULT))
    every, platforms = args.all or ALL in args.rocm, getattr(args, "platforms", (LINUX,))
    return plan(read_matrix(), Selection(rocm, wanted_archs(args), every, platforms))


def wanted_archs(args: argparse.Namespace) -> tuple[str, ...]:
    """The archs named on the command line, empty for all."""
    return () if ALL in args.archs else tuple(args.archs)


def compiler_option(parser: argparse.ArgumentParser) -> None:
    """``--rocm``, of commands that compile with one version. ``compiler_of`` reads it."""
    parser.add_argument(
        "--rocm",
        default=DEFAULT,
        metavar="V",
        help="ROCm version of the compiler (default: the public wheel's)",
    )


def compiler_of(args: argparse.Namespace, matrix: Matrix) -> str:
    """The ROCm version whose compiler is wanted."""
    wanted: str = args.rocm
    return matrix.public.built_with if wanted == DEFAULT else wanted
