"""Verify: the finished wheel in a container of another distribution, without GPU, ROCm or network.

In: the wheel, the verify image, the stand-in HIP runtime, and for each arch what its emulated suite showed.
Out: ``record.json``, which says per arch what was shown and what was not.  Raises ``VerifyError`` when a test
fails or none ran.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.errors import VerifyError
from wheel_builder.process import Runner, run
from wheel_builder.runtime_rules import serves, words
from wheel_builder.standin.container import CONTROL, PYTHON, SHARED, shared_mount, standin_suite
from wheel_builder.store import Artifact, Store, sha256_file, sha256_tree
from wheel_builder.wheel_tests import Suite, run_suite

TESTS = "tests/wheel"
ERROR_TESTS = "tests/standin"
RECORD = "record.json"


def verify_wheel(
    wheel: Path,
    emulated: Mapping[str, Artifact],
    *,
    static: Artifact,
    rocm: str,
    image: Artifact,
    standin: Artifact,
    disassembly: Artifact,
    runtimes: Mapping[str, Artifact],
    checkout: Path,
    store: Store,
    log: Path,
    run: Runner = run,
) -> Artifact:
    """Run ``tests/wheel`` and ``tests/standin`` against the wheel, and sum up with what the emulator showed.

    ``emulated`` has for each arch the result of its emulated suite, ``static`` what the static checks
    found, ``runtimes`` by ROCm version what loading under its runtime showed, its own, ``rocm``, included.
    Facts are the record: ``wheel``, ``sha256``, ``tests`` (counts by suite), ``differences`` (from the
    reviewed resources), ``archs`` (what was shown for each), ``runtimes`` (likewise, in words) and ``serves``
    (ROCm versions besides the wheel's own).
    """
    inputs = {
        "wheel": wheel.name,
        "sha256": sha256_file(wheel),
        "emulated": {arch: shown.key for arch, shown in emulated.items()},
        "static": static.key,
        "image": image.facts["image_id"],
        "standin": standin.key,
        "disassembly": disassembly.key,
        "runtimes": {rocm: load.key for rocm, load in runtimes.items()},
        "tests": sha256_tree(checkout, [checkout / path for path in (TESTS, ERROR_TESTS, CONTROL, SHARED)]),
    }
    if problems := runtimes[rocm].facts["problems"]:
        message = "\n".join(
            [f"{wheel.name} does not load under ROCm {rocm}", *(f"  - {each}" for each in problems)]
        )
        raise VerifyError(message, advice="read the log of the step that loads it")

    def make(out: Path) -> Mapping[str, Any]:
        suites = _suites(checkout, standin=standin, disassembly=disassembly)
        counts = _run_suites(wheel, suites, image=image, out=out, log=log, run=run)
        taken = static.facts["archs"]
        archs = {arch: what_was_shown(shown.facts, taken[arch]) for arch, shown in emulated.items()}
        record = {
            "wheel": wheel.name,
            "sha256": inputs["sha256"],
            "tests": counts,
            "differences": static.facts["differences"],
            "archs": archs,
            "runtimes": {rocm: words(load.facts) for rocm, load in runtimes.items()},
            "serves": serves(runtimes, rocm),
        }
        (out / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        return record

    return store.get_or_make("verify", inputs, make)


def _suites(checkout: Path, *, standin: Artifact, disassembly: Artifact) -> Mapping[str, Suite]:
    """What is run in the installed wheel, by the tests' folder."""
    return {
        TESTS: Suite(checkout / TESTS, (shared_mount(checkout),), (("PYTHONPATH", PYTHON),)),
        # Each scenario preloads the stand-in into a process of its own.
        ERROR_TESTS: standin_suite(
            checkout / ERROR_TESTS, standin=standin, disassembly=disassembly, checkout=checkout, preload=False
        ),
    }


def _run_suites(
    wheel: Path, suites: Mapping[str, Suite], *, image: Artifact, out: Path, log: Path, run: Runner
) -> Mapping[str, Any]:
    """Each suite's counts; what it leaves is in a folder of ``out``."""
    counts = {}
    for name, suite in suites.items():
        folder = out / Path(name).name
        folder.mkdir()
        counts[name] = run_suite(wheel, suite, image=image, out=folder, log=log, run=run)
    return counts


def what_was_shown(emulated: Mapping[str, Any], resources: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the record says of one arch: its emulated suite's record, and what each kernel takes."""
    names = ("tests", "checks", "seed", "instances", "launches", "wave_instructions", "findings")
    return {
        "code_objects": "present and complete, by the audit",
        "disassembly": "wait states, matrix instructions and scratch memory as planned, by the static checks",
        "resources": resources,
        "numerics": emulated["how"],
        "passed": not emulated["findings"],
        **{name: emulated[name] for name in names},
    }
