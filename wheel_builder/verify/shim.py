"""A distribution such as flash-attn installed with a finished wheel, tested in the verify container.

Input: its wheel, a wheel of flash-attn-rocm, the verify image. Output: the counts of its tests, for its
published record. Raises ``VerifyError`` when a test fails or none ran.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file, sha256_tree
from wheel_builder.build.shim import Shim
from wheel_builder.images.docker import Mount
from wheel_builder.images.wheel_tests import Suite, run_suite

IMPORTS = "wheel_builder/verify/imports.json"  # imports of flash_attn in released libraries
INSIDE = "/imports.json"


def verify_shim(
    shim: Shim,
    file: Path,
    wheel: Path,
    *,
    image: Artifact,
    checkout: Path,
    store: Store,
    log: Path,
    under_wine: bool = False,
    run: Runner = run,
) -> Artifact:
    """Facts: ``beside`` (the other wheel's name and sha256) and ``tests`` (counts).

    ``under_wine`` is for a wheel for Windows, in the image with wine.
    """
    inputs = {
        "shim": sha256_file(file),
        "beside": {"wheel": wheel.name, "sha256": sha256_file(wheel)},
        "image": image.facts["image_id"],
        "tests": sha256_tree(checkout, [checkout / shim.tests, checkout / IMPORTS]),
    }

    def make(out: Path) -> Mapping[str, Any]:
        suite = Suite(
            checkout / shim.tests,
            (Mount(checkout / IMPORTS, INSIDE),),
            env=(("FA_IMPORTS", INSIDE),),
            wheels=(file,),
            under_wine=under_wine,
        )
        counts = run_suite(wheel, suite, image=image, out=out, log=log, run=run)
        return {"beside": inputs["beside"], "tests": counts}

    return store.get_or_make("verify-shim", inputs, make)


def record_of(shim: Shim, file: Path, shown: Sequence[Artifact]) -> Mapping[str, Any]:
    """The record: its tests with each of the wheels. It has no kernels, so no archs."""
    return {
        "wheel": file.name,
        "sha256": sha256_file(file),
        "beside": [one.facts["beside"] for one in shown],
        "tests": {shim.tests: [one.facts["tests"] for one in shown]},
        "archs": {},
    }
