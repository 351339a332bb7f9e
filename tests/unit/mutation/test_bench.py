"""What runs of mutants on one machine do to each other."""

import fcntl
from types import SimpleNamespace

import pytest

from tests.mutation.bench import Bench


def test_runs_on_one_arch_wait_for_each_other(tmp_path):
    """The second overwrote the folders of the first, whose mutants were then judged as others."""
    bench = Bench(None, (), None, None, None, None, SimpleNamespace(build=tmp_path))
    with bench.alone("gfx942"), (bench.folder / "gfx942.lock").open("w") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with bench.alone("gfx1030"):
            pass
    with (bench.folder / "gfx942.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
