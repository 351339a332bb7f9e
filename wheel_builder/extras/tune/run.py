"""``scripts/wheel-builder tune``: candidates compiled, modelled and executed until the budget is spent."""

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import TuneError
from wheel_builder.base.store import Artifact
from wheel_builder.extras.perf.measure import Subject
from wheel_builder.extras.perf.run import Bench, subjects
from wheel_builder.extras.tune.compiling import Compiled, Compilers, compile_all
from wheel_builder.extras.tune.measuring import Figures, Results, executed, figures_of, models_of
from wheel_builder.extras.tune.proposal import Outcome, Search, better, file_name, table, to_text
from wheel_builder.extras.tune.record import SEARCHES, lines_of, recorded
from wheel_builder.extras.tune.rows import NONE, Changes, Kernel, Rows, changed, rows_of, words_of
from wheel_builder.extras.tune.space import Gains, next_candidates
from wheel_builder.extras.tune.works import untuned, works
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.machine_code.disassembly.listing import tools_in
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.fake_hip.container import LIBRARY
from wheel_builder.matrix.model import Plan
from wheel_builder.matrix.plan import jobs_to_build
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.verification import build_emulator
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import Workgroup, known_tiles, workgroup_of_row

NAME = re.compile(r"fa_(?P<op>\w+)_(?P<dtype>fp16|bf16)_d(?P<head_dim>\d+)$")
BATCH = 8  # candidates compiled with one start of the container, and one reading of the headers
FOLDER = "tune"  # of proposals, in the build folder
BAR = 20  # places
DONE, SPENT, INTERRUPTED = "the neighbourhood is done", "the budget is spent", "interrupted"
ENOUGH = "as many candidates as asked for"
Model = Callable[[Subject, Kernel, Workgroup, Results], Figures]


@dataclass(frozen=True)
class Wishes:
    """The search ends after ``minutes``, or ``most`` candidates.

    ``asked``: the only candidate to propose, tried first. ``record``: whether to keep the figures.
    """

    minutes: float
    most: float = math.inf
    asked: Changes | None = None
    record: bool = False


@dataclass
class Tuning:
    """A search that goes on: what its parts need, and the candidates' outcomes."""

    kernel: Kernel
    rows: Rows
    compilers: Compilers
    bench: Bench
    results: Results
    wishes: Wishes
    outcomes: dict[Changes, Outcome] = field(default_factory=dict)
    twins: dict[str, Changes] = field(default_factory=dict)  # by the digest of the code

    @property
    def compares(self) -> bool:
        """Whether today's rows have figures, so others can be compared with them."""
        return NONE in self.outcomes and self.outcomes[NONE].figures is not None

    def search(self, ended: str) -> Search:
        identity = self.compilers.image.facts["image_id"]
        found = dict(self.outcomes)
        return Search(self.kernel, self.rows, found, identity, self.results.models, ended, self.wishes.asked)


def kernel_named(arch: str, name: str) -> Kernel:
    """The kernel. Raises ``TuneError`` for a name without models and cases for its execution."""
    match = NAME.match(name)
    if match is None or match["op"] not in works():
        title = f"{name} cannot be tuned"
        known = ", ".join(f"fa_{op}_fp16_d64" for op in works())
        expected = f"expected the name of a forward or of a backward's kernel, such as {known}"
        raise TuneError(title, [untuned().get(match["op"] if match else "", expected)])
    return Kernel(arch, match["op"], match["dtype"], int(match["head_dim"]))


def tune(kernel: Kernel, plan: Plan, context: RunContext, wishes: Wishes, *, plain: bool | None) -> Path:
    """Search and write the proposal, whose path it returns. Prints the best candidates.

    An interrupted search writes what it found. The next one goes on from there.
    """
    rows_of(known_tiles(), arch_named(kernel.arch), kernel)  # refuses a kernel without any
    job = jobs_to_build(plan)[0]
    steps = begin(context, plan.package)
    builder = builder_image(steps, job)
    emulator = build_emulator(steps, job, builder)

    def work(step: Shown) -> Path:
        tuning = begun(kernel, context, builder.result, emulator.result, wishes, step.own_log)
        path = propose(tuning, context.build / FOLDER, step.note)
        if wishes.record:
            keep(tuning.search(""), context.checkout / SEARCHES)
        return path

    made = steps.add(f"tune {kernel.arch} {kernel.name}", work, weight=60 * wishes.minutes, log="tune")
    steps.run(plain=plain)
    return made.result


def begun(
    kernel: Kernel, context: RunContext, builder: Artifact, emulator: Artifact, wishes: Wishes, log: Path
) -> Tuning:
    """A search that has tried nothing."""
    rows, store = rows_of(known_tiles(), arch_named(kernel.arch), kernel), context.store
    compilers = Compilers(builder, context.checkout, store, context.jobs, log)
    bench, results = tools_of(context, builder, emulator)
    return Tuning(kernel, rows, compilers, bench, results, wishes)


def tools_of(context: RunContext, builder: Artifact, emulator: Artifact) -> tuple[Bench, Results]:
    """The emulator with LLVM's tools, and the place of results."""
    bench = Bench(Core(emulator.path / LIBRARY), tools_in(builder), context.store, context.log("listing"))
    models = hashlib.sha256(f"{models_of(context.checkout)} {emulator.key}".encode()).hexdigest()
    return bench, Results(context.store, models[:16])


def keep(search: Search, file: Path) -> None:
    """The figures of a search in a file of the repository."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    ensure(file, recorded(before, lines_of(search)).encode())


def dry_run(kernel: Kernel) -> list[str]:
    """The first candidates, in words."""
    arch = arch_named(kernel.arch)
    rows = rows_of(known_tiles(), arch, kernel)
    found = next_candidates(kernel, arch, rows, {}, limit=1000)
    return [f"{changed(rows, each).id_of(kernel)}  {words_of(each)}" for each in found]


def propose(tuning: Tuning, folder: Path, say: Callable[[str], None]) -> Path:
    """Search, execute the best candidate, and write the proposal, also when interrupted."""
    ended = INTERRUPTED
    try:
        ended = _searched(tuning, time.monotonic() + 60 * tuning.wishes.minutes, say)
        _execute_best(tuning)
    finally:
        path = folder / file_name(tuning.kernel)
        if tuning.compares:
            found = tuning.search(ended)
            ensure(path, to_text(found).encode())
            say(f"{path}\n{table(found)}")
    return path


def _searched(tuning: Tuning, end: float, say: Callable[[str], None]) -> str:
    arch, wishes = arch_named(tuning.kernel.arch), tuning.wishes
    if wishes.asked:
        attempt(tuning, [NONE, wishes.asked])
    while True:
        batch = next_candidates(tuning.kernel, arch, tuning.rows, _gains(tuning), BATCH)
        if not batch:
            return DONE
        if len(tuning.outcomes) > wishes.most:
            return ENOUGH
        if time.monotonic() > end and tuning.compares:
            return SPENT
        attempt(tuning, batch)
        left = end - time.monotonic()
        spent = 1 - left / (60 * wishes.minutes) if wishes.minutes else 1.0
        done = max(spent, len(tuning.outcomes) / wishes.most)
        say(f"{bar(done)} {progress_words(tuning.search(''), left)}")


def _gains(tuning: Tuning) -> Gains:
    search = tuning.search("")
    found = {changes: search.gain(changes) for changes in search.outcomes}
    return {changes: None if gain is None else math.log1p(gain.mean) for changes, gain in found.items()}


def bar(done: float) -> str:
    """The part of the budget that is spent."""
    full = round(BAR * min(max(done, 0.0), 1.0))
    return f"[{'#' * full}{'-' * (BAR - full)}]"


def progress_words(search: Search, seconds_left: float) -> str:
    """A line about a search that goes on."""
    refused = sum(each.refused != "" for each in search.outcomes.values())
    best = better(search)
    gain = search.gain(best[0]) if best else None
    words = f"best {gain.mean:+.1%}: {words_of(best[0])}" if gain else "none better than today's row yet"
    left = f"{max(0.0, seconds_left) / 60:.0f} min left"
    return f"{len(search.outcomes)} candidates, {refused} refused, {words}, {left}"


def attempt(tuning: Tuning, batch: Sequence[Changes], model: Model | None = None) -> None:
    """Compile and model some candidates. Raises ``TuneError`` if today's rows are refused."""
    rows = [changed(tuning.rows, changes) for changes in batch]
    compiled = compile_all(tuning.kernel, rows, tuning.compilers)
    of_code = loaded(tuning, compiled)
    for changes, one, made in zip(batch, rows, compiled, strict=True):
        tuning.outcomes[changes] = _outcome(tuning, changes, one, made, of_code, model or figures_of)
    if refused := tuning.outcomes[NONE].refused:
        title = f"today's rows of {tuning.kernel.name} cannot be modelled for {tuning.kernel.arch}"
        raise TuneError(title, [refused])


def loaded(tuning: Tuning, compiled: Sequence[Compiled]) -> Mapping[bytes, Subject]:
    """The new code objects, disassembled together."""
    codes = list(dict.fromkeys(each.code for each in compiled if each.code))
    objects = [CodeObject(tuning.kernel.arch, code) for code in codes]
    return dict(zip(codes, subjects(objects, tuning.bench), strict=True))


def _outcome(
    tuning: Tuning,
    changes: Changes,
    rows: Rows,
    made: Compiled,
    of_code: Mapping[bytes, Subject],
    model: Model,
) -> Outcome:
    if not made.code:
        return Outcome(refused=reason_of(made.words))
    digest = hashlib.sha256(made.code).hexdigest()
    first = tuning.twins.setdefault(digest, changes)
    found = model(of_code[made.code], tuning.kernel, workgroup(tuning.kernel, rows), tuning.results)
    if found.problem:
        return Outcome(refused=found.problem)
    twin = "" if first == changes else changed(tuning.rows, first).id_of(tuning.kernel)
    return Outcome(figures=found, twin=twin)


def workgroup(kernel: Kernel, rows: Rows) -> Workgroup:
    """That of candidates."""
    return workgroup_of_row(arch_named(kernel.arch).isa, kernel.op, rows.plain)


def reason_of(words: str) -> str:
    """The compiler's first error, without places in files."""
    lines = words.splitlines()
    found = next((line for line in lines if "error:" in line), lines[0] if lines else "no words")
    return found.partition("error:")[2].strip() or found


def _execute_best(tuning: Tuning) -> None:
    """Execute the best candidate. With wrong results it is out, and there is another best one."""
    while (best := better(tuning.search(""))) and tuning.outcomes[best[0]].wrong is None:
        execute(tuning, best[0])


def execute(tuning: Tuning, changes: Changes) -> bytes:
    """Execute a candidate. Returns its code object, and the outcome has what was wrong."""
    rows = changed(tuning.rows, changes)
    [made] = compile_all(tuning.kernel, [rows], tuning.compilers)
    subject = loaded(tuning, [made])[made.code]
    tile, step = workgroup(tuning.kernel, rows), rows.plain.keys or rows.plain.queries
    wrong = executed(subject, tuning.kernel, tile, step, tuning.results)
    tuning.outcomes[changes] = replace(tuning.outcomes[changes], wrong=wrong)
    return made.code
