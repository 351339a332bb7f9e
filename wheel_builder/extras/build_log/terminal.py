"""A report for a terminal.  Everything from the log is shown with its control characters escaped."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from wheel_builder.base.words import duration, visible
from wheel_builder.extras.build_log import told
from wheel_builder.extras.build_log.flags import GROUPS
from wheel_builder.extras.build_log.report import Report

LATEST = 5


def show(report: Report, console: Console) -> None:
    """Print all of it."""
    console.print(rendered(report))


def rendered(report: Report) -> RenderableType:
    parts: list[RenderableType] = [_facts(report)]
    parts += [_cause(*cause) for cause in told.causes(report)]
    if report.failed:
        parts.append(_line("failed objects", ", ".join(report.failed)))
    parts += [_latest(report)] if report.objects else []
    parts += [_families(report)] if report.families else []
    parts += [_slowest(report)] if report.slowest else []
    parts += [_flags(report)] if report.flags else []
    return Group(*parts)


def _text(said: str, style: str = "") -> Text:
    return Text(visible(said), style=style)


def _line(name: str, said: str) -> Text:
    return Text.assemble((f"{name}: ", "bold"), visible(said))


def _facts(report: Report) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, said in told.facts(report):
        grid.add_row(name, _text(said))
    return grid


def _cause(what: str, seen: str, advice: str) -> Group:
    return Group(
        Text(), _text(f"cause: {what}", "bold red"), _text(f"  | {seen}"), _text(f"  next: {advice}", "green")
    )


def _table(title: str, *columns: str, numbers: int = 0) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False, title_style="bold")
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at < numbers else "left", overflow="fold")
    return table


def _latest(report: Report) -> Table:
    table = _table("latest objects", "step", "what it is", numbers=1)
    for one in report.objects[-LATEST:]:
        table.add_row(str(one.number), _text(f"{one.words}{f' for {one.arch}' if one.arch else ''}"))
    return table


def _families(report: Report) -> Table:
    table = _table("kinds of objects", "done", "seconds each", "kind", numbers=2)
    for one in report.families:
        each = f"{one.seconds / one.timed:.1f}" if one.timed else "?"
        table.add_row(str(one.done), each, _text(f"{one.words} ({one.name})"))
    return table


def _slowest(report: Report) -> Table:
    table = _table("slowest objects", "time", "what it is", numbers=1)
    for one in report.slowest:
        peak = f", {one.peak_mib} MiB" if one.peak_mib else ""
        table.add_row(duration(one.seconds or 0), _text(f"{one.words}{peak}"))
    return table


def _flags(report: Report) -> Table:
    table = _table("flags", "flag", "meaning")
    for group, said in GROUPS.items():
        rows = [flag for flag in report.flags if flag.group == group]
        if rows and group != "files":
            table.add_row(Text(group, style="bold"), Text(said, style="italic"))
            for flag in rows:
                table.add_row(_text(f"  {flag.text}"), _text(flag.words))
    return table
