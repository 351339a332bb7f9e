"""Source distributions from an index, downloaded without running them.

Before saving a source distribution, pip asks it for its metadata. That would run its setup.py on this
machine.
Here pip finds a different build backend with a fixed answer.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import sha256_file

BACKEND = """
import pathlib, sys

__legacy__ = sys.modules[__name__]

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder, "{file}-{version}.dist-info")
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info.name
"""


@dataclass(frozen=True)
class Sdist:
    """A source distribution pinned by its hash."""

    name: str
    version: str
    sha256: str


def download(sdist: Sdist, into: Path, *, log: Path, run: Runner = run) -> Mapping[str, str]:
    """Fetch it into the empty folder ``into``. Returns the sha256 of each file there, by name.

    Raises ``CommandFailedError`` if pip finds none.
    """
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-sdist-") as folder:
        aside = Path(folder)
        backend = aside / "setuptools"
        backend.mkdir()
        (backend / "__init__.py").touch()
        file = sdist.name.replace("-", "_")
        text = BACKEND.format(name=sdist.name, file=file, version=sdist.version)
        (backend / "build_meta.py").write_text(text, encoding="utf-8")
        wanted = aside / "requirements.txt"
        pinned = f"{sdist.name}=={sdist.version} --hash=sha256:{sdist.sha256}\n"
        wanted.write_text(pinned, encoding="utf-8")
        argv: list[str | Path] = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
        argv += ["--no-deps", "--no-binary=:all:", "--require-hashes"]
        argv += ["--no-build-isolation", "--use-pep517", "--dest", into, "--requirement", wanted]
        advice = f"pip has to find the source distribution of {sdist.name} {sdist.version}: pip config"
        run(argv, log=log, env={**os.environ, "PYTHONPATH": str(aside)}, advice=advice)
    return {file.name: sha256_file(file) for file in into.iterdir()}
