"""The fake HIP runtime inside the verify container: where its parts are, and how tests find them."""

from collections.abc import Mapping
from pathlib import Path

from wheel_builder.base.store import Artifact
from wheel_builder.images.docker import Mount
from wheel_builder.images.wheel_tests import Suite

LIBRARY = "libamdhip64.so.7"
CONTROL = "wheel_builder/fake_hip/control.py"
SUITE = "kernels/suite"  # the corpus and the reference implementation, which wheels carry too
# What several suites import.
SHARED = (SUITE, "tests/upstream.py", "wheel_builder/emulator/rule.py")
PYTHON = "/python"  # where they find it
PYTHONPATH = f"{PYTHON}:{PYTHON}/{SUITE}"
LIBRARY_INSIDE = f"/fake_hip/{LIBRARY}"
DISASSEMBLY = "/disassembly"


def fake_hip_suite(
    tests: Path,
    *,
    fake_hip: Artifact,
    disassembly: Artifact,
    checkout: Path,
    env: Mapping[str, str] | None = None,
) -> Suite:
    """``tests`` with the fake HIP runtime preloaded into their process.

    Only the control module and what suites share come from the checkout: the package under test is the
    installed one.
    """
    own = {"FA_FAKE_HIP_DISASSEMBLY": DISASSEMBLY, "PYTHONPATH": PYTHONPATH}
    mounts = (
        Mount(fake_hip.path / LIBRARY, LIBRARY_INSIDE),
        Mount(disassembly.path, DISASSEMBLY),
        Mount(checkout / CONTROL, f"{PYTHON}/{CONTROL}"),
        *shared_mounts(checkout),
    )
    return Suite(tests, mounts, tuple({**own, **(env or {})}.items()), LIBRARY_INSIDE)


def shared_mounts(checkout: Path) -> tuple[Mount, ...]:
    """Mounts of what suites share: modules of wheel_builder import by full names, others by their own."""
    return tuple(Mount(checkout / path, f"{PYTHON}/{path.removeprefix('tests/')}") for path in SHARED)
