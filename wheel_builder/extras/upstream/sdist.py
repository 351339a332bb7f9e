"""Upstream's source distribution, fetched by hash and never executed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import UpstreamError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store
from wheel_builder.images.sdist import Sdist, download
from wheel_builder.matrix.model import Upstream

NAME = "flash-attn"


def fetch_sdist(upstream: Upstream, store: Store, *, log: Path, run: Runner = run) -> Artifact:
    """The source distribution. Fact: ``file``, its name.

    Raises ``UpstreamError`` for another hash, ``CommandFailedError`` when pip finds no file.
    """
    inputs = {"version": upstream.version, "sha256": upstream.sha256}

    def make(folder: Path) -> Mapping[str, Any]:
        pinned = Sdist(NAME, upstream.version, upstream.sha256)
        found = download(pinned, folder, log=log, run=run)
        if list(found.values()) != [upstream.sha256]:
            title = f"the source distribution of {NAME} {upstream.version} is not the one of matrix.yaml"
            problems = [f"expected one file with sha256 {upstream.sha256}", f"found {found or 'no file'}"]
            advice = "ask another index; if it is right, change upstream.sha256 in matrix.yaml"
            raise UpstreamError(title, problems, advice=advice)
        return {"file": next(iter(found))}

    return store.get_or_make("upstream-sdist", inputs, make)
