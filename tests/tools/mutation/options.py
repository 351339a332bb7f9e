"""The options of all runs of mutants."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from tests.tools.mutation.bench import CHECKOUT
from tests.tools.mutation.mutants import KINDS


def parser_of(program, words, file):
    """A parser. ``file`` in build/mutation keeps the findings."""
    parser = argparse.ArgumentParser(prog=program, description=words)
    parser.add_argument("--wheel", type=Path, help="default: the newest in dist")
    parser.add_argument(
        "--arch", action="append", help="may be given several times; default: all of the wheel"
    )
    parser.add_argument("--kernel", default="", help="only kernels whose name has this in it")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all, in turn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--of-the-day", action="store_true", help="one arch and the seed by the date")
    parser.add_argument("--jobs", type=int, default=2, help="containers side by side")
    parser.add_argument("--json", type=Path, default=CHECKOUT / "build" / "mutation" / file)
    return parser


def archs_of(options, archs):
    """The archs to run. With ``--of-the-day`` one, and the options get its seed."""
    wanted = options.arch or archs
    if options.of_the_day:
        wanted, options.seed = of_the_day(datetime.now(UTC).date(), wanted)
    return wanted


def of_the_day(date, archs):
    """One of ``archs`` and a seed. Archs take turns."""
    day = date.toordinal()
    return [archs[day % len(archs)]], day
