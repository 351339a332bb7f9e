"""The fake HIP runtime inside the verify container: where its parts are, and how tests find them."""

from collections.abc import Mapping
from pathlib import Path

from wheel_builder.base.store import Artifact
from wheel_builder.images.docker import Mount
from wheel_builder.images.wheel_tests import Suite

LIBRARY = "libamdhip64.so.7"
WINDOWS_LIBRARY = "amdhip64_7.dll"
CONTROL = "wheel_builder/machine_code/fake_hip/control.py"
# Imported by several suites.
SHARED = ("tests/installed/shared/upstream.py",)
PYTHON = "/python"  # where they find it
LIBRARY_INSIDE = f"/fake_hip/{LIBRARY}"
WINDOWS_LIBRARY_INSIDE = f"/fake_hip/{WINDOWS_LIBRARY}"
DISASSEMBLY = "/disassembly"


def fake_hip_suite(
    tests: Path,
    *,
    fake_hip: Artifact,
    disassembly: Artifact,
    checkout: Path,
    env: Mapping[str, str] | None = None,
    under_wine: bool = False,
) -> Suite:
    """``tests`` with the fake HIP runtime preloaded. Those ``under_wine`` load its DLL.

    Only the control module and shared files of suites come from the checkout. The package under test is the
    installed one.
    """
    inside = WINDOWS_LIBRARY_INSIDE if under_wine else LIBRARY_INSIDE
    own = {"FA_FAKE_HIP_DISASSEMBLY": DISASSEMBLY, "PYTHONPATH": PYTHON}
    mounts = (
        Mount(fake_hip.path / Path(inside).name, inside),
        Mount(disassembly.path, DISASSEMBLY),
        Mount(checkout / CONTROL, f"{PYTHON}/{CONTROL}"),
        *shared_mounts(checkout),
    )
    settings = tuple({**own, **(env or {})}.items())
    return Suite(tests, mounts, settings, preload=inside, under_wine=under_wine)


def shared_mounts(checkout: Path) -> tuple[Mount, ...]:
    """Mounts of files shared by suites, imported by their own name."""
    return tuple(
        Mount(checkout / path, f"{PYTHON}/{path.removeprefix('tests/installed/shared/')}") for path in SHARED
    )
