"""This project's forward kernel on the emulator, held to the numerics rule (rule.py)."""

import ctypes
import math
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from types import MappingProxyType

from wheel_builder.base.errors import CaseError
from wheel_builder.machine_code.emulator.formats import CODES, DTYPES, decode, encode
from wheel_builder.machine_code.emulator.machine import Launch, Machine, Options, Result
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import Attended, attend, visible
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.tables.kinds import QUERIES, SHARED_QUERIES, UNEVEN_QUERIES, known_kinds
from wheel_builder.tables.tiles import Workgroup

Rows = Sequence[tuple[tuple[int, int, int], Attended]]  # by batch, head and row
NO_WINDOW = -1
UNIT = 16  # bytes, of whose keys fa_mask_ranges_* find out whether all are seen, and whether any is
STEP = 16  # keys: all tiles begin at a multiple of this
NO_KEY = 1 << 30
LARGEST_OF_A_WAVE = 256  # head dim
MASK_KINDS = ("bytes", "elements", "fp32")  # MaskKind of params.hpp
# The value hiding a key, of a boolean mask and of biases of these dtypes.
HIDES = {"bool": b"\0", "fp16": b"\0\xfc", "bf16": b"\x80\xff"}
# Of q, k, v and out together: drawing and comparing them takes about 200 bytes each, 3 GiB at most.
MAX_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Case:
    """Shapes of one forward call.

    Tensors are (batch, seqlen, heads, head_dim), with ``pad`` unused elements per head. ``v_head_dim``,
    unless 0, is the head dim of v and out. Raises ``CaseError`` with all problems.
    """

    dtype: str
    head_dim: int
    seqlen_q: int
    seqlen_k: int
    batch: int = 1
    nheads: int = 1
    nheads_k: int = 1
    causal: bool = False
    pad: int = 0
    seed: int = 0
    v_head_dim: int = 0

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            title = "no kernel can be called with these shapes"
            raise CaseError(title, problems)

    def _problems(self) -> Iterator[str]:
        at_least_one = ("head_dim", "seqlen_q", "batch", "nheads", "nheads_k")
        for name, least in (*((name, 1) for name in at_least_one), ("seqlen_k", 0), ("pad", 0)):
            if (found := getattr(self, name)) < least:
                yield f"{name} is {found}, expected at least {least}"
        if self.nheads_k > 0 and self.nheads % self.nheads_k:
            yield f"nheads is {self.nheads}, expected a multiple of nheads_k, which is {self.nheads_k}"
        if self.dtype not in DTYPES:
            yield f"dtype is {self.dtype}, expected one of {', '.join(DTYPES)}"
        if self.elements > MAX_ELEMENTS:
            yield (
                f"q, k, v and out have more than {MAX_ELEMENTS} elements together, which is too much memory: "
                "use shorter sequences, fewer heads or a smaller batch"
            )

    @property
    def elements(self) -> int:
        """Of q, k, v and out."""
        rows = self.seqlen_q * self.nheads + self.seqlen_k * self.nheads_k
        return self.batch * rows * (self.head_dim + self.value_dim + 2 * self.pad)

    @property
    def value_dim(self) -> int:
        """The head dim of v and out."""
        return self.v_head_dim or self.head_dim

    @property
    def op(self) -> str:
        """Of the kernel: waves divide a large head dim."""
        rows = QUERIES if self.head_dim <= LARGEST_OF_A_WAVE else SHARED_QUERIES
        rows = rows if self.value_dim == self.head_dim else UNEVEN_QUERIES
        return next(op for op, kind in known_kinds().items() if kind.rows == rows)

    @property
    def kernel(self) -> str:
        return f"fa_{self.op}_{self.dtype}_d{self.head_dim}"

    @property
    def scale(self) -> float:
        return float(self.head_dim**-0.5)


@dataclass(frozen=True)
class Difference:
    """The first wrong element of ``what``. Index (batch, row, head, element) or (batch, head, row)."""

    what: str
    index: tuple[int, ...]
    found: float
    expected: float
    allowed: float


@dataclass(frozen=True)
class Numbers:
    """A run's worst errors against float64, the limits of the numerics rule, and the first difference."""

    out_error: float
    out_allowed: float
    lse_error: float
    first: Difference | None


class Tensor:
    """(batch, seqlen, heads, head_dim) of a 16-bit type in device memory."""

    def __init__(self, name: str, case: Case, seqlen: int, heads: int, memory: Memory) -> None:
        self.name, self.dtype, self.memory = name, case.dtype, memory
        self.head_dim = head_dim_of(name, case)
        self.head = self.head_dim + case.pad
        self.row = heads * self.head
        self.batch = seqlen * self.row

    def values(self) -> tuple[float, ...]:
        return decode(self.memory.read(), self.dtype)

    def at(self, values: Sequence[float], batch: int, row: int, head: int) -> Sequence[float]:
        start = batch * self.batch + row * self.row + head * self.head
        return values[start : start + self.head_dim]


def head_dim_of(tensor: str, case: Case) -> int:
    return case.head_dim if tensor in {"q", "k", "dq", "dk"} else case.value_dim


Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Order:
    """An order of workgroups (kernels/device/call/order.hpp).

    ``dies`` of the GPU, 0 for the hardware's own order. ``1 << together`` heads start their blocks in turn,
    ``last_first`` the last block before the others.
    """

    dies: int = 0
    together: int = 0
    last_first: bool = False

    def grid(self, blocks: int, heads: int, batch: int) -> Grid:
        return blocks << self.together, heads >> self.together, batch

    def fields(self, grid: Grid) -> dict[str, int]:
        """Of the kernel's argument, for a launch of this grid."""
        each, more = divmod(prod(grid), self.dies or 1)
        factor, _ = divisor(self.dies or 1, shift=0)
        given = {
            "dies": self.dies, "die_factor": factor, "die_each": each, "die_more": more,
            "together": self.together, "in_turn": (1 << self.together) - 1,
            "flip": -self.last_first, "past": grid[0] >> self.together if self.last_first else 0,
        }  # fmt: skip
        for name, number in zip(("row", "groups"), grid, strict=False):
            factor, shift = divisor(number)
            given |= {f"{name}.number": number, f"{name}.factor": factor, f"{name}.shift": shift}
        return {f"order.{name}": value for name, value in given.items()}


def divisor(number: int, shift: int | None = None) -> tuple[int, int]:
    """Factor and shift of ``Divisor``."""
    found = number.bit_length() - 1 if shift is None else shift
    return ((1 << 32 + found) - 1) // number, found


HARDWARES = Order()


@dataclass(frozen=True)
class Call:
    """The tensors of a case in device memory."""

    case: Case
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    lse: Memory
    order: Order = HARDWARES

    @property
    def memory(self) -> tuple[Memory, ...]:
        return (*(tensor.memory for tensor in (self.q, self.k, self.v, self.out)), self.lse)

    def kernarg(self, grid: Grid = (1, 1, 1)) -> bytes:
        """``fa::FwdParams``: dense, no optional tensor. ``grid`` of the launch."""
        case = self.case
        tensors = {"q": self.q, "k": self.k, "v": self.v, "o": self.out}
        strides = {
            f"{name}_{dimension}": getattr(tensor, dimension)
            for name, tensor in tensors.items()
            for dimension in ("batch", "row", "head")
        }
        addresses = {
            name: memory.address
            for name, memory in zip(("q", "k", "v", "out", "lse"), self.memory, strict=True)
        }
        return layout("FwdParams").pack(
            {
                **addresses, **strides,
                "lse_batch": case.nheads * case.seqlen_q, "lse_head": case.seqlen_q,
                "seqlen_q": case.seqlen_q, "seqlen_k": case.seqlen_k,
                "rows_q": case.seqlen_q, "rows_k": case.seqlen_k,
                "batch_k": case.batch, "splits": 1, "nheads": case.nheads, "nheads_k": case.nheads_k,
                "window_left": NO_WINDOW, "window_right": 0 if case.causal else NO_WINDOW,
                "scale": case.scale, "dropout_scale": 1.0, **self.order.fields(grid),
            }
        )  # fmt: skip


def with_mask(kernarg: bytes, mask: Memory, kind: str, strides: Sequence[int]) -> bytes:
    """``fa::MaskedParams`` around ``fa::FwdParams``. Strides of sequences, heads and rows, in elements."""
    named = dict(zip(("mask_batch", "mask_head", "mask_row"), strides, strict=True))
    given = {"mask": mask.address, "mask_kind": MASK_KINDS.index(kind), **named}
    return kernarg + layout("MaskedParams").pack(given)[len(kernarg) :]


@dataclass(frozen=True)
class Descales:
    """The descales of K or V. Strides of sequences (or the cache's places and pages), rows and heads."""

    memory: Memory
    strides: tuple[int, int, int]


NO_DESCALES: Mapping[str, Descales] = MappingProxyType({})


def with_codes(
    kernarg: bytes, code: str, k: Descales | None = None, v: Descales | None = None, *, per_key: bool = False
) -> bytes:
    """``fa::CodedParams`` around ``fa::FwdParams``, whose K and V are codes of the format ``code``."""
    given: dict[str, int] = {"format": CODES.index(code), "per_key": int(per_key)}
    for name, descales in (("k_descale", k), ("v_descale", v)):
        if descales is not None:
            strides = zip(("batch", "row", "head"), descales.strides, strict=True)
            given |= {name: descales.memory.address, **{f"{name}_{each}": step for each, step in strides}}
    return kernarg + layout("CodedParams").pack(given)[len(kernarg) :]


def with_fp8(kernarg: bytes, code: str, descales: Mapping[str, Descales] = NO_DESCALES) -> bytes:
    """``fa::Fp8Params`` around ``fa::FwdParams``, whose q, k and v are codes of the format ``code``."""
    given: dict[str, int] = {"format": CODES.index(code)}
    for name, each in descales.items():
        batch, _, head = each.strides
        given |= {name: each.memory.address, f"{name}_batch": batch, f"{name}_head": head}
    return kernarg + layout("Fp8Params").pack(given)[len(kernarg) :]


def has_ranges(kind: str, strides: Sequence[int]) -> bool:
    """Whether ``fa_mask_ranges_*`` look at a mask (params.hpp). Strides as in ``with_mask``."""
    return kind == "bytes" or (kind == "elements" and 0 in strides[1:])


def shown_keys(rows: Sequence[bytes], hides: bytes) -> bytes:
    """The output of ``fa_mask_ranges_*`` for one wave, read by ``fa_fwd_masked_*``.

    ``rows`` are the wave's rows of the mask. Elements equal to ``hides`` hide a key. Format:
    forward/parts/shown_keys.hpp.
    """
    size = len(hides)
    units = [[row[at : at + UNIT] for row in rows] for at in range(0, len(rows[0]), UNIT)]
    seen = [n for n, unit in enumerate(units) if any(part != hides * (len(part) // size) for part in unit)]
    full = [n for n, unit in enumerate(units) if all(map(all, unit)) and len(unit[0]) == UNIT]
    keys = UNIT // size
    begin, end = NO_KEY, 0
    if seen:
        begin, end = seen[0] * keys // STEP * STEP, -(-(seen[-1] + 1) * keys // STEP) * STEP
    one_run = size == 1 and full and full[-1] - full[0] + 1 == len(full)
    full_begin, full_end = (full[0] * UNIT, (full[-1] + 1) * UNIT) if one_run else (0, 0)
    return struct.pack("<4i", begin, -end, -full_begin, full_end)


def leave_shown_keys(out: Memory, rows: Sequence[bytes], hides: bytes, *, group: int, row: int) -> None:
    """The same for all rows of one sequence and head, ``group`` per wave.

    Rows of out are ``row`` elements apart.
    """
    for first in range(0, len(rows), group):
        found = shown_keys(rows[first : first + group], hides)
        ctypes.memmove(out.address + first * row * 2, found, len(found))
    out.initialised = True


def make_call(case: Case, order: Order = HARDWARES) -> Call:
    """Normally distributed q, k, v from the case's seed. out and lse are unwritten."""
    draw = random.Random(case.seed)  # noqa: S311  (test data, repeatable)

    def tensor(name: str, seqlen: int, heads: int, *, given: bool) -> Tensor:
        elements = case.batch * seqlen * heads * (head_dim_of(name, case) + case.pad)
        if given:
            data = encode([draw.gauss(0.0, 1.0) for _ in range(elements)], case.dtype)
            return Tensor(name, case, seqlen, heads, Memory.of(data, name, readonly=True))
        return Tensor(name, case, seqlen, heads, Memory.output(2 * elements, name))

    return Call(
        case,
        tensor("q", case.seqlen_q, case.nheads, given=True),
        tensor("k", case.seqlen_k, case.nheads_k, given=True),
        tensor("v", case.seqlen_k, case.nheads_k, given=True),
        tensor("out", case.seqlen_q, case.nheads, given=False),
        Memory.output(4 * case.batch * case.nheads * case.seqlen_q, "lse"),
        order,
    )


def run_call(machine: Machine, call: Call, tile: Workgroup, options: Options) -> Result:
    """Run the whole grid of a case."""
    case = call.case
    grid = call.order.grid(-(-case.seqlen_q // tile.rows), case.nheads, case.batch)
    launch = Launch(grid, (tile.threads, 1, 1))
    return machine.run(case.kernel, launch, call.kernarg(grid), call.memory, options)


def compare(call: Call) -> Numbers:
    """Compare the outputs of a finished run with float64."""
    out, lse = call.out.values(), call.lse.values("f")
    numbers = tuple(each.memory.read() for each in (call.q, call.k, call.v))
    exact, low = _references(_Inputs(call.case, numbers, call))
    worst = max(
        (
            abs(a - b)
            for (_, x), (_, y) in zip(exact, low, strict=True)
            for a, b in zip(x.out, y.out, strict=True)
        ),
        default=0.0,
    )
    bound = tolerances.allowed(
        worst, terms=call.case.seqlen_k, largest=max(map(abs, call.v.values()), default=0.0)
    )
    magnitude = max((row.magnitude for _, row in exact), default=0.0)
    differences = [
        difference
        for (batch, head, row), want in exact
        for difference in (
            *_out_differences(call, out, (batch, row, head), want, bound),
            _lse_difference(call, lse, (batch, head, row), want, magnitude),
        )
    ]
    return Numbers(
        out_error=max((_error(d) for d in differences if d.what == "out"), default=0.0),
        out_allowed=bound,
        lse_error=max((_error(d) for d in differences if d.what == "lse"), default=0.0),
        first=next((d for d in differences if not _error(d) <= d.allowed), None),
    )


@dataclass(frozen=True)
class _Inputs:
    """What results depend on, of a call that has it."""

    case: Case
    numbers: tuple[bytes, ...]
    call: Call = field(compare=False)


@lru_cache(maxsize=8)
def _references(inputs: _Inputs) -> tuple[Rows, Rows]:
    """In float64 and rounded, once for all kernels that have the same call."""
    call = inputs.call
    return list(reference_rows(call, "")), list(reference_rows(call, call.case.dtype))


def reference_rows(call: Call, dtype: str) -> Iterator[tuple[tuple[int, int, int], Attended]]:
    """Expected row by (batch, head, row): in float64, or with a ``dtype`` rounded as ``attend`` does."""
    case = call.case
    q, k, v = call.q.values(), call.k.values(), call.v.values()
    group = case.nheads // case.nheads_k
    for batch in range(case.batch):
        for head in range(case.nheads):
            keys = [call.k.at(k, batch, j, head // group) for j in range(case.seqlen_k)]
            columns = list(
                zip(*(call.v.at(v, batch, j, head // group) for j in range(case.seqlen_k)), strict=True)
            )
            for row in range(case.seqlen_q):
                seen = visible(row, case.seqlen_q, case.seqlen_k, causal=case.causal)
                cut = [column[:seen] for column in columns] if seen else [()] * case.value_dim
                query = call.q.at(q, batch, row, head)
                yield (batch, head, row), attend(query, keys[:seen], cut, case.scale, dtype)


def _out_differences(
    call: Call, out: Sequence[float], index: tuple[int, int, int], want: Attended, bound: float
) -> Iterator[Difference]:
    for element, (found, expected) in enumerate(zip(call.out.at(out, *index), want.out, strict=True)):
        yield Difference("out", (*index, element), found, expected, bound)


def _lse_difference(
    call: Call, lse: Sequence[float], index: tuple[int, int, int], want: Attended, magnitude: float
) -> Difference:
    batch, head, row = index
    found = lse[(batch * call.case.nheads + head) * call.case.seqlen_q + row]
    return Difference("lse", index, found, want.lse, tolerances.lse_allowed(want.lse, magnitude))


def _error(difference: Difference) -> float:
    if difference.found == difference.expected:  # infinities among them
        return 0.0
    error = abs(difference.found - difference.expected)
    return math.inf if math.isnan(error) else error
