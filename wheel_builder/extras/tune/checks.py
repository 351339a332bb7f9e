"""A candidate's results on the emulator, compared with float64: forwards, forwards with a mask, gradients."""

import math
import random
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from wheel_builder.extras.perf.measure import Subject
from wheel_builder.extras.perf.workloads import gradients, ours
from wheel_builder.extras.tune.exact import Expected, Given, Matrix, attention, magnitude_of, wrong
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.extras.tune.rules import UNITS
from wheel_builder.machine_code.emulator.attention import (
    HIDES,
    MASK_KINDS,
    Call,
    Case,
    Grid,
    Tensor,
    compare,
    has_ranges,
    leave_shown_keys,
    make_call,
    with_mask,
)
from wheel_builder.machine_code.emulator.formats import decode, encode, rounded
from wheel_builder.machine_code.emulator.gradients import SUM_ROWS, gradient_arguments, sum_blocks
from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.machine_code.emulator.reference import dot
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.kinds import known_kinds
from wheel_builder.tables.tiles import FUSED, Workgroup

UNIT = 8  # elements: rows of a mask are whole ones
BLIND = 3  # a row to which a mask shows no key
MOST_OFF = 0.005  # of a fused kernel's sums from a power of two: kCutGain


def cases_of(kernel: Kernel, tile: Workgroup, step: int) -> tuple[Case, ...]:
    """Calls that use all waves, whole tiles and parts of tiles, a causal mask, and heads sharing keys.

    ``step``: rows of a workgroup's tile, which are keys, or of kernels by keys queries.
    """
    return (
        _case(kernel, tile.rows + 5, 2 * step + 9),
        _case(kernel, 37, 3 * step + 1, nheads=2, causal=True, pad=8, seed=1),
    )


def _masked_case(kernel: Kernel, tile: Workgroup, step: int) -> Case:
    return _case(kernel, tile.rows + 5, 3 * step + 9)


def _case(kernel: Kernel, own: int, others: int, **more: Any) -> Case:  # noqa: ANN401 - fields of Case
    """``own``: rows of workgroups, and ``others`` of their tiles."""
    kind = known_kinds()[kernel.op]
    rows, keys = (others, own) if kind.tile == gradients.BY_KEYS else (own, others)
    of_v = kind.of_v(kernel.head_dim)
    return Case(kernel.dtype, kernel.head_dim, rows, keys, v_head_dim=of_v, **more)


def forward_problems(subject: Subject, kernel: Kernel, tile: Workgroup, step: int) -> Iterator[str]:
    """Of forwards without a mask."""
    for case in cases_of(kernel, tile, step):
        call = make_call(case)
        grid = _grid(tile, case.seqlen_q, case.nheads)
        yield from _run(subject, kernel, tile, grid, call.kernarg(grid), call.memory)
        if (first := compare(call).first) is not None:
            yield f"{first.what}{list(first.index)} is {first.found:g}, expected {first.expected:g}"


def _grid(tile: Workgroup, rows: int, heads: int) -> Grid:
    return -(-rows // tile.rows), heads, 1


def _run(
    subject: Subject, kernel: Kernel, tile: Workgroup, grid: Grid, kernarg: bytes, memory: Sequence[Memory]
) -> Iterator[str]:
    run = subject.machine.run(kernel.name, Launch(grid, (tile.threads, 1, 1)), kernarg, memory, Options())
    yield from filter(None, [run.error, *map(str, run.findings)])


@dataclass(frozen=True)
class Mask:
    """What is added to scores, by row and key, and the same in memory, with rows of ``row`` elements.

    ``form`` of ``MASK_KINDS``. ``hides``: an element that hides a key.
    """

    biases: Matrix
    memory: Memory
    row: int
    form: str
    hides: bytes

    @property
    def strides(self) -> tuple[int, int, int]:
        return 0, 0, self.row

    def leave_ranges(self, out: Tensor, group: int) -> bool:
        """What another kernel finds in a mask, if it looks at such masks. One sequence and head."""
        if not has_ranges(self.form, self.strides):
            return False
        data, size = self.memory.read(), self.row * len(self.hides)
        rows = [data[at : at + size] for at in range(0, len(data), size)]
        leave_shown_keys(out.memory, rows, self.hides, group=group, row=out.row)
        return True


def mask_of(kind: str, case: Case) -> Mask:
    """Of ``ours.MASKS``: hides the first keys from all rows, half of the others at random, all from a row."""
    draw = random.Random(case.seed + 1)  # noqa: S311  (test data, repeatable)
    form, width = ours.MASKS[kind], -(-case.seqlen_k // UNIT) * UNIT

    def drawn(row: int, key: int) -> float:
        if row == BLIND or key < case.seqlen_k // 3 or draw.random() < 1 / 2:
            return -math.inf
        return 0.0 if form == "bytes" else draw.gauss(0.0, 2.0)

    flat: Sequence[float] = [drawn(row, key) for row in range(case.seqlen_q) for key in range(width)]
    if form == "bytes":
        data = bytes(value == 0.0 for value in flat)
    elif form == "fp32":
        data = struct.pack(f"<{len(flat)}f", *flat)
        flat = struct.unpack(f"<{len(flat)}f", data)
    else:
        data = encode(flat, case.dtype)
        flat = decode(data, case.dtype)
    biases = [flat[at : at + case.seqlen_k] for at in range(0, len(flat), width)]
    hides = HIDES["bool" if form == "bytes" else case.dtype]
    return Mask(biases, Memory.of(data, "mask", readonly=True), width, form, hides)


def _diagonal(case: Case) -> Matrix:
    """Biases of calls without a mask in memory."""
    shift = case.seqlen_k - case.seqlen_q
    return [
        [-math.inf if case.causal and key > row + shift else 0.0 for key in range(case.seqlen_k)]
        for row in range(case.seqlen_q)
    ]


@lru_cache(maxsize=8)
def expected_of(case: Case, kind: str = "") -> Expected:
    """Of ``make_call``, with a mask of that kind if there is one. Once for all candidates of a workgroup."""
    return expected(make_call(case), mask_of(kind, case).biases if kind else _diagonal(case))


def expected(call: Call, biases: Matrix) -> Expected:
    """``dout`` is drawn."""
    case, draw = call.case, random.Random(call.case.seed + 2)  # noqa: S311  (test data, repeatable)
    q, k, v = (_rows(each) for each in (call.q, call.k, call.v))
    heads = tuple(
        Given(
            q=q[head],
            k=k[0],
            v=v[0],
            dout=[
                rounded([draw.gauss(0.0, 1.0) for _ in range(case.value_dim)], case.dtype)
                for _ in range(case.seqlen_q)
            ],
            biases=biases,
            scale=case.scale,
        )
        for head in range(case.nheads)
    )
    exact, plain = (tuple(attention(each, dtype) for each in heads) for dtype in ("", case.dtype))
    return Expected(case, heads, exact, plain)


def _rows(tensor: Tensor) -> list[Matrix]:
    """By head."""
    values = tensor.values()
    return [
        [tensor.at(values, 0, row, head) for row in range(len(values) // tensor.row)]
        for head in range(tensor.row // tensor.head)
    ]


def masked_problems(subject: Subject, kernel: Kernel, tile: Workgroup, step: int) -> Iterator[str]:
    """Of forwards with a mask."""
    case = _masked_case(kernel, tile, step)
    for kind in gradients.MASKS:
        call, mask = make_call(case), mask_of(kind, case)
        mask.leave_ranges(call.out, arch_named(kernel.arch).isa.step_columns)
        grid = _grid(tile, case.seqlen_q, 1)
        kernarg = with_mask(call.kernarg(grid), mask.memory, mask.form, mask.strides)
        yield from _run(subject, kernel, tile, grid, kernarg, [*call.memory, mask.memory])
        want = expected_of(case, kind)
        yield from (f"{kind}: {each}" for each in wrong("out", _rows(call.out), want))
        [head], [exact] = want.heads, want.exact
        magnitude = case.scale * magnitude_of(head.q, head.k)
        for row, (found, lse) in enumerate(zip(call.lse.values("f"), exact.lse, strict=True)):
            if found != lse and not abs(found - lse) <= tolerances.lse_allowed(lse, magnitude):
                yield f"{kind}: lse[{row}] is {found:g}, expected {lse:g}"


def gradient_problems(subject: Subject, kernel: Kernel, tile: Workgroup, step: int) -> Iterator[str]:
    """Of kernels of gradients."""
    calls = [(case, "") for case in cases_of(kernel, tile, step)]
    if known_kinds()[kernel.op].params == gradients.MASKED:
        calls = [(_masked_case(kernel, tile, step), kind) for kind in gradients.MASKS]
    for case, kind in calls:
        yield from _gradient_problems(subject, kernel, tile, case, kind)


def _gradient_problems(
    subject: Subject, kernel: Kernel, tile: Workgroup, case: Case, kind: str
) -> Iterator[str]:
    """``kind``: of a mask, "" without any."""
    call, by_keys = make_call(case), known_kinds()[kernel.op].tile == gradients.BY_KEYS
    want, mask = expected_of(case, kind), mask_of(kind, case) if kind else None
    tensors = _tensors(call, want)
    numbers = {
        "lse": Memory.of(_floats(each.lse for each in want.exact), "lse", readonly=True),
        "delta": Memory.of(_floats(each.delta for each in want.exact), "delta", readonly=True),
        "dq_sums": Memory.of(bytes(4 * case.nheads * sum_blocks(case) * _block(case)), "dq_sums"),
    }
    grid = _grid(tile, case.seqlen_k if by_keys else case.seqlen_q, 1 if by_keys else case.nheads)
    kernarg = gradient_arguments(case, tensors, numbers, call.order, grid)
    memories = [*(each.memory for each in tensors.values()), *numbers.values()]
    if mask:
        ranges = mask.leave_ranges(tensors["dq"], arch_named(kernel.arch).isa.step_columns)
        given = {"mask": mask.memory.address, "mask_kind": MASK_KINDS.index(mask.form)}
        given |= {"mask_row": mask.row, "has_ranges": int(ranges)}
        kernarg += layout(gradients.MASKED).pack(given)[len(kernarg) :]
        memories.append(mask.memory)
    yield from _run(subject, kernel, tile, grid, kernarg, memories)
    for name in ("dk", "dv") if by_keys else ("dq",):
        yield from wrong(name, _rows(tensors[name]), want)
    if kernel.op == FUSED:
        yield from _wrong_sums(kernel, numbers["dq_sums"].values("f"), want)


def _tensors(call: Call, want: Expected) -> Mapping[str, Tensor]:
    case = call.case

    def tensor(like: Tensor, name: str, values: Sequence[Matrix] | None = None) -> Tensor:
        """Another one of its shape, with values by head, or unwritten."""
        size = len(like.memory.read())
        if values is None:
            return replace_memory(like, Memory.output(size, name))
        flat = [0.0] * (size // 2)
        for head, rows in enumerate(values):
            for row, elements in enumerate(rows):
                at = row * like.row + head * like.head
                flat[at : at + len(elements)] = elements
        return replace_memory(like, Memory.of(encode(flat, case.dtype), name, readonly=True))

    def replace_memory(like: Tensor, memory: Memory) -> Tensor:
        heads = like.row // like.head
        return Tensor(like.name, case, like.batch // like.row, heads, memory)

    return {
        "q": call.q,
        "k": call.k,
        "v": call.v,
        "out": tensor(call.out, "out", [each.out for each in want.exact]),
        "dout": tensor(call.out, "dout", [each.dout for each in want.heads]),
        "dq": tensor(call.q, "dq"),
        "dk": tensor(call.k, "dk"),
        "dv": tensor(call.v, "dv"),
    }


def _floats(rows: Iterable[Sequence[float]]) -> bytes:
    values = [*chain.from_iterable(rows)]
    return struct.pack(f"<{len(values)}f", *values)


def _block(case: Case) -> int:
    """Sums of a block."""
    return SUM_ROWS * case.head_dim


def _wrong_sums(kernel: Kernel, sums: Sequence[float], want: Expected) -> Iterator[str]:
    """Of a fused kernel's dq before its rounding.

    Its order within a matrix step's result and its factor belong to the ISA (backward/convert.hpp), not to
    rows. So each result is compared sorted, and the factor only has to be near a power of two.
    """
    isa, case = arch_named(kernel.arch).isa, want.case
    rows, columns = UNITS[isa.unit].rows, isa.step_columns
    exact, found = [], []
    for head, dq in enumerate(want.of("dq")):
        padded = [*dq, *([[0.0] * case.head_dim] * (-len(dq) % SUM_ROWS))]
        at = head * sum_blocks(case) * _block(case)
        for row in range(0, len(padded), rows):
            for column in range(0, case.head_dim, columns):
                tile = [x for each in padded[row : row + rows] for x in each[column : column + columns]]
                exact.append(sorted(tile))
                found.append(sorted(sums[at : at + len(tile)]))
                at += len(tile)
    flat = [[*chain.from_iterable(each)] for each in (found, exact)]
    factor = dot(*flat) / (dot(flat[0], flat[0]) or math.inf)
    if not _is_power_of_two(factor / case.scale):
        yield f"dq is the kernel's sums times {factor:g}, expected the scale times a power of two"
    allowed = want.allowed("dq")
    for number, (tile, wanted) in enumerate(zip(found, exact, strict=True)):
        worst = max(abs(factor * a - b) for a, b in zip(tile, wanted, strict=True))
        if not worst <= allowed:
            yield f"dq is {worst:g} off in the step's result {number}, allowed {allowed:g}"


def _is_power_of_two(factor: float) -> bool:
    """Nearly."""
    power = math.log2(factor) if factor > 0 else 1 / 2
    return abs(power - round(power)) <= math.log2(1 + MOST_OFF)
