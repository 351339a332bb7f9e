"""``scripts/wheel-builder candidates``: candidates for all kernels of an arch, chosen with a small budget.

A kernel's single changes, the nearest of each field, and their best combinations are compiled, and ranked by
the schedule of one workload. The best ones that are right go to the arch's file. Kernels with the same rows
share them (sharing.py).
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import TuneError
from wheel_builder.extras.timings.distribution import MOST
from wheel_builder.extras.timings.sharing import Sharing, Why, others_of
from wheel_builder.extras.timings.wanted import (
    MODELLED,
    Listed,
    OfKernel,
    Wanted,
    changes_of,
    file_of,
    is_current,
    read_wanted,
    to_text,
)
from wheel_builder.extras.tune.measuring import Figures, quick_figures_of
from wheel_builder.extras.tune.ranking import gain_of
from wheel_builder.extras.tune.rows import NONE, Changes, Kernel, words_of
from wheel_builder.extras.tune.run import NAME, Tuning, Wishes, attempt, bar, begun, execute, kernel_named
from wheel_builder.extras.tune.space import HOPELESS, combined, spread
from wheel_builder.extras.tune.works import untuned, works
from wheel_builder.matrix.model import Plan
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.verification import build_emulator
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.kinds import known_kinds
from wheel_builder.tables.row_ids import todays_ids
from wheel_builder.tables.tiles import known_tiles

DROPPED = (
    "{kernel}: these candidates of maintainers were dropped, because they change older rows than today's. "
    "`git diff {file}` shows them: to keep one, write it into that file again"
)
SINGLE, COMBINED = 10, 2  # candidates compiled for a kernel


@dataclass(frozen=True)
class Budget:
    """``kernels``: names, all without any. ``again``: also kernels that have current candidates."""

    minutes: float = math.inf
    kernels: Sequence[str] = ()
    again: bool = False


def propose_all(arch: str, plan: Plan, context: RunContext, budget: Budget, *, plain: bool | None) -> Path:
    """Write the arch's file, after each kernel. Raises ``TuneError`` for kernels that cannot be tuned."""
    kernels = wanted_kernels(arch, budget, read_wanted(context.checkout, arch))
    job = jobs_to_build(plan)[0]
    steps = begin(context, plan.package)
    builder = builder_image(steps, job)
    emulator = build_emulator(steps, job, builder)

    def work(step: Shown) -> Path:
        def started(kernel: Kernel) -> Tuning:
            return begun(kernel, context, builder.result, emulator.result, Wishes(0), step.own_log)

        made = write_proposals(arch, kernels, started, context.checkout, budget, step.note)
        for line in without_candidates(arch):
            step.note(line)
        return made

    made = steps.add(f"candidates {arch}", work, weight=30 * len(kernels), log="candidates")
    steps.run(plain=plain)
    return made.result


def tunable(arch: str) -> list[Kernel]:
    """The arch's kernels with rows, models and cases: small head dims first, and dtypes beside each other."""
    names = [each[0] for each in with_rows(arch) if each["op"] in works()]
    return sorted(
        (kernel_named(arch, name) for name in names), key=lambda k: (k.head_dim, k.op, k.dtype != "fp16")
    )


def without_candidates(arch: str) -> list[str]:
    """The arch's kernels that have rows and no candidates, and why."""
    ops = dict.fromkeys(each["op"] for each in with_rows(arch) if each["op"] in untuned())
    return [f"no candidates of fa_{op}: {untuned()[op]}" for op in ops]


def with_rows(arch: str) -> list[re.Match[str]]:
    """The names of the arch's kernels with rows. It may share rows of kernels that it does not have."""
    features = arch_named(arch).features
    matches = (NAME.match(name) for name in todays_ids(known_tiles(), arch_named(arch)))
    return [
        each
        for each in matches
        if each and known_kinds()[each["op"]].built(each["dtype"], int(each["head_dim"]), features)
    ]


def wanted_kernels(arch: str, budget: Budget, listed: Listed) -> list[Kernel]:
    """Those without current candidates."""
    every = tunable(arch)
    if unknown := {*budget.kernels} - {each.name for each in every}:
        title = f"{', '.join(sorted(unknown))} of {arch} cannot be tuned"
        expected = f"expected some of {', '.join(each.name for each in every)}"
        raise TuneError(title, [expected, *without_candidates(arch)])
    return [
        each
        for each in every
        if (not budget.kernels or each.name in budget.kernels)
        and (budget.again or not _is_done(each, listed))
    ]


def _is_done(kernel: Kernel, listed: Listed) -> bool:
    """Whether the command ran for today's rows, also if it found nothing."""
    if not _is_of_today(kernel, listed):
        return False
    own = listed[kernel.name].candidates
    return not own or any(each.why.startswith(MODELLED) for each in own)


def _is_of_today(kernel: Kernel, listed: Listed) -> bool:
    return kernel.name in listed and is_current(kernel, listed[kernel.name])


def write_proposals(
    arch: str,
    kernels: Sequence[Kernel],
    started: Callable[[Kernel], Tuning],
    checkout: Path,
    budget: Budget,
    say: Callable[[str], None],
) -> Path:
    """Until the budget is spent. The file has each finished kernel at once."""
    end, file = time.monotonic() + 60 * budget.minutes, checkout / file_of(arch)
    shared = Sharing({} if budget.again else others_of(arch, checkout))
    for number, kernel in enumerate(kernels):
        if time.monotonic() > end:
            say(f"the budget is spent: {len(kernels) - number} kernels are left, the same command goes on")
            break
        listed = read_wanted(checkout, arch)
        own, current = _maintainers(listed.get(kernel.name)), _is_of_today(kernel, listed)
        tuning = started(kernel)
        found = OfKernel(tuning.rows.id_of(kernel), tuple(propose(tuning, own if current else (), shared)))
        # Read again: maintainers edit the file, or another run writes it, during a search.
        ensure(file, to_text(arch, {**read_wanted(checkout, arch), kernel.name: found}).encode())
        say(f"{bar((number + 1) / len(kernels))} {kernel.name}: {len(found.candidates)} candidates")
        if own and not current:
            say(_dropped(kernel, own))
    return file


def _maintainers(before: OfKernel | None) -> list[Wanted]:
    return [each for each in before.candidates if not each.why.startswith(MODELLED)] if before else []


def _dropped(kernel: Kernel, own: Sequence[Wanted]) -> str:
    lines = (f"  {each.changes}  # {each.why}" for each in own)
    return "\n".join([DROPPED.format(kernel=kernel.name, file=file_of(kernel.arch)), *lines])


def propose(tuning: Tuning, kept: Sequence[Wanted], shared: Sharing) -> Iterator[Wanted]:
    """A maintainer's candidates, and the best others that are right."""
    yield from kept
    of_maintainers = changes_of(tuning.kernel, OfKernel("", tuple(kept)))
    given = shared.judged(tuning.kernel, tuning.rows)
    if given is None:
        ranked = _ranked(tuning, shared.seeds(tuning.kernel, tuning.rows))
    else:
        ranked = _compiled(tuning, given)
    others = {each: why for each, why in ranked.items() if each not in of_maintainers}
    right = [*islice(_right(tuning, [*others]), MOST - len(kept))]
    shared.keep(tuning.kernel, tuning.rows, {each: others[each] for each in right})
    yield from (Wanted(words_of(each), others[each]) for each in right)


def _compiled(tuning: Tuning, given: Why) -> Why:
    """Those of another kernel that compile and differ in code, in its order, with its figures."""
    attempt(tuning, [NONE, *given], lambda *_: Figures({}))
    found = tuning.outcomes
    return {each: why for each, why in given.items() if not (found[each].refused or found[each].twin)}


def _ranked(tuning: Tuning, seeds: Sequence[Changes]) -> Why:
    """Those that are compiled, differ in code, and are not hopeless, the best first."""
    kernel, arch = tuning.kernel, arch_named(tuning.kernel.arch)
    singles = seeds or spread(kernel, arch, tuning.rows)[:SINGLE]
    attempt(tuning, [NONE, *singles], quick_figures_of)
    if not seeds and (more := combined(kernel, arch, tuning.rows, _gains(tuning), COMBINED)):
        attempt(tuning, more, quick_figures_of)
    gains = {each: gain for each, gain in _gains(tuning).items() if gain is not None and each != NONE}
    good = [each for each in gains if gains[each] > HOPELESS and not tuning.outcomes[each].twin]
    best = sorted(good, key=lambda each: (-gains[each], words_of(each)))
    return {each: f"{MODELLED} {math.exp(gains[each]):.3f}" for each in best}


def _gains(tuning: Tuning) -> Mapping[Changes, float | None]:
    """Logs of gains, None for refused ones."""
    today = tuning.outcomes[NONE].figures
    return {
        changes: math.log1p(gain_of(each.figures.lines, today.lines).mean) if each.figures and today else None
        for changes, each in tuning.outcomes.items()
    }


def _right(tuning: Tuning, ranked: Sequence[Changes]) -> Iterator[Changes]:
    for each in ranked:
        execute(tuning, each)
        if not tuning.outcomes[each].wrong:
            yield each
