"""All of upstream's cases on the emulator, on every arch: a long run (tests/installed/shared)."""

import os
import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT


@pytest.mark.full
def test_the_released_wheel_passes_all_of_upstreams_cases(release):
    done = subprocess.run(
        [sys.executable, "-m", "wheel_builder", "verify", str(release.wheel)],
        cwd=CHECKOUT, capture_output=True, text=True, check=False, env={**os.environ, "FA_FULL": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
