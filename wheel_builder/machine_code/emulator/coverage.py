"""Unimplemented instructions of device code, all reported before the first run."""

from collections.abc import Iterable, Iterator, Mapping

from wheel_builder.machine_code.emulator.binding import Core


def unimplemented(core: Core, disassemblies: Mapping[str, Iterable[str]]) -> list[str]:
    """A line for each missing mnemonic in the texts of ``llvm-objdump --disassemble``, by arch.

    Every kernel in the texts counts, executed or not. The list is empty if all are implemented. Raises
    ``EmulatorError`` for an unknown arch.
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
