"""Why building flash-attn takes hours: upstream's kernels and ours compared, and faster ways to install.

All figures come from the two files of measured costs and from matrix.yaml. The terminal and the page have the
same sections.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wheel_builder.base.words import aligned, duration
from wheel_builder.build import budget
from wheel_builder.extras.build_log.page import document, table
from wheel_builder.extras.upstream.costs import Costs
from wheel_builder.index.finder.html import Html, element, joined
from wheel_builder.matrix.model import Upstream

TITLE = "Why does building flash-attn take hours?"
CORES = 16
DEAR = 2  # times the compile time
# In the order of their effect on the user's waiting time.
KINDS = {
    "bwd": "backward",
    "fwd": "forward",
    "fwd_splitkv": "forward, keys split (decode)",
    "fwd_splitkv_combine": "joining the parts of split keys",
    "fwd_appendkv": "appending to a cache",
    "bwd_dot_do_o": "backward, row sums",
    "bwd_convert_dq": "backward, rounding dQ",
    "api": "choosing a kernel (no device code)",
}


FORWARD = tuple(kind for kind in KINDS if not kind.startswith("bwd"))


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and a table with a head as its first row. Each of them may be empty."""

    heading: str
    sentences: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def sections(upstream: Upstream, theirs: Costs, ours: Mapping[str, budget.Costs]) -> list[Section]:
    """The whole answer."""
    return [
        _answer(theirs, ours),
        Section("Side by side", rows=_side_by_side(upstream, theirs, ours)),
        Section(f"What upstream compiles for one arch (flash-attn {theirs.version})", rows=_kinds(theirs)),
        *([_flags(theirs)] if len(theirs.flags) > 1 else []),
        Section("How to install instead", INSTEAD),
    ]


def _answer(theirs: Costs, ours: Mapping[str, budget.Costs]) -> Section:
    each, arch = theirs.hours * 3600 / theirs.count, duration(theirs.hours * 3600 / CORES)
    upstream = (
        "Upstream's package has a kernel for each combination of head dim, dtype, mask, bias, dropout and "
        f"padding, each in its own C++ file: {theirs.count} for one arch. Compiling takes about {each:.0f} "
        f"CPU-seconds per kernel and {theirs.hours:.0f} CPU-hours in total: {arch} on {CORES} idle cores, "
        "and the same again for every arch, Python and torch."
    )
    own = (
        f"flash-attn-rocm has {_count(ours)} kernels for its {len(ours)} archs, because its kernels select "
        f"features at run time, outside their loops. Compiling all takes {duration(_seconds(ours))} on one "
        "core. One wheel serves every Python and torch."
    )
    known = (
        f"Upstream's figures are estimated from {len(theirs.measured)} measured objects. Ours are the sum of "
        "all kernels. Both vary with the machine and its load."
    )
    return Section("In short", (upstream, own, known))


def _side_by_side(
    upstream: Upstream, theirs: Costs, ours: Mapping[str, budget.Costs]
) -> tuple[tuple[str, ...], ...]:
    archs, count, seconds = len(ours), _count(ours), _seconds(ours)
    their_seconds, forward = theirs.hours * 3600, theirs.only(FORWARD)
    our_forward = {arch: _only_forward(costs) for arch, costs in ours.items()}
    peaks = [one.peak_mib for costs in ours.values() for one in costs.values()]
    return (
        ("", f"upstream {upstream.version} (CK)", "flash-attn-rocm"),
        ("archs", " ".join(upstream.archs), " ".join(ours)),
        ("kernels per arch", f"{theirs.count}", f"{count / archs:.0f}"),
        ("forward kernels per arch", f"{forward.count}", f"{_count(our_forward) / archs:.0f}"),
        ("CPU-seconds per kernel", f"{their_seconds / theirs.count:.1f}", f"{seconds / count:.1f}"),
        ("CPU time per arch", duration(their_seconds), duration(seconds / archs)),
        (
            "CPU time of forward per arch",
            duration(forward.hours * 3600),
            duration(_seconds(our_forward) / archs),
        ),
        ("CPU time for all its archs", duration(their_seconds * len(upstream.archs)), duration(seconds)),
        (f"one arch on {CORES} cores", duration(their_seconds / CORES), duration(seconds / archs / CORES)),
        (
            "peak memory of one compiler",
            *(f"{most} MiB" for most in (theirs.most_mib, max(peaks))),
        ),
    )


def _only_forward(costs: budget.Costs) -> budget.Costs:
    return {name: one for name, one in costs.items() if not name.startswith("fa_bwd")}


def _kinds(theirs: Costs) -> tuple[tuple[str, ...], ...]:
    rows = [("kernels", "objects", "measured", "CPU-seconds each", "CPU-hours")]
    for kind, said in KINDS.items():
        count, each, samples = theirs.objects[kind], theirs.seconds(kind), theirs.samples(kind)
        seconds = [one.cpu_seconds for one in samples]
        spread = f"{each:.0f} ({min(seconds):.0f} to {max(seconds):.0f})"
        rows.append((said, str(count), str(len(samples)), spread, f"{count * each / 3600:.1f}"))
    rows.append(("all", str(theirs.count), str(len(theirs.measured)), "", f"{theirs.hours:.1f}"))
    return tuple(rows)


def _flags(theirs: Costs) -> Section:
    plain = theirs.flags[0]
    rows = [("flag", "CPU-seconds", "times", "bytes of code")]
    for one in theirs.flags:
        more = "" if one.code_bytes else "more than "
        code = str(one.code_bytes) if one.code_bytes else "stopped"
        times = f"{more}{one.cpu_seconds / plain.cpu_seconds:.1f}"
        rows.append((one.added or "none of these", f"{more}{one.cpu_seconds:.0f}", times, code))
    said = "Flags of upstream's setup.py omitted by our recipe, for one forward kernel (fp16, head dim 32)."
    return Section("What flags cost", (said, _dear(theirs)), tuple(rows))


def _dear(theirs: Costs) -> str:
    """The fewest flags with a far higher cost than others, by name."""
    plain = theirs.flags[0]
    dear = [one for one in theirs.flags if one.cpu_seconds >= DEAR * plain.cpu_seconds]
    if not dear:
        return f"None of them makes the compiler take {DEAR} times as long."
    named = min(dear, key=lambda one: len(one.added))
    times = f"{named.cpu_seconds / plain.cpu_seconds:.1f} times as long"
    if not named.code_bytes:
        return f"{named.added} makes it take more than {times}: it was stopped then."
    code = f"{named.code_bytes} bytes of code instead of {plain.code_bytes}"
    return f"{named.added} makes it take {times}, for {code}."


INSTEAD = (
    "Without compiling: pip install flash-attn-rocm --index-url <index>/public/simple",
    "For libraries that import flash_attn: pip install flash-attn --index-url <index>/public/simple",
    "In a container: scripts/wheel-builder runtime-image, or add two lines to an image (docs/install.md).",
    "For upstream's package: scripts/wheel-builder upstream, on any number of machines.",
    "To watch a running build: scripts/wheel-builder explain-log --follow FILE",
)


def to_text(parts: Sequence[Section]) -> str:
    """For a terminal."""
    lines = [TITLE]
    for part in parts:
        lines += ["", part.heading, *part.sentences]
        lines += aligned(part.rows, left=1) if part.rows else []
    return "\n".join(lines) + "\n"


def to_html(parts: Sequence[Section], theirs: Costs, ours: Mapping[str, budget.Costs]) -> str:
    """One self-contained page of the same sections, with a picture of the CPU time of one arch."""
    bodies = [_html(part) for part in parts]
    bodies.insert(1, _bars(theirs.hours * 3600, _seconds(ours) / len(ours)))
    return document(TITLE, bodies)


def _html(part: Section) -> Html:
    said = [element("p", sentence) for sentence in part.sentences]
    rows = [table("", part.rows[0], part.rows[1:])] if part.rows else []
    return joined(element("h2", part.heading), *said, *rows)


def _bars(theirs: float, ours: float) -> Html:
    """Two bars, drawn to scale: ours is narrower than a pixel where it has to be."""
    shapes = []
    for at, (name, seconds, colour) in enumerate(
        (("upstream", theirs, "#b3561e"), ("ours", ours, "#3f7d3a"))
    ):
        said = f"{name}: {duration(seconds)} of CPU time for one arch"
        shapes.append(element("text", said, x="0", y=str(50 * at + 14)))
        width = f"{1000 * seconds / max(theirs, ours):.2f}"
        shapes.append(element("rect", x="0", y=str(50 * at + 20), width=width, height="18", fill=colour))
    return element(
        "svg", *shapes, viewBox="0 0 1000 95", role="img", aria_label="CPU time for one arch, to scale"
    )


def _count(ours: Mapping[str, budget.Costs]) -> int:
    return sum(map(len, ours.values()))


def _seconds(ours: Mapping[str, budget.Costs]) -> float:
    return sum(one.cpu_seconds for costs in ours.values() for one in costs.values())
