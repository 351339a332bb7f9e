"""The emulated suite of one arch: the finished wheel's kernels, executed on the ISA emulator.

Input: the wheel as this suite sees it (``seen``), the verify image, the fake HIP runtime and the wheel's
disassembly. Output: ``record.json`` with the executed bytes, the worst error against float64, findings, and
coverage of instructions. Raises ``VerifyError`` when a test fails, a sanitizer finds something, one of the
wheel's kernels for the arch never ran, or too few instructions were executed.
"""

import hashlib
import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import VerifyError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, key_of
from wheel_builder.images import wheel_tests
from wheel_builder.images.wheel_tests import MOST_FAILURES, RELEASE_TIER, environment_of, run_suite
from wheel_builder.machine_code.fake_hip.container import DISASSEMBLY, fake_hip_suite
from wheel_builder.tables.archs import arch_named
from wheel_builder.verify import coverage
from wheel_builder.verify.coverage import REASONS, Reason, coverage_problems, explained, parse_reasons
from wheel_builder.verify.seen import WHOLE, SeenSuite, Subject, digest_of, listing_of, seen_suite

TESTS = "tests/installed/numerics"
RECORD = "record.json"
CHECKS = "uninit,race,barrier"
SEED = "1"
# Seconds of processor time for one launch. Without a limit an endless kernel would hang the suite.
TIME_LIMIT = "600"
# The files that run the suite and decide about its record.
JUDGES = (__file__, coverage.__file__, wheel_tests.__file__)


@dataclass(frozen=True)
class Emulation:
    """A suite to run: its view of the wheel, and its container's other inputs."""

    subject: Subject
    kernels: tuple[str, ...]
    seen: SeenSuite
    reasons: str

    @cached_property
    def key(self) -> Mapping[str, Any]:
        """All inputs of the result. The number of workgroups at a time has no effect on it."""
        return {
            "arch": self.subject.arch,
            "kernels": list(self.kernels),
            **self.subject.parts,
            **self.seen.key,
            "reasons": hashlib.sha256(self.reasons.encode()).hexdigest(),
            "judges": digest_of({Path(file).name: Path(file) for file in JUDGES}),
        }

    @property
    def executed(self) -> Mapping[str, str]:
        """The executed bytes, for the record: the wheel, and digests of the suite's inputs."""
        subject = self.subject
        others = {name: value for name, value in self.key.items() if name not in subject.parts}
        suite = {"suite": key_of(others, length=WHOLE)}
        return {"wheel": subject.wheel.name, "sha256": subject.sha256, **subject.parts, **suite}


def run_emulated(
    subject: Subject,
    kernels: Collection[str],
    *,
    image: Artifact,
    fake_hip: Artifact,
    disassembly: Artifact,
    checkout: Path,
    store: Store,
    jobs: int,
    log: Path,
    tier: str = RELEASE_TIER,
    under_wine: bool = False,
    most_failures: int = MOST_FAILURES,
    run: Runner = run,
) -> Artifact:
    """Run ``tests/installed/numerics`` for the subject's arch. All of ``kernels`` must run.

    Facts are the record.

    ``tier`` is the release tier or the larger nightly one. The record names it. After ``most_failures`` the
    suite stops. The record's ``executed`` names the installed wheel: a later wheel that looks equal to the
    suite has the same result. ``under_wine`` is for a wheel for Windows, with an image and a fake HIP runtime
    to match.
    """
    settings = {
        "FA_FAKE_HIP_ARCH": arch_named(subject.arch).device_name,
        "FA_FAKE_HIP_CHECKS": CHECKS,
        "FA_FAKE_HIP_SEED": SEED,
        "FA_FAKE_HIP_TIME_LIMIT": TIME_LIMIT,
        **environment_of(tier),
    }
    suite = fake_hip_suite(
        checkout / TESTS, fake_hip=fake_hip, disassembly=disassembly, checkout=checkout, env=settings,
        under_wine=under_wine,
    )  # fmt: skip
    seen = seen_suite(suite, image, {DISASSEMBLY: listing_of(disassembly.path, subject.arch)})
    reasons = (checkout / REASONS).read_text(encoding="utf-8")
    emulation = Emulation(subject, tuple(sorted(kernels)), seen, reasons)

    def make(out: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(prefix=f"{out.name}-given", dir=out.parent) as folder:
            given = seen.given(Path(folder))
            env = (*suite.env, ("FA_FAKE_HIP_THREADS", str(jobs)), ("FA_RECORD", f"/out/{RECORD}"))
            given = replace(given, env=env, most_failures=most_failures)
            counts = run_suite(subject.wheel, given, image=image, out=out, log=log, run=run)
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        record["tests"], record["tier"] = counts, tier
        reasons = parse_reasons(emulation.reasons)
        refuse_incomplete(record, subject.arch, kernels, reasons)
        record["coverage"] = explained(record["coverage"], reasons)
        record["executed"] = emulation.executed
        return record

    return store.get_or_make("emulated", emulation.key, make)


def refuse_incomplete(
    record: Mapping[str, Any], arch: str, kernels: Collection[str], reasons: Sequence[Reason]
) -> None:
    """Raise ``VerifyError`` unless the record is about ``arch``, all ``kernels`` ran with no finding, and
    instructions were executed or have one of ``reasons``, with the limits of coverage.py."""
    problems = [] if record["arch"] == arch else [f"it is about {record['arch']}"]
    problems += [f"{name} never ran" for name in sorted(set(kernels) - set(record["launches"]))]
    problems += [f"the emulator found: {finding}" for finding in record["findings"]]
    problems += coverage_problems(record["coverage"], reasons)
    if problems:
        title = f"the emulated suite of {arch} does not vouch for the wheel:"
        message = "\n  - ".join([title, *problems])
        raise VerifyError(
            message,
            advice="mend what was found; for instructions that never ran: python -m tests.tools.corpus",
        )
