"""The stand-in inside the verify container: where its parts are, and what tests are told of them."""

from collections.abc import Mapping
from pathlib import Path

from wheel_builder.docker import Mount
from wheel_builder.store import Artifact
from wheel_builder.wheel_tests import Suite

LIBRARY = "libamdhip64.so.7"
CONTROL = "wheel_builder/standin/control.py"
SHARED = "tests/upstream.py"  # what tests of several suites import
PYTHON = "/python"  # where they find it
LIBRARY_INSIDE = f"/standin/{LIBRARY}"


def standin_suite(
    tests: Path,
    *,
    standin: Artifact,
    disassembly: Artifact,
    checkout: Path,
    env: Mapping[str, str] | None = None,
    preload: bool,
) -> Suite:
    """``tests`` with the stand-in at hand, and in their own process when ``preload`` is set.

    Of the checkout only the control module and what suites share is there: the package that is tested is the
    installed one.
    """
    own = {
        "FA_STANDIN_DISASSEMBLY": "/disassembly",
        "FA_STANDIN_LIBRARY": LIBRARY_INSIDE,
        "PYTHONPATH": PYTHON,
    }
    mounts = (
        Mount(standin.path, "/standin"),
        Mount(disassembly.path, "/disassembly"),
        Mount(checkout / CONTROL, f"{PYTHON}/{CONTROL}"),
        shared_mount(checkout),
    )
    return Suite(tests, mounts, tuple({**own, **(env or {})}.items()), LIBRARY_INSIDE if preload else "")


def shared_mount(checkout: Path) -> Mount:
    """What suites share, for Python to find."""
    return Mount(checkout / SHARED, f"{PYTHON}/{Path(SHARED).name}")
