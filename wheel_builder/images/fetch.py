"""Wheels for an image's own Python, fetched in a container with this machine's pip settings.

The image build then installs from the folder, offline, so no index's name can get into the image.
"""

import re
import tempfile
import zipfile
from collections.abc import Sequence
from email.parser import HeaderParser
from pathlib import Path

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Runner, run
from wheel_builder.images import docker, hostenv
from wheel_builder.images.hostenv import HostSettings

DOCKERFILES = Path(__file__).resolve().parents[2] / "dockerfiles"
FETCH = "fetch_wheels.sh"


def source_of(name: str) -> Path:
    """The file of this name in the folders of ``dockerfiles/``, where names are unique."""
    [found] = DOCKERFILES.glob(f"*/{name}")
    return found


def fetch_wheels(
    image: str,
    argv: Sequence[str],
    into: Path,
    *,
    files: Sequence[Path] = (),
    host: HostSettings,
    log: Path,
    run: Runner = run,
) -> None:
    """Add wheels fetched by ``pip download`` to ``into``. ``argv`` is a Python of the image and pip's
    arguments.

    In the container, ``files`` (requirement lists) are at ``inside(name)`` and ``into`` at ``/wheels``.
    """
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-host-") as folder:
        settings = hostenv.lay_out(host, Path(folder))
        mounts = [docker.Mount(into, "/wheels", writable=True), *settings.mounts]
        mounts += [docker.Mount(source_of(FETCH), inside(FETCH))]
        mounts += [docker.Mount(file, inside(file.name)) for file in files]
        docker.run_in(
            image,
            ["sh", inside(FETCH), *argv],
            mounts=mounts,
            env={**settings.env, "HOME": "/tmp"},  # noqa: S108  # a folder that any user of the container has
            network=settings.network,
            user=docker.caller(),
            log=log,
            run=run,
        )


def inside(name: str) -> str:
    """Where a file is in the container of ``fetch_wheels``."""
    return f"/run/files/{name}"


def refuse_cuda(wheel: Path) -> None:
    """Raise ``ImageError`` for a CUDA build of torch: it brings gigabytes useless on AMD GPUs."""
    if needs := cuda_needs(requirements_of(wheel)):
        message = f"{wheel.name}: pip chose a CUDA build of torch; it needs {', '.join(needs[:3])}"
        raise ImageError(message, advice="name an index with CPU or ROCm builds: --torch-index URL")


def torch_rocm(wheel: Path) -> str:
    """The version of HIP that a torch wheel was built with, empty for a CPU build."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("torch/version.py").decode()
    found = re.search(r"^hip\b[^=\n]*= *['\"]([^'\"\n]+)['\"]", text, re.MULTILINE)
    return found[1] if found else ""


def requirements_of(wheel: Path) -> tuple[str, ...]:
    """The ``Requires-Dist`` lines of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    return tuple(metadata.get_all("Requires-Dist") or ())


def cuda_needs(requirements: Sequence[str]) -> list[str]:
    """The requirements found only in CUDA builds of torch."""
    return [line.split(";")[0].strip() for line in requirements if line.startswith(("nvidia-", "cuda-"))]
