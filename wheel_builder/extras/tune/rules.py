"""Rows that cannot work, found before the compiler is asked.

The rules are the static assertions of ``kernels/device`` that cost nothing here, and lower bounds of
registers and LDS. All other refusals are the compiler's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from wheel_builder.base.errors import TileError
from wheel_builder.extras.tune.rows import Kernel, Rows, toml_row
from wheel_builder.tables.archs import Arch
from wheel_builder.tables.kinds import known_kinds
from wheel_builder.tables.tiles import Tile, parse_tiles

MOST_THREADS = 1024  # of a workgroup, on every GPU
TWO_TILES = ("two_tiles", "two_tiles_in_turn")
DIRECT = ("direct", "direct_slots")
TILES_AT_ONCE = dict.fromkeys((*TWO_TILES, *DIRECT), 2) | {"slots_in_turn": 3}


@dataclass(frozen=True)
class Unit:
    """A matrix step: rows of a result, and elements of its second operand in a lane.

    Of kernels/device/mma/layout.hpp: kM, and kRun times kColumns.
    """

    rows: int
    held: int


UNITS = {"mfma": Unit(32, 8), "wmma": Unit(16, 16), "wmma_split": Unit(16, 8), "dot2": Unit(8, 32)}


def refusal(kernel: Kernel, arch: Arch, rows: Rows) -> str:
    """Why the rows cannot work, or "" if the compiler decides."""
    return next(chain(_of_table(kernel, arch, rows), _of_kernel(kernel, arch, rows.plain)), "")


def _of_table(kernel: Kernel, arch: Arch, rows: Rows) -> Iterator[str]:
    """The table's own rules, by its own reader."""
    lines = (toml_row(kernel.op, row) for row in (rows.plain, rows.featured))
    text = f"[{kernel.op}]\n{arch.isa.name} = [\n{''.join(f'{line},{chr(10)}' for line in lines)}]\n"
    try:
        parse_tiles(text, {arch.isa.name})
    except TileError as error:
        yield from (problem.partition(": row ")[2].partition(": ")[2] for problem in error.problems)


def _of_kernel(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    unit = UNITS[arch.isa.unit]
    threads = row.waves * arch.isa.wave
    if threads > MOST_THREADS:
        yield f"a workgroup has {threads} threads, and at most {MOST_THREADS} are possible"
    if row.keys % unit.rows or row.keys % 16:
        yield f"{row.keys} keys are not whole matrix steps of {unit.rows} rows"
    yield from _of_schedule(kernel, arch, row)
    yield from _of_waves(arch, row)
    yield from _of_lds(kernel, arch, row)
    yield from _of_registers(kernel, arch, row)


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
    if known_kinds()[kernel.op].rows == "shared_queries" and row.schedule != "two_stages":
        yield f"{kernel.op} has one schedule"
    if not turned and row.keys // 4 % row.value_lanes:
        yield f"{row.value_lanes} lanes do not divide {row.keys // 4} groups of keys"


def _of_waves(arch: Arch, row: Tile) -> Iterator[str]:
    """A workgroup's waves need places on the SIMDs that it runs on."""
    simds = arch.isa.simds * arch.isa.cus_of_workgroup
    needed, places = -(-row.waves // simds), max(row.waves_per_simd, arch.vgprs // _addressable(arch))
    if needed > places:
        yield f"a workgroup needs {needed} waves on a SIMD, and registers are for {places}"
    if row.waves_per_simd > arch.isa.waves_per_simd:
        yield f"a SIMD has {arch.isa.waves_per_simd} waves at most"


def _of_lds(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    """A lower bound, without padding and probabilities."""
    value_dim = known_kinds()[kernel.op].of_v(kernel.head_dim)
    tiles = TILES_AT_ONCE.get(row.schedule, 1) * row.keys * (kernel.head_dim + value_dim) * 2
    steps = query_steps(kernel, arch) // row.slices - row.query_steps
    if steps < 0:
        yield f"q has {query_steps(kernel, arch) // row.slices} steps"
    queries = row.waves * steps * arch.isa.step_columns * _step_of(arch) * 2
    if tiles + queries > arch.lds_bytes:
        yield f"tiles take {tiles + queries} bytes of LDS at least, and there are {arch.lds_bytes}"


def _of_registers(kernel: Kernel, arch: Arch, row: Tile) -> Iterator[str]:
    """A lower bound: results of both products, and q."""
    unit = UNITS[arch.isa.unit]
    value_dim = known_kinds()[kernel.op].of_v(kernel.head_dim)
    of_step = unit.rows * arch.isa.step_columns // arch.isa.wave
    results = (value_dim // row.slices + row.keys) // unit.rows * of_step
    queries = row.query_steps * unit.held // 2
    # Separate AccVGPRs hold results only.
    needed = max(results, queries) if arch.isa.separate_acc_vgprs else results + queries
    left = min(arch.vgprs // row.waves_per_simd, _addressable(arch))
    if needed > left:
        yield f"results and q take {needed} registers at least, and {row.waves_per_simd} waves leave {left}"


def _addressable(arch: Arch) -> int:
    """The most registers of a wave: VGPRs, and AccVGPRs of the same file."""
    return 512 if arch.isa.family == "cdna" and not arch.isa.separate_acc_vgprs else 256


def query_steps(kernel: Kernel, arch: Arch) -> int:
    """Matrix steps of a row of q."""
    return kernel.head_dim // _step_of(arch)


def _step_of(arch: Arch) -> int:
    """Elements of a row of q in one step: the kernel's unit (mma/layout.hpp), not its instructions."""
    return 8 if arch.isa.unit == "dot2" else 16
