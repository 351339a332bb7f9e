"""First use: pip installs the published wheel from the index in a fresh container, and attention runs.

Input: an index with the wheel, and the verify image (for Windows, the one with wine). Output: the results of
``scripts/first_use.py``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, VerifyError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact
from wheel_builder.images.docker import Mount, run_in
from wheel_builder.index.simple.serve import serving

SCRIPT = "scripts/first_use.py"


def install_and_call(
    requirement: str,
    *,
    index: Path,
    simple: Path,
    image: Artifact,
    checkout: Path,
    log: Path,
    under_wine: bool = False,
    run: Runner = run,
) -> Mapping[str, Any]:
    """Install ``requirement`` from ``simple`` in ``index``, served on loopback, and run attention once.

    With ``under_wine``, CPython for Windows runs it, in the image with wine.
    Returns ``version``, ``max_error`` (against float64), ``install_seconds`` and ``seconds_to_first_result``.
    """
    mounts = [Mount(checkout / SCRIPT, "/first_use.py")]
    url_path = simple.relative_to(index).as_posix()
    with serving(index) as address:
        python = "windows-python" if under_wine else "python"
        argv = [python, "/first_use.py", requirement, f"{address}/{url_path}/"]
        try:
            # The host's network, because the index answers on the host's loopback.
            done = run_in(image.facts["ref"], argv, mounts=mounts, network="host", log=log, run=run)
        except CommandFailedError as error:
            message = f"{requirement} does not install from the index, or does not run\n{error.message}"
            raise VerifyError(message, advice=f"read the log: {log}") from error
    result: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
