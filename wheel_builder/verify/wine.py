"""Verify a wheel for Windows: its tests and its kernels' numerics under wine, which is not Windows.

Input: the wheel, the image with wine, the fake HIP runtime for Windows, and the results of emulated suites.
Output: ``record.json``, with the results and the gaps of each arch. Raises ``VerifyError`` when a test fails
or none ran.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file, sha256_tree
from wheel_builder.images.wheel_tests import run_suite
from wheel_builder.machine_code.fake_hip.container import CONTROL, SHARED, fake_hip_suite
from wheel_builder.matrix.model import WINDOWS, Job
from wheel_builder.tables.archs import arch_named, known_products, served_by
from wheel_builder.tables.products import NOT_WINDOWS, device_names
from wheel_builder.verify.stage import what_was_shown, write_record

TESTS = "tests/installed/windows"
HOW = "executed under wine on an ISA emulator, not on Windows"
NOT_EXECUTED = (
    "not executed under wine, where one arch of each matrix unit is, with FA_FULL=1 every arch; its code "
    "objects passed the audit and the static checks"
)
NO_MATRIX_UNIT = ("dot2", "dot2_64")


def archs_under_wine(archs: Sequence[str], *, full: bool) -> tuple[str, ...]:
    """The archs of a wheel whose emulated suite runs under wine.

    The first of each matrix unit, or all with ``full`` and if none has a matrix unit.
    """
    first: dict[str, str] = {}
    for arch in archs:
        first.setdefault(arch_named(arch).isa.unit, arch)
    for unit in NO_MATRIX_UNIT:
        first.pop(unit, None)
    return tuple(first.values()) if first and not full else tuple(archs)


def verify_under_wine(
    wheel: Path,
    emulated: Mapping[str, Artifact],
    *,
    static: Artifact,
    job: Job,
    image: Artifact,
    fake_hip: Artifact,
    disassembly: Artifact,
    checkout: Path,
    store: Store,
    log: Path,
    run: Runner = run,
) -> Artifact:
    """Run the tests of the installed wheel under wine, and join their results with the emulator's.

    Parameters are as for ``verify_wheel``. ``emulated`` may lack archs. Facts are the record, as there, with
    no ROCm version that it ``serves``: loading with a HIP runtime is untested.
    """
    archs = {arch: emulated[arch].key if arch in emulated else "" for arch in job.archs}
    named = {"wheel": wheel.name, "sha256": sha256_file(wheel)}
    inputs = {
        **named,
        "emulated": archs,
        "static": static.key,
        "image": image.facts["image_id"],
        "fake_hip": fake_hip.key,
        "disassembly": disassembly.key,
        "tests": sha256_tree(checkout, [checkout / path for path in (TESTS, CONTROL, *SHARED)]),
        "gpus": {arch: [served_by(arch), known_on_windows(arch)] for arch in archs},
        "words": [HOW, NOT_EXECUTED],
    }

    def make(out: Path) -> Mapping[str, Any]:
        suite = fake_hip_suite(
            checkout / TESTS, fake_hip=fake_hip, disassembly=disassembly, checkout=checkout, under_wine=True,
            env={"FA_FAKE_HIP_ARCH": arch_named(next(iter(emulated))).device_name},
        )  # fmt: skip
        folder = out / Path(TESTS).name
        folder.mkdir()
        counts = run_suite(wheel, suite, image=image, out=folder, log=log, run=run)
        shown = {arch: _shown(arch, emulated, static, named["sha256"]) for arch in archs}
        return write_record(out, {**named, "tests": {TESTS: counts}}, static, shown, {"serves": []})

    return store.get_or_make("verify-wine", inputs, make)


def known_on_windows(arch: str) -> list[str]:
    """The GPUs that run the code of ``arch`` and that HIP's runtime for Windows has in its table."""
    others = {gpu: device_names(known_products()[gpu].elsewhere) for gpu in served_by(arch)}
    return [gpu for gpu, elsewhere in others.items() if NOT_WINDOWS not in elsewhere]


def _shown(arch: str, emulated: Mapping[str, Artifact], static: Artifact, sha256: str) -> Mapping[str, Any]:
    shown = {"resources": static.facts["archs"][arch], "runtimes": {WINDOWS: known_on_windows(arch)}}
    if arch in emulated:
        return {**what_was_shown(emulated[arch].facts, shown["resources"], sha256), **shown, "numerics": HOW}
    return {**shown, "numerics": NOT_EXECUTED, "passed": False}
