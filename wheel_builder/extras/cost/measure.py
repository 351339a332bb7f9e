"""``scripts/wheel-builder cost``: the accepted cost of kernels, or a new measurement."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import CommandFailedError, DeviceCodeError
from wheel_builder.base.process import run
from wheel_builder.base.store import Artifact
from wheel_builder.build.budget import (
    COSTS,
    UPDATE,
    Costs,
    load_budgets,
    measured,
    over_budget,
    parse_budgets,
    to_text,
)
from wheel_builder.build.device_code import RESOURCES, measure_arch
from wheel_builder.matrix.model import Plan
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image
from wheel_builder.pipeline.progress import Step as Shown


@dataclass(frozen=True)
class Measured:
    """The costs of the measured archs, and the compiler's seconds by phase for each."""

    costs: Mapping[str, Costs]
    phases: Mapping[str, Mapping[str, float]]


def accepted(checkout: Path) -> Mapping[str, Costs]:
    """The checkout's budgets."""
    return load_budgets(checkout / COSTS)


def accepted_at(checkout: Path, commit: str) -> Mapping[str, Costs]:
    """The budgets of another commit, such as a release's tag. Raises ``DeviceCodeError``."""
    try:
        shown = run(["git", "-C", checkout, "show", f"{commit}:{COSTS}"]).stdout
    except CommandFailedError as error:
        title = f"the costs of {commit!r} cannot be read"
        advice = "name a commit or tag that has the file; releases up to 0.1.0 do not"
        raise DeviceCodeError(title, [error.message], advice=advice) from error
    return parse_budgets(shown)


def measure(plan: Plan, context: RunContext, *, plain: bool | None = None) -> Measured:
    """Compile every arch of the plan's first job with the cache off."""
    job = jobs_to_build(plan)[0]
    steps = begin(context, plan.package)
    image = builder_image(steps, job)

    def work(arch: str, shown: Shown) -> Artifact:
        return measure_arch(
            arch, image=image.result, checkout=context.checkout, store=context.store, jobs=context.jobs,
            log=shown.own_log,
        )  # fmt: skip

    made = {
        arch: steps.add(
            f"cost {arch}", partial(work, arch), job=job.id, weight=60, log=f"device-cost-{job.id}-{arch}"
        )
        for arch in job.archs
    }
    steps.run(plain=plain)
    reports = {
        arch: json.loads((step.result.path / RESOURCES).read_text(encoding="utf-8"))
        for arch, step in made.items()
    }
    costs = {arch: measured(report) for arch, report in reports.items()}
    return Measured(costs, {arch: _phases(report["costs"].values()) for arch, report in reports.items()})


def refuse_over_budget(found: Measured, checkout: Path) -> None:
    """Raises ``DeviceCodeError`` with every kernel far above its accepted cost."""
    budgets = accepted(checkout)
    problems = [
        problem
        for arch, costs in found.costs.items()
        for problem in over_budget(arch, costs, budgets.get(arch, {}), cached=False)
    ]
    if problems:
        title = f"kernels cost more than {COSTS} allows"
        raise DeviceCodeError(title, problems, advice=UPDATE)


def accept(found: Measured, checkout: Path) -> None:
    """Make the measurement the budget of its archs. The others keep theirs."""
    ensure(checkout / COSTS, to_text({**accepted(checkout), **found.costs}).encode())


def _phases(costs: Sequence[Mapping[str, Mapping[str, float]]]) -> Mapping[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for cost in costs:
        for name, seconds in cost["phases"].items():
            sums[name] += seconds
    return sums
