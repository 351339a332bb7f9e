"""The last release's files in dist and in the build store, for tools run by hand after it."""

import json
from pathlib import Path

from wheel_builder.images.docker import Mount
from wheel_builder.machine_code.fake_hip.container import CONTROL, PYTHON, shared_mounts

# Independent of conftest.py: a .venv made by a release lacks pytest.
CHECKOUT = Path(__file__).parents[2]
BUILD = CHECKOUT / "build"


def newest(paths, what):
    """The latest path. Ends the program in words when there is none."""
    found = max(paths, key=lambda path: path.stat().st_mtime, default=None)
    if found is None:
        message = f"there is no {what}: scripts/release makes one"
        raise SystemExit(message)
    return found


def newest_wheel():
    return newest((CHECKOUT / "dist").glob("flash_attn_rocm-*-manylinux*.whl"), "wheel in dist")


def newest_built(stage):
    """The folder of the stage's last run."""
    return newest((BUILD / stage).glob("*/"), f"{stage} in build")


def verify_image():
    manifest = json.loads((newest_built("verify-image") / "manifest.json").read_text())
    return manifest["facts"]["ref"]


def fake_hip_mounts(wheel):
    """Mounts for running a release's wheel on the fake HIP runtime in the verify container."""
    return (
        Mount(wheel, f"/wheel/{wheel.name}"),
        Mount(newest_built("fake_hip"), "/fake_hip"),
        Mount(newest_built("wheel-disassembly"), "/disassembly"),
        Mount(CHECKOUT / CONTROL, f"{PYTHON}/{CONTROL}"),
        *shared_mounts(CHECKOUT),
    )
