"""The archs that there are kernels for, and what is known of each: the kernels' own table, read once.

The table is ``kernels/include/fa/arch/archs.inc``; ``ArchTraits`` beside it says what the fields mean.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import ArchError

CHECKOUT = Path(__file__).parents[2]
TABLE = Path("kernels/include/fa/arch/archs.inc")
COMMENT = re.compile(r"//.*")
BLOCK = re.compile(r"FA_ARCH\((?P<name>\w+),(?P<fields>[^()]*)\)")
FIELD = re.compile(r"\.(?P<name>\w+) = (?P<value>\S+)")
# How a value of each type is written.
VALUES = {
    int: re.compile(r"(0x[0-9a-f]+|[0-9]+)"),
    bool: re.compile(r"(true|false)"),
    str: re.compile(r'(?:"|Family::|MatrixUnit::)([\w:+-]+)"?'),
}


@dataclass(frozen=True)
class Arch:
    """One block of the table: ``ArchTraits`` under its C++ names, enumerators as text ("cdna", "mfma")."""

    name: str
    elf_machine: int
    device_name: str
    compute_units: int
    die_units: int
    family: str
    unit: str
    bf16_k: int
    separate_accumulators: bool
    packed_fp32: bool
    buffer_word3: int
    fused_backward: bool
    wave: int
    simds: int
    cus_of_workgroup: int
    waves_per_simd: int
    vgprs: int
    vgpr_granule: int
    vgpr_encoding_granule: int
    sgprs: int
    sgpr_granule: int
    lds_bytes: int
    lds_granule: int
    architected_flat_scratch: bool
    packed_work_item_ids: bool


TYPES: Mapping[str, type] = {
    field.name: field.type for field in fields(Arch)[1:] if isinstance(field.type, type)
}


@cache
def known_archs() -> Mapping[str, Arch]:
    """The checkout's table, in its order; raises ``ArchError`` when it cannot be read."""
    return parse_archs((CHECKOUT / TABLE).read_text(encoding="utf-8"))


def arch_named(name: str) -> Arch:
    """Raises ``ArchError`` for an arch that the table does not have."""
    if name not in known_archs():
        title = f"nothing is known of {name}"
        raise ArchError(title, [f"known: {', '.join(known_archs())}"], advice=f"add it to {TABLE}")
    return known_archs()[name]


def parse_archs(text: str) -> Mapping[str, Arch]:
    """The archs of a table's text.

    Raises ``ArchError`` with all that is wrong: a field that is missing, unknown, twice or of another type,
    an arch that is there twice, anything between the blocks, no arch at all.
    """
    text = COMMENT.sub("", text)
    blocks = [(match["name"], match["fields"]) for match in BLOCK.finditer(text)]
    problems = [f"not understood: {line}" for line in BLOCK.sub("", text).split("\n") if line.strip()]
    problems += [
        f"{name} is there twice" for name, count in Counter(n for n, _ in blocks).items() if count > 1
    ]
    problems += [f"{name}: {problem}" for name, lines in blocks for problem in _problems(lines)]
    if problems or not blocks:
        title = f"{TABLE.name} cannot be read"
        advice = "write it as its other blocks are; wheel_builder/base/archs.py lists the fields"
        raise ArchError(title, problems or ["it has no FA_ARCH"], advice=advice)
    return {name: Arch(name, **{f: _value(f, v) for f, v in _pairs(lines)}) for name, lines in blocks}


def _pairs(block: str) -> list[tuple[str, str]]:
    """The fields of a block and their values as text; what is no field comes under an empty name."""
    parts = [part.strip() for part in block.split(",")]
    matches = [(part, FIELD.fullmatch(part)) for part in parts]
    return [(match["name"], match["value"]) if match else ("", part) for part, match in matches]


def _problems(block: str) -> Iterator[str]:
    pairs = _pairs(block)
    names = Counter(name for name, _ in pairs)
    yield from (f"no .{name}" for name in TYPES if name not in names)
    yield from (f".{name} is there twice" for name, count in names.items() if name and count > 1)
    for name, value in pairs:
        if name not in TYPES:
            yield f"not a field: {name or value}"
        elif not VALUES[TYPES[name]].fullmatch(value):
            yield f".{name} is {value}, expected {TYPES[name].__name__}"


def _value(name: str, text: str) -> Any:  # noqa: ANN401  (whichever type the field has)
    match = VALUES[TYPES[name]].fullmatch(text)
    assert match is not None
    if TYPES[name] is int:
        return int(match[1], 0)
    return match[1] == "true" if TYPES[name] is bool else match[1]
