"""Verify: the finished wheel in a container of another distribution, without GPU, ROCm or network.

In: the wheel and the verify image.  Out: ``record.json``, which says per arch what was shown and what
was not, and ``junit.xml``.  Raises ``VerifyError`` when a test fails or none ran.
"""

import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheel_builder.docker import Mount, run_in
from wheel_builder.errors import CommandFailedError, VerifyError
from wheel_builder.process import Runner, run
from wheel_builder.store import Artifact, Store, sha256_file, sha256_tree

TESTS = "tests/wheel"
RECORD = "record.json"
# The numerics of device code have no check yet; a record must not sound as if they had.
NOT_EXECUTED = "not executed: neither on a GPU nor on an ISA emulator"
# Installed as a user would, then tested from a folder that has neither checkout nor wheel.
INSTALL_AND_TEST = """
set -eu
python -m pip install --no-index --no-deps --quiet /wheel/*.whl
cd /out
python -m pytest -p no:cacheprovider --strict-markers -W error --junit-xml=/out/junit.xml -q /tests
"""


def verify_wheel(
    wheel: Path,
    archs: Sequence[str],
    *,
    image: Artifact,
    checkout: Path,
    store: Store,
    log: Path,
    run: Runner = run,
) -> Artifact:
    """Install the wheel in a fresh container and run ``tests/wheel`` against it.

    Facts are the record: ``wheel``, ``sha256``, ``tests`` (counts) and ``archs`` (what was shown for each).
    """
    inputs = {
        "wheel": wheel.name,
        "sha256": sha256_file(wheel),
        "archs": list(archs),
        "image": image.facts["image_id"],
        "tests": sha256_tree(checkout, [checkout / TESTS]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        out.chmod(0o777)
        _run_tests(wheel, image=image, checkout=checkout, out=out, log=log, run=run)
        out.chmod(0o755)
        record = {
            "wheel": wheel.name,
            "sha256": inputs["sha256"],
            "tests": count_tests(out / "junit.xml"),
            "archs": {arch: what_was_shown() for arch in archs},
        }
        (out / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        return record

    return store.get_or_make("verify", inputs, make)


def _run_tests(wheel: Path, *, image: Artifact, checkout: Path, out: Path, log: Path, run: Runner) -> None:
    folder = out / "wheel"
    folder.mkdir()
    shutil.copy2(wheel, folder)
    mounts = [Mount(folder, "/wheel"), Mount(checkout / TESTS, "/tests"), Mount(out, "/out", writable=True)]
    try:
        run_in(image.facts["ref"], ["sh", "-c", INSTALL_AND_TEST], mounts=mounts, log=log, run=run)
    except CommandFailedError as error:
        message = f"{wheel.name} failed its tests in the verify container\n{error.message}"
        raise VerifyError(message, advice=f"read the log: {log}") from error
    shutil.rmtree(folder)


def count_tests(junit: Path) -> Mapping[str, int]:
    """Counts from a JUnit file; a run in which nothing passed, or anything was skipped, is a failure."""
    suites = ET.parse(junit).getroot().iter("testsuite")  # noqa: S314  written by our own pytest
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in suites:
        for name in counts:
            counts[name] += int(suite.get(name, "0"))
    if counts["tests"] == 0 or counts["failures"] or counts["errors"] or counts["skipped"]:
        message = f"the verify container's tests did not all pass: {counts}"
        raise VerifyError(message, advice="a wheel is published only when every test ran and passed")
    return {"passed": counts["tests"]}


def what_was_shown() -> Mapping[str, str]:
    """What the record says of one arch."""
    return {
        "code_objects": "present and complete, by the audit",
        "numerics": NOT_EXECUTED,
        "hardware": "not run on hardware",
    }
