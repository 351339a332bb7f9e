"""The wheel's behaviour when the HIP runtime reports errors, shown with the fake HIP runtime.

Each scenario is a process of its own, because the wheel's library caches what it knows of a device, and a
hang must count as a failure.  It is a fork of this process, which has imported torch and has called nothing:
the runtime reads its settings at the first call.  Needs the installed wheel and, from
wheel_builder/verify/stage.py, the runtime in LD_PRELOAD and FA_FAKE_HIP_DISASSEMBLY.
"""

import multiprocessing
import os
import traceback
from pathlib import Path

import flash_attn_rocm  # noqa: F401  for the scenarios
import pytest

SECONDS = 120
PRELUDE = Path(__file__).with_name("prelude.py").read_text()
FORK = multiprocessing.get_context("fork")


def play(text, settings, told):
    """In a scenario's process: run its text, and send its ``shown`` or the words of its failure."""
    os.environ.update(settings)
    names = {}
    try:
        exec(compile(f"{PRELUDE}\n{text}", "scenario", "exec"), names)
        told.send(names["shown"])
    except BaseException:  # noqa: BLE001  whatever it is, the test shows its words
        told.send(traceback.format_exc())


@pytest.fixture
def scenario():
    """Runs Python text after ``prelude.py`` under the fake HIP runtime with these settings; its ``shown``."""

    def run(text, *, arch="gfx942:sramecc+:xnack-", **settings):
        settings = {f"FA_FAKE_HIP_{name.upper()}": value for name, value in settings.items()}
        answer, told = FORK.Pipe(duplex=False)
        child = FORK.Process(target=play, args=(text, {"FA_FAKE_HIP_ARCH": arch, **settings}, told))
        child.start()
        told.close()
        try:
            shown = answer.recv() if answer.poll(SECONDS) else f"no answer within {SECONDS} s"
        except EOFError:
            shown = "its process died"
        child.kill()
        child.join()
        assert isinstance(shown, dict), shown
        return shown

    return run
