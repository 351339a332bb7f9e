"""``scripts/wheel-builder upstream``: upstream's kernels, object by object, and the library of an arch.

source distribution -> generated sources -> an object for each kernel, gated -> library
                    -> host part, with a ROCm build of PyTorch ------------> extension module -> wheel
"""

import fnmatch
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from kernels.build.jobs import Task, run_all
from kernels.build.machine import usable_memory
from wheel_builder.base.durable import ensure
from wheel_builder.base.errors import ProblemsError, SelectionError, UpstreamError
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
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin, builder_image
from wheel_builder.pipeline.progress import Step as Shown
from wheel_builder.pipeline.steps import UNCHANGED, Step, Steps
from wheel_builder.tables.archs import CHECKOUT

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


def check_arch(upstream: Upstream, arch: str) -> None:
    """Raise ``SelectionError`` for an arch unsupported by upstream's kernels."""
    if arch not in upstream.archs:
        title = f"upstream's CK has no kernels for {arch!r}"
        problems = [
            unknown("arch", arch, upstream.archs),
            "for others CK compiles kernels without matrix products, which the gate refuses",
        ]
        raise SelectionError(title, problems, advice="flash-attn-rocm has its own kernels: scripts/release")


def build_upstream(wanted: Wanted, context: RunContext) -> tuple[Steps, list[Callable[[], Path]]]:
    """Plan what is wanted; all steps, and where their results are.

    Those of the library and, where a PyTorch is given, the wheel; for a shard the folder of its objects.  A
    shard's objects are linked elsewhere, together with the others'.
    """
    arch, job = wanted.arch, wanted.job.id
    made = _prepared(wanted, context)
    steps, log = made.steps, f"upstream-{arch}"

    def compile_objects(shown: Shown) -> list[Artifact]:
        names = _names(made.sources.result, wanted)
        objects = make_objects(names, arch, made.sources.result, made.shop(), context.jobs)
        if all(one.reused for one in objects):
            shown.skipped(UNCHANGED)
        return objects

    objects = steps.add(f"objects {arch}", compile_objects, job=job, weight=3600, log=log)
    if wanted.shard != ALL:
        return steps, [lambda: objects.result[0].path.parent]
    library = steps.add(
        f"library {arch}",
        lambda _: link(arch, objects.result, made.shop()),
        job=job, weight=10, log=log,
    )  # fmt: skip
    if wanted.refused:
        return steps, [lambda: library.result.path / LIBRARY]
    wheel = steps.add(
        f"extension {arch}",
        lambda _: _extension(wanted, objects.result, made.sources.result, made.shop(), context),
        job=job, weight=400, log=log,
    )  # fmt: skip
    return steps, [
        lambda: library.result.path / LIBRARY,
        lambda: wheel.result.path / str(wheel.result.facts["wheel"]),
    ]


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


def measure_upstream(wanted: Wanted, part: str, context: RunContext) -> tuple[Steps, Step[Costs]]:
    """Plan to compile a sample of upstream's objects, and one forward with the flags that are left out.

    ``part`` is one of ``PARTS``. The checkout's figures are kept for the other part.
    """
    arch = wanted.arch
    made = _prepared(wanted, context)

    def work(_: Shown) -> Costs:
        known, sources, shop = load_costs(context.checkout), made.sources.result, made.shop()
        if part != "flags":
            every = list(sources.facts["kernels"])
            objects = make_objects(chosen(every), arch, sources, shop, context.jobs)
            measured = tuple(map(_sample, objects))
            known = Costs(wanted.upstream.version, kinds(every), measured, known.flags)
        if part != "objects":
            known = replace(known, flags=_measure_flags(arch, sources, shop))
        return known

    step = made.steps.add(f"objects {arch}", work, job=wanted.job.id, weight=3600, log=f"upstream-{arch}")
    return made.steps, step


def accept(costs: Costs, checkout: Path) -> None:
    """Store the measurement for ``plan`` and ``why``."""
    ensure(checkout / COSTS, to_text(costs).encode())


@dataclass(frozen=True)
class _Prepared:
    """The steps up to upstream's sources, and where those are compiled."""

    steps: Steps
    shop: Callable[[], Workshop]
    sources: Step[Artifact]


def _prepared(wanted: Wanted, context: RunContext) -> _Prepared:
    steps, log = begin(context, wanted.package), f"upstream-{wanted.arch}"
    image = builder_image(steps, wanted.job)

    def shop() -> Workshop:
        return Workshop(image.result, wanted.job.rocm.llvm, context.store, context.log(log))

    def work(shown: Shown) -> Artifact:
        return make_sources(fetch_sdist(wanted.upstream, context.store, log=shown.own_log), shop())

    return _Prepared(steps, shop, steps.add("upstream sources", work, weight=20, log=log))


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
