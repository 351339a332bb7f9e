"""ccache in containers that compile: the folder that is mounted, and what ccache is told."""

from collections.abc import Mapping
from pathlib import Path

from wheel_builder.docker import Mount

CACHE = "/cache"


def cache_mount(folder: Path) -> Mount:
    """What is in ``folder`` as ``CACHE``; both are made where they are not there.

    ``NOBODY`` can write to it.  Nobody else here reaches it: ``folder`` is made the caller's alone.
    """
    inside = folder / "objects"
    if not inside.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        inside.mkdir()
        inside.chmod(0o777)
    return Mount(inside, CACHE, writable=True)


def cache_settings(compiler: str) -> Mapping[str, str]:
    """The environment; ``compiler`` tells compilers apart.  The caller can remove what ``NOBODY`` leaves."""
    return {"CCACHE_COMPILERCHECK": f"string:{compiler}", "CCACHE_UMASK": "000"}
