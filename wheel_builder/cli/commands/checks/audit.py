"""The rules for finished wheels."""

import argparse

from wheel_builder.build.shim import shim_of
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, held_archs_option, wheel_arguments
from wheel_builder.cli.selected import read_matrix, wanted_archs
from wheel_builder.pipeline.shim import audit_shim
from wheel_builder.pipeline.verification import audit_file


def run(args: argparse.Namespace) -> None:
    for wheel in args.wheels:
        if shim := shim_of(wheel):
            print(audit_shim(shim, wheel, ROOT).to_json(), end="")
        else:
            print(audit_file(wheel, read_matrix(), ROOT, wanted_archs(args)).to_json(), end="")


COMMAND = Command(
    "audit", "compare finished wheels with the plan and the rules", run, (wheel_arguments, held_archs_option)
)
