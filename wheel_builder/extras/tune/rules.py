"""Rows that cannot work, found before the compiler is asked.

The rules are the static assertions of ``kernels/device`` that cost nothing here, and lower bounds of
registers and LDS. All other refusals are the compiler's.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from wheel_builder.base.errors import TileError
from wheel_builder.extras.tune.rows import Kernel, Rows, toml_row
from wheel_builder.tables.archs import Arch
from wheel_builder.tables.kinds import FORWARD, FP8, INT8, PACKED, answering, known_kinds
from wheel_builder.tables.tiles import (
    FUSED,
    NARROW_COLUMNS,
    SETS,
    Tile,
    columns_of_step,
    parse_tiles,
    waves_of,
)

MOST_THREADS = 1024  # of a workgroup, on every GPU
MOST_NUMBER = 1024  # of any field
# Fields of which there is one at least. Others are none at least.
COUNTS = (
    *("waves", "pairs", "keys", "queries", "waves_per_simd", "slices", "value_lanes"),
    *("tiles_at_once", "compares_at_once"),
)
# Fields with steps of a second operand in registers.
STEPS = ("query_steps", "own_steps", "q_steps", "dout_steps")
TWO_TILES = ("two_tiles", "two_tiles_in_turn")
DIRECT = ("direct", "direct_slots")
EAGER = "eager"
OWN_KEYS = "own_keys"
OF_CODES = ("two_stages", OWN_KEYS)
CODED = answering(known_kinds(), FORWARD)["coded"]
OF_FP8 = answering(known_kinds(), FP8)["fp8"]
OWN_ELEMENTS = ("decode", "dot2_64", 128)  # kernel, unit and head dim with own_keys and elements of 16 bits
TILES_AT_ONCE = dict.fromkeys((*TWO_TILES, *DIRECT, EAGER), 2) | {"slots_in_turn": 3, OWN_KEYS: 0}


@dataclass(frozen=True)
class Unit:
    """A matrix step: rows of a result, and elements of its second operand in a lane.

    Of kernels/device/mma/layout.hpp: kM, and kRun times kColumns.
    """

    rows: int
    held: int


# Of a row of q in one step: the kernel's unit (mma/layout.hpp), not its instructions.
STEP_BYTES = {"mfma": 32, "wmma": 32, "wmma_split": 32, "dot2": 16, "dot2_64": 16}
UNITS = {
    "mfma": Unit(32, 8),
    "wmma": Unit(16, 16),
    "wmma_split": Unit(16, 8),
    **dict.fromkeys(("dot2", "dot2_64"), Unit(8, 32)),
}

# Of LoneLayout, where each lane has all columns.
LONE = Unit(64, 32)

# Switches, and what they need of an ISA.
NEEDS: Mapping[str, tuple[Callable[[Arch], bool], str]] = {
    "ping_pong": (lambda arch: arch.isa.unit == "mfma", "fp32 matrix instructions"),
    "row_major": (lambda arch: arch.isa.transposed_reads, "reads that transpose"),
    "direct": (lambda arch: arch.isa.direct_loads, "loads straight into LDS"),
}


def unit_of(arch: Arch, row: Tile) -> Unit:
    """That of a row's kernel."""
    lone = arch.isa.unit == "dot2_64" and "narrow_steps" in row.switches and row.schedule == OWN_KEYS
    return LONE if lone else UNITS[arch.isa.unit]


def refusal(kernel: Kernel, arch: Arch, rows: Rows) -> str:
    """Why the rows cannot work, or "" if the compiler decides."""
    return next(refusals(kernel, arch, rows), "")


def refusals(kernel: Kernel, arch: Arch, rows: Rows) -> Iterator[str]:
    """Every reason. Without numbers or steps that no row has, which other rules need."""
    if impossible := [*_of_numbers(kernel, rows.plain), *_of_steps(arch, rows.plain)]:
        yield from impossible
        return
    yield from _of_table(kernel, arch, rows)
    yield from _of_kernel(kernel, arch, rows.plain)
    yield from OF_TILE[known_kinds()[kernel.op].tile](kernel, arch, rows.plain)


def _of_numbers(kernel: Kernel, row: Tile) -> Iterator[str]:
    for name in SETS[kernel.op]:
        value, least = getattr(row, name, None), int(name in COUNTS)
        if isinstance(value, int) and not least <= value <= MOST_NUMBER:
            yield f"{name} is {value}, expected {least} to {MOST_NUMBER}"


def _of_steps(arch: Arch, row: Tile) -> Iterator[str]:
    if "narrow_steps" in row.switches and arch.isa.unit not in NARROW_COLUMNS:
        yield f"narrow_steps needs steps of few columns, and {arch.isa.name} has none"


def _of_table(kernel: Kernel, arch: Arch, rows: Rows) -> Iterator[str]:
    """The table's own rules, by its own reader."""
    lines = (toml_row(kernel.op, row) for row in rows.used)
    text = f"[{kernel.op}]\n{arch.isa.name} = [\n{''.join(f'{line},{chr(10)}' for line in lines)}]\n"
    try:
        parse_tiles(text, {arch.isa.name})
    except TileError as error:
        yield from (problem.partition(": row ")[2].partition(": ")[2] for problem in error.problems)


def _of_kernel(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    """Of kernels with any tile."""
    unit, tile = unit_of(arch, row), "queries" if row.pairs else "keys"
    threads = waves_of(row) * arch.isa.wave
    if threads > MOST_THREADS:
        yield f"a workgroup has {threads} threads, and at most {MOST_THREADS} are possible"
    if (rows := getattr(row, tile)) % unit.rows or rows % 16:
        yield f"{rows} {tile} are not whole matrix steps of {unit.rows} rows"
    yield from _of_waves(arch, row)
    for name, most in steps_of(kernel, arch).items():
        if (steps := getattr(row, name)) > most // row.slices:
            yield f"{name} is {steps} of {most // row.slices}"
    yield from (
        f"{name} needs {what}, and {arch.isa.name} has none"
        for name, (has, what) in NEEDS.items()
        if name in row.switches and not has(arch)
    )


def _of_forward(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    yield from _of_schedule(kernel, arch, row)
    if known_kinds()[kernel.op].rows != PACKED:  # a decode's tiles of k and v may share their place
        yield from _of_lds(kernel, arch, row)
    yield from _of_registers(kernel, arch, row)


def _of_dkdv(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    """Of the loops of backward/dkdv."""
    if row.column_blocks and "ping_pong" in row.switches:
        yield "ping_pong has no column_blocks"
    if row.column_blocks and not ("early_rows" in row.switches and row.prefetch):
        yield "column_blocks needs early_rows and prefetch"
    if kernel.op == FUSED and not {"ping_pong", "early_rows"} & {*row.switches}:
        yield f"{kernel.op} needs ping_pong or early_rows"
    value_dim, blocks = known_kinds()[kernel.op].of_v(kernel.head_dim), max(row.column_blocks, 1)
    yield from _over_lds(arch, row.queries * (kernel.head_dim + value_dim) * 2)
    # The sums of a wave are those of dk or dv.
    results = blocks * (min(value_dim, kernel.head_dim) + row.queries)
    yield from _over_registers(arch, row, results, blocks * row.own_steps)


def _of_dq(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    """Of the loops of backward/dq."""
    value_dim = known_kinds()[kernel.op].of_v(kernel.head_dim)
    yield from _over_lds(arch, row.keys * (kernel.head_dim + value_dim) * 2)
    # S and dP at once.
    results = kernel.head_dim + 2 * row.keys
    yield from _over_registers(arch, row, results, row.q_steps + row.dout_steps)


OF_TILE = {"forward": _of_forward, "dkdv": _of_dkdv, "dq": _of_dq}


def _over_lds(arch: Arch, tiles: int) -> Iterator[str]:
    if tiles > arch.lds_bytes:
        yield f"tiles take {tiles} bytes of LDS at least, and there are {arch.lds_bytes}"


def _of_schedule(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    turned = row.schedule in (*TWO_TILES, *DIRECT)
    if turned and not arch.isa.transposed_reads:
        yield f"{row.schedule} needs reads that transpose, and {arch.isa.name} has none"
    if row.schedule in DIRECT and not arch.isa.direct_loads:
        yield f"{row.schedule} needs loads straight into LDS, and {arch.isa.name} has none"
    if turned and not row.prefetch:
        yield f"{row.schedule} needs prefetch"
    if row.schedule == "slots_in_turn" and not {"padded_tiles", "plain_exponents"} <= {*row.switches}:
        yield "slots_in_turn needs padded_tiles and plain_exponents"
    if row.schedule == EAGER:
        yield from _of_eager(kernel, arch, row)
    if known_kinds()[kernel.op].rows == "shared_queries" and row.schedule != "two_stages":
        yield f"{kernel.op} has one schedule"
    if kernel.op == CODED and row.schedule not in OF_CODES:
        yield f"{kernel.op} needs {' or '.join(OF_CODES)}: V's descales come with K's"
    elements = (kernel.op, arch.isa.unit, kernel.head_dim) == OWN_ELEMENTS and "narrow_steps" in row.switches
    if row.schedule == OWN_KEYS and kernel.op != CODED and not elements:
        yield f"{OWN_KEYS} needs codes of 8 bits"
    if not turned and row.keys // 4 % row.value_lanes:
        yield f"{row.value_lanes} lanes do not divide {row.keys // 4} groups of keys"


def _of_eager(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    if "padded_tiles" not in row.switches or not row.prefetch:
        yield f"{EAGER} needs padded_tiles and prefetch"
    if kernel.op != OF_FP8 or arch.isa.fp8 != "fnuz":
        yield f"{EAGER} needs products of e4m3fnuz"


def _of_waves(arch: Arch, row: Tile) -> Iterator[str]:
    """A workgroup's waves need places on the SIMDs that it runs on."""
    simds = arch.isa.simds * arch.isa.cus_of_workgroup
    needed, places = -(-waves_of(row) // simds), max(row.waves_per_simd, arch.vgprs // _addressable(arch))
    if needed > places:
        yield f"a workgroup needs {needed} waves on a SIMD, and registers are for {places}"
    if row.waves_per_simd > arch.isa.waves_per_simd:
        yield f"a SIMD has {arch.isa.waves_per_simd} waves at most"


def _of_lds(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    """A lower bound, without padding and probabilities."""
    value_dim = known_kinds()[kernel.op].of_v(kernel.head_dim)
    elements = TILES_AT_ONCE.get(row.schedule, 1) * row.keys * (kernel.head_dim + value_dim)
    tiles = elements * _element_bytes(kernel)
    steps = steps_of(kernel, arch)["query_steps"] // row.slices - row.query_steps
    queries = row.waves * steps * columns_of_step(arch.isa, row) * STEP_BYTES[arch.isa.unit]
    yield from _over_lds(arch, tiles + queries)


def _of_registers(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    """A lower bound: results of both products, and q."""
    value_dim = known_kinds()[kernel.op].of_v(kernel.head_dim)
    yield from _over_registers(arch, row, value_dim // row.slices + row.keys, row.query_steps)


def _over_registers(arch: Arch, row: Tile, results: int, steps: int) -> Iterator[str]:
    """``results``: rows of results. ``steps`` of second operands."""
    unit = unit_of(arch, row)
    of_results = results * columns_of_step(arch.isa, row) // arch.isa.wave
    of_operands = steps * unit.held // 2
    # Separate AccVGPRs hold results only.
    separate = arch.isa.separate_acc_vgprs
    needed = max(of_results, of_operands) if separate else of_results + of_operands
    left = min(arch.vgprs // row.waves_per_simd, _addressable(arch))
    if needed > left:
        words = f"results and operands take {needed} registers at least"
        yield f"{words}, and {row.waves_per_simd} waves leave {left}"


def _addressable(arch: Arch) -> int:
    """The most registers of a wave: VGPRs, and AccVGPRs of the same file."""
    return 512 if arch.isa.family == "cdna" and not arch.isa.separate_acc_vgprs else 256


def steps_of(kernel: Kernel, arch: Arch) -> Mapping[str, int]:
    """Matrix steps of the rows of each of a wave's second operands, by field."""
    value_dim = known_kinds()[kernel.op].of_v(kernel.head_dim)
    dims = {"dout_steps": value_dim}
    step = STEP_BYTES[arch.isa.unit] // _element_bytes(kernel)
    return {name: dims.get(name, kernel.head_dim) // step for name in STEPS}


def _element_bytes(kernel: Kernel) -> int:
    """Of q, k and v in products."""
    return 1 if known_kinds()[kernel.op].multiplies in (FP8, INT8) else 2
