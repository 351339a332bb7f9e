"""Product names of GPUs with and without kernels, from ``kernels/tables/gpus.toml``.

Standard library only.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from wheel_builder.base.errors import ArchError
from wheel_builder.base.words import line_problem
from wheel_builder.tables.rows import read_row, read_tables

FAMILIES = ("Radeon", "Instinct", "Ryzen")
ELSEWHERE = PACKAGED, ON_WSL, NOT_WINDOWS, NO_TORCH_6_4, NO_TORCH = (
    "torch package", "WSL2", "not Windows", "no torch for 6.4", "no torch",
)  # fmt: skip
# The gfx name of a GPU, or of several at once: "gfx90a", "gfx10-3-generic".
GFX = r"gfx[1-9][0-9a-f]{2,3}|gfx[1-9][0-9]?(-[0-9]+)*-generic"


@dataclass(frozen=True)
class Product:
    """The GPUs of one gfx name.

    Lists with commas: ``devices`` (product names), ``code_names`` (chip names in lspci and drivers),
    ``processors`` (CPUs containing the GPU), ``pci_ids``, and ``elsewhere`` (support by others, words of
    ``ELSEWHERE``). ``units`` are the compute units of each device, 0 for a name with several values.
    """

    name: str
    devices: str
    code_names: str = ""
    processors: str = ""
    pci_ids: str = ""
    elsewhere: str = ""
    units: tuple[int, ...] = ()


OWN = tuple(field.name for field in fields(Product) if field.name != "name")
NAMES = OWN[:5]  # in words


def parse_products(text: str, where: str) -> Mapping[str, Product]:
    """The products in a table's text. A target for several GPUs ("gfx11-generic") has none.

    Raises ``ArchError`` with all problems: a missing or malformed name, one name of two GPUs, a table without
    a gfx name.
    """
    problems: list[str] = []
    found = {}
    for name, row in read_tables(text, where, problems).items():
        if not re.fullmatch(GFX, name):
            problems.append(f"{where}: {name!r} is not a gfx name such as gfx1100 or gfx11-generic")
        elif not name.endswith("-generic"):
            own = {key: row[key] for key in OWN if key in row}
            found[name] = read_row(Product, {"name": name, **own}, f"{where}: {name}", problems, {})
    products = {name: product for name, product in found.items() if product}
    problems += [f"{where}: {problem}" for problem in _problems(products)]
    if problems:
        title, advice = "the table of GPUs cannot be read", "the head of the file says what its fields are"
        raise ArchError(title, problems, advice=advice)
    return products


def without_names(rows: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rows of GPUs with kernels, reduced to fields other than product names."""
    facts = {name: {key: value for key, value in row.items() if key not in OWN} for name, row in rows.items()}
    return {name: row for name, row in facts.items() if row}


def _problems(products: Mapping[str, Product]) -> Iterator[str]:
    """Problems: a GPU listed in two rows under any of its names, and names of several lines."""
    first: dict[str, str] = {}
    for product in products.values():
        if product.units and len(product.units) != (count := len(device_names(product.devices))):
            yield f"{product.name}: units has {len(product.units)} numbers for {count} devices"
        for key in NAMES:
            text, place = getattr(product, key), f"{product.name}: {key}"
            if (text or key == "devices") and (problem := line_problem(text)):
                yield f"{place}: {problem}"
                continue
            if key == "elsewhere":
                unknown = set(device_names(text)) - set(ELSEWHERE)
                yield from (
                    f"{place}: {word!r}, expected of {', '.join(ELSEWHERE)}" for word in sorted(unknown)
                )
                continue
            for name in device_names(text):
                known = " ".join(name.casefold().split())
                if key == "pci_ids" and not re.fullmatch("[0-9a-f]{4}", name):
                    yield f"{place}: {name!r} is not four digits such as 744c"
                elif re.fullmatch(GFX, known):
                    yield f"{place}: {name!r} is a gfx name and no name of a GPU; give it a row of its own"
                elif known in first:
                    yield f"{place}: {name!r} stands twice; the first is in {first[known]}"
                first.setdefault(known, place)


def device_names(text: str) -> tuple[str, ...]:
    """``"Radeon RX 6800, RX 6900 XT"`` as full names: the family holds until another one is named."""
    names, family = [], ""
    for name in text.split(",") if text else ():
        words = name.split()
        if words and words[0] in FAMILIES:
            family = words.pop(0)
        names.append(" ".join([family, *words]).strip())
    return tuple(names)
