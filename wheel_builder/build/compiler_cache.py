"""ccache for containers that compile: its mounted folder and its settings."""

from collections.abc import Mapping
from pathlib import Path

from wheel_builder.images.docker import Mount

CACHE = "/cache"


def cache_mount(folder: Path) -> Mount:
    """Mount ``folder / "objects"`` at ``CACHE``. Both folders are created if missing.

    ``folder`` is closed to everybody except the caller. ``NOBODY`` can write to the mount.
    """
    inside = folder / "objects"
    if not inside.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        inside.mkdir()
        inside.chmod(0o777)
    return Mount(inside, CACHE, writable=True)


def cache_settings(compiler: str) -> Mapping[str, str]:
    """ccache's environment. ``compiler`` identifies the compiler. The caller can delete its files."""
    return {"CCACHE_COMPILERCHECK": f"string:{compiler}", "CCACHE_UMASK": "000"}
