"""This project's kernels as workloads: workgroups with every row and key in use."""

import math
import random
import re
from array import array
from dataclasses import replace

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.workloads import fp8
from wheel_builder.extras.perf.workloads.workload import SUFFIX, Memories, Workload
from wheel_builder.machine_code.emulator.attention import (
    HIDES,
    Case,
    Order,
    has_ranges,
    leave_shown_keys,
    make_call,
    with_mask,
)
from wheel_builder.machine_code.emulator.formats import encode
from wheel_builder.machine_code.emulator.machine import Kernel, Launch
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.kinds import (
    FORWARD,
    FP8,
    INT8,
    MANY_QUERIES,
    QUERIES,
    answering,
    forwards,
    known_kinds,
)
from wheel_builder.tables.tiles import tall_tiles

LABEL = "flash-attn-rocm"
SEQLEN = 512  # keys. In unmasked calls also rows of queries, and one workgroup has a part of them
LONG = 2048  # keys, for kernels with a choice between workgroup sizes, or with padding
FORWARDS = (*forwards(known_kinds()), *answering(known_kinds(), FP8, INT8).values())
NAME = re.compile(rf"fa_(?P<op>{'|'.join(FORWARDS)})_(?P<dtype>fp16|bf16)_d(?P<head_dim>\d+)$")
ONE_DTYPE = "fp16"
DECODE = re.compile(r"fa_decode_(?P<dtype>fp16|bf16)_d(?P<head_dim>\d+)$")
PART = 512  # keys of a decode's workgroup
MASKED = answering(known_kinds(), FORWARD)["masked"]
# Masks by their name in an op.
MASKS = {
    "bool": "bytes", "bias": "elements", "fp32 bias": "fp32", "padding": "bytes", "all shown": "bytes",
    "padding bias": "elements",
}  # fmt: skip
# The masks of workloads, and their keys.
MASKED_CALLS = (*((kind, SEQLEN) for kind in MASKS), ("padding", LONG))
COMPARED = (64, 128)  # the head dims of masked kernels and of kernels with tall workgroups
# Share of visible keys for each row. Other masks show half of them at random.
SHOWN = {"padding": 0.5, "padding bias": 0.5, "all shown": 1.0}
RANGES_OP = "mask_ranges"
RANGES = f"fa_{RANGES_OP}_fp16"
RANGES_KEYS, RANGES_ROW = 4096, 64  # keys of its mask, and elements of a row of out
# Kernels other than forwards: the reference kernel, memory-bound kernels and backward kernels (gradients.py).
# Of the memory-bound ones, decode, latent attention (latent.py) and RANGES have a model of their own.
OTHERS = [op for op in known_kinds() if op not in FORWARDS]
OTHER = re.compile(rf"fa_({'|'.join(OTHERS)})_(fp16|bf16)(_d\d+)?$")
UNTOUCHED = b"\xa5" * 4  # of Memory.output


def has_workload(kernel_name: str) -> bool:
    """Whether to model a kernel. True for foreign kernels, to refuse them with a message."""
    return OTHER.match(kernel_name) is None


def dies_of(arch: str) -> int:
    """Dies of the arch's largest GPU, for the order of its workgroups. 0 for one."""
    hardware = arch_named(arch)
    return hardware.compute_units // hardware.die_units if hardware.die_units else 0


def heads_of(arch: str, kernel: Kernel) -> int:
    """Heads of a causal forward.

    With one wave per SIMD in a workgroup, the wave with the most work differs between heads.
    """
    hardware = arch_named(arch)
    return hardware.isa.simds if kernel.max_threads == hardware.isa.simds * hardware.isa.wave else 1


def lengths(kernel: Kernel) -> tuple[int, ...]:
    """The keys of a forward's workloads: long ones where there are others with a mask or tall workgroups."""
    op, dtype, head_dim = named(kernel)
    compared = dtype == ONE_DTYPE or fp8.multiplies_fp8(op)
    return (SEQLEN, LONG) if compared and head_dim in COMPARED else (SEQLEN,)


def causal_lengths(arch: str, kernel: Kernel) -> tuple[int, ...]:
    """Key lengths of causal workloads: long ones if the plan chooses between kernels."""
    head_dim = named(kernel)[2]
    has_tall = any(row.head_dim == head_dim for row in tall_tiles(arch_named(arch)))
    return lengths(kernel) if has_tall else (SEQLEN,)


def forward(
    kernel: Kernel, label: str = LABEL, *, dies: int = 0, keys: int = SEQLEN, fp8_values: bool = True
) -> Workload:
    """The unmasked forward of one head. Raises ``PerfError`` for another kernel.

    The number of a workgroup's rows follows from its writes to ``lse``. ``fp8_values``: v of kernels with
    products of int8 is fp8.
    """
    op, dtype, head_dim = named(kernel)
    case = Case(dtype, head_dim, keys, keys, v_head_dim=value_dim(op, head_dim))
    return _workload(kernel, label, op, case, dies, fp8_values=fp8_values)


def causal_forward(
    kernel: Kernel,
    label: str = LABEL,
    *,
    rows: int,
    heads: int = 1,
    dies: int = 0,
    keys: int = SEQLEN,
    fp8_values: bool = True,
) -> Workload:
    """The last workgroup of a causal forward with ``keys`` queries. ``rows``: of a workgroup.

    The schedule also plays the last workgroups of the other ``heads``.
    """
    op, dtype, head_dim = named(kernel)
    # The causal mask is aligned to the bottom right: these rows see as many keys as the last rows of a longer
    # launch.
    of_v = value_dim(op, head_dim)
    case = Case(dtype, head_dim, rows, keys, nheads=heads, nheads_k=heads, causal=True, v_head_dim=of_v)
    return _workload(kernel, label, f"{op} causal", case, dies, fp8_values=fp8_values)


def is_plain_forward(kernel_name: str) -> bool:
    """Whether a kernel is an unmasked forward with one head dim, of ordinary or tall workgroups."""
    match = NAME.match(kernel_name)
    return match is not None and has_no_mask(match["op"])


def reads_mask(kernel_name: str) -> bool:
    """Whether a forward takes a mask, and ``masked_forward`` models it."""
    match = NAME.match(kernel_name)
    return match is not None and match["op"] == MASKED


def masks(kernel: Kernel) -> tuple[tuple[str, int], ...]:
    """The masks of its workloads and their keys, of one dtype: the other costs the same."""
    return MASKED_CALLS if named(kernel)[1] == ONE_DTYPE else ()


def masked_forward(
    kernel: Kernel, kind: str, label: str = LABEL, *, dies: int = 0, keys: int = SEQLEN
) -> Workload:
    """The forward with a mask of ``MASKS``. Most masks hide half of the keys from each row at random.

    FLOP count all keys, hidden ones included.
    """
    op, dtype, head_dim = named(kernel)
    found = _workload(kernel, label, f"{op} {kind}", Case(dtype, head_dim, keys, keys), dies)
    mask = mask_of(kind, keys, dtype)
    strides = (0, 0, keys)
    if has_ranges(MASKS[kind], strides):
        data, hides = mask.read(), HIDES["bool" if MASKS[kind] == "bytes" else dtype]
        rows = [data[at : at + keys * len(hides)] for at in range(0, len(data), keys * len(hides))]
        leave_shown_keys(found.memory["out"], rows, hides, group=rows_of_wave(kernel), row=head_dim)
    (kernarg,) = found.arguments
    assert isinstance(kernarg, bytes), "of a whole struct"
    packed = with_mask(kernarg, mask, MASKS[kind], strides)
    return replace(found, arguments=(packed,), memory={**found.memory, mask.name: mask})


def mask_of(kind: str, keys: int, dtype: str) -> Memory:
    """A mask of as many rows as keys in memory."""
    bits = _bits(kind, keys)
    numbers = (0.0 if bit else -math.inf for bit in bits)
    data = {
        "bytes": lambda: bytes(bits),
        "elements": lambda: encode([*numbers], dtype),
        "fp32": lambda: array("f", numbers).tobytes(),
    }[MASKS[kind]]()
    return Memory.of(data, "mask", readonly=True)


def _bits(kind: str, keys: int) -> list[int]:
    """A mask of as many rows as keys."""
    if kind in SHOWN:
        return [int(key < SHOWN[kind] * keys) for key in range(keys)] * keys
    draw = random.Random(0)  # noqa: S311  (test data, repeatable)
    return [draw.getrandbits(1) for _ in range(keys * keys)]


def decoding(kernel: Kernel, label: str = LABEL, *, keys: int = PART) -> Workload:
    """One query of a head with ``keys``. ``has_decode`` selects the kernels."""
    match = DECODE.match(kernel.name)
    assert match is not None
    return _workload(kernel, label, "decode", Case(match["dtype"], int(match["head_dim"]), 1, keys))


def has_decode(kernel_name: str) -> bool:
    return DECODE.match(kernel_name) is not None


def is_compared_decode(kernel_name: str) -> bool:
    match = DECODE.match(kernel_name)
    return match is not None and match["dtype"] == ONE_DTYPE and int(match["head_dim"]) in COMPARED


def decoded(kernel: Kernel) -> tuple[str, int]:
    """Dtype and head dim of a decode."""
    match = DECODE.match(kernel.name)
    assert match is not None
    return match["dtype"], int(match["head_dim"])


def finds_ranges(kernel_name: str) -> bool:
    """Whether a kernel finds the visible keys of a mask."""
    return kernel_name == RANGES


def finding_ranges(kernel: Kernel, label: str = LABEL) -> Workload:
    """One workgroup's rows of a boolean mask of ``RANGES_KEYS`` keys."""
    rows = rows_of_wave(kernel)
    mask = Memory.of(bytes([1]) * (rows * RANGES_KEYS), "mask", readonly=True)
    out = Memory.output(rows * RANGES_ROW * 2, "out")
    packed = layout("MaskRangesParams").pack(
        {
            "mask": mask.address, "mask_batch": 0, "mask_head": 0, "mask_row": RANGES_KEYS,
            "out": out.address, "o_batch": 0, "o_head": 0, "o_row": RANGES_ROW,
            "seqlen_q": rows, "seqlen_k": RANGES_KEYS, "nheads": 1, "batch": 1, "shift": 0, "hidden": 0,
        }
    )  # fmt: skip
    return Workload(
        label=label,
        kernel=kernel.name,
        op=RANGES_OP,
        dtype=ONE_DTYPE,
        head_dim=0,
        launch=Launch((1, 1, 1), (kernel.max_threads, 1, 1)),
        arguments=(packed,),
        memory={memory.name: memory for memory in (mask, out)},
        flop=lambda _: 0,
    )


def bytes_of_ranges(kernel: Kernel) -> int:
    """Bytes of the mask read by ``finding_ranges``."""
    return rows_of_wave(kernel) * RANGES_KEYS


def rows_of_wave(kernel: Kernel) -> int:
    """Rows of a forward's wave, a matrix step's columns."""
    return kernel.wave_size // 2


def bytes_of_decode(head_dim: int) -> int:
    """The keys and values of ``decoding``."""
    return 2 * PART * head_dim * 2


def value_dim(op: str, head_dim: int) -> int:
    """The head dim of v and out."""
    return known_kinds()[op.partition(" ")[0]].of_v(head_dim)


def bytes_once(rows: int, head_dim: int, op: str = "fwd") -> int:
    """Bytes loaded by a forward's workgroup if the launch loads each byte of q, k and v once."""
    return (2 * head_dim + value_dim(op, head_dim)) * rows * 2


def rows_of(flop: int, head_dim: int, keys: int = SEQLEN, op: str = "fwd") -> int:
    """Rows of a workgroup, from the useful FLOP of ``forward``."""
    return flop // (2 * keys * (head_dim + value_dim(op, head_dim)))


def keys_of(op: str) -> int:
    """The keys of a workload. Only long ones are in the name: "fwd causal 2048"."""
    return LONG if op.endswith(f" {LONG}") else SEQLEN


def has_no_mask(op: str) -> bool:
    """Whether a workload is an unmasked forward."""
    kind = known_kinds().get(op.removesuffix(f" {LONG}"))
    return kind is not None and kind.rows in (QUERIES, MANY_QUERIES) and not kind.variant


def named(kernel: Kernel) -> tuple[str, str, int]:
    """Op, dtype and head dim of a forward. Raises ``PerfError`` for another kernel."""
    match = NAME.match(kernel.name)
    if match is None:
        title = f"no workload for kernel {kernel.name}"
        advice = f"a foreign code object needs FILE{SUFFIX} beside it (workload.py), ours a row in ours.py"
        raise PerfError(title, [f"expected a name like {NAME.pattern}"], advice=advice)
    return match["op"], match["dtype"], int(match["head_dim"])


def _workload(
    kernel: Kernel, label: str, op: str, case: Case, dies: int = 0, *, fp8_values: bool = True
) -> Workload:
    call = make_call(case, Order(dies))
    kind = op.partition(" ")[0]
    is_fp8, descales = fp8.multiplies_fp8(kind), fp8.scales(call, kind)
    if is_fp8:
        call = fp8.coded(call, kind, values=fp8_values or not fp8.has_scales(kind))

    def flop(after: Memories) -> int:
        rows = _rows(after)
        masked = rows * (rows - 1) // 2 if case.causal else 0
        return 2 * (rows * case.seqlen_k - masked) * (case.head_dim + case.value_dim)

    grid = (1, case.nheads, 1)
    kernarg = call.kernarg(grid)
    return Workload(
        label=label,
        kernel=kernel.name,
        op=op if case.seqlen_k == SEQLEN else f"{op} {case.seqlen_k}",
        dtype=case.dtype,
        head_dim=case.head_dim,
        launch=Launch(grid, (kernel.max_threads, 1, 1)),
        arguments=(fp8.argument(kernarg, descales) if is_fp8 else kernarg,),
        memory={memory.name: memory for memory in (*call.memory, *(x.memory for x in descales.values()))},
        flop=flop,
        others=tuple(range(1, case.nheads)),
    )


def _rows(memory: Memories) -> int:
    raw = memory["lse"].read()
    return sum(raw[at : at + 4] != UNTOUCHED for at in range(0, len(raw), 4))
