"""What kernels with the same rows share: candidates that were found for one of them.

With the same models they also share the order, and the figures of the first one: the other dtype, and archs
whose models have equal numbers. Other models rank them again, and try nothing else. Each kernel compiles and
executes its own code.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from wheel_builder.extras.timings.wanted import FOLDER, MODELLED, Listed, changes_of, is_current, read_wanted
from wheel_builder.extras.tune.rows import Changes, Kernel, Rows, rows_of
from wheel_builder.extras.tune.run import kernel_named
from wheel_builder.extras.tune.works import works
from wheel_builder.tables.archs import Arch, arch_named
from wheel_builder.tables.tiles import known_tiles

Why = Mapping[Changes, str]  # the best first, each with its reason
TAKEN = re.compile(f"^{MODELLED} .* for gfx")  # a reason with another arch's figure
SEEDS = 4  # fewer candidates of another arch are no neighbourhood
# Of an arch and its ISA: in no model of a compute unit.
NO_MODEL = ("name", "code_object", "elf_machine", "compute_units", "device_name", "model", "without", "isa")
NO_MODEL_OF_ISA = ("name", "features", "hazards")


@dataclass
class Sharing:
    """``others``: candidates of other archs, by arch. ``found``: those of this run, by kind and rows."""

    others: Mapping[str, Listed] = field(default_factory=dict)
    found: dict[object, tuple[str, Why]] = field(default_factory=dict)

    def keep(self, kernel: Kernel, rows: Rows, right: Why) -> None:
        self.found.setdefault(_key(kernel, rows), (kernel.dtype, right))

    def judged(self, kernel: Kernel, rows: Rows) -> Why | None:
        """The candidates of a kernel with the same rows and models, and for whom they were modelled."""
        for arch in self._alike(kernel, rows):
            if _same_models(kernel, arch):
                return {each: f"{why} for {arch}" for each, why in self._of(arch, kernel).items()}
        if (key := _key(kernel, rows)) in self.found:
            dtype, right = self.found[key]
            return {each: f"{why} with {dtype}" for each, why in right.items()}
        return None

    def seeds(self, kernel: Kernel, rows: Rows) -> Sequence[Changes]:
        """The candidates of another arch with the same rows, if they are enough."""
        every = (list(self._of(arch, kernel)) for arch in self._alike(kernel, rows))
        return next((seeds for seeds in every if len(seeds) >= SEEDS), [])

    def _alike(self, kernel: Kernel, rows: Rows) -> Sequence[str]:
        """Other archs whose candidates of the kernel change the same rows, and have figures of their own."""
        return [
            arch
            for arch, listed in self.others.items()
            if kernel.name in listed
            and is_current(_on(arch, kernel), listed[kernel.name])
            and rows_of(known_tiles(), arch_named(arch), _on(arch, kernel)) == rows
            and not any(TAKEN.search(each.why) for each in listed[kernel.name].candidates)
        ]

    def _of(self, arch: str, kernel: Kernel) -> Why:
        """Without those of maintainers, who have their own reasons."""
        listed = self.others[arch][kernel.name]
        every = zip(changes_of(kernel, listed), listed.candidates, strict=True)
        return {changes: each.why for changes, each in every if each.why.startswith(MODELLED)}


def others_of(arch: str, checkout: Path) -> Mapping[str, Listed]:
    """The candidates of all other archs that have some."""
    archs = sorted(file.stem for file in (checkout / FOLDER).glob("*.toml"))
    return {each: read_wanted(checkout, each) for each in archs if each != arch}


def models_of(arch: Arch) -> Mapping[str, Any]:
    """The numbers that models of a compute unit read."""
    own, isa = asdict(arch), asdict(arch.isa)
    return {name: value for name, value in own.items() if name not in NO_MODEL} | {
        f"isa {name}": value for name, value in isa.items() if name not in NO_MODEL_OF_ISA
    }


def _same_models(kernel: Kernel, arch: str) -> bool:
    """Kernels bound by memory are ranked by that of the whole GPU, too."""
    own, other = (models_of(arch_named(each)) for each in (kernel.arch, arch))
    return own == other and not works()[kernel.op].bound_by_memory


def _key(kernel: Kernel, rows: Rows) -> object:
    return kernel.op, kernel.head_dim, rows


def _on(arch: str, kernel: Kernel) -> Kernel:
    return kernel_named(arch, kernel.name)
