"""Wheels for an image's own Python, fetched in a container that has this machine's pip settings.

The image build then installs from the folder, offline: it neither knows nor keeps an index's name.
"""

import tempfile
import zipfile
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path

from wheel_builder import docker, hostenv
from wheel_builder.errors import ImageError
from wheel_builder.hostenv import HostSettings
from wheel_builder.process import Runner, run

DOCKERFILES = Path(__file__).resolve().parents[1] / "dockerfiles"
FETCH = "/run/fetch_wheels.sh"


def fetch_wheels(
    image: str,
    wanted: Sequence[str],
    into: Path,
    *,
    files: Sequence[Path] = (),
    python: str = "python3",
    host: HostSettings,
    log: Path,
    run: Runner = run,
) -> None:
    """Add to ``into`` what ``pip download`` gives ``python`` of the image for the arguments ``wanted``.

    ``files`` (requirement lists) are at ``/run/files/<name>`` for it, ``into`` is at ``/wheels``.
    """
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-host-") as folder:
        settings = hostenv.lay_out(host, Path(folder))
        mounts = [docker.Mount(into, "/wheels", writable=True)]
        mounts += [docker.Mount(DOCKERFILES / "fetch_wheels.sh", FETCH), *settings.mounts]
        mounts += [docker.Mount(file, f"/run/files/{file.name}") for file in files]
        docker.run_in(
            image,
            ["sh", FETCH, python, *wanted],
            mounts=mounts,
            env={**settings.env, "HOME": "/tmp"},  # noqa: S108  # a folder that any user of the container has
            network=settings.network,
            user=docker.caller(),
            log=log,
            run=run,
        )


def fetch_torch(
    image: str,
    torch: str,
    into: Path,
    *,
    python: str = "python3",
    index: str = "",
    host: HostSettings,
    log: Path,
    run: Runner = run,
) -> Path:
    """Add the torch wheel for a requirement such as ``torch==2.13.0``, alone, and return it.

    ``index`` is looked at besides pip's own settings.  Raises ``ImageError`` for a CUDA build: it would
    bring gigabytes that no AMD GPU can use.
    """
    argv = ["--no-deps", *(["--extra-index-url", index] if index else []), torch]
    fetch_wheels(image, argv, into, python=python, host=host, log=log, run=run)
    wheel = next(into.glob("torch-*.whl"))
    if needs := cuda_needs(requirements_of(wheel)):
        message = f"{wheel.name}: pip chose a CUDA build of torch; it needs {', '.join(needs[:3])}"
        raise ImageError(message, advice="name an index with CPU or ROCm builds: --torch-index URL")
    return wheel


def requirements_of(wheel: Path) -> tuple[str, ...]:
    """The ``Requires-Dist`` lines of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    return tuple(metadata.get_all("Requires-Dist") or ())


def cuda_needs(requirements: Sequence[str]) -> list[str]:
    """Those requirements that only a CUDA build of torch has."""
    return [line.split(";")[0].strip() for line in requirements if line.startswith(("nvidia-", "cuda-"))]
