"""``python -m flash_attn_rocm bench``: this package, others, PyTorch's attention and the plain formula."""

import csv
import io
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from flash_attn_rocm.arguments.normal_form import TORCH_DTYPES
from flash_attn_rocm.diagnosis import notice
from flash_attn_rocm.flash_attn_interface import flash_attn_func
from flash_attn_rocm.functions.explain import explain
from flash_attn_rocm.library import host
from flash_attn_rocm.serving.resets import RATES
from flash_attn_rocm.tools import others, plot, terminal, this_machine

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TOKENS = 16384  # per call: shorter sequences come in larger batches
DECODE_BATCH = 16
WARM, RUNS, ENOUGH = 2, 10, 1.0  # warm-up calls, most measured calls, and seconds that suffice
NOT_CAUSAL = False
OURS, SDPA, PLAIN = "ours", "sdpa", "plain"
ON_CPU = (
    "This measures the PyTorch implementation on a CPU, not kernels: {reason}.\n"
    "  next: python -m flash_attn_rocm doctor"
)

Functions = Mapping[str, others.Function]


@dataclass(frozen=True)
class Shape:
    """One measurement. ``kind`` is forward, backward (including the forward before it) or decode."""

    kind: str
    seqlen: int
    causal: bool
    nheads: int
    head_dim: int
    dtype: str
    tokens: int = TOKENS

    @property
    def batch(self) -> int:
        return DECODE_BATCH if self.kind == "decode" else max(1, self.tokens // self.seqlen)

    @property
    def rows(self) -> int:
        return 1 if self.kind == "decode" else self.seqlen

    @property
    def flop(self) -> float:
        """As upstream counts: 4 per score and head dim, half if causal, 3.5-fold with backward."""
        forward = 4.0 * self.batch * self.nheads * self.rows * self.seqlen * self.head_dim
        return forward * (0.5 if self.causal else 1.0) * (3.5 if self.kind == "backward" else 1.0)

    @property
    def moved(self) -> float:
        """Bytes of all tensors: each is read or written once, by a forward and by a backward."""
        forward, gradients = 2, 4 * (self.kind == "backward")  # q and out, k and v; and their gradients
        elements = self.batch * self.nheads * (self.rows + self.seqlen) * self.head_dim
        return 2.0 * elements * (forward + gradients)

    def __str__(self) -> str:
        return f"{self.kind}{' causal' if self.causal else ''} {self.seqlen}"


@dataclass(frozen=True)
class Row:
    """One implementation's numbers. ``problem`` says why they are missing.

    ``of_peak`` and ``of_memory``: shares of the paper's fp16 FLOP/s and bandwidth of the GPU, 0 if unknown.
    ``gb_s``: bytes of all tensors a second. ``difference`` is the largest from ``plain`` computed in fp32, in
    ``out`` or a gradient.
    """

    kind: str
    seqlen: int
    causal: bool
    batch: int
    implementation: str
    path: str
    median_ms: float = 0.0
    tflops: float = 0.0
    of_peak: float = 0.0
    gb_s: float = 0.0
    of_memory: float = 0.0
    speed_up: float = 0.0
    peak_mib: float = 0.0
    difference: float = 0.0
    problem: str = ""


@dataclass(frozen=True)
class Bench:
    """Results and their machine. ``note`` lists omissions."""

    machine: dict[str, Any]
    note: str
    rows: tuple[Row, ...]


def shapes(
    lengths: tuple[int, ...], *, nheads: int, head_dim: int, dtype: str, tokens: int = TOKENS
) -> Iterator[Shape]:
    """All measurements, long sequences last."""
    for seqlen in lengths:
        for kind in ("forward", "backward"):
            for causal in (False, True):
                yield Shape(kind, seqlen, causal, nheads, head_dim, dtype, tokens)
        yield Shape("decode", seqlen, NOT_CAUSAL, nheads, head_dim, dtype, tokens)


def run(wanted: list[Shape], *, runs: int = RUNS) -> Bench:
    """Measures. A row that exceeds the memory says so, and the others follow."""
    where = this_machine.device()
    machine, served = this_machine.describe(where), where.type == "cuda"
    found, problems = others.installed() if served else ({}, ())
    functions: Functions = {OURS: flash_attn_func, SDPA: _sdpa, PLAIN: _plain, **found}
    rows: list[Row] = []
    for shape in terminal.progress(wanted, "bench"):
        rows += (_with_shares(row, shape, machine) for row in _compare(shape, functions, where, runs))
    reason = explain(*_tensors(wanted[0], where)).reason if wanted else ""
    note = "\n".join(problems) if served else ON_CPU.format(reason=reason)
    return Bench(machine, note, tuple(rows))


def _with_shares(row: Row, shape: Shape, machine: dict[str, Any]) -> Row:
    """The row with the paper's peaks in view. Those of an unknown GPU are unknown."""
    if not row.median_ms:
        return row
    a_second = 1e3 / row.median_ms
    found = replace(row, gb_s=shape.moved * a_second * 1e-9)
    rate = RATES.get(host.code_of(machine["arch"])) if machine["arch"] else None
    if rate is None or machine["compute_units"] < 1:
        return found
    units = machine["compute_units"]
    return replace(
        found,
        of_peak=shape.flop * a_second / (rate.flop * rate.clock * units),
        of_memory=shape.moved * a_second / (rate.memory * units),
    )


def _compare(shape: Shape, functions: Functions, where: torch.device, runs: int) -> list[Row]:
    try:
        wanted = _exact(shape, where)
    except torch.OutOfMemoryError:
        wanted = None
    rows = [_measured(shape, name, functions[name], where, runs, wanted) for name in functions]
    base = next((row.median_ms for row in rows if row.implementation == SDPA), 0.0)
    return [_with_speed_up(row, base) for row in rows]


def _with_speed_up(row: Row, base: float) -> Row:
    return replace(row, speed_up=base / row.median_ms if base and row.median_ms else 0.0)


def _measured(
    shape: Shape,
    name: str,
    function: others.Function,
    where: torch.device,
    runs: int,
    wanted: tuple[Tensor, ...] | None,
) -> Row:
    named: dict[str, Any] = {
        "kind": shape.kind, "seqlen": shape.seqlen, "causal": shape.causal, "batch": shape.batch,
        "implementation": name,
    }  # fmt: skip
    try:
        tensors = _tensors(shape, where)
        named["path"] = _path(name, tensors, causal=shape.causal)
        found = _once(shape, function, tensors)
        difference = 0.0 if wanted is None else _difference(found, wanted)
        del found
        median = statistics.median(_seconds(lambda: _once(shape, function, tensors), where, runs))
        return Row(
            **named, median_ms=median * 1e3, tflops=shape.flop / median * 1e-12, peak_mib=_peak(where),
            difference=difference,
        )  # fmt: skip
    except torch.OutOfMemoryError:
        return Row(**{"path": "", **named}, problem="out of memory")
    except Exception as error:
        words = _problem(name, error)
        if not words:
            raise
        return Row(**{"path": "", **named}, problem=words)
    finally:
        if where.type == "cuda":
            torch.cuda.empty_cache()


def _path(name: str, tensors: tuple[Tensor, ...], *, causal: bool) -> str:
    if name == OURS:
        return str(explain(*tensors, causal=causal).path)
    return "pytorch" if name in {SDPA, PLAIN} else name


def _problem(name: str, error: Exception) -> str:
    """The problem of a row, or "" for an error of ours or PyTorch's that is none of memory."""
    if any(words in str(error) for words in ("not enough memory", "can't allocate memory")):
        return "out of memory"
    return "" if name in {OURS, SDPA, PLAIN} else others.problem_of(error)


def _tensors(shape: Shape, where: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dtype = TORCH_DTYPES[shape.dtype]

    def tensor(rows: int) -> Tensor:
        sizes = (shape.batch, rows, shape.nheads, shape.head_dim)
        drawn = torch.randn(sizes, generator=generator).to(dtype).to(where)
        return drawn.requires_grad_(shape.kind == "backward")

    return tensor(shape.rows), tensor(shape.seqlen), tensor(shape.seqlen)


def _once(shape: Shape, function: others.Function, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    out = function(*tensors, causal=shape.causal)
    if shape.kind != "backward":
        return (out,)
    return (out.detach(), *torch.autograd.grad(out, tensors, torch.ones_like(out)))


def _sdpa(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    return scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal).transpose(
        1, 2
    )


def _plain(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2)


def _exact(shape: Shape, where: torch.device) -> tuple[Tensor, ...]:
    """The plain formula in fp32 on the first sequence and head, enough to reveal errors."""
    tensors = [x.detach()[:1, :, :1].float() for x in _tensors(shape, where)]
    return _once(shape, _plain, tuple(x.requires_grad_(shape.kind == "backward") for x in tensors))


def _difference(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> float:
    pairs = zip(found, wanted, strict=True)
    return max((one[:1, :, :1].float() - other).abs().max().item() for one, other in pairs)


def _seconds(call: Callable[[], object], where: torch.device, runs: int) -> list[float]:
    for _ in range(WARM):
        call()
    if where.type == "cuda":
        torch.cuda.reset_peak_memory_stats(where)
    found: list[float] = []
    while len(found) < runs and (not found or sum(found) < ENOUGH):
        this_machine.synchronize(where)
        begin = time.perf_counter()
        call()
        this_machine.synchronize(where)
        found.append(time.perf_counter() - begin)
    return found


def _peak(where: torch.device) -> float:
    """PyTorch's peak memory during the measured calls. Unknown on a CPU."""
    return torch.cuda.max_memory_allocated(where) / (1 << 20) if where.type == "cuda" else 0.0


def text(bench: Bench) -> str:
    """The table for a terminal."""
    heads = (
        *("what", "batch", "which", "path", "ms", "TFLOP/s", "of peak", "GB/s", "of memory"),
        *("speed-up", "MiB", "difference"),
    )
    rows = [heads, *(_cells(row) for row in bench.rows)]
    missing = [
        f"{row.kind}{' causal' if row.causal else ''} {row.seqlen}, {row.implementation}: {row.problem}"
        for row in bench.rows
        if row.problem
    ]
    end = (
        "of peak, of memory: the paper's fp16 FLOP/s and bandwidth; GB/s: all tensors once\n"
        "speed-up: relative to sdpa; difference: largest, from the plain formula in fp32, for one head"
    )
    return "\n".join(
        [*_title(bench), *bench.note.splitlines()[1:], "", *terminal.table(rows), "", *missing, end]
    )


def _title(bench: Bench) -> list[str]:
    machine = bench.machine
    title = f"{machine['device']}, PyTorch {machine['torch']}, flash_attn_rocm {machine['package']}"
    return [title, *bench.note.splitlines()[:1]]


def _cells(row: Row) -> tuple[str, ...]:
    what = f"{row.kind}{' causal' if row.causal else ''} {row.seqlen}"
    if row.problem:
        return (what, str(row.batch), row.implementation, row.path, row.problem, *[""] * 7)
    peak = f"{row.peak_mib:.0f}" if row.peak_mib else "-"
    speed = f"{row.speed_up:.2f}" if row.speed_up else "-"
    shares = (_percent(row.of_peak), f"{row.gb_s:.1f}", _percent(row.of_memory))
    numbers = (f"{row.median_ms:.3f}", f"{row.tflops:.3f}", *shares, speed, peak, f"{row.difference:.1e}")
    return (what, str(row.batch), row.implementation, row.path, *numbers)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share else "-"


def as_csv(bench: Bench) -> str:
    """One line per row, with the machine in the first columns."""
    kept = {name: bench.machine[name] for name in ("device", "arch", "driver", "torch", "package")}
    kept["note"] = "".join(bench.note.splitlines()[:1])
    rows = [{**kept, **asdict(row)} for row in bench.rows]
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(rows[0]) if rows else list(kept), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_json(bench: Bench) -> str:
    """Everything."""
    return json.dumps(asdict(bench), indent=2) + "\n"


def write(bench: Bench, file: Path) -> None:
    """As CSV, JSON, SVG or PNG, by the file's name."""
    if file.suffix in TEXTS:
        file.write_text(TEXTS[file.suffix](bench), encoding="utf-8")
    else:
        plot.draw(bench.rows, "\n".join(_title(bench)), file)


TEXTS = {".csv": as_csv, ".json": as_json}


def quietly(wanted: list[Shape], *, runs: int = RUNS) -> Bench:
    """``run`` without the warning about the PyTorch implementation: the table says it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", notice.FlashAttnFallbackWarning)
        return run(wanted, runs=runs)
