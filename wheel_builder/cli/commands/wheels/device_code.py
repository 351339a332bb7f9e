"""Device code per ROCm version and arch."""

from wheel_builder.cli.command import Command
from wheel_builder.cli.options import BUILD, handover_options
from wheel_builder.cli.runs import stop_after

COMMAND = Command(
    "device-code", "compile the device code", stop_after("device-code"), (*BUILD, handover_options)
)
