"""This project's backward kernels as workloads: one head, unmasked and causal, as ``ours.forward``.

Three launches together are a backward, ``separate`` or ``fused`` in the tables. ``table`` adds up unmasked
ones.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.workloads.ours import (
    COMPARED,
    LABEL,
    ONE_DTYPE,
    SEQLEN,
    UNTOUCHED,
    mask_of,
)
from wheel_builder.extras.perf.workloads.ours import MASKS as KINDS
from wheel_builder.extras.perf.workloads.workload import Memories, Tensor, Workload, filled
from wheel_builder.machine_code.emulator.attention import MASK_KINDS, Case, Order, head_dim_of
from wheel_builder.machine_code.emulator.attention import Tensor as Strided
from wheel_builder.machine_code.emulator.formats import encode
from wheel_builder.machine_code.emulator.gradients import gradient_arguments
from wheel_builder.machine_code.emulator.machine import Kernel, Launch
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.kinds import BACKWARD, known_kinds
from wheel_builder.tables.tiles import workgroup_of

OPS = {op: kind for op, kind in known_kinds().items() if kind.call == BACKWARD}
NAME = re.compile(rf"fa_(?P<op>{'|'.join(OPS)})_(?P<dtype>fp16|bf16)(_d(?P<head_dim>\d+))?$")
MASKED = "MaskedBwdParams"
MASKS = ("bool", "bias", "fp32 bias")  # one dtype only, as for a forward: the other costs the same
BY_KEYS = "dkdv"  # the tile of kernels whose workgroups have keys
# The tensor with one written row for each row of a workgroup: by the tile, or by the op without one.
WRITTEN = {BY_KEYS: "dk", "dq": "dq", "bwd_delta": "delta", "bwd_convert": "dq"}
GIVEN, FOUND = ("q", "k", "v", "out", "dout"), ("dq", "dk", "dv")
NUMBERS = ("lse", "delta", "dq_sums")
# Kernels for any head dim are modelled for the head dims with kernels of their own.
HEAD_DIMS = (32, 64, 96, 128, 192, 256)
LSE = 6.7  # typical of 512 keys


def has_backward(kernel_name: str) -> bool:
    return NAME.match(kernel_name) is not None


def is_compared(kernel_name: str, ops: Sequence[str]) -> bool:
    """Whether a kernel is one of ``ops``, of the dtype and head dims that are compared."""
    match = NAME.match(kernel_name)
    wanted = match is not None and match["op"] in ops and match["dtype"] == ONE_DTYPE
    return wanted and match is not None and int(match["head_dim"]) in COMPARED


def named(kernel: Kernel) -> tuple[str, str, int]:
    """Op, dtype and head dim of a kernel for one head dim."""
    match = NAME.match(kernel.name)
    assert match is not None
    return match["op"], match["dtype"], int(match["head_dim"])


def backwards(arch: str, kernel: Kernel, label: str = LABEL) -> Iterator[Workload]:
    """The workloads of a backward kernel. ``has_backward`` selects the names."""
    match = NAME.match(kernel.name)
    assert match is not None
    dims = [int(match["head_dim"])] if match["head_dim"] else HEAD_DIMS
    op, dtype = match["op"], match["dtype"]
    if OPS[op].params == MASKED and dtype != ONE_DTYPE:
        return
    for head_dim in dims:
        for causal, kind in calls_of(op):
            yield _workload(arch, kernel, label, op, dtype, head_dim, causal=causal, kind=kind)


def calls_of(op: str) -> tuple[tuple[bool, str], ...]:
    """Of a kernel's workloads: whether causal, and the mask."""
    if OPS[op].params == MASKED:
        return tuple((False, kind) for kind in MASKS)
    return ((False, ""), (True, "")) if OPS[op].products else ((False, ""),)


def tuned(arch: str, kernel: Kernel, rows: int) -> Iterator[Workload]:
    """As ``backwards``, of a kernel with products, any dtype, and this number of rows of a workgroup."""
    op, dtype, head_dim = named(kernel)
    for causal, kind in calls_of(op):
        yield _workload(arch, kernel, LABEL, op, dtype, head_dim, causal=causal, kind=kind, rows=rows)


def backward(arch: str, kernel: Kernel, *, length: int, rows: int = 0) -> Workload:
    """A kernel with products, for as many queries and keys, causal for none. ``rows``: of a workgroup.

    Masked kernels take the first of ``MASKS``.
    """
    op, dtype, head_dim = named(kernel)
    _, kind = calls_of(op)[0]
    return _workload(
        arch, kernel, LABEL, op, dtype, head_dim, causal=False, kind=kind, length=length, rows=rows
    )


def _workload(
    arch: str, kernel: Kernel, label: str, op: str, dtype: str, head_dim: int, *,
    causal: bool, kind: str = "", length: int = SEQLEN, rows: int = 0,
) -> Workload:  # fmt: skip
    """The launch's first workgroup, with the most work: if causal, the first keys or the last queries.

    A mask of this ``kind`` hides half of the keys from each row at random. FLOP count all keys. ``rows`` of a
    workgroup, if others than the table's.
    """
    case = Case(dtype, head_dim, length, length, causal=causal, v_head_dim=OPS[op].of_v(head_dim))
    memory = _memory(op, case)
    tile, written = OPS[op].tile, WRITTEN[OPS[op].tile or op]
    rows = rows or workgroup_of(arch_named(arch), op, dtype, head_dim).rows
    last_first, grid = causal and tile != BY_KEYS, (-(-length // rows), 1, 1)
    tensors = {name: Strided(name, case, length, 1, memory[name]) for name in (*GIVEN, *FOUND)}
    numbers = {name: memory[name] for name in NUMBERS}
    arguments = gradient_arguments(case, tensors, numbers, Order(last_first=last_first), grid)
    if kind:
        mask = mask_of(kind, length, dtype)
        memory = {**memory, mask.name: mask}
        given = {"mask": mask.address, "mask_row": length, "mask_kind": MASK_KINDS.index(KINDS[kind])}
        arguments += layout(MASKED).pack(given)[len(arguments) :]
    begin = length - rows if last_first else 0

    def flop(after: Memories) -> int:
        size = 4 if written == "delta" else 2 * head_dim
        raw = after[written].read()
        found = [at // size for at in range(0, len(raw), size) if raw[at : at + 4] != UNTOUCHED]
        if found != [*range(begin, begin + rows)]:
            title = f"{kernel.name} for {arch}: its workgroup has other rows than the model's launch"
            problem = f"expected {rows} from {begin} on, found {len(found)} from {min(found, default=0)} on"
            raise PerfError(title, [f"{problem}: see kernels/tables/tiles.toml"])
        masked = rows * (rows - 1) // 2 if causal else 0
        of_q, of_v = OPS[op].products or (0, 0)
        products = of_q * head_dim + of_v * case.value_dim
        return 2 * (rows * length - masked) * products or 2 * rows * head_dim

    return Workload(
        label=label,
        kernel=kernel.name,
        op=f"{op} causal" if causal else f"{op} {kind}".strip(),
        dtype=dtype,
        head_dim=head_dim,
        launch=Launch(grid, (kernel.max_threads, 1, 1)),
        arguments=(arguments,),
        memory=memory,
        flop=flop,
    )


def _memory(op: str, case: Case) -> Mapping[str, Memory]:
    draw = random.Random(0)  # noqa: S311  (test data, repeatable)
    length = case.seqlen_q
    sizes = {name: length * head_dim_of(name, case) for name in (*GIVEN, *FOUND)}
    memory = {
        name: Memory.of(
            encode([draw.gauss(0.0, 1.0) for _ in range(sizes[name])], case.dtype), name, readonly=True
        )
        for name in GIVEN
    }
    memory |= {name: Memory.output(2 * sizes[name], name) for name in FOUND}
    memory["lse"] = filled(Tensor(name="lse", dtype="fp32", shape=(length,), fill=LSE), 0)
    given = Tensor(
        name="delta",
        dtype="fp32",
        shape=(length,),
        fill="output" if WRITTEN.get(op) == "delta" else "normal",
    )
    memory["delta"] = filled(given, 0)
    memory["dq_sums"] = Memory.of(bytes(4 * length * case.head_dim), "dq_sums")
    return memory
