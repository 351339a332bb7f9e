"""Mnemonics used by kernels, implemented by the emulator, and covered by a vector here."""

import re
from dataclasses import dataclass

from tests.engine.emulator.semantics import cases


@dataclass(frozen=True)
class Coverage:
    """One arch: ``used`` maps each mnemonic to its first kernel. ``missing`` have no semantics."""

    arch: str
    used: dict[str, str]
    missing: tuple[str, ...]

    @property
    def untested(self):
        return sorted(set(self.used) - cases.tested(self.arch))

    def __str__(self):
        implemented = len(self.used) - len({line.partition(":")[0] for line in self.missing})
        tested = len(self.used) - len(self.untested)
        return (
            f"{self.arch}: {len(self.used)} mnemonics in use, {implemented} implemented, "
            f"{tested} with a vector (and {len(cases.tested(self.arch) - set(self.used))} more have one)"
        )


def coverage(arch, machines):
    """``machines``: loaded code objects of the arch by name."""
    used = {}
    for name, machine in machines.items():
        halves = (half for _, text in machine.program for half in re.findall(r"v_dual_\w+", text))
        for mnemonic in (*machine.mnemonics, *halves):
            used.setdefault(mnemonic, name)
    missing = tuple(line for machine in machines.values() for line in machine.missing)
    return Coverage(arch, used, missing)
