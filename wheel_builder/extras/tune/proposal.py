"""The result of tuning as TOML: every candidate with its verdict, and the chosen rows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wheel_builder.extras.tune.measuring import Figures
from wheel_builder.extras.tune.ranking import Gain, dominated, gain_of, ranked
from wheel_builder.extras.tune.rows import NONE, Changes, Kernel, Rows, changed, toml_row, words_of
from wheel_builder.extras.tune.works import works

HEAD = "# Modelled, not measured. Written by `scripts/wheel-builder tune --arch {arch} --kernel {kernel}`.\n"
SHOWN = 12  # candidates on a terminal
ASSUMPTIONS = (
    "lines: the schedule by order of LDS phases, the way to the LDS, exclusive instructions, disputed rates",
    "lines of launches: the launch model, in the library's order",
    "register bank conflicts, instruction fetch, clocks under load and power are left out",
    "a featured loop keeps its row, except for the size of workgroups; its speed is not modelled",
)


@dataclass(frozen=True)
class Outcome:
    """A candidate: refused with a reason, or with figures. ``twin``: rows that make the same code.

    ``wrong``: what was wrong when it was executed, None if it was not executed.
    """

    refused: str = ""
    figures: Figures | None = None
    twin: str = ""
    wrong: str | None = None


@dataclass(frozen=True)
class Search:
    """All that a search found. ``compiler`` and ``models`` identify what figures depend on.

    ``asked``: the only candidate to choose, if any.
    """

    kernel: Kernel
    rows: Rows
    outcomes: Mapping[Changes, Outcome]
    compiler: str
    models: str
    ended: str
    asked: Changes | None = None

    def id_of(self, changes: Changes) -> str:
        return changed(self.rows, changes).id_of(self.kernel)

    def gain(self, changes: Changes) -> Gain | None:
        """Over today's rows, None for refused and untried candidates."""
        found, today = (self.outcomes.get(each, Outcome()).figures for each in (changes, NONE))
        return gain_of(found.lines, today.lines) if found and today else None


def better(search: Search) -> list[Changes]:
    """The candidates that are better than today's rows, the best first, without those found to be wrong.

    One that was asked for stands alone, even if it is dominated.
    """
    if search.asked is not None:
        gain = search.gain(search.asked)
        return [search.asked] if gain and gain.better and not search.outcomes[search.asked].wrong else []
    lines = {
        changes: outcome.figures.lines
        for changes, outcome in search.outcomes.items()
        if outcome.figures and not outcome.twin and not outcome.wrong
    }
    names = {str(number): changes for number, changes in enumerate(lines)}
    found = {name: lines[changes] for name, changes in names.items()}
    today = next(name for name, changes in names.items() if changes == NONE)
    return [names[name] for name in ranked(found, today)]


def chosen(search: Search) -> Changes:
    """The best candidate with right results, or none: today's rows."""
    return next((each for each in better(search) if search.outcomes[each].wrong == ""), NONE)


def verdicts(search: Search) -> Mapping[Changes, str]:
    """What became of each candidate, in words."""
    lines = {
        search.id_of(changes): outcome.figures.lines
        for changes, outcome in search.outcomes.items()
        if outcome.figures and not outcome.twin and not outcome.wrong
    }
    by, choice = dominated(lines), chosen(search)
    return {changes: _verdict(search, changes, by, choice) for changes in search.outcomes}


def _verdict(search: Search, changes: Changes, by: Mapping[str, str], choice: Changes) -> str:
    outcome, dominator = search.outcomes[changes], by.get(search.id_of(changes), "")
    words = {
        "today's": changes == NONE,
        f"refused: {outcome.refused}": outcome.refused,
        f"the same code as {outcome.twin}": outcome.twin,
        f"wrong results: {outcome.wrong}": outcome.wrong,
        "proposed": changes == choice,
        f"dominated by {dominator}": dominator,
    }
    return next((said for said, holds in words.items() if holds), "") or _rest(search, changes)


def _rest(search: Search, changes: Changes) -> str:
    """The verdict on a candidate of the front."""
    gain = search.gain(changes)
    if gain is None or not gain.better:
        return f"worse under {gain.line!r}" if gain and gain.worst < 0 else "gains too little"
    return "better" if search.outcomes[changes].wrong == "" else "better, and not executed"


def file_name(kernel: Kernel) -> str:
    return f"{kernel.arch}-{kernel.name}.toml"


def to_text(search: Search) -> str:
    """The proposal."""
    kernel, choice = search.kernel, chosen(search)
    lines = [
        HEAD.format(arch=kernel.arch, kernel=kernel.name),
        f"arch = {_text(kernel.arch)}",
        f"kernel = {_text(kernel.name)}",
        f"ended = {_text(search.ended)}",
        f"compiler = {_text(search.compiler)}",
        f"models = {_text(search.models)}",
        f"today = {_text(search.id_of(NONE))}",
        f"proposed = {_text(search.id_of(choice))}",
        "assumptions = [",
        *(f"    {_text(each)}," for each in (*works()[kernel.op].said, *ASSUMPTIONS)),
        "]",
    ]
    said = verdicts(search)
    for changes in _in_order(search):
        lines += ["", *_candidate(search, changes, said[changes])]
    return "\n".join(lines) + "\n"


def _in_order(search: Search) -> Sequence[Changes]:
    """Today's and proposed rows, then by gain, refused ones last."""
    first = [NONE, chosen(search)]

    def place(changes: Changes) -> tuple[int, float, str]:
        gain = search.gain(changes)
        at = first.index(changes) if changes in first else 2
        return (at, -gain.mean if gain else 1.0, words_of(changes))

    return sorted(search.outcomes, key=place)


def _candidate(search: Search, changes: Changes, verdict: str) -> Iterator[str]:
    outcome, rows = search.outcomes[changes], changed(search.rows, changes)
    yield "[[candidates]]"
    yield f"row = {_text(search.id_of(changes))}"
    yield f"changes = {_text(words_of(changes))}"
    yield f"verdict = {_text(verdict)}"
    gain, figures = search.gain(changes), outcome.figures
    if gain is None or figures is None:
        return
    yield f"gain = {{ mean = {gain.mean:.4f}, worst = {gain.worst:.4f}, under = {_text(gain.line)} }}"
    yield (
        f"takes = {{ vgpr = {figures.vgpr}, agpr = {figures.agpr}, lds_bytes = {figures.lds_bytes}, "
        f"code_bytes = {figures.code_bytes}, resident = {figures.resident} }}"
    )
    if not outcome.twin:
        yield f"rows = [{', '.join(toml_row(search.kernel.op, row) for row in rows.used)}]"
        yield "[candidates.lines]"
        yield from (f"{_text(name)} = {value:.4g}" for name, value in figures.lines.items())


def _text(value: str) -> str:
    return json.dumps(value)


def table(search: Search) -> str:
    """The best candidates for a terminal."""
    said, rows = verdicts(search), []
    for changes in _in_order(search):
        gain = search.gain(changes)
        if gain is not None and not search.outcomes[changes].twin:
            rows.append(
                f"{search.id_of(changes)}  {gain.mean:+7.1%} mean {gain.worst:+7.1%} worst  "
                f"{words_of(changes)}: {said[changes]}"
            )
    refused = sum(each.refused != "" for each in search.outcomes.values())
    tail = f"{len(search.outcomes)} candidates, {refused} refused; {search.ended}. Modelled, not measured."
    return "\n".join([*rows[:SHOWN], tail]) + "\n"
