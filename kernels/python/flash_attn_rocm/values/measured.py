"""How many reports from hardware measured a kernel, by the id of its rows."""

# Generated from wheel_builder/matrix/reports by `python -m wheel_builder.matrix.measured`; do not edit.
MEASURED: dict[str, int] = {}
