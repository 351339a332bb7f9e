"""The table of docs/sageattention.md: what products of int8 gain, from the accepted figures of kernels."""

from collections.abc import Iterator, Mapping, Sequence

from wheel_builder.extras.perf.golden import FLOP, Figure
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.extras.site.modelled import HEAD_DIMS, OURS, TALL_OP
from wheel_builder.tables.archs import Arch, arch_named
from wheel_builder.tables.kinds import INT8, answering, known_kinds

[OP] = answering(known_kinds(), INT8).values()
PLAIN, DTYPE = ("fwd", TALL_OP), "fp16"
KEYS = 2048  # of the figures. Their FLOP count for longer calls too
LENGTHS, HEADS = (2048, 4096, 8192, 16384), 24
PAYS = 1.08  # 8 bits err more, and the model leaves out some time
# Quantising: bytes that move for each element of q and k, which are read once, and of v, which is read twice
# in a launch more. A code is written of each. Without products of fp8 v stays as it is. The memory gives this
# share of its bandwidth, and each launch takes so long: assumed.
BYTES, OF_V, SHARE, LAUNCH = 3 + 3, 5, 0.75, 3e-6
Flop = Mapping[str, int]  # by kernel


def gains(found: Mapping[str, Sequence[Figure]]) -> str:
    """Time in 16 bits over time in 8 bits, of the archs with kernels for both."""
    head = ("GPU", "queries and keys", *(f"head dim {dim}" for dim in HEAD_DIMS))
    rows = [(*head, *(f"{dim}, causal" for dim in HEAD_DIMS))]
    for name, figures in found.items():
        arch, flop = arch_named(name), _flop(figures)
        if all(_named(OP, dim) in flop for dim in HEAD_DIMS):
            rows += [(arch.model.name, str(length), *_cells(arch, flop, length)) for length in LENGTHS]
    return markdown(rows)


def gain(arch: Arch, flop: Flop, length: int, head_dim: int, *, causal: bool) -> float:
    """Of a call with as many queries as keys, and heads."""
    work = 4 * length * length * head_dim * HEADS / (2 if causal else 1)
    rate = arch.compute_units * arch.model.clock
    plain = work / (max(flop.get(_named(op, head_dim), 0) for op in PLAIN) * rate)
    of_v = arch.isa.fp8 != "none"
    moved = HEADS * length * head_dim * (BYTES + of_v * OF_V) / (arch.model.memory * SHARE)
    return plain / (work / (flop[_named(OP, head_dim)] * rate) + moved + (1 + of_v) * LAUNCH)


def _cells(arch: Arch, flop: Flop, length: int) -> Iterator[str]:
    for causal in (False, True):
        for dim in HEAD_DIMS:
            found = gain(arch, flop, length, dim, causal=causal)
            yield f"{found:.2f}" if found > PAYS else "16 bits"


def _flop(figures: Sequence[Figure]) -> Flop:
    return {each.kernel: each.value for each in figures if (each.what, each.maker) == (FLOP, OURS)}


def _named(op: str, head_dim: int) -> str:
    return f"{op} {KEYS} {DTYPE} d{head_dim}"
