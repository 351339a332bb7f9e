"""The tables of launches in docs/modelled.md, from the accepted figures of ``perf/figures/launch``."""

from collections.abc import Iterator, Mapping, Sequence

from wheel_builder.extras.perf.calibration import Calibrated
from wheel_builder.extras.perf.golden import FLOP, Figure
from wheel_builder.extras.perf.launch.kernels import dies_of
from wheel_builder.extras.perf.launch.table import (
    BACKWARD,
    DECODE,
    FORWARD,
    RATIO,
    ROWS,
    WORST,
    Row,
    fused_wins,
)
from wheel_builder.extras.perf.lines import PLAIN
from wheel_builder.extras.perf.lines import Figure as Disputed
from wheel_builder.extras.perf.model.disputed import DISPUTES
from wheel_builder.extras.perf.power import clock, fitted, peak_flop
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.tables.archs import arch_named

Launches = Mapping[str, Sequence[Row]]  # by arch
KERNELS = ("fp16 d64", "fp16 d128")
OF_BACKWARDS = ("GPU", "head dim", "faster", "fused / separate, in turn", "in the worst case")
OF_ROWS = ("GPU", "launch", "kernel", "128 rows, µs", "256 rows", "384 rows", "our tall kernel")
OF_DECODES = ("GPU", "launch", "one part, µs", "planned parts", "µs", "best parts", "µs")
OF_POWER = ("fwd fp16 d64", "fwd fp16 d128", "separate fp16 d128", "fused fp16 d128")


def launch_tables(found: Launches) -> Mapping[str, str]:
    """Every table, as Markdown."""
    orders = _both("head after head, µs (busy)", "in turn, µs (busy)")
    return {
        "launch_orders": markdown([("GPU", "launch", *orders), *_orders(found)]),
        "launch_backwards": markdown([OF_BACKWARDS, *_backwards(found)]),
        "launch_rows": markdown([OF_ROWS, *_rows(found)]),
        "launch_decodes": markdown([OF_DECODES, *_decodes(found)]),
    }


def _both(*columns: str) -> Iterator[str]:
    yield from (f"{kernel[5:]}: {column}" for kernel in KERNELS for column in columns)


def _of(found: Launches, table: str) -> Iterator[tuple[str, str, Mapping[str, Mapping[str, str]]]]:
    """Product, launch and figures by kernel."""
    for arch, rows in found.items():
        own = [row for row in rows if row.table == table]
        for launch in dict.fromkeys(row.launch for row in own):
            yield (
                arch_named(arch).model.name,
                launch,
                {row.kernel: row.figures for row in own if row.launch == launch},
            )


def _orders(found: Launches) -> Iterator[tuple[str, ...]]:
    for product, launch, figures in _of(found, FORWARD):
        if "causal" in launch:
            cells = (
                cell
                for kernel in KERNELS
                for cell in (
                    f"{figures[kernel]['head after head']} ({figures[kernel]['busy']})",
                    f"{figures[kernel]['turn']} ({figures[kernel]['turn busy']})",
                )
            )
            yield product, launch, *cells


def _backwards(found: Launches) -> Iterator[tuple[str, ...]]:
    for arch, rows in found.items():
        for kernel in KERNELS:
            own = [row.figures for row in rows if (row.table, row.kernel) == (BACKWARD, kernel)]
            if not all(RATIO in figures for figures in own):
                continue
            ratios = (_range(figures[column] for figures in own) for column in (RATIO, WORST))
            faster = "fused" if fused_wins(arch, rows, kernel) else "separate"
            dies = f", {dies_of(arch_named(arch))} dies" if dies_of(arch_named(arch)) > 1 else ""
            yield f"{arch_named(arch).model.name}{dies}", kernel[6:], faster, *ratios


def _range(values: Iterator[str]) -> str:
    numbers = sorted(map(float, values))
    return f"{numbers[0]:.2f} to {numbers[-1]:.2f}"


def _rows(found: Launches) -> Iterator[tuple[str, ...]]:
    for product, launch, figures in _of(found, ROWS):
        for kernel, own in figures.items():
            if "256 rows" in own:
                cells = (own.get(name, "") for name in ("128 rows", "256 rows", "384 rows", "tall"))
                yield product, launch, kernel, *cells


def _decodes(found: Launches) -> Iterator[tuple[str, ...]]:
    for product, launch, figures in _of(found, DECODE):
        own = figures.get("fp16 d128")
        if own:
            names = ("1 part", "planned parts", "planned", "best parts", "best")
            yield product, launch, *(own[name] for name in names)


def launch_errors(rows: Sequence[Calibrated]) -> str:
    """Errors of the schedule and of launches by GPU, mask and length, the worst launches first."""
    groups: dict[tuple[str, str, int], list[Calibrated]] = {}
    for row in rows:
        groups.setdefault((row.product, row.causal, row.seqlen), []).append(row)
    shown = sorted(
        groups.items(), key=lambda group: -max(abs(row.launch / row.published - 1) for row in group[1])
    )
    head = (
        "GPU",
        "keys",
        "seqlen",
        "published, TFLOP/s",
        "schedule's error",
        "launch's error",
        "with the power line",
    )
    return markdown([head, *((gpu, mask, str(seqlen), *_errors(own)) for (gpu, mask, seqlen), own in shown)])


def _errors(rows: Sequence[Calibrated]) -> Iterator[str]:
    published = [row.published for row in rows]
    yield f"{min(published):.0f} to {max(published):.0f}"
    for name in ("schedule", "launch", "power"):
        found = [getattr(row, name) / row.published - 1 for row in rows if getattr(row, name)]
        yield f"{min(found):+.0%} to {max(found):+.0%}" if found else ""


def disputed_table(figures: Sequence[Disputed]) -> str:
    """Forwards by arch and kernel, with a column for each line."""
    rows: dict[tuple[str, str], dict[str, int]] = {}
    for each in figures:
        rows.setdefault((each.arch, each.kernel), {})[each.line] = each.flop
    head = ("gfx arch", "kernel", PLAIN, *DISPUTES)
    return markdown([
        head, *((*key, *(str(own.get(line, "")) for line in head[2:])) for key, own in rows.items())
    ])  # fmt: skip


def power_table(
    pairs: Mapping[str, Sequence[tuple[float, float]]], figures: Mapping[str, Sequence[Figure]]
) -> str:
    """The clocks of our kernels on GPUs with published pairs."""
    rows = [("GPU", "kernel", "matrix units busy", "clock, GHz", "on paper")]
    for arch, found in figures.items():
        hardware = arch_named(arch)
        if hardware.model.name not in pairs:
            continue
        line = fitted(pairs[hardware.model.name])
        by_kernel = {
            each.kernel: each.value for each in found if (each.what, each.maker) == (FLOP, "flash-attn-rocm")
        }
        for kernel in OF_POWER:
            flop = by_kernel[kernel]
            hertz = clock(hardware, line, flop)
            shown = (
                f"{flop / peak_flop(hardware):.2f}",
                f"{hertz / 1e9:.2f}",
                f"{hardware.model.clock / 1e9:.2f}",
            )
            rows.append((hardware.model.name, kernel, *shown))
    return markdown(rows)
