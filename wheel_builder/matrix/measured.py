"""Writes the number of hardware reports about each row of tiles.toml into the Python package.

``scripts/wheel-builder report add`` does it for a new report. Otherwise run
``.venv/bin/python -m wheel_builder.matrix.measured`` after a change of the reports.
"""

import json
from pathlib import Path

from wheel_builder.matrix.hardware import measured_rows, signed_reports
from wheel_builder.tables.archs import CHECKOUT

MEASURED = Path("kernels/python/flash_attn_rocm/values/measured.json")


def text_of(checkout: Path) -> str:
    """The file for the reports of a checkout. Raises ``MatrixError`` with all problems."""
    reports = (found.report for found in signed_reports(checkout).values())
    return json.dumps(measured_rows(reports), indent=1) + "\n"


def write(checkout: Path) -> None:
    (checkout / MEASURED).write_text(text_of(checkout), encoding="utf-8")


if __name__ == "__main__":
    write(CHECKOUT)
