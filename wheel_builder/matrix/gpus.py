"""Which arch the name of a GPU stands for, by the products of kernels/archs/gpus.toml; pure."""

import re
from collections.abc import Iterable, Sequence

from wheel_builder.base.archs import GPUS
from wheel_builder.base.words import unknown
from wheel_builder.matrix.catalogue import Gpu

# What a driver calls a GPU whose product it does not know.
GENERIC = frozenset({"amd", "radeon", "instinct", "graphics", "pro", "tm", "r"})


def device_problem(device: str, arch: str, gpus: Sequence[Gpu]) -> str:
    """Why a GPU called ``device`` is not known to have ``arch``; empty when it may have it.

    With HSA_OVERRIDE_GFX_VERSION a GPU says that it is the one whose code it runs.
    """
    words = _words(device)
    products = [(_product(name), gpu.arch) for gpu in gpus for name in gpu.devices]
    found = [(len(product), of) for product, of in products if _has(words, product)]
    if not found:
        names = [name for gpu in gpus if gpu.arch == arch for name in gpu.devices]
        return "" if GENERIC.issuperset(words) else f"{unknown('GPU', device, names)}; add it to {GPUS}"
    longest = max(length for length, _ in found)
    archs = sorted({each for length, each in found if length == longest})
    codes = {gpu.code for gpu in gpus if gpu.arch in archs}
    return "" if arch in {*archs, *codes} else f"{device} is {', '.join(archs)} by {GPUS}, not {arch}"


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.casefold())


def _product(name: str) -> list[str]:
    """Without the family, which not every driver writes."""
    words = _words(name)
    return words[1:] if len(words) > 1 and words[0] in GENERIC else words


def _has(words: Sequence[str], product: Iterable[str]) -> bool:
    """Whether the words of a product stand there in a row."""
    wanted = list(product)
    return any(list(words[at : at + len(wanted)]) == wanted for at in range(len(words) - len(wanted) + 1))
