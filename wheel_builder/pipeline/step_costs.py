"""The costs of a release's steps and of the folders of tests: one shared file, and its tables.

CPU-seconds of a step are the whole machine's, because the container engine's processes are no children of
this process. Other programs count too. Overlapping steps have the seconds of their own containers. Figures
differ between machines, so a comparison with accepted figures relates a step to the run's other steps.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from pydantic import TypeAdapter, ValidationError

from wheel_builder.base.durable import ensure
from wheel_builder.base.store import locked
from wheel_builder.base.words import aligned, duration

STEP_COSTS = "step_costs.json"  # in the build folder
ACCEPTED = Path("wheel_builder/pipeline/step_costs.json")
RELEASE, TESTS = "release", "tests"
# Limit of a step's cost, as a multiple of its accepted figure times this run's median speed. Within a run on
# two shared cores, a step varied by up to 1.4 times.
MOST = 1.6
# Steps below this are noise: a busy machine's own processes cost as much.
LEAST_CPU_SECONDS = 10.0
UPDATE = "make it cheaper, or review and accept it: scripts/wheel-builder step-costs --update"


@dataclass(frozen=True)
class StepCost:
    """The cost of one step: elapsed seconds and CPU-seconds."""

    seconds: float
    cpu_seconds: float


Section = Mapping[str, StepCost]
_SECTIONS = TypeAdapter(dict[str, dict[str, StepCost]])


def read_costs(path: Path) -> Mapping[str, Section]:
    """The sections of a file. A missing or invalid file counts as empty, so that no run fails."""
    try:
        return _SECTIONS.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}


def write_section(path: Path, name: str, section: Section) -> None:
    """Replace one section of the file. The others stay, even with concurrent writers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock")):
        write_costs(path, {**read_costs(path), name: section})


def write_costs(path: Path, sections: Mapping[str, Section]) -> None:
    """Write a file of these sections."""
    plain = {each: {step: asdict(cost) for step, cost in steps.items()} for each, steps in sections.items()}
    ensure(path, (json.dumps(plain, indent=1, ensure_ascii=False) + "\n").encode())


def to_table(section: Section) -> str:
    """A line for each step in order, and their sum."""
    total = StepCost(
        sum(each.seconds for each in section.values()), sum(each.cpu_seconds for each in section.values())
    )
    rows = [(name, duration(each.seconds), f"{each.cpu_seconds:.0f}") for name, each in section.items()]
    head = ("step", "time", "CPU-seconds")
    return "\n".join(
        aligned([head, *rows, ("all", duration(total.seconds), f"{total.cpu_seconds:.0f}")], left=1)
    )


def dearer(found: Section, accepted: Section) -> Iterator[str]:
    """Messages about steps above their accepted cost. The median over all steps is this run's speed."""
    known = {
        name: (cost.cpu_seconds, accepted[name].cpu_seconds)
        for name, cost in found.items()
        if name in accepted and accepted[name].cpu_seconds >= LEAST_CPU_SECONDS
    }
    speed = median([cost / allowed for cost, allowed in known.values()]) if known else 1.0
    for name, (cost, allowed) in known.items():
        expected = allowed * max(speed, 1e-9)
        if cost > MOST * expected:
            yield (
                f"{name}: {cost:.0f} CPU-seconds, expected {expected:.0f} at this run's median speed "
                f"({cost / expected:.1f} times)"
            )
    for name, new in found.items():
        if name not in accepted and new.cpu_seconds >= LEAST_CPU_SECONDS:
            yield f"{name}: {new.cpu_seconds:.0f} CPU-seconds, and nothing was accepted for it"
