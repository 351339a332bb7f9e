"""The emulated suite of one arch: the finished wheel's kernels, executed on the ISA emulator.

In: the wheel, an arch, the verify image, the fake HIP runtime and the wheel's disassembly.  Out:
``record.json``: what ran, the worst error against float64, findings, and which instructions were executed.
Raises ``VerifyError`` when a test fails, a sanitizer finds something, one of the wheel's kernels for the arch
never ran, or too few instructions were executed.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wheel_builder.base.archs import arch_named
from wheel_builder.base.errors import VerifyError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file, sha256_tree
from wheel_builder.fake_hip.container import CONTROL, SHARED, fake_hip_suite
from wheel_builder.images.wheel_tests import FULL, MOST_FAILURES, run_suite
from wheel_builder.verify.coverage import REASONS, Reason, coverage_problems, explained, parse_reasons

TESTS = "tests/numerics"
RECORD = "record.json"
CHECKS = "uninit,race,barrier"
SEED = "1"
# Seconds of processor time for one launch; without a limit, a kernel that does not end would hang the suite.
TIME_LIMIT = "600"


def run_emulated(
    wheel: Path,
    arch: str,
    kernels: Collection[str],
    *,
    image: Artifact,
    fake_hip: Artifact,
    disassembly: Artifact,
    checkout: Path,
    store: Store,
    jobs: int,
    log: Path,
    full: bool = False,
    most_failures: int = MOST_FAILURES,
    run: Runner = run,
) -> Artifact:
    """Run ``tests/numerics`` for ``arch``, where all of ``kernels`` have to run.  Facts are the record.

    ``full`` runs all of upstream's cases instead of a few.  After ``most_failures`` the suite stops.
    """
    settings = {
        "FA_FAKE_HIP_ARCH": arch_named(arch).device_name,
        "FA_FAKE_HIP_CHECKS": CHECKS,
        "FA_FAKE_HIP_SEED": SEED,
        "FA_FAKE_HIP_TIME_LIMIT": TIME_LIMIT,
        **({FULL: "1"} if full else {}),
    }
    inputs = {
        "wheel": sha256_file(wheel),
        "arch": arch,
        "kernels": sorted(kernels),
        "image": image.facts["image_id"],
        "fake_hip": fake_hip.key,
        "disassembly": disassembly.key,
        "settings": settings,
        "tests": sha256_tree(checkout, [checkout / path for path in (TESTS, CONTROL, *SHARED)]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        # Not in the key: the number of workgroups at a time does not change results.
        env = {**settings, "FA_FAKE_HIP_THREADS": str(jobs), "FA_RECORD": f"/out/{RECORD}"}
        suite = fake_hip_suite(
            checkout / TESTS,
            fake_hip=fake_hip,
            disassembly=disassembly,
            checkout=checkout,
            env=env,
        )
        counts = run_suite(
            wheel, replace(suite, most_failures=most_failures), image=image, out=out, log=log, run=run
        )
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        record["tests"] = counts
        reasons = parse_reasons((checkout / REASONS).read_text(encoding="utf-8"))
        refuse_incomplete(record, arch, kernels, reasons)
        record["coverage"] = explained(record["coverage"], reasons)
        return record

    return store.get_or_make("emulated", inputs, make)


def refuse_incomplete(
    record: Mapping[str, Any], arch: str, kernels: Collection[str], reasons: Sequence[Reason]
) -> None:
    """Raise ``VerifyError`` unless the record is about ``arch``, all ``kernels`` ran, nothing was found, and
    instructions were executed or have one of ``reasons``, as far as coverage.py asks."""
    problems = [] if record["arch"] == arch else [f"it is about {record['arch']}"]
    problems += [f"{name} never ran" for name in sorted(set(kernels) - set(record["launches"]))]
    problems += [f"the emulator found: {finding}" for finding in record["findings"]]
    problems += coverage_problems(record["coverage"], reasons)
    if problems:
        title = f"the emulated suite of {arch} does not vouch for the wheel:"
        message = "\n  - ".join([title, *problems])
        raise VerifyError(
            message, advice="mend what was found; for instructions that never ran: python -m tests.corpus"
        )
