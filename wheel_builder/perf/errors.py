"""What the models cannot do."""

from wheel_builder.errors import ProblemsError


class PerfError(ProblemsError):
    """An instruction, an arch or a launch that the models have no numbers for."""

    exit_code = 47
