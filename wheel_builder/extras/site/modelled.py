"""The tables of docs/modelled.md, made from the accepted figures of ``wheel_builder/extras/perf/figures``."""

from collections.abc import Mapping, Sequence

from wheel_builder.extras.perf.golden import CLOCKS, DECODE, EXCLUSIVE, FLOP, Figure
from wheel_builder.extras.perf.workloads.ours import RANGES_OP
from wheel_builder.extras.site.markdown import markdown
from wheel_builder.tables.archs import Arch, arch_named
from wheel_builder.tables.kinds import FORWARD, answering, known_kinds
from wheel_builder.tables.tiles import workgroup_of

Found = Mapping[str, Sequence[Figure]]  # by arch
OURS = "flash-attn-rocm"
HEAD_DIMS = (64, 128)
OPS = answering(known_kinds(), FORWARD)
TALL_OP, WIDE_OP, UNEVEN_OP, MASKED_OP = (OPS[each] for each in ("tall", "wide", "uneven", "masked"))
# Columns: heading -> kernel without its head dim, with the maker of a foreign one.
TALL = {
    "512 keys": "fwd fp16", "512 keys, tall": f"{TALL_OP} fp16",
    "512 keys, causal": "fwd causal fp16", "512 keys, causal, tall": f"{TALL_OP} causal fp16",
    "2048 keys": "fwd 2048 fp16", "2048 keys, tall": f"{TALL_OP} 2048 fp16",
    "2048 keys, causal": "fwd causal 2048 fp16", "2048 keys, causal, tall": f"{TALL_OP} causal 2048 fp16",
}  # fmt: skip
WIDE = {"fp16": f"{WIDE_OP} fp16", "fp16, causal": f"{WIDE_OP} causal fp16", "bf16": f"{WIDE_OP} bf16"}
UNEVEN = {
    "forward, fp16": f"{UNEVEN_OP} fp16", "causal, fp16": f"{UNEVEN_OP} causal fp16",
    "forward, bf16": f"{UNEVEN_OP} bf16", "backward, fp16": "uneven fp16",
}  # fmt: skip
MASKED = {
    "no mask": "fwd fp16", "boolean": f"{MASKED_OP} bool fp16", "bias": f"{MASKED_OP} bias fp16",
    "fp32 bias": f"{MASKED_OP} fp32 bias fp16", "padding": f"{MASKED_OP} padding fp16",
    "padding as bias": f"{MASKED_OP} padding bias fp16", "all visible": f"{MASKED_OP} all shown fp16",
}  # fmt: skip
MASKED_PEER = {
    "boolean": f"{MASKED_OP} bool fp16", "boolean, Triton": f"triton {MASKED_OP} bool fp16",
    "bias": f"{MASKED_OP} bias fp16", "bias, Triton": f"triton {MASKED_OP} bias fp16",
}  # fmt: skip
MASKED_GRADIENTS = {
    "no mask": "separate fp16", "boolean": "separate bool fp16", "bias": "separate bias fp16",
    "fp32 bias": "separate fp32 bias fp16",
}  # fmt: skip
# The call of the shares of time: heads, and rows = keys.
HEADS, LENGTH = 16, 4096
# The modelled lengths, extrapolated to LENGTH keys.
SHORT, LONG = 512, 2048
# PyTorch's plain formula writes the scores, adds the mask in place, takes the softmax in place and reads the
# result: six passes of 16 bits each.
PASSES = 6
WIDE_DIM, LATENT_DIM, PARTS = 512, 576, 4


def modelled_tables(found: Found) -> Mapping[str, str]:
    """Every table, as Markdown."""
    return {
        "modelled_figures": modelled_figures(found),
        "modelled_tall": by_head_dim(found, TALL, needs=f"{TALL_OP} fp16"),
        "modelled_tall_loads": tall_loads(found),
        "modelled_wide": by_head_dim(found, WIDE, (WIDE_DIM,)),
        "modelled_parts": parts(found),
        "modelled_latent": latent(found),
        "modelled_uneven": by_head_dim(found, UNEVEN, (192,)),
        "modelled_masks": by_head_dim(found, MASKED),
        "modelled_masks_peer": by_head_dim(found, MASKED_PEER),
        "modelled_mask_gradients": by_head_dim(found, MASKED_GRADIENTS),
        "modelled_padding": padding(found),
        "modelled_plain_formula": plain_formula(found),
    }


def by_head_dim(
    found: Found, columns: Mapping[str, str], head_dims: Sequence[int] = HEAD_DIMS, *, needs: str = ""
) -> str:
    """A row for each arch and head dim with the kernel ``needs``, by default the first column's."""
    needs = needs or next(iter(columns.values()))
    rows = [("gfx arch", "head dim", *columns)]
    for arch, figures in found.items():
        own = _by_kernel(figures)
        rows += [
            (arch, str(dim), *(str(own.get(f"{kernel} d{dim}", "")) for kernel in columns.values()))
            for dim in head_dims
            if f"{needs} d{dim}" in own
        ]
    return markdown(rows)


def _by_kernel(figures: Sequence[Figure]) -> Mapping[str, int]:
    """FLOP of our kernels by name, and of others by maker and name."""
    return {
        each.kernel if each.maker == OURS else f"{each.maker.partition(' ')[0]} {each.kernel}": each.value
        for each in figures
        if each.what == FLOP
    }


def tall_loads(found: Found) -> str:
    """The loads of q, k and v by all compute units, over the memory's bandwidth."""
    ops, table = ("fwd", TALL_OP), []
    heads: set[tuple[str, ...]] = set()
    for name, figures in found.items():
        arch, own = arch_named(name), _by_kernel(figures)
        for dim in HEAD_DIMS:
            flop = {op: own[kernel] for op in ops if (kernel := f"{op} {LONG} fp16 d{dim}") in own}
            if TALL_OP in flop:
                heights = [_rows(arch, op, dim) for op in ops]
                heads.add(("gfx arch", "head dim", *(f"{rows} rows" for rows in heights)))
                loads = (_loads(arch, flop[op], rows) for op, rows in zip(ops, heights, strict=True))
                table.append((name, str(dim), *(f"{each:.2f}" for each in loads)))
    (head,) = heads  # true of every row
    return markdown([head, *table])


def _rows(arch: Arch, op: str, head_dim: int) -> int:
    return workgroup_of(arch, op, "fp16", head_dim).rows


def _loads(arch: Arch, flop: int, rows: int) -> float:
    """A workgroup loads 4 * head_dim bytes for each key and 2 * head_dim for each of its rows."""
    bytes_of_flop = (2 * LONG + rows) / (2 * rows * LONG)
    return flop * bytes_of_flop * arch.compute_units * arch.model.clock / arch.model.memory


def parts(found: Found) -> str:
    """The time of a head, whole and with its keys in parts, where all parts run at once."""
    head = ("gfx arch", "modelled as", "whole, µs", f"{PARTS} parts, µs", "storing and reading them, µs")
    rows: list[tuple[str, ...]] = [head]
    for name, figures in found.items():
        arch, flop = arch_named(name), _by_kernel(figures).get(f"{WIDE_OP} fp16 d{WIDE_DIM}")
        if flop is None:
            continue
        of_one = _rows(arch, WIDE_OP, WIDE_DIM)
        if arch.compute_units < PARTS * LENGTH // of_one:  # on CDNA a workgroup is alone on its compute unit
            continue
        whole = 4 * of_one * LENGTH * WIDE_DIM / (flop * arch.model.clock)
        moved = 2 * PARTS * LENGTH * WIDE_DIM * 4 / arch.model.memory
        rows.append((name, arch.model.name, *(f"{x * 1e6:.0f}" for x in (whole, whole / PARTS, moved))))
    return markdown(rows)


def latent(found: Found) -> str:
    """The share of the memory's bandwidth that one workgroup of latent attention reaches."""
    dtypes = ("fp16", "bf16")
    rows: list[tuple[str, ...]] = [("gfx arch", *dtypes)]
    for arch, figures in found.items():
        own = {each.kernel: f"{each.value / 100:.2f}" for each in figures if each.what == DECODE}
        shares = [own[kernel] for dtype in dtypes if (kernel := f"{dtype} d{LATENT_DIM}") in own]
        rows += [(arch, *shares)] if shares else []
    return markdown(rows)


def padding(found: Found) -> str:
    """Time with half of the keys as padding, over the time without a mask."""
    rows = [("gfx arch", *(f"head dim {dim}" for dim in HEAD_DIMS), "finding the ranges, µs")]
    for name, figures in found.items():
        arch = arch_named(name)
        shares = (f"{padded_share(arch, figures, dim):.2f}" for dim in HEAD_DIMS)
        rows.append((name, *shares, f"{finding_seconds(arch, figures) * 1e6:.0f}"))
    return markdown(rows)


def padded_share(arch: Arch, figures: Sequence[Figure], head_dim: int) -> float:
    """The time with half of the keys as padding, including the search for them, over the unmasked time."""
    masked = forward_seconds(arch, figures, f"{MASKED_OP} padding", head_dim)
    return (masked + finding_seconds(arch, figures)) / forward_seconds(arch, figures, "fwd", head_dim)


def finding_seconds(arch: Arch, figures: Sequence[Figure]) -> float:
    """Time of the kernel that finds the ranges of keys of one mask: its clocks, at least its bytes."""
    [clocks] = (
        each.value for each in figures
        if (each.what, each.maker, each.kernel) == (CLOCKS, OURS, f"{RANGES_OP} fp16 k{LENGTH}")
    )  # fmt: skip
    return max(clocks / arch.model.clock, LENGTH**2 / arch.model.memory)


def forward_seconds(arch: Arch, figures: Sequence[Figure], op: str, head_dim: int) -> float:
    """Time of HEADS heads of LENGTH rows. Clocks grow linearly with the keys, as from SHORT to LONG."""
    own = _by_kernel(figures)
    few = SHORT / own[f"{op} fp16 d{head_dim}"]
    many = LONG / own[f"{op} {LONG} fp16 d{head_dim}"]
    clocks = many + (many - few) * (LENGTH - LONG) / (LONG - SHORT)
    return clocks * HEADS * 4 * LENGTH * head_dim / (arch.compute_units * arch.model.clock)


def plain_formula(found: Found) -> str:
    """The time to move the scores of the plain formula, over the time of the kernel with a boolean mask."""
    rows = [("gfx arch", "modelled as", "plain formula / kernel")]
    for name, figures in found.items():
        arch, flop = arch_named(name), _by_kernel(figures)[f"{MASKED_OP} bool fp16 d64"]
        kernel = 4 * LENGTH**2 * 64 / (flop * arch.compute_units * arch.model.clock)
        moved = PASSES * 2 * LENGTH**2 / arch.model.memory
        rows.append((name, arch.model.name, f"{moved / kernel:.1f}"))
    return markdown(rows)


def modelled_figures(found: Mapping[str, Sequence[Figure]]) -> str:
    """The schedule's figures of our kernels and of others, by arch.

    Of backwards, all kernels together.
    """
    rows = [("gfx arch", "kernel", OURS, *(others := sorted(_others(found))))]
    for arch, figures in found.items():
        own, exclusive = (_of_whole_operations(figures, what) for what in (FLOP, EXCLUSIVE))
        rows += [
            (
                arch,
                kernel,
                f"{flop}{_exclusive(exclusive.get((kernel, OURS)))}",
                *(_other(own, exclusive, kernel, name) for name in others),
            )
            for (kernel, maker), flop in own.items()
            if maker == OURS
        ]
    return markdown(rows)


_Figures = Mapping[tuple[str, str], int]


def _of_whole_operations(figures: Sequence[Figure], what: str) -> _Figures:
    """By kernel and maker, forwards first."""
    shown = sorted(figures, key=lambda each: not each.kernel.startswith("fwd"))
    return {
        (each.kernel, each.maker): each.value
        for each in shown
        if each.what == what and not each.kernel.startswith("bwd_")
    }


def _exclusive(flop: int | None, ours: int | None = None) -> str:
    """The exclusive schedule's figure, if it exists. For another kernel, also the ratio of ours to it."""
    times = f" ({ours / flop:.1f} times)" if flop and ours else ""
    return f", exclusive {flop}{times}" if flop else ""


def _others(found: Mapping[str, Sequence[Figure]]) -> set[str]:
    """Makers of the other kernels, without versions."""
    makers = {each.maker for figures in found.values() for each in figures}
    return {maker.partition(" ")[0] for maker in makers - {OURS}}


def _other(of_arch: _Figures, exclusive: _Figures, kernel: str, name: str) -> str:
    ours = of_arch[kernel, OURS]
    return "; ".join(
        f"{flop} (version {maker.partition(' ')[2]}; ours is {ours / flop:.1f} times that)"
        f"{_exclusive(exclusive.get((kernel, maker)), exclusive.get((kernel, OURS)))}"
        for (its_kernel, maker), flop in of_arch.items()
        if (its_kernel, maker.partition(" ")[0]) == (kernel, name)
    )
