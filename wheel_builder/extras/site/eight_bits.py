"""A table of docs/sageattention.md: what products of int8 gain, from the accepted figures of kernels."""

from collections.abc import Iterator, Mapping, Sequence

from wheel_builder.extras.perf.golden import FLOP, Figure
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.extras.site.modelled import HEAD_DIMS, OURS, TALL_OP
from wheel_builder.tables.archs import Arch, arch_named
from wheel_builder.tables.kinds import INT8, answering, known_kinds

[OP] = answering(known_kinds(), INT8).values()
PLAIN, FP16 = ("fwd", TALL_OP), "fp16"
DTYPES = (FP16, "bf16")  # of q and out. The first with kernels counts, beside fp16 in 16 bits
KEYS = 2048  # of the figures. Their FLOP count for longer calls too
LENGTHS, HEADS = (2048, 4096, 8192, 16384, 32768), 24
NONE = "16 bits"
PAYS = 1.08  # 8 bits err more, and the model leaves out some time
# Quantising: bytes that move for each element of q and k, which are read once, and of v, which is read twice
# in a launch more. A code is written of each. Without products of fp8 v stays as it is. The memory gives this
# share of its bandwidth, and each launch takes so long: assumed.
BYTES, OF_V, SHARE, LAUNCH = 3 + 3, 5, 0.75, 3e-6
Flop = Mapping[str, int]  # by kernel


def gains(found: Mapping[str, Sequence[Figure]]) -> str:
    """Time in 16 bits over time in 8 bits, of the archs with kernels for both, from where they gain."""
    head = ("GPU", "queries and keys", *(f"head dim {dim}" for dim in HEAD_DIMS))
    rows = [(*head, *(f"{dim}, causal" for dim in HEAD_DIMS))]
    for name, figures in found.items():
        arch, flop = arch_named(name), _flop(figures)
        for length in LENGTHS:
            cells = [*_cells(arch, flop, length)]
            if {*cells} != {NONE}:
                rows.append((arch.model.name, str(length), *cells))
    return markdown(rows)


def head_dims(flop: Flop) -> Sequence[int]:
    """Those of kernels with products of int8."""
    return [dim for dim in HEAD_DIMS if _coded(flop, dim)]


def gain(arch: Arch, flop: Flop, length: int, head_dim: int, *, causal: bool) -> float:
    """Of a call with as many queries as keys, and heads."""
    work = 4 * length * length * head_dim * HEADS / (2 if causal else 1)
    rate = arch.compute_units * arch.model.clock
    plain = work / (max(flop.get(_named(op, FP16, head_dim), 0) for op in PLAIN) * rate)
    of_v = arch.isa.fp8 != "none"
    moved = HEADS * length * head_dim * (BYTES + of_v * OF_V) / (arch.model.memory * SHARE)
    return plain / (work / (_coded(flop, head_dim) * rate) + moved + (1 + of_v) * LAUNCH)


def _cells(arch: Arch, flop: Flop, length: int) -> Iterator[str]:
    for causal in (False, True):
        for dim in HEAD_DIMS:
            found = gain(arch, flop, length, dim, causal=causal) if dim in head_dims(flop) else 0
            yield f"{found:.2f}" if found > PAYS else NONE


def _flop(figures: Sequence[Figure]) -> dict[str, int]:
    return {each.kernel: each.value for each in figures if (each.what, each.maker) == (FLOP, OURS)}


def _coded(flop: Flop, head_dim: int) -> int:
    """The rate of a kernel with products of int8, or 0."""
    found = (flop.get(_named(OP, dtype, head_dim), 0) for dtype in DTYPES)
    return next((each for each in found if each), 0)


def _named(op: str, dtype: str, head_dim: int) -> str:
    return f"{op} {KEYS} {dtype} d{head_dim}"
