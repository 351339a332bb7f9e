"""The emulated suite of one arch: the finished wheel's kernels, executed on the ISA emulator.

In: the wheel, an arch, the verify image, the stand-in runtime and the wheel's disassembly.  Out:
``record.json``: what ran, the worst error against float64, findings.  Raises ``VerifyError`` when a test
fails, when a sanitizer finds something, or when a kernel that the wheel has for the arch never ran.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from wheel_builder.errors import VerifyError
from wheel_builder.process import Runner, run
from wheel_builder.standin.container import CONTROL, SHARED, standin_suite
from wheel_builder.store import Artifact, Store, sha256_file, sha256_tree
from wheel_builder.wheel_tests import run_suite

TESTS = "tests/emulated"
RECORD = "record.json"
CHECKS = "uninit,race,barrier"
SEED = "1"
FULL = "FA_FULL"  # read by the tests, and from the environment of ``verify``
# AMD's runtime names these devices with their feature flags.
DEVICES = {"gfx908": "gfx908:sramecc+:xnack-", "gfx942": "gfx942:sramecc+:xnack-"}


def run_emulated(
    wheel: Path,
    arch: str,
    kernels: Collection[str],
    *,
    image: Artifact,
    standin: Artifact,
    disassembly: Artifact,
    checkout: Path,
    store: Store,
    jobs: int,
    log: Path,
    full: bool = False,
    run: Runner = run,
) -> Artifact:
    """Run ``tests/emulated`` for ``arch``; ``kernels`` are those that have to run.  Facts are the record.

    ``full`` runs all of upstream's cases instead of a few.
    """
    settings = {
        "FA_STANDIN_ARCH": DEVICES.get(arch, arch),
        "FA_STANDIN_CHECKS": CHECKS,
        "FA_STANDIN_SEED": SEED,
        **({FULL: "1"} if full else {}),
    }
    inputs = {
        "wheel": sha256_file(wheel),
        "arch": arch,
        "kernels": sorted(kernels),
        "image": image.facts["image_id"],
        "standin": standin.key,
        "disassembly": disassembly.key,
        "settings": settings,
        "tests": sha256_tree(checkout, [checkout / path for path in (TESTS, CONTROL, SHARED)]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        # How many workgroups run at a time changes no result.
        env = {**settings, "FA_STANDIN_THREADS": str(jobs), "FA_RECORD": f"/out/{RECORD}"}
        suite = standin_suite(
            checkout / TESTS,
            standin=standin,
            disassembly=disassembly,
            checkout=checkout,
            env=env,
            preload=True,
        )
        counts = run_suite(wheel, suite, image=image, out=out, log=log, run=run)
        record: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        record["tests"] = counts
        refuse_incomplete(record, arch, kernels)
        return record

    return store.get_or_make("emulated", inputs, make)


def refuse_incomplete(record: Mapping[str, Any], arch: str, kernels: Collection[str]) -> None:
    """Raise ``VerifyError`` unless the record is about ``arch``, all ``kernels`` ran, nothing was found."""
    problems = [] if record["arch"] == arch else [f"it is about {record['arch']}"]
    problems += [f"{name} never ran" for name in sorted(set(kernels) - set(record["launches"]))]
    problems += [f"the emulator found: {finding}" for finding in record["findings"]]
    if problems:
        title = f"the emulated suite of {arch} does not vouch for the wheel:"
        message = "\n  - ".join([title, *problems])
        raise VerifyError(message, advice="test every kernel in tests/emulated, and mend what was found")
