"""Running a folder of tests against an installed wheel, in a container, outside the checkout."""

import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheel_builder.base.errors import CommandFailedError, VerifyError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact
from wheel_builder.images.docker import Mount, run_in

JUNIT = "junit.xml"
TIMES = "times"  # the shell's: processor time of itself and its children
TIME = re.compile(r"(\d+)m([\d.]+)s")
# A setting read by the tests and from ``verify``'s own environment: the nightly tier, with the slow tests.
FULL = "FA_FULL"
# CI and every release run the first. The second runs more.
TIERS = RELEASE_TIER, NIGHTLY_TIER = "release", "nightly"
MOST_FAILURES = 20  # enough to show that a kernel is wrong everywhere
WINE_SECONDS, FULL_WINE_SECONDS = 1800, 86400  # after this time a suite under wine counts as hung
# Installed as by a user, then tested from a folder outside checkout and wheel.
INSTALL_AND_TEST = f"""
set -eu
python -m pip install --no-index --no-deps --quiet /wheel/*.whl
cd /out
LD_PRELOAD="${{PRELOAD:-}}" python -m pytest -p no:cacheprovider --strict-markers -W error \\
    --maxfail="$MOST_FAILURES" --junit-xml=/out/{JUNIT} -q /tests
times > /out/{TIMES}
"""
# The Windows counterpart. wine shows this file system as the drive where its processes begin, so all paths
# are the same. NumPy is left out: it calls a function missing in wine's C library.
INSTALL_AND_TEST_UNDER_WINE = f"""
set -eu
cd /wheel
windows-python -m pip install --no-index --no-deps --quiet *.whl
cd /out
PYTHONPATH=$(echo "${{PYTHONPATH:-}}" | tr : ';')
seconds=${{{FULL}:+{FULL_WINE_SECONDS}}}
export PYTHONPATH FA_FAKE_HIP_DLL="${{PRELOAD:-}}" FA_WINE_SECONDS="${{seconds:-{WINE_SECONDS}}}"
windows-python -m pytest -p no:cacheprovider --strict-markers -W error \\
    -W "ignore:Failed to initialize NumPy" \\
    --maxfail="$MOST_FAILURES" --junit-xml=/out/{JUNIT} -q /tests
times > /out/{TIMES}
"""


def environment_of(tier: str) -> dict[str, str]:
    """The environment that selects the tests of a tier."""
    return {FULL: "1"} if tier == NIGHTLY_TIER else {}


@dataclass(frozen=True)
class Suite:
    """Tests to run, and their needs in the container.

    ``preload`` is loaded into the tests' Python. After ``most_failures`` the run stops. ``wheels`` are
    installed too. With ``under_wine`` the Python is Windows', and ``preload`` a DLL.
    """

    tests: Path
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    preload: str = ""
    most_failures: int = MOST_FAILURES
    wheels: tuple[Path, ...] = ()
    under_wine: bool = False


def run_suite(
    wheel: Path, suite: Suite, *, image: Artifact, out: Path, log: Path, run: Runner = run
) -> Mapping[str, int]:
    """Run the tests against the wheel and return their counts. ``out`` is ``/out`` in the container.

    Raises ``VerifyError`` unless tests ran and all passed.
    """
    folder = out / "wheel"
    folder.mkdir()
    for each in (wheel, *suite.wheels):
        shutil.copy2(each, folder)
    out.chmod(0o777)
    mounts: Sequence[Mount] = (
        Mount(folder, "/wheel"), Mount(suite.tests, "/tests"), Mount(out, "/out", writable=True),
        *suite.mounts,
    )  # fmt: skip
    env = {
        **dict(suite.env), "PRELOAD": suite.preload, "MOST_FAILURES": str(suite.most_failures),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    argv = ["sh", "-c", INSTALL_AND_TEST_UNDER_WINE if suite.under_wine else INSTALL_AND_TEST]
    where = "the container with wine" if suite.under_wine else "the verify container"
    try:
        run_in(image.facts["ref"], argv, mounts=mounts, env=env, log=log, run=run)
    except CommandFailedError as error:
        message = f"{wheel.name} failed {suite.tests.name}'s tests in {where}\n{error.message}"
        raise VerifyError(message, advice=f"read the log: {log}") from error
    out.chmod(0o755)
    shutil.rmtree(folder)
    return count_tests(out / JUNIT)


def suite_cost(out: Path) -> float | None:
    """CPU-seconds of the suite with results in ``out``, None without results."""
    times = out / TIMES
    if not times.is_file():
        return None
    found = TIME.findall(times.read_text(encoding="utf-8"))
    return sum(60 * int(minutes) + float(rest) for minutes, rest in found)


def _suites_in(junit: Path) -> Iterator[ET.Element]:
    return ET.parse(junit).getroot().iter("testsuite")  # noqa: S314  written by our own pytest


def count_tests(junit: Path) -> Mapping[str, int]:
    """Counts from a JUnit file. Raises ``VerifyError`` unless all tests ran and passed."""
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in _suites_in(junit):
        for name in counts:
            counts[name] += int(suite.get(name, "0"))
    if counts["tests"] == 0 or counts["failures"] or counts["errors"] or counts["skipped"]:
        message = f"the verify container's tests did not all pass: {counts}"
        raise VerifyError(message, advice="a wheel is published only when every test ran and passed")
    return {"passed": counts["tests"]}
