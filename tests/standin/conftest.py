"""The wheel's behaviour when the HIP runtime reports errors, shown with the stand-in runtime.

Each scenario is a process of its own: the wheel's library keeps what it learned of a device, and a hang has
to be a failure.  Needs the installed wheel and, from wheel_builder/stages/emulated.py, FA_STANDIN_LIBRARY and
FA_STANDIN_DISASSEMBLY.
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
    """Runs Python text after ``prelude.py`` with the stand-in and the given FA_STANDIN settings; what it
    showed."""

    def run(text, *, arch="gfx942:sramecc+:xnack-", **settings):
        script = tmp_path / "scenario.py"
        script.write_text(f"{PRELUDE}\n{text}\ntell()\n")
        env = {name: value for name, value in os.environ.items() if not name.startswith("FA_STANDIN_")}
        env |= {"FA_STANDIN_DISASSEMBLY": os.environ["FA_STANDIN_DISASSEMBLY"], "FA_STANDIN_ARCH": arch}
        env |= {f"FA_STANDIN_{name.upper()}": value for name, value in settings.items()}
        env["LD_PRELOAD"] = os.environ["FA_STANDIN_LIBRARY"]
        done = subprocess.run(
            [sys.executable, "-W", "error", script],
            env=env, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run
