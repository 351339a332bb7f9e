"""The command ``tune``, and what it prints."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from flash_attn_rocm.library import tuned
from flash_attn_rocm.library.candidates import CandidatesError
from flash_attn_rocm.tuning import report, run, session, timing
from flash_attn_rocm.tuning.bins import Sizes
from flash_attn_rocm.tuning.peer import Peer
from flash_attn_rocm.tuning.session import SessionError
from flash_attn_rocm.values.tuning import LEAST_GAIN, LENGTHS

INTERRUPTED = 130
WHOLE = "the project accepts it as a report about tuning"
PART = "the project accepts reports of all kernels and lengths, without --kernel and --seqlen"
Say = Callable[[str], None]


def main(
    given: argparse.Namespace,
    say: Say,
    *,
    clock: timing.Clock = timing.sample,
    peer: Peer | None = None,
    tokens: int = 0,
) -> int:
    """Runs the command. ``tokens`` of a call replace the usual number."""
    try:
        if given.forget:
            return _forget(say)
        sizes = Sizes(given.seqlen or LENGTHS)
        sizes = sizes._replace(tokens=tokens) if tokens else sizes
        wishes = run.Wishes(tuple(given.kernel), sizes, given.runs)
        found = run.run(wishes, _told, clock=clock, peer=peer or Peer())
        ended = 0 if found["complete"] or given.kernel else INTERRUPTED
        found["complete"] = found["complete"] and not given.seqlen  # rows may be slower in other calls
    except (run.TuneError, SessionError, CandidatesError) as error:
        say(str(error))
        return 1
    say(report.table(found))
    say(report.plot(found))
    status = _written(found, given.report, say)
    if given.apply:
        status = _applied(found, say) or status
    return status or ended


def _told(words: str) -> None:
    print(words, file=sys.stderr)  # noqa: T201


def _forget(say: Say) -> int:
    gpu = run.gpu()
    try:
        session.forget(gpu)
    except OSError as error:
        say(f"{error.filename} cannot be removed: {error.strerror}\n  next: remove it, and run this again")
        return 1
    say("the wheel's own rows are used, and nothing is kept")
    return 0


def _written(found: report.Report, file: Path, say: Say) -> int:
    """On a full disk the report goes to the terminal."""
    if problem := report.write(found, file):
        say(
            f"{problem}\n  next: make room and run the same command again, or keep this:\n"
            f"{report.to_text(found)}"
        )
        return 1
    say(f"\nThe report is in {file}. Nothing was sent: {WHOLE if found['complete'] else PART}.")
    return 0


def _applied(found: report.Report, say: Say) -> int:
    gpu, every = run.gpu(), report.winners(found)
    try:
        path = tuned.keep(gpu, found["candidates"], every)
    except OSError as error:
        say(f"{tuned.file_of(gpu)} cannot be written: {error.strerror}\n  next: make room and run it again")
        return 1
    if not any(every.values()):
        say(f"No candidate is faster by {LEAST_GAIN:.0%} in a regime: the wheel's own rows are used.")
    else:
        say("\n".join(["Used from now on, after a check at first use:", *_kept(every)]))
        say(f"Remove {path} to undo it.")
    return 0


def _kept(every: Mapping[str, Mapping[str, tuned.Winner]]) -> Iterator[str]:
    """A line for each kept row, with its regimes."""
    for name, winners in every.items():
        for row in dict.fromkeys(winner.row for winner in winners.values()):
            gains = (
                f"{regime} {winner.gain - 1:+.1%}" for regime, winner in winners.items() if winner.row == row
            )
            yield f"  {name} row {row}: {', '.join(gains)}"
