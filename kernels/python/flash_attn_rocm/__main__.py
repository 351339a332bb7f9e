"""``python -m flash_attn_rocm doctor | selftest | bench | tune``."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from flash_attn_rocm.diagnosis import doctor, installation, survey, wheel
from flash_attn_rocm.diagnosis.facts import Facts
from flash_attn_rocm.machine.requirements import REINSTALL, RequirementError, package_version
from flash_attn_rocm.tools import plot

if not wheel.PROBLEMS:
    from flash_attn_rocm.arguments.normal_form import FlashAttnArgumentError
    from flash_attn_rocm.tools import bench, selftest
    from flash_attn_rocm.tuning import command as tuning

RESULTS = (".csv", ".json", *plot.SUFFIXES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Exit status 0 means that all is well on a GPU."""
    parser = argparse.ArgumentParser(
        prog="python -m flash_attn_rocm", description="FlashAttention for AMD GPUs"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    look = commands.add_parser("doctor", help="report this machine's GPUs and kernels, problems and fixes")
    look.add_argument("--json", action="store_true", help="print facts and report as JSON")
    look.add_argument("--files", action="store_true", help="only compare the installed files with the wheel")
    look.set_defaults(run=_run_doctor)
    test = commands.add_parser(
        "selftest", help="compare every kernel with float64 on this machine's GPU and write a report"
    )
    test.add_argument("--report", type=Path, default=Path("selftest.json"), help="output file")
    test.add_argument("--kernel", action="append", default=[], help="run only this kernel; may be repeated")
    test.add_argument("--calls", type=_count, default=0, help="maximum calls per kernel")
    test.set_defaults(run=_run_selftest)
    _measure_options(
        commands.add_parser("bench", help="measure attention, PyTorch's own and the plain formula")
    )
    _tune_options(commands.add_parser("tune", help="time other rows of the kernels on this machine's GPU"))
    given = parser.parse_args(arguments)
    status: int = given.run(given)
    return status


def _measure_options(measure: argparse.ArgumentParser) -> None:
    measure.add_argument("--seqlen", type=_lengths, help="for example 512,1024 (default: 128 to 16384)")
    measure.add_argument("--nheads", type=_count, default=16, help="heads of q, k and v (default: 16)")
    measure.add_argument("--headdim", type=_count, default=64, help="head dim of q, k and v (default: 64)")
    measure.add_argument("--dtype", choices=("fp16", "bf16"), default="fp16")
    measure.add_argument(
        "--tokens", type=_count, default=16384,
        help="tokens per call; short sequences are batched (default: 16384)",
    )  # fmt: skip
    measure.add_argument(
        "--runs", type=_count, default=10, help="maximum measured calls of each (default: 10)"
    )
    measure.add_argument(
        "--output", type=_result, action="append", default=[], metavar="FILE",
        help="a .csv, .json, .svg or .png file; may be repeated; pictures need matplotlib",
    )  # fmt: skip
    measure.set_defaults(run=_run_bench)


def _tune_options(tune: argparse.ArgumentParser) -> None:
    report = Path("flash_attn_rocm_tuning.json")
    tune.add_argument("--report", type=Path, default=report, help=f"output file (default: {report})")
    tune.add_argument("--kernel", action="append", default=[], help="tune only this kernel; may be repeated")
    tune.add_argument("--seqlen", type=_lengths, help="lengths of calls (default: 512,2048,8192)")
    tune.add_argument("--runs", type=_count, default=8, help="samples of each row and call (default: 8)")
    tune.add_argument("--apply", action="store_true", help="use the winners on this machine from now on")
    tune.add_argument("--forget", action="store_true", help="use the wheel's rows again, and tune anew")
    tune.set_defaults(run=_run_tune)


def _run_tune(given: argparse.Namespace) -> int:
    if problem := _unusable():
        return _fail(problem)
    return tuning.main(given, _say)


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(_count, text.split(",")))
    except argparse.ArgumentTypeError:
        message = f"expected positive integers such as 512,1024, got {text}"
        raise argparse.ArgumentTypeError(message) from None


def _count(text: str) -> int:
    if not text.strip().isdecimal() or not int(text):
        message = f"expected a positive integer, got {text}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _result(text: str) -> Path:
    if Path(text).suffix not in RESULTS:
        message = f"expected a name ending in {', '.join(RESULTS)}, got {text}"
        raise argparse.ArgumentTypeError(message)
    return Path(text)


def _run_bench(given: argparse.Namespace) -> int:
    if problem := _unusable():
        return _fail(problem)
    try:
        if any(file.suffix in plot.SUFFIXES for file in given.output):
            plot.matplotlib()  # before anything is measured in vain
        found = bench.quietly(
            list(
                bench.shapes(
                    given.seqlen or bench.LENGTHS, nheads=given.nheads, head_dim=given.headdim,
                    dtype=given.dtype, tokens=given.tokens,
                )
            ),
            runs=given.runs,
        )  # fmt: skip
        _say(bench.text(found))
        for file in given.output:
            bench.write(found, file)
            _say(f"written: {file}")
    except (plot.PlotError, FlashAttnArgumentError) as error:
        return _fail(str(error))
    return 0


def _run_doctor(given: argparse.Namespace) -> int:
    if given.files:
        return _check_files()
    facts = survey.collect()
    report = doctor.diagnose(facts)
    _say(_json(facts, report) if given.json else doctor.text(report))
    return 0 if report.ready else 1


def _check_files() -> int:
    if found := [*installation.problems()]:
        return _fail("\n".join([*found, f"  next: {REINSTALL}"]))
    _say(f"flash_attn_rocm {package_version()}: all files are the wheel's")
    return 0


def _run_selftest(given: argparse.Namespace) -> int:
    if problem := _unusable():
        return _fail(problem)
    try:
        report = selftest.run(given.kernel, given.calls)
    except selftest.NoGpuError as error:
        return _fail(str(error))
    selftest.write(report, given.report)
    _say(selftest.table(report))
    _say(f"The report is in {given.report}; the project accepts it as a hardware report.")
    return 0 if selftest.passed(report) else 1


def _unusable() -> str:
    """Why only the doctor works here."""
    return str(RequirementError(wheel.PROBLEMS)) if wheel.PROBLEMS else ""


def _fail(words: str) -> int:
    print(words, file=sys.stderr)  # noqa: T201
    return 1


def _say(text: str) -> None:
    print(text)  # noqa: T201 - printing is its work


def _json(facts: Facts, report: doctor.Report) -> str:
    values = {
        "facts": dataclasses.asdict(facts),
        **dataclasses.asdict(report),
        "findings": dict(report.findings),
        "hardware_note": doctor.NOT_RUN,
    }
    return json.dumps(values, indent=2)


if __name__ == "__main__":
    sys.exit(main())
