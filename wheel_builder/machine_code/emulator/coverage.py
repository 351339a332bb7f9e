"""Instructions of device code that the emulator lacks, all reported before anything runs."""

from collections.abc import Iterable, Iterator, Mapping

from wheel_builder.machine_code.emulator.binding import Core


def unimplemented(core: Core, disassemblies: Mapping[str, Iterable[str]]) -> list[str]:
    """A line for each mnemonic in the texts of ``llvm-objdump --disassemble``, by arch, that is missing.

    Every kernel in the texts counts, whether it will run or not; no lines mean that all are implemented.
    Raises ``EmulatorError`` for an arch that the emulator does not know.
    """
    return [
        f"{arch}: {line}"
        for arch, texts in disassemblies.items()
        for line in summary(missing for text in texts for missing in core.missing(arch, text))
    ]


def summary(missing: Iterable[str]) -> Iterator[str]:
    """A line for each mnemonic, with its first place, from the core's ``mnemonic: place: instruction``."""
    places: dict[str, list[str]] = {}
    for line in missing:
        mnemonic, _, place = line.partition(": ")
        places.setdefault(mnemonic, []).append(place)
    for mnemonic, found in sorted(places.items()):
        where, _, instruction = found[0].partition(": ")
        more = f", and {len(found) - 1} more" if found[1:] else ""
        yield f"{mnemonic} at {where}, '{instruction}'{more}"
