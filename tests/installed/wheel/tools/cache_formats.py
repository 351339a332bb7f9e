"""The error of attention over caches of 8 bits against float64, for each format: the table of a page of docs.

    python tests/installed/wheel/tools/cache_formats.py

with the wheel installed, on any machine: float64 queries, so only the cache is rounded. Equal in every run.
"""

from typing import NamedTuple

import torch
from flash_attn_rocm import flash_attn_with_kvcache, set_strict
from flash_attn_rocm.reference import codes
from torch import Tensor

KEYS, HEADS, HEAD_DIM, ROWS = 1024, 4, 128, 16
NORMAL, OUTLIERS, SINKS, SPIKES = "normal", "outliers", "sinks", "spikes"
OF_HEADS, OF_KEYS = "head", "key"


class Format(NamedTuple):
    """A cache's dtype, and what has a descale."""

    dtype: torch.dtype
    of: str = ""

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return f"{name}, a descale per {self.of}" if self.of else name


FORMATS = (
    Format(torch.float16),
    Format(torch.bfloat16),
    Format(torch.int8, OF_KEYS),
    Format(torch.int8, OF_HEADS),
    Format(torch.float8_e4m3fn, OF_KEYS),
    Format(torch.float8_e4m3fn, OF_HEADS),
    Format(torch.float8_e4m3fn),
    Format(torch.float8_e4m3fnuz, OF_HEADS),
    Format(torch.float8_e5m2, OF_HEADS),
)


def inputs(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of one sequence: normal numbers, and what makes caches hard.

    outliers: four channels of k far from 0, and v with a mean. sinks: the first key takes most of each row,
    and its value is small. spikes: one element in a thousand is ten times as large.
    """
    draw = torch.Generator().manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=draw, dtype=torch.float64)

    q, k, v = normal(1, ROWS, HEADS, HEAD_DIM), *(normal(1, KEYS, HEADS, HEAD_DIM) for _ in "kv")
    if kind == OUTLIERS:
        k[..., :4] += torch.tensor([6.0, 8.0, 11.0, 14.0])
        v += normal(HEADS, HEAD_DIM) * 2
    if kind == SINKS:
        k[:, 0] = q.mean(1) * 3 * ROWS**0.5
        v[:, 0] *= 0.05
    if kind == SPIKES:
        k, v = (x + 10 * normal(*x.shape) * (torch.rand(x.shape, generator=draw) < 0.001) for x in (k, v))
    return q, k, v


def stored(x: Tensor, form: Format) -> tuple[Tensor, Tensor | None]:
    """A cache and its descale, or for 16 bits the rounded numbers."""
    if form.dtype not in codes.DTYPES:
        return x.to(form.dtype).double(), None
    if not form.of:
        return codes.encode(x, 1.0, form.dtype), torch.ones(1, HEADS)
    descale = codes.own_descales(x, form.dtype)
    if form.of == OF_KEYS:
        return codes.encode(x, descale[..., None], form.dtype), descale
    descale = descale.amax(1)
    return codes.encode(x, descale[:, None, :, None], form.dtype), descale


def error(kind: str, form: Format) -> float:
    """The root mean square of the error, as a share of that of out."""
    q, k, v = inputs(kind)
    exact = flash_attn_with_kvcache(q, k, v)
    (k, k_descale), (v, v_descale) = (stored(x, form) for x in (k, v))
    found = flash_attn_with_kvcache(q, k, v, k_descale=k_descale, v_descale=v_descale)
    return ((found - exact).square().mean() / exact.square().mean()).sqrt().item()


def row_bytes(form: Format) -> int:
    """The bytes of a key and its value of one head."""
    return 2 * (HEAD_DIM * form.dtype.itemsize + (4 if form.of == OF_KEYS else 0))


def table() -> list[str]:
    """The table as Markdown. Errors in thousandths."""
    kinds = (NORMAL, OUTLIERS, SINKS, SPIKES)
    lines = [f"| cache | bytes | {' | '.join(kinds)} |", f"|---|{'---|' * (1 + len(kinds))}"]
    for form in FORMATS:
        errors = (1000 * error(kind, form) for kind in kinds)
        cells = " | ".join(f"{x:.0f}" if x >= 10 else f"{x:.2g}" for x in errors)
        lines.append(f"| {form} | {row_bytes(form)} | {cells} |")
    return lines


if __name__ == "__main__":
    set_strict(False)
    print("\n".join(table()))  # noqa: T201
