"""The rules for finished wheels."""

import argparse
import json

from wheel_builder.audit.candidates import audit_candidates
from wheel_builder.build.shim import shim_of
from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, held_archs_option, wheel_arguments
from wheel_builder.cli.selected import read_matrix, wanted_archs
from wheel_builder.files.wheels.candidates import has_candidates
from wheel_builder.pipeline.shim import audit_shim
from wheel_builder.pipeline.verification import audit_file


def run(args: argparse.Namespace) -> None:
    for wheel in args.wheels:
        if shim := shim_of(wheel):
            print(audit_shim(shim, wheel, ROOT).to_json(), end="")
        elif has_candidates(wheel):
            print(json.dumps({"wheel": wheel.name, "candidates": audit_candidates(wheel).digests}, indent=2))
        else:
            print(audit_file(wheel, read_matrix(), ROOT, wanted_archs(args)).to_json(), end="")


COMMAND = Command(
    "audit", "compare finished wheels with the plan and the rules", run, (wheel_arguments, held_archs_option)
)
