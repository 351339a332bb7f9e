"""What each subcommand does: a function and a row in ``COMMANDS``.

Functions import what they need themselves: ``repair`` runs in the builder image, which has none of the
packages that the others use.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wheel_builder.model import Job, Matrix, Plan, Selection

if TYPE_CHECKING:
    from wheel_builder.progress import Planned
    from wheel_builder.workplace import Workplace

from wheel_builder.options import (
    ROOT,
    destination_option,
    existing_file,
    handover_options,
    held_archs_option,
    index_option,
    jobs_option,
    names,
    release_options,
    run_options,
    sanitizers,
    selection_options,
    wheel_arguments,
)

Options = Callable[[argparse.ArgumentParser], None]
# Words for what no option would ask for: a form has to send something.
ALL, DEFAULT = "all", "default"


@dataclass(frozen=True)
class Command:
    """One subcommand: its words, what it does, and the options and arguments that it takes."""

    name: str
    help: str
    run: Callable[[argparse.Namespace], None]
    options: tuple[Options, ...] = ()


def read_matrix() -> Matrix:
    """The checkout's matrix.yaml."""
    from wheel_builder.matrix import load_matrix

    return load_matrix(ROOT / "matrix.yaml")


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan for ``selection_options``."""
    from wheel_builder.plan import plan

    rocm = tuple(version for version in args.rocm if version not in (ALL, DEFAULT))
    selection = Selection(rocm=rocm, archs=wanted_archs(args), all_rocm=args.all or ALL in args.rocm)
    return plan(read_matrix(), selection)


def wanted_archs(args: argparse.Namespace) -> tuple[str, ...]:
    """The archs that the command line names; none when it says all."""
    return () if ALL in args.archs else tuple(args.archs)


def _plan(args: argparse.Namespace) -> None:
    from wheel_builder.plan import rejection_lines, to_github, to_json, to_table

    plan = plan_of(args)
    if args.github:
        from wheel_builder.stages.image import builder_key

        print(to_github(plan, {job.id: builder_key(job, plan.package) for job in plan.jobs}))
        # Standard output goes to $GITHUB_OUTPUT; the reasons belong into the log.
        print("\n".join(rejection_lines(plan)), file=sys.stderr)
    else:
        print(to_json(plan) if args.json else to_table(plan))


def _plan_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="the whole plan as JSON")
    group.add_argument(
        "--github", action="store_true", help='lines for "$GITHUB_OUTPUT": the rows of the workflow matrices'
    )


def _release(args: argparse.Namespace) -> None:
    from wheel_builder.catalogue import catalogue_of
    from wheel_builder.coverage import coverage_of, raise_failures, write_coverage
    from wheel_builder.coverage import to_table as coverage_table
    from wheel_builder.machine import cpu_seconds
    from wheel_builder.pipeline import planned, release
    from wheel_builder.plan import jobs_to_build, to_table
    from wheel_builder.summary import release_text

    plan = plan_of(args)
    if args.dry_run:
        print(to_table(plan), *_numbered(planned(jobs_to_build(plan))), sep="\n")
        return
    before = cpu_seconds()
    catalogue = catalogue_of(read_matrix())
    place = workplace(args)
    attempts = release(plan, place, catalogue=catalogue, plain=args.verbose or None)
    coverage = coverage_of(plan, attempts)
    print(
        release_text([one.released for one in attempts if one.released], cpu_seconds() - before), end="\n\n"
    )
    # Before anything is written: a full disk does not keep the table from whoever waits for it.
    print(coverage_table(coverage), flush=True)
    print(*write_coverage(coverage, place.dist), sep="\n")
    raise_failures(attempts)


def _numbered(steps: "Sequence[Planned]") -> Iterator[str]:
    return (f"[{number}/{len(steps)}] {step.title}" for number, step in enumerate(steps, 1))


def workplace(args: argparse.Namespace) -> "Workplace":
    """Where a run of this checkout reads and writes."""
    from wheel_builder.hostenv import NO_SETTINGS
    from wheel_builder.workplace import Workplace

    return Workplace(
        checkout=ROOT,
        build=ROOT / "build",
        dist=ROOT / "dist",
        index=args.index.absolute(),
        jobs=args.jobs,
        install_engine=args.install_engine,
        torch_index=args.torch_index,
        host=NO_SETTINGS if args.no_host_settings else None,
        cache=None if args.no_cache else args.cache.absolute(),
    )


def _stop_after(stage: str) -> Callable[[argparse.Namespace], None]:
    """A command that runs the stages up to ``stage`` and prints where its results are."""

    def command(args: argparse.Namespace) -> None:
        from wheel_builder.handover import copy_wheels
        from wheel_builder.pipeline import planned_until, run_until
        from wheel_builder.plan import jobs_to_build

        plan, place = plan_of(args), workplace(args)
        if args.dry_run:
            print(*_numbered(planned_until(stage, jobs_to_build(plan))), sep="\n")
            return
        with handing_over(args, place):
            made = run_until(stage, plan, place, plain=args.verbose or None)
        print(*(copy_wheels(made, to) if (to := getattr(args, "to", None)) else made), sep="\n")

    return command


@contextmanager
def handing_over(args: argparse.Namespace, place: "Workplace") -> Iterator[None]:
    """Before a run, take what other machines gave; after it, give what it used."""
    from wheel_builder.engine import ensure_engine
    from wheel_builder.handover import give, holds_images, take

    log = place.log("handover")
    if holds_images(args.take):
        ensure_engine(install=place.install_engine, log=place.log("engine"))
    for folder in args.take:
        take(folder, place.store, log=log)
    yield
    if args.give:
        give(place.used, args.give, taken=args.take, log=log)


def _repair(args: argparse.Namespace) -> None:
    from wheel_builder.stages.repair import repair_wheel

    print(repair_wheel(args.wheel, args.dest, plat=args.plat))


def _repair_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheel", type=Path, metavar="WHEEL")
    parser.add_argument("dest", type=Path, metavar="DEST")
    parser.add_argument("--plat", required=True, metavar="TAG", help="for example manylinux_2_28_x86_64")


def _audit(args: argparse.Namespace) -> None:
    from wheel_builder.verification import audit_file

    for wheel in args.wheels:
        print(audit_file(wheel, read_matrix(), ROOT, wanted_archs(args)).to_json(), end="")


def _verify(args: argparse.Namespace) -> None:
    from wheel_builder.verification import job_of, jobs_of, planned_verification, verify_files

    archs = wanted_archs(args)
    if args.dry_run:
        jobs = [job_of(file, read_matrix(), archs) for file in args.wheels]
        print(*_numbered(planned_verification(jobs, jobs_of(args.runtimes, read_matrix()))), sep="\n")
        return
    place, plain = workplace(args), args.verbose or None
    with handing_over(args, place):
        records = verify_files(
            args.wheels, read_matrix(), place,
            archs=archs, update=args.update, others=args.runtimes, plain=plain,
        )  # fmt: skip
    for record in records:
        print(record.read_text(encoding="utf-8"), end="")


def _verify_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--update",
        action="store_true",
        help="first write what the kernels take of the hardware into the golden file, for review",
    )
    parser.add_argument(
        "--runtimes",
        type=names,
        action="extend",
        default=[],
        metavar="V[,V]",
        help="also load it under these ROCm versions' runtimes; the index offers it where that works",
    )


def _verify_provenance(args: argparse.Namespace) -> None:
    from wheel_builder.attest import verify_provenance

    for wheel in args.wheels:
        print(f"wheel      {wheel}", verify_provenance(wheel, ROOT), sep="\n")


def published_wheels(args: argparse.Namespace) -> Iterator[Path]:
    """The newest wheel of each ROCm version that ``_rebuild_options`` ask for; says where there is none."""
    from wheel_builder.index import newest_wheel

    for rocm in args.published:
        if found := newest_wheel(args.index, rocm):
            yield found
        else:
            print(f"{args.index} has no wheel of ROCm {rocm} that is not yanked")


def _rebuild(args: argparse.Namespace) -> None:
    from wheel_builder.errors import WheelError
    from wheel_builder.rebuild import rebuild

    if not (args.wheels or args.published):
        message = "no wheel is named"
        raise WheelError(message, advice="name a .whl file, or ROCm versions with --published")
    for wheel in [*args.wheels, *published_wheels(args)]:
        rebuilt = rebuild(wheel, ROOT, jobs=args.jobs, log=ROOT / "build" / "logs" / "rebuild.log")
        print(f"{rebuilt.wheel}: built again from commit {rebuilt.commit}, bit for bit the same file")
        print(f"sha256     {rebuilt.sha256}", f"built in   {rebuilt.image}", sep="\n")


def _rebuild_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("wheels", nargs="*", type=Path, metavar="WHEEL")
    parser.add_argument(
        "--published",
        type=names,
        action="extend",
        default=[],
        metavar="V[,V]",
        help="also the newest wheel in the index of each of these ROCm versions",
    )
    index_option(parser)
    jobs_option(parser)


def _emulate(args: argparse.Namespace) -> None:
    from wheel_builder.emulator.attention import Case
    from wheel_builder.emulator.command import emulate, report
    from wheel_builder.emulator.machine import Options as RunOptions
    from wheel_builder.verification import emulator_workshop

    case = Case(
        args.dtype, args.head_dim, args.seqlen_q, args.seqlen_k, batch=args.batch, nheads=args.heads,
        nheads_k=args.heads_k or args.heads, causal=args.causal, seed=args.seed,
    )  # fmt: skip
    options = RunOptions(checks=tuple(args.checks), seed=args.seed, threads=args.jobs)
    if args.dry_run:
        print(f"would run {case.kernel} of {args.source} for {args.arch}")
        return
    workshop = emulator_workshop(args.source, read_matrix(), workplace(args), plain=args.verbose or None)
    emulated = emulate(args.source, args.arch, case, options, workshop)
    print(report(emulated))
    emulated.raise_unless_passed()


def _emulate_options(parser: argparse.ArgumentParser) -> None:
    from wheel_builder.emulator.formats import DTYPES
    from wheel_builder.emulator.machine import ALL_CHECKS

    parser.add_argument(
        "source", type=existing_file, metavar="FILE", help="a wheel, an offload bundle or a code object"
    )
    group = parser.add_argument_group("which kernel, and how it is called")
    group.add_argument("--arch", required=True, metavar="GFX", help="for example gfx1100")
    group.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help=f"default: {DTYPES[0]}")
    for name, default in (("head-dim", 64), ("seqlen-q", 128), ("seqlen-k", 128), ("batch", 1), ("heads", 1)):
        group.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"default: {default}")
    group.add_argument(
        "--heads-k", type=int, metavar="N", help="heads of k and v (default: as many as --heads)"
    )
    group.add_argument("--causal", action="store_true", help="row i sees keys up to i + seqlen_k - seqlen_q")
    group = parser.add_argument_group("how it is run")
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the tensors and of the order of execution"
    )
    group.add_argument(
        "--checks",
        type=sanitizers,
        default=ALL_CHECKS,
        metavar="A[,B]",
        help=f"of {', '.join(ALL_CHECKS)}, or none (default: all); bounds are always checked",
    )


def _publish(args: argparse.Namespace) -> None:
    from wheel_builder.pipeline import publish_files

    for simple in publish_files(args.wheels, read_matrix(), args.index.absolute(), ROOT):
        print(simple.as_uri())


def _upload(args: argparse.Namespace) -> None:
    from wheel_builder.stages.publish import upload

    upload(args.wheels, args.repository_url, log=ROOT / "build" / "logs" / "upload.log")
    print(f"uploaded {len(args.wheels)} to {args.repository_url}")


def _upload_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repository-url", required=True, metavar="URL", help="credentials: twine's environment"
    )


def _serve(args: argparse.Namespace) -> None:
    from wheel_builder.serve import make_server

    with make_server(args.index.absolute(), args.port) as server:
        print(
            f"serving {args.index} at http://{server.server_name}:{server.server_port}/ until Ctrl-C",
            flush=True,
        )
        server.serve_forever()


def _serve_options(parser: argparse.ArgumentParser) -> None:
    index_option(parser)
    parser.add_argument(
        "--port", type=int, default=8000, metavar="N", help="0 picks a free one (default: 8000)"
    )


def _yank(args: argparse.Namespace) -> None:
    from datetime import UTC, datetime

    from wheel_builder.catalogue import catalogue_of
    from wheel_builder.index import yank

    catalogue = catalogue_of(read_matrix())
    yank(args.index, args.rocm, args.file, args.reason, catalogue=catalogue, now=datetime.now(UTC))
    print(f"{args.file} is yanked: pip takes it only when asked for this very version")


def _yank_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the published wheel's file name")
    parser.add_argument("--rocm", required=True, metavar="V")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="users are shown it")
    index_option(parser)


def _index(args: argparse.Namespace) -> None:
    {"verify": _verify_index, "pages": _write_pages}[args.action](args.index)


def _verify_index(root: Path) -> None:
    from wheel_builder.errors import PublishError
    from wheel_builder.index_check import verify_index

    if faults := verify_index(root):
        title = f"the index {root} has {len(faults)} fault{'s' if len(faults) > 1 else ''}"
        raise PublishError(title, faults, advice="do what each line says, then verify again")
    print(f"{root} is sound: every file has its hash, every page says what the records say")


def _write_pages(root: Path) -> None:
    from wheel_builder.catalogue import catalogue_of
    from wheel_builder.index import changing, write_pages

    with changing(root):
        write_pages(root, catalogue_of(read_matrix()))
    print((root / "index.html").absolute().as_uri())


def _index_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=("verify", "pages"),
        help="verify: hash every file again and compare every page; pages: write them again from the records",
    )
    index_option(parser)


def _runtime_image(args: argparse.Namespace) -> None:
    from wheel_builder.image_size import size_text
    from wheel_builder.pipeline import planned_images, runtime_images

    jobs, place, plain = image_jobs(args), workplace(args), args.verbose or None
    if args.dry_run:
        print(*_numbered(planned_images(jobs)), sep="\n")
        return
    package = read_matrix().package
    for image in runtime_images(jobs, package, place, wheel=args.wheel, slim=args.slim, plain=plain):
        print(f"size      {size_text(image.facts['size'])}", f"docker run {image.facts['ref']}", sep="\n")


def image_jobs(args: argparse.Namespace) -> tuple[Job, ...]:
    """The jobs that runtime images are made for: the named wheel's, else those of ``selection_options``."""
    from wheel_builder.errors import SelectionError
    from wheel_builder.plan import jobs_to_build
    from wheel_builder.verification import job_of

    if args.wheel is None:
        return jobs_to_build(plan_of(args))
    job = job_of(args.wheel, read_matrix(), wanted_archs(args))
    if others := [*(("all",) if args.all else ()), *(v for v in args.rocm if v != job.rocm.version)]:
        title = "the image's ROCm version is its wheel's"
        problem = (
            f"expected {job.rocm.version}, which {args.wheel.name} is for; found --rocm {','.join(others)}"
        )
        raise SelectionError(title, [problem], advice="leave --rocm and --all out, or name another wheel")
    return (job,)


def _runtime_image_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "wheel",
        nargs="?",
        type=existing_file,
        metavar="WHEEL",
        help="a finished wheel, such as a published one (default: the newest of each ROCm version in dist)",
    )
    parser.add_argument("--slim", action="store_true", help="rocm-fa:<version>-slim, which has no torch")


def _drift(args: argparse.Namespace) -> None:
    from wheel_builder.drift import packages_of, refuse_drift, rocm_drift, torch_drift
    from wheel_builder.pipeline import planned_until, run_until
    from wheel_builder.plan import jobs_to_build

    plan, place = plan_of(args), workplace(args)
    if args.dry_run:
        print(*_numbered(planned_until("image", jobs_to_build(plan))), sep="\n")
        return
    images = run_until("image", plan, place, plain=args.verbose or None)
    findings = torch_drift(plan.package)
    for job, image in zip(jobs_to_build(plan), images, strict=True):
        findings += rocm_drift(job.rocm, packages_of(image))
    refuse_drift(findings)
    print("nothing has moved: torch and ROCm are as matrix.yaml has them")


def _perf(args: argparse.Namespace) -> None:
    from wheel_builder.perf.command import default_paths, perf

    plan, place = plan_of(args), workplace(args)
    paths = tuple(args.paths) or default_paths(plan, place)
    if args.dry_run:
        print(*paths, sep="\n")
        return
    print(perf(paths, plan, place, archs=args.archs, plain=args.verbose or None), end="")


def _perf_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="wheels, code objects, or folders of .hsaco files (default: the newest finished wheel)",
    )


BUILD = (selection_options, run_options, release_options)
COMMANDS = (
    Command(
        "plan", "say what would be built, and what not and why", _plan, (selection_options, _plan_options)
    ),
    Command(
        "release", "build, audit, verify, publish to a local index, and install from it", _release, BUILD
    ),
    Command("image", "build the builder images", _stop_after("image"), (*BUILD, handover_options)),
    Command("device-code", "compile the device code", _stop_after("device-code"), (*BUILD, handover_options)),
    Command(
        "wheel",
        "build and repair the wheels",
        _stop_after("wheel"),
        (destination_option, *BUILD, handover_options),
    ),
    Command(
        "repair", "give a wheel its manylinux tag (runs in the builder image)", _repair, (_repair_options,)
    ),
    Command(
        "audit",
        "refuse finished wheels that are not as planned",
        _audit,
        (wheel_arguments, held_archs_option),
    ),
    Command(
        "verify",
        "static checks, tests in a fresh container, every kernel on an ISA emulator",
        _verify,
        (wheel_arguments, held_archs_option, _verify_options, run_options, release_options, handover_options),
    ),
    Command(
        "verify-provenance",
        "check a wheel, its statement, record, SBOM and sources against each other",
        _verify_provenance,
        (wheel_arguments,),
    ),
    Command(
        "rebuild",
        "build a wheel again from its statement and compare bit for bit",
        _rebuild,
        (_rebuild_options,),
    ),
    Command(
        "emulate",
        "run one kernel on the ISA emulator: errors, instruction counts, findings",
        _emulate,
        (_emulate_options, run_options, release_options),
    ),
    Command(
        "perf",
        "model kernels' speed from what they execute on an ISA emulator",
        _perf,
        (_perf_options, *BUILD),
    ),
    Command(
        "drift",
        "say what has moved away from matrix.yaml: torch, ROCm's packages",
        _drift,
        BUILD,
    ),
    Command("publish", "add verified wheels to a static index", _publish, (wheel_arguments, index_option)),
    Command("upload", "upload wheels with twine", _upload, (wheel_arguments, _upload_options)),
    Command("serve", "serve an index on loopback, to try it out", _serve, (_serve_options,)),
    Command("index", "verify an index, or write its pages again", _index, (_index_options,)),
    Command("yank", "keep pip from choosing a published wheel", _yank, (_yank_options,)),
    Command(
        "runtime-image",
        "build rocm-fa:<version>, which holds the wheel",
        _runtime_image,
        (_runtime_image_options, *BUILD),
    ),
)
