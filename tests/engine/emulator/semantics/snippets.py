"""A test as lines of assembly: text, inputs, and the expected outputs, for a whole wave."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.engine.emulator.semantics.machine import LANES, Data, Snippet, expand
from tests.engine.emulator.semantics.table import Case, spread

FULL = {64: (1 << 64) - 1, 32: (1 << 32) - 1}
M32 = 0xFFFFFFFF


@dataclass(frozen=True)
class Wave:
    """A wave as references see it: its input registers by name, and EXEC."""

    arch: str
    lanes: int
    vectors: dict[str, list[int]]
    scalars: dict[str, int]
    exec: int

    def __getitem__(self, register):
        return self.vectors[register] if register in self.vectors else self.scalars[register]

    def active(self, lane):
        return bool(self.exec >> lane & 1)


def anything(rng, register):
    return rng.getrandbits(32)


@dataclass(frozen=True, eq=False)
class Code:
    """``reference(wave)`` gives outputs by register: a list over the lanes, or one number for a scalar.

    ``{x}`` in the text stands for the arch's mnemonic. EXEC is set from s[30:31] before it.  A lane of None
    in a list is skipped by the comparison.  Each of the ``groups`` is one wave with inputs ``values(rng,
    register)``. Some have all lanes active, one has none.
    """

    names: str
    text: str
    reference: Callable[[Wave], dict[str, list[int | None] | int]]
    vectors: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    values: Callable[[random.Random, str], int] = anything
    lds: int = 0
    groups: int = 24
    full_exec: bool = False
    memory: bytes = b""

    def case(self, arch):
        seed = self.names + self.text + arch
        outputs = self.reference(self.wave(arch, random.Random(seed), 0))

        def make():
            rng = random.Random(seed)
            waves = [self.wave(arch, rng, group) for group in range(self.groups)]

            def check(results):
                both = zip(waves, results, strict=True)
                return [wrong for wave, out in both for wrong in differences(wave, self.reference(wave), out)]

            return [Data(wave.vectors, wave.scalars) for wave in waves], check

        return Case(self.snippet(arch, outputs), make, self.memory)

    def wave(self, arch, rng, group):
        lanes = LANES[arch]
        mask = FULL[lanes] if self.full_exec or group % 4 == 0 else rng.getrandbits(lanes) * (group != 1)
        vectors = {name: [self.values(rng, name) for _ in range(lanes)] for name in self.vectors}
        scalars = {name: self.values(rng, name) for name in self.scalars}
        return Wave(arch, lanes, vectors, scalars | {"s30": mask & M32, "s31": mask >> 32}, mask)

    def snippet(self, arch, outputs):
        mnemonic = spread(self.names)[arch]
        shown = next(line for line in self.text.splitlines() if "{x}" in line or "v_dual" in line)
        text = f"s_mov_b{LANES[arch]} <exec>, <30>\n" + self.text.replace("{x}", mnemonic)
        name = expand(shown.replace("{x}", mnemonic), arch)
        return Snippet(name, text, self.vectors, (*self.scalars, "s30", "s31"), tuple(outputs), self.lds)


def differences(wave, wanted, out):
    for register, want in wanted.items():
        lanes = want if isinstance(want, list) else [want] * wave.lanes
        for lane, (got, right) in enumerate(zip(out[register], lanes, strict=True)):
            if right is not None and got != right & M32:
                yield f"EXEC {wave.exec:#x}, {register}[{lane}]: {got:#x}, expected {right & M32:#x}"


def merged(wave, old, new):
    """``new`` in active lanes, ``old`` in the others."""
    return [n if wave.active(i) else o for i, (o, n) in enumerate(zip(old, new, strict=True))]
