"""The compile cost of upstream's kernels: a measured sample, extrapolated to the whole.

``costs.json`` is written by ``scripts/wheel-builder upstream --measure``.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wheel_builder.base.words import aligned
from wheel_builder.matrix.model import Upstream

COSTS = Path("wheel_builder/extras/upstream/costs.json")
KIND = re.compile(r"fmha_(?P<kind>\w+?)_d\d+_")


@dataclass(frozen=True)
class Sample:
    """One measured object: time and memory of its compiler, and bytes of its code object."""

    name: str
    arch: str
    cpu_seconds: float
    peak_mib: int
    code_bytes: int


@dataclass(frozen=True)
class Flags:
    """The smallest forward kernel, with one of upstream's flags added.

    Without ``code_bytes`` the compiler was stopped at ``cpu_seconds``.
    """

    added: str
    cpu_seconds: float
    code_bytes: int = 0


@dataclass(frozen=True)
class Costs:
    """The number of upstream's objects for an arch by kind, and the measured ones."""

    version: str
    objects: Mapping[str, int]
    measured: tuple[Sample, ...]
    flags: tuple[Flags, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.objects.values())

    @property
    def most_mib(self) -> int:
        """Peak memory of one compiler."""
        return max(one.peak_mib for one in self.measured)

    @property
    def hours(self) -> float:
        """CPU-hours of all objects of one arch."""
        return sum(count * self.seconds(kind) for kind, count in self.objects.items()) / 3600

    def only(self, kinds: Sequence[str]) -> "Costs":
        """The costs of some kinds."""
        return replace(self, objects={kind: count for kind, count in self.objects.items() if kind in kinds})

    def samples(self, kind: str) -> list[Sample]:
        return [one for one in self.measured if kind_of(one.name) == kind]

    def peak_mib(self, name: str) -> int:
        """Expected peak memory for an object: the most of its kind, or of all."""
        return max(one.peak_mib for one in self.samples(kind_of(name)) or self.measured)

    def seconds(self, kind: str) -> float:
        """CPU-seconds of an object of a kind: the mean of the measured ones."""
        found = [one.cpu_seconds for one in self.samples(kind)]
        return sum(found) / len(found)


def kind_of(name: str) -> str:
    """``bwd_dot_do_o`` of ``fmha_bwd_dot_do_o_d128_fp16_…``, ``api`` for the choice among kernels."""
    found = KIND.match(name)
    return found["kind"] if found else "api"


def kinds(names: Sequence[str]) -> Mapping[str, int]:
    """How many objects of each kind."""
    return dict(sorted(Counter(map(kind_of, names)).items()))


def chosen(names: Sequence[str]) -> list[str]:
    """The sample: of each kind the first and the last by name.

    Names spell out features, with an n before missing ones, and head dim 128 sorts before 64. So these are a
    kernel of head dim 128 with most features and one of 64 with fewest.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        groups[kind_of(name)].append(name)
    return [name for group in groups.values() for name in dict.fromkeys((group[0], group[-1]))]


def load_costs(checkout: Path) -> Costs:
    """The checkout's measured costs."""
    return parse_costs((checkout / COSTS).read_text(encoding="utf-8"))


def parse_costs(text: str) -> Costs:
    found = json.loads(text)
    measured = tuple(Sample(**one) for one in found["measured"])
    return Costs(found["version"], found["objects"], measured, tuple(Flags(**one) for one in found["flags"]))


def to_text(costs: Costs) -> str:
    """The file's text, a measurement a line."""
    parts = [f'"version": {json.dumps(costs.version)}', f'"objects": {json.dumps(costs.objects, indent=1)}']
    for name, rows in (("measured", costs.measured), ("flags", costs.flags)):
        lines = ",\n".join(f"  {json.dumps(asdict(one))}" for one in rows)
        parts.append(f'"{name}": [\n{lines}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def plan_lines(upstream: Upstream, costs: Costs) -> list[str]:
    """The lines of ``plan`` about the recipe: its archs and cost."""
    rows = [("upstream", "archs", "objects each", "CPU-hours each", "CPU-hours")]
    every = costs.hours * len(upstream.archs)
    cells = (f"{costs.count}", f"{costs.hours:.0f}", f"{every:.0f}")
    rows.append((f"flash-attn {upstream.version} (CK)", " ".join(upstream.archs), *cells))
    named = (
        f"from {len(costs.measured)} measured objects; `upstream` builds it, and `why` compares it with ours"
    )
    return [*aligned(rows, left=2), named]
