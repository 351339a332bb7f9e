"""Calls over caches of 8 bits beside 16, from the accepted figures of kernels.

The tables under "Speed" of docs/caches-8-bit.md. ``scripts/wheel-builder perf --caches`` prints the first.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import inf
from typing import NamedTuple

from wheel_builder.base.words import aligned
from wheel_builder.extras.perf.golden import DECODE, FLOP, MANY_DECODE, Figure
from wheel_builder.extras.perf.workloads import latent, widening
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.extras.site.modelled import HEAD_DIMS, LATENT_DIM, OURS, TALL_OP
from wheel_builder.tables.archs import Arch, arch_named

KEYS = 2048  # of the forwards' figures. Their FLOP count for longer calls too
LENGTH, HEADS, HEADS_K = 4096, 32, 8  # of the prefill, a causal call
SHORTEST = 32  # power of two: up to 16 queries are a decode
LAUNCH = 3e-6  # seconds that the launch of the copy takes: assumed
DECODE_TARGET, LATENT_TARGET, PREFILL_TARGET = 0.55, 0.60, 0.95
TITLE = """\
Modelled, not measured: caches of 8 bits beside 16, from the accepted figures (perf/figures), in fp16.
decode: time, with four workgroups of 512 keys on a compute unit, then with one. latent: time of mla_decode
in bf16, with as many workgroups as fit. rows: likewise over rows of 656 bytes. prefill: speed of a causal
call. *: beyond the target, 0.55, 0.60 and 0.95. Nothing was run on a GPU."""


Values = Mapping[tuple[str, str], int]  # of our figures, by what and kernel


class Beside(NamedTuple):
    """A call over 8 bits: its time over that of 16 bits, with ``speed`` its speed. None: no kernel."""

    name: str
    found: float | None
    target: float
    speed: bool = False

    @property
    def reached(self) -> bool:
        """As shown, in hundredths."""
        if self.found is None:
            return True
        shown = round(self.found, 2)
        return shown >= self.target if self.speed else shown <= self.target

    def cell(self, mark: str) -> str:
        if self.found is None:
            return "-"
        around = "" if self.reached else mark
        return f"{around}{self.found:.2f}{around}"


def coded_caches(found: Mapping[str, Sequence[Figure]]) -> str:
    """A row for each arch, as Markdown. What misses its target is bold."""
    return markdown(_rows(found, "**"))


def coded_prefills(found: Mapping[str, Sequence[Figure]]) -> str:
    """Archs by the least keys, a power of two, with which a prefill reaches its target. As Markdown."""
    least = {
        (name, dim): _least_keys(arch_named(name), _values(figures), dim)
        for name, figures in found.items()
        for dim in HEAD_DIMS
    }
    rows = [("keys", *(f"head dim {dim}" for dim in HEAD_DIMS))]
    for keys in sorted({*least.values()}):
        cells = (", ".join(name for name in found if least[name, dim] == keys) for dim in HEAD_DIMS)
        rows.append((f"{keys:,}", *(cell or "none" for cell in cells)))
    return markdown(rows)


def report(found: Mapping[str, Sequence[Figure]]) -> str:
    """The printed table."""
    return "\n".join([TITLE, "", *aligned(_rows(found, "*"), left=2), ""])


def _rows(found: Mapping[str, Sequence[Figure]], mark: str) -> list[tuple[str, ...]]:
    columns = {name: [*beside_16_bits(arch_named(name), figures)] for name, figures in found.items()}
    head = ("gfx arch", "modelled as", *(each.name for each in next(iter(columns.values()))))
    return [
        head,
        *(
            (name, arch_named(name).model.name, *(each.cell(mark) for each in cells))
            for name, cells in columns.items()
        ),
    ]


def beside_16_bits(arch: Arch, figures: Sequence[Figure]) -> Iterator[Beside]:
    """The columns of the table."""
    of = _values(figures)
    for what, target, words in ((MANY_DECODE, DECODE_TARGET, ""), (DECODE, inf, ", one")):
        for dim in HEAD_DIMS:
            time = of[what, f"fp16 d{dim}"] / (2 * of[what, f"8-bit fp16 d{dim}"])
            yield Beside(f"decode d{dim}{words}", time, target)
    yield Beside("latent", _latent(arch, of), LATENT_TARGET)
    yield Beside("rows", _rows_of_latent(arch, of), LATENT_TARGET)
    for dim in HEAD_DIMS:
        yield _prefill(arch, of, dim, LENGTH)


def _values(figures: Sequence[Figure]) -> Values:
    return {(each.what, each.kernel): each.value for each in figures if each.maker == OURS}


def _prefill(arch: Arch, of: Values, dim: int, length: int) -> Beside:
    """A causal call of one sequence: the copy and its launch come before the kernel of 16 bits."""
    flop = max(of.get((FLOP, f"{op} {KEYS} fp16 d{dim}"), 0) for op in ("fwd", TALL_OP))
    plain = 2 * length * length * dim * HEADS / (flop * arch.compute_units * arch.model.clock)
    copied = 2 * length * HEADS_K * dim * widening.BYTES / _copying(arch, of) + LAUNCH
    return Beside(f"prefill d{dim}", plain / (plain + copied), PREFILL_TARGET, speed=True)


def _copying(arch: Arch, of: Values) -> float:
    """Bytes of a copy in a second."""
    return arch.model.memory * of[MANY_DECODE, f"{widening.OP} fp16 d{widening.HEAD_DIM}"] / 100


def _least_keys(arch: Arch, of: Values, dim: int) -> int:
    """The copy grows with the keys, and the kernel with their square: longer calls reach the target, too."""
    lengths = (SHORTEST << power for power in count())
    return next(length for length in lengths if _prefill(arch, of, dim, length).reached)


def _latent(arch: Arch, of: Values) -> float | None:
    """By the kernel that reads codes, or after a copy."""
    return _bytes_of_latent(arch, of, latent.CODED_OP, LATENT_DIM)


def _rows_of_latent(arch: Arch, of: Values) -> float | None:
    """Likewise, of rows of 656 bytes."""
    return _bytes_of_latent(arch, of, latent.ROWS_OP, latent.ROW_BYTES)


def _bytes_of_latent(arch: Arch, of: Values, op: str, row: int) -> float | None:
    """``row``: bytes of a key that the kernels ``op`` read."""
    share = of.get((DECODE, f"bf16 d{LATENT_DIM}"))
    if not share:
        return None
    plain = 2 * LATENT_DIM  # bytes of a key
    if own := of.get((MANY_DECODE, f"{latent.SHOWN[op]} bf16 d{LATENT_DIM}")):
        return row / own / (plain / share)
    return 1 + (row + plain) / _copying(arch, of) / (plain / (arch.model.memory * share / 100))
