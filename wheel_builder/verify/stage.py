"""Verify: the finished wheel in a container of another distribution, without GPU, ROCm or network.

Input: the wheel, the verify image, the fake HIP runtime, and the result of each arch's emulated suite.
Output:
``record.json``, with the results and the gaps of each arch. Raises ``VerifyError`` unless tests ran
and all passed.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import VerifyError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file, sha256_tree
from wheel_builder.images.docker import Mount, threads
from wheel_builder.images.wheel_tests import RELEASE_TIER, Suite, environment_of, run_suite
from wheel_builder.machine_code.fake_hip.container import (
    CONTROL,
    DISASSEMBLY,
    PYTHON,
    SHARED,
    fake_hip_suite,
    shared_mounts,
)
from wheel_builder.matrix.model import Job
from wheel_builder.tables.archs import known_archs, served_by
from wheel_builder.verify.runtime_rules import accepted, like, serves, words
from wheel_builder.verify.seen import SeenSuite, listings_of, seen_suite

TESTS = "tests/installed/wheel"
WORDS = "tests/installed/words"
SHIM = "shim/flash_attn"  # the package of the distribution flash-attn, also covered by TESTS
MACHINES = "tests/installed/shared/machines.py"  # for tests of the doctor
ERROR_TESTS = "tests/installed/fake_hip"
NEEDED = (TESTS, WORDS, SHIM, MACHINES, ERROR_TESTS, CONTROL, *SHARED)
PARTS = ("code", "library", "package")  # of a wheel, as suites see it
FEATURES = "FA_FEATURES"  # for ERROR_TESTS
RECORD = "record.json"
THIS = "this wheel"
EARLIER = (
    "an earlier wheel, with the same code objects of this arch, the same library apart from device code, and "
    "the same Python code"
)


def verify_wheel(
    wheel: Path,
    emulated: Mapping[str, Artifact],
    *,
    static: Artifact,
    job: Job,
    image: Artifact,
    fake_hip: Artifact,
    disassembly: Artifact,
    runtimes: Mapping[str, Artifact],
    checkout: Path,
    store: Store,
    jobs: int,
    log: Path,
    tier: str = RELEASE_TIER,
    run: Runner = run,
) -> Artifact:
    """Run the tests of the installed wheel, and join their results with the emulator's.

    With ``jobs`` of two or more, the folders of tests run side by side. Each has its own log, named after
    ``log``. Only WORDS runs on every wheel. The other folders, like emulated suites, are independent of
    docstrings and comments in the wheel.

    ``emulated``: the result of each arch's emulated suite. ``static``: the findings of the static checks.
    ``runtimes``: the result of loading under each ROCm version's runtime, including that of the wheel's
    ``job``.
    ``tier`` is as for ``run_emulated``.

    Facts are the record: ``wheel``, ``sha256``, ``tests`` (counts by suite), ``tested`` (the wheel of each
    suite), ``differences`` (from the reviewed resources), ``archs`` (results for each), ``runtimes``
    (likewise) and ``serves`` (further ROCm versions, as the public wheel has none of its own).
    """
    named = {"wheel": wheel.name, "sha256": sha256_file(wheel)}
    inputs = {
        **named,
        "emulated": {arch: shown.key for arch, shown in emulated.items()},
        "static": static.key,
        "image": image.facts["image_id"],
        "fake_hip": fake_hip.key,
        "disassembly": disassembly.key,
        "runtimes": {rocm: load.key for rocm, load in runtimes.items()},
        "tests": sha256_tree(checkout, [checkout / path for path in NEEDED]),
        "gpus": {arch: served_by(arch) for arch in emulated},  # all GPUs that run this code
        "tier": tier,
        **({"like": job.public.like} if job.public else {}),
    }
    _check_loads(wheel.name, job.rocm.version, runtimes[job.rocm.version])

    def make(out: Path) -> Mapping[str, Any]:
        sha256 = named["sha256"]
        first_use = _first_use_suite(checkout, image, fake_hip=fake_hip, disassembly=disassembly, tier=tier)
        parts = {arch: _parts_of(shown.facts["executed"]) for arch, shown in emulated.items()}
        inside = partial(_run_folder, wheel, image=image, log=log, run=run)
        kept = partial(_kept, parts=parts, named=named, inside=inside, store=store)
        with threads(jobs) as pool:
            running: Mapping[str, Future[Mapping[str, Any]]] = {
                ERROR_TESTS: pool.submit(kept, "first-use", first_use),
                TESTS: pool.submit(kept, "wheel-tests", seen_suite(_suite(checkout, tier), image, {})),
                WORDS: pool.submit(lambda: {"counts": inside(Suite(checkout / WORDS), out=out), **named}),
            }
            ran = {tests: each.result() for tests, each in running.items()}
        tested = {
            **named,
            "tests": {tests: each["counts"] for tests, each in ran.items()},
            "tested": {tests: executed_on(each, sha256) for tests, each in ran.items()},
        }
        archs = _archs(emulated, static.facts["archs"], runtimes, sha256)
        return write_record(out, tested, static, archs, _runtimes(runtimes, job))

    return store.get_or_make("verify", inputs, make)


def _archs(
    emulated: Mapping[str, Artifact],
    resources: Mapping[str, Any],
    runtimes: Mapping[str, Artifact],
    sha256: str,
) -> Mapping[str, Mapping[str, Any]]:
    """The record's entry of each arch."""
    return {
        arch: {
            **what_was_shown(shown.facts, resources[arch], sha256),
            "runtimes": accepted(runtimes, arch),
        }
        for arch, shown in emulated.items()
    }


def _runtimes(runtimes: Mapping[str, Artifact], job: Job) -> Mapping[str, Any]:
    """The record's entries about runtimes: the findings for each, and the further ROCm versions served."""
    return {
        "runtimes": {rocm: words(load.facts) for rocm, load in runtimes.items()} | like(runtimes, job),
        "serves": serves(runtimes, job),
    }


def _kept(
    stage: str,
    suite: SeenSuite,
    *,
    parts: Mapping[str, Mapping[str, str]],
    named: Mapping[str, str],
    inside: Callable[..., Mapping[str, int]],
    store: Store,
) -> Mapping[str, Any]:
    """The counts of the suite, run ``inside`` its container, and its wheel: the one called ``named``, or an
    earlier one with equal ``parts``."""

    def make(folder: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}-given", dir=folder.parent) as copies:
            return {"counts": inside(suite.given(Path(copies)), out=folder), **named}

    return store.get_or_make(stage, {"parts": parts, **suite.key}, make).facts


def _parts_of(executed: Mapping[str, str]) -> Mapping[str, str]:
    """The digests of the suites' inputs from a wheel, without its name."""
    return {name: digest for name, digest in executed.items() if name in PARTS}


def _check_loads(wheel: str, rocm: str, loaded: Artifact) -> None:
    if problems := loaded.facts["problems"]:
        lines = [f"{wheel} does not load under ROCm {rocm}", *(f"  - {each}" for each in problems)]
        raise VerifyError("\n".join(lines), advice="read the log of the loading step")


def _suite(checkout: Path, tier: str) -> Suite:
    """The tests for the installed wheel without a GPU."""
    own = (
        Mount(checkout / SHIM, f"{PYTHON}/flash_attn"),
        Mount(checkout / MACHINES, f"{PYTHON}/machines.py"),
    )
    env = {"PYTHONPATH": PYTHON, **environment_of(tier)}
    return Suite(checkout / TESTS, (*shared_mounts(checkout), *own), tuple(env.items()))


def _first_use_suite(
    checkout: Path, image: Artifact, *, fake_hip: Artifact, disassembly: Artifact, tier: str
) -> SeenSuite:
    """The tests on the fake HIP runtime: HIP errors, and the check at first use of every arch."""
    suite = fake_hip_suite(
        checkout / ERROR_TESTS,
        fake_hip=fake_hip,
        disassembly=disassembly,
        checkout=checkout,
        env={**environment_of(tier), FEATURES: json.dumps(_features())},
    )
    return seen_suite(suite, image, {DISASSEMBLY: listings_of(disassembly.path)})


def _features() -> Mapping[str, Sequence[str]]:
    """The features of each arch, by its device's name, from the table. The tests there lack the table."""
    return {arch.device_name: sorted(arch.features) for arch in known_archs().values()}


def _run_folder(
    wheel: Path, suite: Suite, *, image: Artifact, out: Path, log: Path, run: Runner
) -> Mapping[str, int]:
    """A suite's counts. Its files go into a folder of ``out``, its output into a log of its own."""
    folder = out / suite.tests.name
    folder.mkdir()
    own_log = log.with_stem(f"{log.stem}-{folder.name}")
    return run_suite(wheel, suite, image=image, out=folder, log=own_log, run=run)


def write_record(
    out: Path,
    tested: Mapping[str, Any],
    static: Artifact,
    archs: Mapping[str, Mapping[str, Any]],
    more: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Write a record: the wheel with its tests, the results of each arch, and more."""
    record = {
        **tested,
        "differences": static.facts["differences"],
        "archs": {arch: {"gpus": served_by(arch), **shown} for arch, shown in archs.items()},
        **more,
    }
    (out / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def what_was_shown(
    emulated: Mapping[str, Any], resources: Mapping[str, Any], sha256: str
) -> Mapping[str, Any]:
    """The record's entry for one arch of the wheel with ``sha256``: its emulated suite's record, and each
    kernel's resources."""
    names = (
        "tier", "tests", "checks", "seed", "instances", "launches", "wave_instructions", "coverage",
        "findings",
    )  # fmt: skip
    return {
        "code_objects": "present and complete, by the audit",
        "disassembly": (
            "wait states, waits for memory, matrix instructions and scratch as planned, by the static checks"
        ),
        "resources": resources,
        "numerics": emulated["how"],
        "code": f"the code of {emulated['arch']}",
        "executed": {"on": executed_on(emulated["executed"], sha256), **emulated["executed"]},
        "passed": not emulated["findings"],
        **{name: emulated[name] for name in names},
    }


def executed_on(executed: Mapping[str, str], sha256: str) -> str:
    """The executed wheel, in words: the one with ``sha256``, or another one with equal bytes there."""
    return THIS if executed["sha256"] == sha256 else EARLIER
