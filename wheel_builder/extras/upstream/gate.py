"""Refuses CK kernels with incomplete machine code for attention.

For archs without CK matrix instructions, CK compiles kernels lacking the matrix products. They link, load and
run, with wrong results. In: a listing. Out: problems in words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wheel_builder.machine_code.disassembly.listing import Listing
from wheel_builder.tables.archs import known_archs

# The matrix products of each kind of kernel: Q x K and P x V for forwards, five for backwards. Other kinds
# (appending, joining parts, sums, roundings) have none.
PRODUCTS: Mapping[str, int] = {
    "FmhaFwdKernel": 2,
    "FmhaFwdSplitKVKernel": 2,
    "FmhaFwdPagedKVKernel": 2,
    "FmhaBatchPrefillWithPagedKVCacheKernel": 2,
    "FmhaBwdDQDKDVKernel": 5,
}
# The name of each matrix unit (``unit`` of an ISA), and its instructions.
UNITS: Mapping[str, tuple[str, str]] = {
    "mfma": ("MFMA", r"v_s?mfma\w+|v_smfmac\w+"),
    "wmma": ("WMMA", r"v_s?wmma\w+"),
    "wmma_split": ("WMMA", r"v_s?wmma\w+"),
    **dict.fromkeys(("dot2", "dot2_64"), ("dot product", r"v_dot2c?_f32_\w+")),
}
KIND = re.compile(r"\d(Fmha[A-Za-z]+Kernel)I")
FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")


@dataclass(frozen=True)
class Checked:
    """One kernel: its kind, its number of matrix instructions, and its problem, empty if fine."""

    symbol: str
    kind: str
    arch: str
    found: int
    problem: str


def check_listing(listing: Listing) -> tuple[Checked, ...]:
    """Every CK kernel of one code object. Functions of other kinds are left out."""
    arch = known_archs().get(listing.arch)
    unit, pattern = UNITS[arch.isa.unit] if arch else ("", "")
    counts = _counts(listing.disassembly, re.compile(rf"\s*({pattern})\b") if pattern else None)
    return tuple(
        Checked(symbol, kind, listing.arch, found, _problem(kind, listing.arch, unit, found))
        for symbol, kind, found in counts
    )


def _counts(disassembly: str, pattern: re.Pattern[str] | None) -> Iterator[tuple[str, str, int]]:
    """Symbol, kind and number of matrix instructions of every kernel."""
    counts: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    symbol = ""
    for line in disassembly.splitlines():
        if found := FUNCTION.match(line):
            symbol = found[1]
            if kind := KIND.search(symbol):
                kinds[symbol] = kind[1]
        elif pattern and symbol in kinds and pattern.match(line):
            counts[symbol] += 1
    return ((symbol, kind, counts[symbol]) for symbol, kind in kinds.items())


def _problem(kind: str, arch: str, unit: str, found: int) -> str:
    products = PRODUCTS.get(kind, 0)
    if found >= products:
        return ""
    had = (
        f"{found} of at least {products} {unit} instructions"
        if unit
        else f"{arch} has no matrix unit that we know"
    )
    return (
        f"{kind} for {arch}: {had}: its {products} matrix products were left out when it was compiled, so it "
        "would run and give wrong numbers"
    )
