"""A run's rows as text."""

from collections import Counter

KILLED, SURVIVED = "killed", "survived"
# Without an effect in the random calls, or without one that is worse: outside the score.
NOT_JUDGED, AS_EXACT = OUTSIDE = "not judged", "as exact"
COLUMNS = "{:<8} {:<10} {:>7} {:>7} {:>9} {:>11} {:>9} {:>7}  {}"


def score(rows):
    """The share of killed mutants among the judged ones. 1 if none was judged."""
    judged = [row for row in rows if row["verdict"] not in OUTSIDE]
    return sum(row["verdict"] == KILLED for row in judged) / len(judged) if judged else 1.0


def below(rows, least):
    """The archs whose score is below ``least``."""
    archs = sorted({row["arch"] for row in rows})
    return [arch for arch in archs if score([row for row in rows if row["arch"] == arch]) < least]


def as_text(rows):
    """The table by arch and kind, the kills of each check, and each survivor."""
    archs = sorted({row["arch"] for row in rows})
    groups = [*sorted({(row["arch"], row["kind"]) for row in rows}), *((arch, "all") for arch in archs)]
    lines = [COLUMNS.format("arch", "kind", "mutants", "killed", SURVIVED, *OUTSIDE, "score", "killed by")]
    lines += [_line(arch, kind, [row for row in rows if row["arch"] == arch and kind in (row["kind"], "all")])
              for arch, kind in groups]  # fmt: skip
    rest = [f"{row['verdict']}: {row['name']} ({row['words']})" for row in rows if row["verdict"] != KILLED]
    return "\n".join([*lines, *sorted(rest, reverse=True)])


def _line(arch, kind, rows):
    verdicts = Counter(row["verdict"] for row in rows)
    by = Counter(row["by"] for row in rows if row["verdict"] == KILLED).most_common()
    killers = ", ".join(f"{name} {count}" for name, count in by)
    numbers = (len(rows), *(verdicts[each] for each in (KILLED, SURVIVED, *OUTSIDE)))
    return COLUMNS.format(arch, kind, *numbers, f"{score(rows):.1%}", killers)
