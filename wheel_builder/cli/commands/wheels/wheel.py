"""Wheels, built and repaired."""

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD, destination_option, handover_options, platforms_option
from wheel_builder.cli.runs import stop_after

COMMAND = Command(
    "wheel",
    "build and repair the wheels",
    stop_after("wheel"),
    (destination_option, platforms_option, *BUILD, handover_options),
)
