"""The mutants judged by a run: of some kinds and kernels, by a seed."""

import random
from collections import Counter

from tests.tools.mutation.assembler import encodings
from tests.tools.mutation.mutants import KINDS, assembled, drawn, name_of, places_of

# Mutants of another length than the original are replaced: this many more are drawn.
SPARE = 3


def listings_of(bench, arch, wanted):
    """The listing of each kernel of the arch, by file. Their names contain ``wanted``."""
    listings = {
        file.stem: text
        for file in sorted(bench.disassembly.path.glob(f"{arch}-*.s"))
        if wanted in name_of(text := file.read_text())
    }
    if not listings:
        message = f"{bench.wheel.name} has no kernel {wanted!r} for {arch}"
        raise SystemExit(message)
    return listings


def draw(bench, arch, listings, options):
    """The requested number of mutants accepted by the assembler.

    Kinds take turns. The seed draws the kernels, and mutants of a kernel are neighbours.
    """
    rng, kinds = random.Random(f"{options.seed} {arch}"), options.kind or KINDS
    wanted = -(-options.count // len(kinds))
    files = {kind: Counter(rng.choices(sorted(listings), k=SPARE * wanted)) for kind in kinds}
    parsed = {file: places_of(listings[file]) for file in sorted(set().union(*files.values()))}
    found = [
        mutant
        for kind in kinds
        for file, count in sorted(files[kind].items())
        for mutant in drawn(arch, file, *parsed[file], kind, count, rng)
    ]
    dwords = {file: {place.line: place.dwords for place in places} for file, (_, places) in parsed.items()}
    words = encodings(bench.builder.facts["ref"], arch, [mutant.after for mutant in found])
    fitting = [assembled(m, dwords[m.file][m.line], each) for m, each in zip(found, words, strict=True)]
    of_kind = {kind: [m for m in fitting if m and m.kind == kind] for kind in kinds}
    kept = [mutant for each in of_kind.values() for mutant in rng.sample(each, min(wanted, len(each)))]
    return sorted(kept, key=lambda mutant: (mutant.kernel, mutant.line))
