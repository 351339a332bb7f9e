"""What the models and the emulator run of a candidate, by the kind of its kernel."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wheel_builder.extras.perf.launch import calls
from wheel_builder.extras.perf.launch.kernels import Kernel as Launched
from wheel_builder.extras.perf.launch.simulate import Speed
from wheel_builder.extras.perf.launch.table import BACKWARDS, FORWARDS, shapes_on
from wheel_builder.extras.perf.measure import Subject, measure_decode
from wheel_builder.extras.perf.speed import backward_speed, forward_speed, masked_speed
from wheel_builder.extras.perf.workloads import coded, fp8, gradients, ours
from wheel_builder.extras.perf.workloads.workload import Workload
from wheel_builder.extras.tune import checks, decodes
from wheel_builder.extras.tune.ranking import LAUNCH
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.tables.kinds import LATENT, known_kinds
from wheel_builder.tables.tiles import FUSED, SETS, Workgroup

DECODE = "decode"
SHOWN = "all shown"  # the mask of launches

Figures = Iterator[tuple[str, float]]  # by the name of a line


@dataclass(frozen=True)
class Work:
    """``words``: its kernels. ``said``: its workloads and calls, in words.

    ``launches``: launches a second by shape. ``problems``: what is wrong with results, the keys or queries of
    a tile given. Kernels that are ``bound_by_memory`` are ranked by their launches.
    """

    words: str
    said: tuple[str, ...]
    workloads: Callable[[Subject, Kernel, Workgroup], Iterator[Workload]]
    launches: Callable[[Subject, Kernel, Workgroup], Figures]
    problems: Callable[[Subject, Kernel, Workgroup, int], Iterator[str]]
    bound_by_memory: bool = False


def _forwards(subject: Subject, kernel: Kernel, tile: Workgroup) -> Iterator[Workload]:
    of_machine = subject.machine.kernels[kernel.name]
    dies, heads = ours.dies_of(kernel.arch), ours.heads_of(kernel.arch, of_machine)
    yield ours.forward(of_machine, dies=dies)
    yield ours.causal_forward(of_machine, rows=tile.rows, heads=heads, dies=dies)


def _masked_forwards(subject: Subject, kernel: Kernel, _tile: Workgroup) -> Iterator[Workload]:
    of_machine, dies = subject.machine.kernels[kernel.name], ours.dies_of(kernel.arch)
    for kind, keys in ours.MASKED_CALLS:
        yield ours.masked_forward(of_machine, kind, dies=dies, keys=keys)


def _gradients(subject: Subject, kernel: Kernel, tile: Workgroup) -> Iterator[Workload]:
    yield from gradients.tuned(kernel.arch, subject.machine.kernels[kernel.name], tile.rows)


def _decodes(subject: Subject, kernel: Kernel, _tile: Workgroup) -> Iterator[Workload]:
    yield ours.decoding(subject.machine.kernels[kernel.name])


def _coded_decodes(subject: Subject, kernel: Kernel, _tile: Workgroup) -> Iterator[Workload]:
    yield coded.decoding(subject.machine.kernels[kernel.name])


def _of_decode(subject: Subject, kernel: Kernel, _tile: Workgroup) -> Figures:
    workload = ours.decoding(subject.machine.kernels[kernel.name])
    yield from _shares(subject, workload, ours.bytes_of_decode(kernel.head_dim))


def _of_coded_decode(subject: Subject, kernel: Kernel, _tile: Workgroup) -> Figures:
    workload = coded.decoding(subject.machine.kernels[kernel.name])
    yield from _shares(subject, workload, coded.bytes_of(workload))


def _shares(subject: Subject, workload: Workload, useful: int) -> Figures:
    """Shares of memory bandwidth, with one workgroup on a compute unit: more of them reach all of it."""
    shares = measure_decode(subject, workload, useful).decode.shares
    for each in shares:
        if each.workgroups == 1:
            yield f"{LAUNCH} {each.latency} ns", each.share


def _of_forward(subject: Subject, kernel: Kernel, tile: Workgroup) -> Figures:
    yield from _launched(kernel, tile, forward_speed(subject, subject.machine.kernels[kernel.name]))


def _of_masked(subject: Subject, kernel: Kernel, tile: Workgroup) -> Figures:
    yield from _launched(kernel, tile, masked_speed(subject, subject.machine.kernels[kernel.name], SHOWN))


def _launched(kernel: Kernel, tile: Workgroup, speed: Speed) -> Figures:
    launched = _named(kernel, tile, speed)
    for shape in shapes_on(kernel.arch, FORWARDS):
        seconds = calls.forward(kernel.arch, launched, shape, together=True).seconds
        yield f"{LAUNCH} {shape.name}", 1 / seconds


def _of_gradients(subject: Subject, kernel: Kernel, tile: Workgroup) -> Figures:
    """Of a fused kernel also with additions that take longer."""
    speed = backward_speed(subject, subject.machine.kernels[kernel.name], tile.rows)
    launched = _named(kernel, tile, speed)
    for worst in (False, True) if kernel.op == FUSED else (False,):
        for shape in shapes_on(kernel.arch, BACKWARDS):
            found = calls.gradient(kernel.arch, launched, shape, together=True, worst=worst)
            yield f"{LAUNCH} {shape.name}{' worst' * worst}", 1 / found.seconds


def _named(kernel: Kernel, tile: Workgroup, speed: Speed) -> Launched:
    return Launched(f"{kernel.op} {kernel.dtype} d{kernel.head_dim}", tile.rows, speed)


UNMASKED = Work(
    "forwards without a mask",
    (
        "one workgroup of an unmasked and of a causal forward of 512 keys, executed on the ISA emulator",
        "executed against float64: unmasked and causal calls. A release executes all features",
    ),
    _forwards,
    _of_forward,
    checks.forward_problems,
)
MASKED = Work(
    "forwards with a mask",
    (
        f"one workgroup with each mask ({', '.join(ours.MASKS)}), of 512 keys, executed on the ISA emulator",
        "launches have a mask that hides nothing, and its bytes are left out",
        "executed against float64: boolean masks and biases. A release executes all features",
    ),
    _masked_forwards,
    _of_masked,
    checks.masked_problems,
)
GRADIENTS = Work(
    "kernels of gradients",
    (
        "one workgroup of an unmasked and of a causal backward, or with each mask, of 512 queries and keys",
        "launches are those of this kernel alone, with masks without their bytes",
        "executed against float64: unmasked and causal calls, or masks. A release executes all features",
    ),
    _gradients,
    _of_gradients,
    checks.gradient_problems,
)


DECODES = Work(
    "forwards of few queries",
    (
        "one query of a head with 512 keys, executed on the ISA emulator",
        "launches are shares of memory bandwidth, by latency, with one workgroup on a compute unit",
        "executed against float64: all keys, two parts of them, a causal mask. A release executes all",
    ),
    _decodes,
    _of_decode,
    decodes.problems,
    bound_by_memory=True,
)


CODED_DECODES = Work(
    "forwards of few queries over 8 bits",
    (
        "one query of a head with 512 keys of e4m3fn, executed on the ISA emulator",
        "launches are shares of memory bandwidth, by latency, with one workgroup on a compute unit",
        "executed against float64: all keys, two parts, a causal mask. A release executes all formats",
    ),
    _coded_decodes,
    _of_coded_decode,
    decodes.coded_problems,
    bound_by_memory=True,
)


def works() -> dict[str, Work]:
    """By op: the kernels that can be tuned."""
    numbers = (op for op in ours.FORWARDS if not fp8.multiplies_fp8(op))
    forwards = {op: MASKED if op == ours.MASKED else UNMASKED for op in numbers}
    forwards |= {DECODE: DECODES, coded.OP: CODED_DECODES}
    return forwards | {op: GRADIENTS for op in gradients.OPS if op in SETS}


NOT_TIMED = "`python -m flash_attn_rocm tune` times none of its calls, so no GPU could choose a candidate"
NOT_REPLACED = "the library replaces no kernel of latent attention, whose launches have sizes of their own"


def untuned() -> dict[str, str]:
    """By op: why kernels with rows cannot be tuned."""
    every = known_kinds()
    return {
        op: f"{NOT_TIMED}; {NOT_REPLACED}" if every[op].call == LATENT else NOT_TIMED
        for op in SETS
        if op not in works()
    }
