"""Writes the number of hardware reports about each row of tiles.toml into the Python package.

``scripts/wheel-builder report add`` does it for a new report. Otherwise run
``.venv/bin/python -m wheel_builder.matrix.measured`` after a change of the reports.
"""

from collections.abc import Mapping
from pathlib import Path

from wheel_builder.matrix.hardware import measured_rows, signed_reports
from wheel_builder.tables.archs import CHECKOUT

MEASURED = Path("kernels/python/flash_attn_rocm/values/measured.py")


def python_measured(rows: Mapping[str, int]) -> str:
    """The text of the package's module."""
    lines = "".join(f'    "{row}": {count},\n' for row, count in rows.items())
    return f'''"""How many reports from hardware measured a kernel, by the id of its rows."""

# Generated from wheel_builder/matrix/reports by `python -m wheel_builder.matrix.measured`; do not edit.
MEASURED: dict[str, int] = {f"{{{chr(10)}{lines}}}" if lines else "{}"}
'''


def text_of(checkout: Path) -> str:
    """The module's text for the reports of a checkout. Raises ``MatrixError`` with all problems."""
    reports = (found.report for found in signed_reports(checkout).values())
    return python_measured(measured_rows(reports))


def write(checkout: Path) -> None:
    (checkout / MEASURED).write_text(text_of(checkout), encoding="utf-8")


if __name__ == "__main__":
    write(CHECKOUT)
