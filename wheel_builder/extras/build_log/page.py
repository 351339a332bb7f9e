"""A report as one self-contained HTML page: no script, no network.

All text from the log goes through ``element``, which escapes it.
"""

from bisect import bisect
from collections.abc import Iterable, Sequence

from wheel_builder.base.words import duration, visible
from wheel_builder.extras.build_log import told
from wheel_builder.extras.build_log.flags import GROUPS
from wheel_builder.extras.build_log.names import describe
from wheel_builder.extras.build_log.ninja import Span
from wheel_builder.extras.build_log.report import FAILED, Report
from wheel_builder.extras.build_log.timing import lanes
from wheel_builder.index.finder.html import Html, element, joined, void

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MAX_BARS = 3000
MAX_ROWS = 1000
WIDTH = 1000
LANE = 16
MAX_POINTS = 1000
CURVE = 200
COLOURS = ("#3b6ea8", "#b3561e", "#3f7d3a", "#7a4fa3", "#a33b52", "#2a7f86", "#7d6b1d", "#666666")
STYLE = """\
:root { color-scheme: light dark; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; font-weight: bold; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; vertical-align: top; overflow-wrap: anywhere; }
th { white-space: nowrap; } code { overflow-wrap: anywhere; }
.cause { border-left: .3rem solid #a33b52; padding-left: 1rem; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
"""


def to_html(report: Report) -> str:
    """The whole page."""
    return document(f"Build log: {visible(report.source)}", _sections(report))


def document(title: str, sections: Iterable[Html]) -> str:
    """A page with its own style and a policy against loading anything."""
    head = element(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=POLICY),
        void("meta", name="viewport", content="width=device-width"),
        element("title", title),
        element("style", Html(STYLE)),
    )
    main = element("main", element("h1", title), *sections)
    return f"<!doctype html>\n{element('html', head, element('body', main), lang='en')}\n"


def _sections(report: Report) -> Iterable[Html]:
    yield from _causes(report)
    facts = (
        element("tr", element("th", name, scope="row"), element("td", visible(said)))
        for name, said in told.facts(report)
    )
    yield element("table", *facts)
    if report.spans:
        yield joined(element("h2", "Timeline"), _timeline(report.spans))
    elif len(report.times) > 1:
        yield joined(element("h2", "Timeline"), _curve(report.times))
    if report.slowest:
        rows = [(duration(one.seconds or 0), one.words) for one in report.slowest]
        yield joined(element("h2", "Slowest objects"), table("", ("time", "what it is"), rows))
    if report.families:
        kinds = [
            (str(one.done), f"{one.seconds / one.timed:.1f}" if one.timed else "?", one.words, one.name)
            for one in report.families
        ]
        columns = ("done", "seconds each", "kind", "name")
        yield joined(element("h2", "Kinds of objects"), table("", columns, kinds))
    yield from _flags(report)
    yield from _objects(report)


def _causes(report: Report) -> Iterable[Html]:
    for what, seen, advice in told.causes(report):
        yield element(
            "section",
            element("h2", f"Why it failed: {visible(what)}"),
            element("p", element("code", visible(seen))),
            element("p", element("strong", "Next: "), visible(advice)),
            class_="cause",
        )
    if report.state == FAILED and report.failed:
        yield element("p", "Failed objects: ", element("code", visible(", ".join(report.failed))))


def _flags(report: Report) -> Iterable[Html]:
    groups = [
        (group, said, [(flag.text, flag.words) for flag in report.flags if flag.group == group])
        for group, said in GROUPS.items()
    ]
    tables = [table(f"{group}: {said}", (), rows) for group, said, rows in groups if rows]
    if tables:
        yield joined(element("h2", "What the flags are for"), *tables)


def _objects(report: Report) -> Iterable[Html]:
    rows = [(str(one.number), f"{one.words} {one.arch}".strip(), one.name) for one in report.objects]
    if rows:
        shown = rows[-MAX_ROWS:]
        said = f"Objects ({len(shown)} of {report.done})" if len(shown) < report.done else "Objects"
        yield joined(element("h2", said), table("", ("step", "what it is", "name"), shown))


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    parts = [element("caption", caption)] if caption else []
    if columns:
        parts.append(element("thead", element("tr", *(element("th", name, scope="col") for name in columns))))
    body = [element("tr", *(element("td", visible(cell)) for cell in row)) for row in rows]
    return element("table", *parts, element("tbody", *body))


def _timeline(spans: Sequence[Span]) -> Html:
    """A bar per object, in the lanes of parallel jobs. Hovering over a bar shows the object's meaning."""
    longest = sorted(spans, key=lambda span: -span.seconds)[:MAX_BARS]
    begun, ended = min(span.start for span in spans), max(span.end for span in spans)
    scale = WIDTH / (ended - begun) if ended > begun else 0.0
    families = list(dict.fromkeys(describe(span.name).family for span in longest))
    bars = []
    rows = lanes(longest)
    for span, lane in zip(longest, rows, strict=True):
        described = describe(span.name)
        colour = COLOURS[min(families.index(described.family), len(COLOURS) - 1)]
        title = element("title", visible(f"{duration(span.seconds)}: {described.words}"))
        bars.append(
            element(
                "rect", title, x=f"{(span.start - begun) * scale:.1f}", y=str(lane * LANE + 1),
                width=f"{max(0.5, span.seconds * scale):.1f}", height=str(LANE - 2), fill=colour,
            )
        )  # fmt: skip
    height = (max(rows, default=0) + 1) * LANE
    axis = element("text", f"0 to {duration(ended - begun)}", x="0", y=str(height + 14))
    view = f"0 0 {WIDTH} {height + 20}"
    picture = element("svg", *bars, axis, viewBox=view, role="img", aria_label="when each object was built")
    return joined(picture, _legend(families))


def _curve(times: Sequence[float]) -> Html:
    """Steps done against time, for logs with end times only."""
    ordered = sorted(times)
    begun, took = ordered[0], ordered[-1] - ordered[0]
    chosen = ordered[:: max(1, len(ordered) // MAX_POINTS)]
    scale = WIDTH / took if took else 0.0
    points = " ".join(
        f"{(at - begun) * scale:.1f},{CURVE - CURVE * bisect(ordered, at) / len(ordered):.1f}"
        for at in chosen
    )
    line = element("polyline", points=points, fill="none", stroke=COLOURS[0], stroke_width="2")
    said = f"{len(ordered)} steps in {duration(took)}"
    axis = element("text", said, x="0", y=str(CURVE + 14))
    view = f"0 0 {WIDTH} {CURVE + 20}"
    return element("svg", line, axis, viewBox=view, role="img", aria_label="steps done against time")


def _legend(families: Sequence[str]) -> Html:
    def entry(at: int, family: str) -> Html:
        mark = element("span", "■ ", style=f"color: {COLOURS[min(at, len(COLOURS) - 1)]}")
        return element("span", mark, f"{visible(family)}  ")

    return element("p", *(entry(at, family) for at, family in enumerate(families)))
