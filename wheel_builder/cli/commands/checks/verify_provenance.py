"""A statement, checked against its wheel, record, SBOM and sources."""

import argparse

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import ROOT, wheel_arguments
from wheel_builder.provenance.attest import verify_provenance


def run(args: argparse.Namespace) -> None:
    for wheel in args.wheels:
        print(f"wheel      {wheel}", verify_provenance(wheel, ROOT), sep="\n")


COMMAND = Command(
    "verify-provenance",
    "compare a wheel with its statement, record, SBOM and sources",
    run,
    (wheel_arguments,),
)
