"""The builder images."""

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD, handover_options
from wheel_builder.cli.runs import stop_after

COMMAND = Command("image", "build the builder images", stop_after("image"), (*BUILD, handover_options))
