"""The GPUs with kernels and their facts, from two tables read once.

``kernels/tables/isas.toml`` describes machine code. ``kernels/tables/gpus.toml`` has the size of each GPU and
its product names. The head of each file explains the fields. C++ includes the output of
``wheel_builder.tables.generated``. Standard library only.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import ArchError
from wheel_builder.tables.products import Product, parse_products, without_names
from wheel_builder.tables.rows import Choices, inherited, read_row, read_tables

CHECKOUT = Path(__file__).parents[2]
ISAS = Path("kernels/tables/isas.toml")
GPUS = Path("kernels/tables/gpus.toml")
TABLES = (ISAS, GPUS)


@dataclass(frozen=True)
class Counters:
    """The wait counters of an ISA."""

    stores_apart: bool
    scalars_apart: bool
    loads_in_order: bool
    keeps_half: bool
    depth: tuple[int, int, int, int]


@dataclass(frozen=True)
class Hazards:
    """Dependencies without a hardware interlock."""

    rules: str


@dataclass(frozen=True)
class Port:
    """Clocks of an LDS access at the port: fixed, per dword read (stored) by a lane, phase and conflict."""

    fixed: float
    dword: float
    stored: float
    phase: float
    conflict: float


@dataclass(frozen=True)
class Lds:
    """How the models charge LDS accesses."""

    banks: int
    narrow_banks: int
    phases: tuple[str, ...]
    port: Port


@dataclass(frozen=True)
class Timing:
    """Rates and latencies of the schedule model, in clocks."""

    slot: int
    valu: int
    transcendental: int
    slow: int
    conversion: int
    matrix_issue: int
    matrix_result: int
    valu_result: int
    transcendental_result: int
    salu_result: int
    lds: int
    vmem: int
    smem: int
    branch: int
    barrier: int
    lds_bytes: int
    vmem_bytes: int
    exponential_issue: int = 0  # of the VALU's port, if exponentials have a unit of their own


@dataclass(frozen=True)
class Isa:
    """One table of isas.toml."""

    name: str
    family: str
    unit: str
    step_columns: int
    fp16_k: int
    bf16_k: int
    fp8_k: int
    matrix_clocks: Mapping[str, int]
    matrix_coexecution: bool
    never_coissued: tuple[str, ...]
    separate_acc_vgprs: bool
    back_off_barrier: bool
    packed_fp32: bool
    transposed_reads: bool
    direct_loads: bool
    bf16_pairs: bool
    bf16_products: bool
    packed_dots: bool
    matrix_interlock: bool
    late_operands: bool
    short_code: bool
    flushes_denormals: bool
    flushes_sums: bool
    fp8: str
    fp8_top: int
    int8_pairs: int
    features: tuple[str, ...]
    assembler_features: tuple[str, ...]
    buffer_word3: int
    wave: int
    simds: int
    cus_of_workgroup: int
    waves_per_simd: int
    vgpr_encoding_granule: int
    sgprs: int
    sgpr_granule: int
    architected_flat_scratch: bool
    packed_work_item_ids: bool
    workgroup_ids_in_ttmps: bool
    nan_modes: bool
    counters: Counters
    hazards: Hazards
    lds: Lds
    timing: Timing

    @property
    def step_clocks(self) -> int:
        """Clocks of the instruction of a matrix step, 0 on ISAs with vector units only."""
        shapes = (f"32x32x{self.fp16_k}", "32x32") if self.unit == "mfma" else ("16x16x16",)
        return next((self.matrix_clocks[shape] for shape in shapes if shape in self.matrix_clocks), 0)

    @property
    def lds_counter(self) -> bool:
        """Whether LDS operations are counted, and waited for, apart from scalar loads."""
        return self.counters.scalars_apart

    @property
    def peak_flop(self) -> int:
        """Peak fp16 FLOP per clock and compute unit: back-to-back matrix steps on every SIMD.

        Without matrix instructions: instructions with one or two multiply-adds per lane, at the VALU's rate.
        """
        if not self.step_clocks:
            pairs = 2 if self.packed_dots else 1
            return self.simds * self.wave * 2 * pairs // self.timing.valu
        step = 32 * 32 * self.fp16_k if self.unit == "mfma" else 16 * 16 * 16
        return self.simds * 2 * step // self.step_clocks


@dataclass(frozen=True)
class Model:
    """The product used to model an arch: clock in Hz, bytes per second of the whole GPU, bytes of caches.

    ``l2_bytes``: of a die. ``last_cache``: the Infinity Cache between the L2 and memory, 0 for none.
    """

    name: str
    clock: float
    memory: float
    l2: float
    instruction_cache: int
    l2_bytes: int
    last_cache: int


@dataclass(frozen=True)
class Gpu:
    """Fields of every served GPU in gpus.toml."""

    name: str
    code_object: str
    elf_machine: int
    compute_units: int
    device_name: str
    torch_override: str = field(default="", kw_only=True)

    @property
    def borrows(self) -> bool:
        """Whether it runs the machine code of another arch, under its own name."""
        return self.code_object != self.name


@dataclass(frozen=True)
class Arch(Gpu):
    """A GPU with machine code of its own, and its ISA."""

    isa: Isa
    die_units: int
    vgprs: int
    vgpr_granule: int
    lds_bytes: int
    lds_granule: int
    model: Model
    without: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def features(self) -> tuple[str, ...]:
        """The features of its ISA available to kernels."""
        return tuple(feature for feature in self.isa.features if feature not in self.without)


# The fields of C++'s ArchTraits, in its order, and how an enumerator is written there.
TRAITS = (
    *("isa", "die_units", "family", "unit"),
    *("step_columns", "step_clocks", "fp16_k", "bf16_k", "fp8_k"),
    *("matrix_coexecution", "separate_acc_vgprs", "back_off_barrier", "packed_fp32"),
    *("transposed_reads", "direct_loads", "bf16_pairs", "bf16_products"),
    *("packed_dots", "matrix_interlock", "lds_counter", "late_operands", "short_code"),
    *("flushes_denormals", "flushes_sums", "fp8", "int8_d64", "buffer_word3"),
    *("wave", "simds", "cus_of_workgroup", "waves_per_simd", "vgprs", "vgpr_granule"),
    *("vgpr_encoding_granule", "sgprs", "sgpr_granule", "lds_bytes", "lds_granule"),
    *("architected_flat_scratch", "packed_work_item_ids", "workgroup_ids_in_ttmps", "nan_modes"),
)
ENUMERATORS = {"isa": "Isa", "family": "Family", "unit": "MatrixUnit", "fp8": "Fp8"}
FEATURES = (
    "trains",
    "large_head_dims",
    "large_bwd",
    "atomic_fadd_f32",
    "steps_of_16",
    "tall_d64",
    "tall_d128",
    "uneven_d192",
    "uneven_bwd_d192",
    "latent_d576",
    "latent_codes",
    "latent_rows",
    "coded_bf16",
    "fp8_d64",
    "fp8_d128",
    "int8_d64",
    "int8_fp16",
    "int8_bf16",
)
# Field -> its allowed words or numbers.
CHOICES: Choices = {
    "features": FEATURES,
    "without": FEATURES,
    "family": ("cdna", "rdna"),
    "unit": ("mfma", "wmma", "wmma_split", "dot2", "dot2_64"),
    "fp8": ("none", "fnuz", "ocp"),
    "never_coissued": ("transcendental", "packed", "dot", "cvt_pk"),
    "banks": (32, 64),
    "narrow_banks": (32,),
    "phases": ("measured", "contiguous"),
}
HEAD = """\
// Generated from kernels/tables/*.toml by `python3 -m wheel_builder.tables.generated`; do not edit.
// FA_ISA(isa).  FA_ARCH(arch, fields of ArchTraits), FA_NAME(arch, name): a code object.  FA_GPU(name, arch,
// elf_machine, compute_units): a GPU that runs it.
// FA_SEES_<isa>: defined on the host, and in device passes for GPUs of the ISA
"""
RATES_HEAD = '''\
"""What compute units do, and how many GPUs have."""

# Generated from kernels/tables/*.toml by wheel_builder/tables/generated.py: change it there.
# By arch with machine code of its own, the fields of ``Rate``.
RATES = {
'''
LARGEST_HEAD = """\
# Compute units of the largest GPU of each gfx name.
LARGEST = {
"""

FLUSHING_HEAD = """\
# The archs whose matrix unit takes denormals of fp16 and bf16 as zero.
FLUSHING = """

OCP_HEAD = """\
# The archs whose instructions read 8-bit floats in OCP's formats only: e4m3fn and e5m2.
OCP = """

TOPS_HEAD = """\
# The least that kernels with products of fp8 make a row's largest probability.
FP8_TOPS = """

PAIRS_HEAD = """\
# Visible pairs of a query and a key, for each row of q and k, from which on products of int8 pay.
INT8_PAIRS = """

TORCH_HEAD = """\
# The GPUs that AMD's builds of PyTorch have a package for.
AMD_TORCH = (
"""


@cache
def known_gpus() -> Mapping[str, Gpu]:
    """The checkout's GPUs, in the table's order. Raises ``ArchError`` for unreadable tables."""
    isas, gpus = ((CHECKOUT / table).read_text(encoding="utf-8") for table in TABLES)
    return parse_gpus(isas, gpus)


@cache
def known_archs() -> Mapping[str, Arch]:
    """The GPUs with machine code of their own. Raises like ``known_gpus``."""
    return archs_of(known_gpus())


def archs_of(gpus: Mapping[str, Gpu]) -> Mapping[str, Arch]:
    """The GPUs with machine code of their own."""
    return {name: gpu for name, gpu in gpus.items() if isinstance(gpu, Arch)}


@cache
def known_products() -> Mapping[str, Product]:
    """The products of all GPUs, in the table's order. Raises ``ArchError`` for unreadable tables."""
    return parse_products((CHECKOUT / GPUS).read_text(encoding="utf-8"), GPUS.name)


def arch_named(name: str) -> Arch:
    """Raises ``ArchError`` for an arch missing from the table."""
    if name not in known_archs():
        title = f"nothing is known of {name}"
        raise ArchError(title, [f"known: {', '.join(known_archs())}"], advice=f"add it to {GPUS}")
    return known_archs()[name]


def code_of(gpu: str) -> str:
    """The gfx name of the machine code run by a GPU. A name missing from the table is returned unchanged."""
    known = known_gpus().get(gpu)
    return known.code_object if known else gpu


def served_by(arch: str) -> tuple[str, ...]:
    """The GPUs running the machine code of ``arch``, in the table's order."""
    return tuple(name for name, gpu in known_gpus().items() if gpu.code_object == arch)


def parse_gpus(isas: str, gpus: str) -> Mapping[str, Gpu]:
    """The GPUs of two tables' texts, an ``Arch`` for each one with machine code of its own.

    Raises ``ArchError`` with all problems: a missing or unknown field, one of another type, an unknown ISA or
    code object, a repeated ELF number, an empty table.
    """
    problems: list[str] = []
    known = {
        name: read_row(Isa, {"name": name, **row}, f"{ISAS.name}: {name}", problems, CHOICES)
        for name, row in inherited(read_tables(isas, ISAS.name, problems), ISAS.name, problems).items()
    }
    rows = without_names(read_tables(gpus, GPUS.name, problems))
    found = {name: _gpu(name, row, known, problems) for name, row in rows.items()}
    if not problems:
        problems += _contradictions(found)
    if problems or not found:
        title, advice = "the tables of archs cannot be read", "the head of each file says what its fields are"
        raise ArchError(title, problems or ["there is no arch"], advice=advice)
    return found


def _gpu(name: str, row: Mapping[str, Any], isas: Mapping[str, Isa], problems: list[str]) -> Any:  # noqa: ANN401
    """A row as ``Gpu`` or ``Arch``, or None after noting a problem."""
    where = f"{GPUS.name}: {name}"
    if row.get("code_object", name) != name:
        return read_row(Gpu, {"device_name": name, **row, "name": name}, where, problems, CHOICES)
    isa = row.get("isa")
    if not isinstance(isa, str) or isa not in isas:
        problems.append(f"{where}: isa is {isa!r}, expected one of {', '.join(isas)}")
        return None
    return read_row(Arch, {**row, "name": name, "isa": isas[isa]}, where, problems, CHOICES)


def _contradictions(gpus: Mapping[str, Gpu]) -> Iterator[str]:
    numbers: dict[int, str] = {}
    for name, gpu in gpus.items():
        if (other := numbers.setdefault(gpu.elf_machine, name)) != name:
            yield f"{GPUS.name}: {name} and {other} have one elf_machine"
        if gpu.code_object not in archs_of(gpus):
            found = f"{name}: code_object is {gpu.code_object!r}"
            yield f"{GPUS.name}: {found}, expected an arch with code of its own"
        elif len(gpu.code_object) != len(name):
            # kernels/host/registry/relabel.cpp writes one name over the other.
            yield f"{GPUS.name}: {name} runs the code of {gpu.code_object}, a name of another length"
        if isinstance(gpu, Arch):
            unknown = [feature for feature in gpu.without if feature not in gpu.isa.features]
            yield from (
                f"{GPUS.name}: {name} is without {each}, which {gpu.isa.name} has not" for each in unknown
            )


def cpp_table(gpus: Mapping[str, Gpu]) -> str:
    """The text of ``archs.inc``."""
    archs = archs_of(gpus).values()
    parts = {
        "FA_ISA": [f"FA_ISA({isa})\n" for isa in dict.fromkeys(arch.isa.name for arch in archs)],
        "FA_ARCH": [_block(arch) for arch in archs],
        "FA_NAME": [f'FA_NAME({_word(arch.name)}, "{arch.name}")\n' for arch in archs],
        "FA_GPU": [
            f'FA_GPU("{name}", {_word(gpu.code_object)}, {gpu.elf_machine:#x}, {gpu.compute_units})\n'
            for name, gpu in _spelled(gpus)
        ],
    }
    rows = "".join(f"\n#ifdef {name}\n{''.join(rows)}#endif\n" for name, rows in parts.items())
    return HEAD + "\n" + _seen(gpus) + rows


def _seen(gpus: Mapping[str, Gpu]) -> str:
    archs, macros = archs_of(gpus), dict[str, list[str]]()
    for gpu in gpus.values():
        macros.setdefault(archs[gpu.code_object].isa.name, []).append(f"defined(__{_word(gpu.name)}__)")
    return "".join(
        f"#if !defined(__AMDGCN__) || {' || '.join(found)}\n#define FA_SEES_{isa}\n#endif\n"
        for isa, found in macros.items()
    )


def kernels_archs(archs: Mapping[str, Arch]) -> str:
    """The text of ``archs.json``: the archs and their features."""
    rows = (f'  "{arch.name}": {json.dumps(arch.features)}' for arch in archs.values())
    return "{\n" + ",\n".join(rows) + "\n}\n"


def python_rates(gpus: Mapping[str, Gpu], packaged: Iterable[str]) -> str:
    """The text of the package's ``values/rates.py``: the rate of a compute unit, and the number of units.

    And archs that flush denormals or have OCP's floats, their probabilities in fp8, the lengths from which
    int8 pays, and ``packaged``: GPUs with a package of AMD's builds of PyTorch.
    """
    rows = (
        f'    "{arch.name}": ({arch.isa.peak_flop}, {round(arch.model.clock)}, '
        f"{round(arch.model.memory / arch.compute_units)}),\n"
        for arch in archs_of(gpus).values()
    )
    largest = (f'    "{gpu.name}": {gpu.compute_units},\n' for gpu in gpus.values())
    flushing = json.dumps([arch.name for arch in archs_of(gpus).values() if arch.isa.flushes_denormals])
    ocp = json.dumps([arch.name for arch in archs_of(gpus).values() if arch.isa.fp8 == "ocp"])
    tops = json.dumps({arch.name: arch.isa.fp8_top for arch in archs_of(gpus).values() if arch.isa.fp8_top})
    pairs = json.dumps(
        {arch.name: arch.isa.int8_pairs for arch in archs_of(gpus).values() if arch.isa.int8_pairs}
    )
    names = (f'    "{name}",\n' for name in packaged)
    return (
        f"{RATES_HEAD}{''.join(rows)}}}\n{LARGEST_HEAD}{''.join(largest)}}}\n"
        f"{FLUSHING_HEAD}{flushing}\n{OCP_HEAD}{ocp}\n{TOPS_HEAD}{tops}\n{PAIRS_HEAD}{pairs}\n"
        f"{TORCH_HEAD}{''.join(names)})\n"
    )


def _block(arch: Arch) -> str:
    lines = [f".{name} = {_cpp(name, _of(arch, name))}" for name in TRAITS]
    return f"FA_ARCH({_word(arch.name)},\n        " + ",\n        ".join(lines) + ")\n"


def _spelled(gpus: Mapping[str, Gpu]) -> Iterator[tuple[str, Gpu]]:
    """Every GPU under its name, and under the name in clang's macros if different."""
    return ((name, gpu) for gpu in gpus.values() for name in dict.fromkeys((gpu.name, _word(gpu.name))))


def _word(name: str) -> str:
    """A gfx name as C++ and clang's macros write it: "gfx11_generic"."""
    return name.replace("-", "_")


def _of(arch: Arch, name: str) -> int | bool | str:
    if name == "isa":
        return arch.isa.name
    if name in FEATURES:
        return name in arch.isa.features
    found: int | bool | str = getattr(arch if hasattr(arch, name) else arch.isa, name)
    return found


def _cpp(name: str, value: int | bool | str) -> str:  # noqa: FBT001
    if isinstance(value, str):
        return f"{ENUMERATORS[name]}::{value}" if name in ENUMERATORS else f'"{value}"'
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:#x}" if name == "buffer_word3" else str(value)
