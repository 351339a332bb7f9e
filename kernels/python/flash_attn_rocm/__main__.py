"""``python -m flash_attn_rocm doctor [--json]``."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence

from flash_attn_rocm import _doctor, _facts


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; the exit status is 0 only if attention would run on a GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m flash_attn_rocm", description="FlashAttention for AMD GPUs"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor", help="what this machine has, which kernels serve it, what to do next"
    )
    doctor.add_argument("--json", action="store_true", help="print facts and report as JSON")
    as_json = parser.parse_args(arguments).json
    facts = _facts.collect()
    report = _doctor.diagnose(facts)
    print(_json(facts, report) if as_json else _doctor.text(report))  # noqa: T201 - printing is its work
    return 0 if report.ready else 1


def _json(facts: _facts.Facts, report: _doctor.Report) -> str:
    values = {
        "facts": dataclasses.asdict(facts),
        **dataclasses.asdict(report),
        "findings": dict(report.findings),
        "hardware_note": _doctor.NOT_RUN,
    }
    return json.dumps(values, indent=2)


if __name__ == "__main__":
    sys.exit(main())
