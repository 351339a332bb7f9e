"""The wheel's behaviour on errors of the HIP runtime, shown with the fake HIP runtime.

Each scenario is a separate process: the wheel's library caches facts of a device, and a hang must count as a
failure.  It is a fork of this process, which has imported torch and called nothing. The runtime reads its
settings at the first call.  Needs the installed wheel. wheel_builder/verify/stage.py sets the runtime in
LD_PRELOAD, FA_FAKE_HIP_DISASSEMBLY and, for each arch of the table, the features in FA_FEATURES.

Scenarios run on gfx942 by default, and name its kernels and instructions. ``needs_archs`` or a parameter
``arch`` changes this. Tests for archs missing from the wheel are left out.
"""

import multiprocessing
import os
import traceback
from pathlib import Path

import flash_attn_rocm  # noqa: F401  for the scenarios
import pytest
import torch
from flash_attn_rocm.library.host import gfx_of, instances

SECONDS = 120
PRELUDE = Path(__file__).with_name("prelude.py").read_text()
FORK = multiprocessing.get_context("fork")
FULL = os.environ.get("FA_FULL", "") not in {"", "0"}
DEFAULT = "gfx942:sramecc+:xnack-"


def pytest_configure(config):
    # Scenarios inherit it.  OpenMP's threads took two thirds of a check's time waiting for work.
    torch.set_num_threads(1)
    config.addinivalue_line("markers", "needs_archs(name, ...): the wheel has kernels for all of them")
    config.addinivalue_line("markers", "full: nightly, with FA_FULL")


def pytest_collection_modifyitems(items):
    # Left out instead of skipped: a skipped test verifies nothing.
    there = {arch for each in instances() for arch in each.archs}
    items[:] = [item for item in items if archs_of(item) <= there]
    items[:] = [item for item in items if FULL or not item.get_closest_marker("full")]


def archs_of(item):
    """The archs whose kernels a test runs."""
    if marker := item.get_closest_marker("needs_archs"):
        return {*marker.args}
    callspec = getattr(item, "callspec", None)
    return {gfx_of(callspec.params.get("arch", DEFAULT) if callspec else DEFAULT)}


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
    """Runs Python text after ``prelude.py`` under the fake HIP runtime with these settings.

    Returns ``shown``.
    """

    def run(text, *, arch=DEFAULT, seconds=SECONDS, **settings):
        settings = {f"FA_FAKE_HIP_{name.upper()}": value for name, value in settings.items()}
        answer, told = FORK.Pipe(duplex=False)
        child = FORK.Process(target=play, args=(text, {"FA_FAKE_HIP_ARCH": arch, **settings}, told))
        child.start()
        told.close()
        try:
            shown = answer.recv() if answer.poll(seconds) else f"no answer within {seconds} s"
        except EOFError:
            shown = "its process died"
        child.kill()
        child.join()
        assert isinstance(shown, dict), shown
        return shown

    return run
