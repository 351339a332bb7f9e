"""Upstream's source distribution, fetched by hash, and nothing of it executed.

pip asks a source distribution for its metadata before it saves it, which would run upstream's setup.py on
this machine.  Here pip finds another build backend in its place, which answers without looking.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import UpstreamError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file
from wheel_builder.matrix.model import Upstream

NAME = "flash-attn"
BACKEND = """
import pathlib, sys

__legacy__ = sys.modules[__name__]

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder, "flash_attn-{version}.dist-info")
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return info.name
"""


def fetch_sdist(upstream: Upstream, store: Store, *, log: Path, run: Runner = run) -> Artifact:
    """The source distribution; fact: ``file``, its name.

    Raises ``UpstreamError`` when pip's file has another hash, ``CommandFailedError`` when pip finds none.
    """
    inputs = {"version": upstream.version, "sha256": upstream.sha256}

    def make(folder: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-upstream-") as aside:
            _download(upstream, Path(aside), folder, log, run)
        files = list(folder.iterdir())
        found = {file.name: sha256_file(file) for file in files}
        if list(found.values()) != [upstream.sha256]:
            title = f"the source distribution of {NAME} {upstream.version} is not the one of matrix.yaml"
            problems = [f"expected one file with sha256 {upstream.sha256}", f"found {found or 'no file'}"]
            advice = "ask another index; if it is right, change upstream.sha256 in matrix.yaml"
            raise UpstreamError(title, problems, advice=advice)
        return {"file": files[0].name}

    return store.get_or_make("upstream-sdist", inputs, make)


def _download(upstream: Upstream, aside: Path, into: Path, log: Path, run: Runner) -> None:
    backend = aside / "setuptools"
    backend.mkdir()
    (backend / "__init__.py").touch()
    text = BACKEND.format(name=NAME, version=upstream.version)
    (backend / "build_meta.py").write_text(text, encoding="utf-8")
    wanted = aside / "requirements.txt"
    pinned = f"{NAME}=={upstream.version} --hash=sha256:{upstream.sha256}\n"
    wanted.write_text(pinned, encoding="utf-8")
    argv: list[str | Path] = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    argv += ["--no-deps", "--no-binary=:all:", "--require-hashes"]
    argv += ["--no-build-isolation", "--use-pep517", "--dest", into, "--requirement", wanted]
    advice = f"pip has to find the source distribution of {NAME} {upstream.version}: pip config"
    run(argv, log=log, env={**os.environ, "PYTHONPATH": str(aside)}, advice=advice)
