"""The wheel's behaviour when the HIP runtime reports errors, shown with the fake HIP runtime.

Each scenario is a process of its own, because the wheel's library caches what it knows of a device, and a
hang must count as a failure.  Needs the installed wheel and, from wheel_builder/verify/numerics.py,
FA_FAKE_HIP_LIBRARY and FA_FAKE_HIP_DISASSEMBLY.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 120
PRELUDE = Path(__file__).with_name("prelude.py").read_text()


@pytest.fixture
def scenario(tmp_path):
    """Runs Python text after ``prelude.py`` under the fake HIP runtime with these settings; its ``shown``."""

    def run(text, *, arch="gfx942:sramecc+:xnack-", **settings):
        script = tmp_path / "scenario.py"
        script.write_text(f"{PRELUDE}\n{text}\ntell()\n")
        env = {name: value for name, value in os.environ.items() if not name.startswith("FA_FAKE_HIP_")}
        env |= {"FA_FAKE_HIP_DISASSEMBLY": os.environ["FA_FAKE_HIP_DISASSEMBLY"], "FA_FAKE_HIP_ARCH": arch}
        env |= {f"FA_FAKE_HIP_{name.upper()}": value for name, value in settings.items()}
        env["LD_PRELOAD"] = os.environ["FA_FAKE_HIP_LIBRARY"]
        done = subprocess.run(
            [sys.executable, "-W", "error", script],
            env=env, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run
