"""From a GPU's name to its arch, by the products of kernels/tables/gpus.toml. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wheel_builder.base.words import unknown
from wheel_builder.matrix.catalogue import Gpu
from wheel_builder.tables.archs import GPUS
from wheel_builder.tables.products import Product, device_names

# A driver's name for an unknown product consists of these words.
GENERIC = frozenset({"amd", "radeon", "instinct", "graphics", "pro", "tm", "r"})
# Words added to product names by drivers: the board's form, or a GPU of a virtual machine.
ADDED = frozenset({"oam", "dual", "slot", "hf", "vf"})
MOST_PARTITIONS = 8  # of a GPU whose dies are separate devices


@dataclass(frozen=True)
class _Read:
    """A parsed name: its products, the longest first, and the remaining unusual words."""

    products: tuple[str, ...]
    rest: tuple[str, ...]


def device_problem(device: str, arch: str, gpus: Sequence[Gpu]) -> str:
    """Why a GPU called ``device`` may not have ``arch``, empty if it may.

    With HSA_OVERRIDE_GFX_VERSION a GPU reports the arch whose code it runs.
    """
    of = {name: gpu.arch for gpu in gpus for name in gpu.devices}
    found = _read(device, of)
    if not found.products:
        names = [name for gpu in gpus if gpu.arch == arch for name in gpu.devices]
        return "" if not found.rest else f"{unknown('GPU', device, names)}; add it to {GPUS}"
    longest = max(len(_product(name)) for name in found.products)
    archs = sorted({of[name] for name in found.products if len(_product(name)) == longest})
    codes = {gpu.code for gpu in gpus if gpu.arch in archs}
    if arch not in {*archs, *codes}:
        return f"{device} is {', '.join(archs)} by {GPUS}, not {arch}"
    return _more_than_a_name(device, found, len({of[name] for name in found.products}))


def _more_than_a_name(device: str, found: _Read, archs: int) -> str:
    if found.rest:
        return f"expected the name of a GPU, found {' '.join(found.rest)!r} in {device!r}, too"
    # For two products of the same chip, drivers write "MI250X / MI250".
    if archs > 1 or len(found.products) > 1 + device.count("/"):
        return f"expected the name of one GPU, found {', '.join(found.products)}"
    return ""


def units_problem(device: str, units: int, products: Mapping[str, Product], die_units: int) -> str:
    """Why this number of compute units contradicts the product in ``device``, "" for unknown products.

    With ``die_units`` a GPU may be partitioned, each part with some of its dies.
    """
    of = {
        name: most
        for product in products.values()
        for name, most in zip(device_names(product.devices), product.units, strict=False)
    }
    every = {name: 0 for product in products.values() for name in device_names(product.devices)}
    named = _read(device, every).products
    if not named or not all(of.get(name) for name in named):
        return ""
    parts = range(1, MOST_PARTITIONS + 1) if die_units else (1,)
    if any(units * part == of[name] for name in named for part in parts):
        return ""
    said = ", ".join(f"{name} has {of[name]}" for name in named)
    return f"compute_units: {said} by {GPUS}, found {units}"


def _read(device: str, names: Iterable[str]) -> _Read:
    """The products whose words follow each other in the name, the longest first, and the remaining words."""
    words = _words(device)
    by_length = sorted({name: _product(name) for name in names}.items(), key=lambda each: -len(each[1]))
    found = []
    for name, product in by_length:
        for at in list(_places(words, product)):
            if words[at : at + len(product)] == product:
                words[at : at + len(product)] = [""] * len(product)
                found.append(name)
    return _Read(tuple(found), tuple(word for word in words if word and word not in GENERIC | ADDED))


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", name.casefold())


def _product(name: str) -> list[str]:
    """A product's words except its family, which some drivers omit."""
    words = _words(name)
    return words[1:] if len(words) > 1 and words[0] in GENERIC else words


def _places(words: Sequence[str], product: Sequence[str]) -> Iterator[int]:
    """Where the words of a product stand in a row."""
    wanted = list(product)
    return (at for at in range(len(words)) if list(words[at : at + len(wanted)]) == wanted)
