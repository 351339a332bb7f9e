"""``scripts/wheel-builder upstream``: upstream's kernels, object by object, and the library of an arch.

source distribution -> generated sources -> an object for each kernel, gated -> library
                    -> host part, with a ROCm build of PyTorch ------------> extension module -> wheel
"""

import fnmatch
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import ProblemsError, SelectionError, UpstreamError
from wheel_builder.base.jobs import Task, run_all
from wheel_builder.base.machine import usable_memory
from wheel_builder.base.store import Artifact
from wheel_builder.base.words import unknown
from wheel_builder.extras.upstream.costs import (
    COSTS,
    Costs,
    Flags,
    Sample,
    chosen,
    kinds,
    load_costs,
    to_text,
)
from wheel_builder.extras.upstream.extension import (
    link_extension,
    make_host_object,
    make_host_sources,
    make_wheel,
    refusal,
)
from wheel_builder.extras.upstream.recipe import INLINED, LEFT_OUT, SMALLEST, shard_of
from wheel_builder.extras.upstream.sdist import fetch_sdist
from wheel_builder.extras.upstream.stages import LIBRARY, Workshop, link, make_object, make_sources
from wheel_builder.extras.upstream.torch import NO_TORCH, Torch, build_extension_image, fetch_torch
from wheel_builder.images.docker import remove_own, threads
from wheel_builder.matrix.model import Job, Package, Upstream
from wheel_builder.pipeline.context import (
    ENGINE,
    RunContext,
    builder_image,
    builder_step,
    progress_of,
    start_engine,
    told,
)
from wheel_builder.pipeline.progress import Planned, Progress
from wheel_builder.tables.archs import CHECKOUT

SOURCES = Planned("upstream sources", weight=20)
ALL = (1, 1)
# Parts of a measurement.
PARTS = ("all", "objects", "flags")
# Time limit of a flag's measurement, as a multiple of the compile time without it.
MOST_TIMES = 12


@dataclass(frozen=True)
class Wanted:
    """A selection of upstream's objects: an arch, a shard (number, count), and a pattern of names.

    ``torch`` is the PyTorch of upstream's extension module.
    """

    job: Job
    package: Package
    upstream: Upstream
    arch: str
    shard: tuple[int, int] = ALL
    pattern: str = "*"
    torch: Torch = NO_TORCH

    @property
    def refused(self) -> str:
        """Why the extension module is refused, or empty."""
        return refusal(torch_index=self.torch.index, pattern=self.pattern, rocm=self.job.rocm.version)

    @property
    def steps(self) -> list[Planned]:
        """A shard's objects are linked elsewhere, together with the others'."""
        steps = [ENGINE, builder_step(self.job), SOURCES]
        steps += [Planned(f"objects {self.arch}", self.job.id, weight=3600)]
        if self.shard == ALL:
            steps += [Planned(f"library {self.arch}", self.job.id, weight=10)]
            steps += [] if self.refused else [Planned(f"extension {self.arch}", self.job.id, weight=400)]
        return steps


def check_arch(upstream: Upstream, arch: str) -> None:
    """Raise ``SelectionError`` for an arch unsupported by upstream's kernels."""
    if arch not in upstream.archs:
        title = f"upstream's CK has no kernels for {arch!r}"
        problems = [
            unknown("arch", arch, upstream.archs),
            "for others CK compiles kernels without matrix products, which the gate refuses",
        ]
        raise SelectionError(title, problems, advice="flash-attn-rocm has its own kernels: scripts/release")


def build_upstream(wanted: Wanted, context: RunContext, *, plain: bool | None = None) -> list[Path]:
    """Compile the missing objects of the selection.

    Returns the paths of the library and, with a PyTorch, of the wheel. For a shard, the folder of its
    objects.
    """
    with _prepared(wanted, context, plain) as (shop, sources, progress):
        title = f"objects {wanted.arch}"
        with progress.step(title, job=wanted.job.id, log=shop.log) as step:
            objects = make_objects(_names(sources, wanted), wanted.arch, sources, shop, context.jobs)
            if all(one.reused for one in objects):
                step.skipped("unchanged")
        if wanted.shard != ALL:
            return [objects[0].path.parent]
        with progress.step(f"library {wanted.arch}", job=wanted.job.id, log=shop.log) as step:
            made = [told(step, link(wanted.arch, objects, shop)).path / LIBRARY]
        if not wanted.refused:
            with progress.step(f"extension {wanted.arch}", job=wanted.job.id, log=shop.log) as step:
                wheel = told(step, _extension(wanted, objects, sources, shop, context))
            made.append(wheel.path / wheel.facts["wheel"])
        return made


def _extension(
    wanted: Wanted, objects: Sequence[Artifact], sources: Artifact, shop: Workshop, context: RunContext
) -> Artifact:
    """Upstream's wheel, with the host part compiled and all objects linked into its extension module."""
    rocm = wanted.job.rocm.version
    image = build_extension_image(wanted.job, shop.image, shop.store, log=shop.log)
    torch = fetch_torch(wanted.torch, rocm, image, shop.store, host=context.host, log=shop.log)
    shop = replace(shop, image=image)
    sdist = fetch_sdist(wanted.upstream, shop.store, log=shop.log)
    host = make_host_sources(sdist, torch, shop)
    with threads(context.jobs) as pool:
        parts = list(
            pool.map(
                lambda name: make_host_object(name, wanted.arch, host, sources, torch, shop),
                host.facts["sources"],
            )
        )
    made = link_extension(wanted.arch, objects, parts, torch, shop)
    return make_wheel(wanted.upstream.version, rocm, sdist, torch, made, shop)


def measure_upstream(wanted: Wanted, part: str, context: RunContext, *, plain: bool | None = None) -> Costs:
    """Compile a sample of upstream's objects, and one forward with the omitted flags.

    ``part`` is one of ``PARTS``. The checkout's figures are kept for the other part.
    """
    known = load_costs(context.checkout)
    with (
        _prepared(wanted, context, plain) as (shop, sources, progress),
        progress.step(f"objects {wanted.arch}", job=wanted.job.id, log=shop.log),
    ):
        if part != "flags":
            every = list(sources.facts["kernels"])
            objects = make_objects(chosen(every), wanted.arch, sources, shop, context.jobs)
            measured = tuple(map(_sample, objects))
            known = Costs(wanted.upstream.version, kinds(every), measured, known.flags)
        if part != "objects":
            known = replace(known, flags=_measure_flags(wanted.arch, sources, shop))
    return known


def accept(costs: Costs, checkout: Path) -> None:
    """Store the measurement for ``plan`` and ``why``."""
    ensure(checkout / COSTS, to_text(costs).encode())


@contextmanager
def _prepared(
    wanted: Wanted,
    context: RunContext,
    plain: bool | None,  # noqa: FBT001
) -> Iterator[tuple[Workshop, Artifact, Progress]]:
    with progress_of(wanted.steps, context, plain) as progress:
        start_engine(context, progress)
        image = builder_image(wanted.job, wanted.package, context, progress)
        shop = Workshop(image, wanted.job.rocm.llvm, context.store, context.log(f"upstream-{wanted.arch}"))
        with progress.step(SOURCES.name, log=shop.log) as step:
            sdist = fetch_sdist(wanted.upstream, context.store, log=shop.log)
            sources = told(step, make_sources(sdist, shop))
        yield shop, sources, progress


def _names(sources: Artifact, wanted: Wanted) -> tuple[str, ...]:
    names = fnmatch.filter(sources.facts["kernels"], wanted.pattern)
    if not names:
        title = f"no kernel of upstream's is called {wanted.pattern!r}"
        advice = f"their names are those of the files in {sources.path / 'kernels'}"
        raise SelectionError(title, [], advice=advice)
    return shard_of(names, *wanted.shard)


def make_objects(
    names: Sequence[str], arch: str, sources: Artifact, shop: Workshop, jobs: int
) -> list[Artifact]:
    """The objects of ``names``, made in parallel. Raises ``UpstreamError`` with all failures.

    At most ``jobs`` at a time, and as many as fit into memory by the measured peaks of their kinds.
    """
    known = load_costs(CHECKOUT)
    told_of = Told(len(names), shop.log)
    failed: list[ProblemsError] = []

    def one(name: str) -> Artifact | None:
        begin = time.monotonic()
        try:
            made = make_object(name, arch, sources, shop)
        except ProblemsError as error:
            failed.append(error)
            return None
        told_of.done(made, begin)
        return made

    waiting = [Task(name, known.peak_mib(name)) for name in names]
    made = run_all(waiting, one, most=jobs, mib=usable_memory() >> 20, stop=remove_own)
    if failed:
        title = f"{len(failed)} of {len(names)} objects of upstream's were not made; the others are kept"
        raise UpstreamError(title, [error.message for error in failed], advice=failed[0].advice)
    return [each for each in made if each]


class Told:
    """Writes a line for each object to the log, like our own builds. ``explain-log`` can follow it."""

    def __init__(self, total: int, log: Path) -> None:
        self._total, self._log = total, log
        self._count = 0
        self._begin = time.monotonic()
        self._lock = threading.Lock()

    def done(self, made: Artifact, begin: float) -> None:
        facts, end = made.facts, time.monotonic() - self._begin
        with self._lock, self._log.open("a", encoding="utf-8") as log:
            self._count += 1
            seconds = 0.0 if made.reused else facts["cpu_seconds"]
            log.write(
                f"[{self._count}/{self._total}] {facts['name']} for {facts['arch']}: "
                f"{seconds:.2f} CPU-seconds, {facts['peak_mib']} MiB, "
                f"from {begin - self._begin:.2f} s to {end:.2f} s\n"
            )


def _measure_flags(arch: str, sources: Artifact, shop: Workshop) -> tuple[Flags, ...]:
    """The smallest forward with none, each, two, and all of the flags omitted by the recipe."""
    [name] = fnmatch.filter(sources.facts["kernels"], SMALLEST)
    plain = make_object(name, arch, sources, shop).facts
    limit = round(MOST_TIMES * plain["cpu_seconds"])
    found = [Flags("", plain["cpu_seconds"], plain["code_bytes"])]
    together = (tuple(chain.from_iterable(some)) for some in (INLINED, LEFT_OUT))
    for flags in (*LEFT_OUT, *together):
        added = " ".join(flags)
        try:
            facts = make_object(name, arch, sources, shop, added=flags, limit=limit).facts
            found.append(Flags(added, facts["cpu_seconds"], facts["code_bytes"]))
        except UpstreamError:
            found.append(Flags(added, limit))
    return tuple(found)


def _sample(made: Artifact) -> Sample:
    facts = made.facts
    return Sample(facts["name"], facts["arch"], facts["cpu_seconds"], facts["peak_mib"], facts["code_bytes"])
