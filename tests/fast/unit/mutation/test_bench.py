"""Effects between runs of mutants on one machine."""

import fcntl
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tools.mutation.__main__ import by_static_checks
from tests.tools.mutation.bench import Bench

PUBLIC = "flash_attn_rocm-0.1.0-py3-none-manylinux_2_28_x86_64.whl"


def test_runs_on_one_arch_wait_for_each_other(tmp_path):
    """The second overwrote the first's folders, so verdicts went to the wrong mutants."""
    bench = Bench(None, "7.2", (), None, None, None, None, SimpleNamespace(build=tmp_path))
    with bench.alone("gfx942"), (bench.folder / "gfx942.lock").open("w") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with bench.alone("gfx1030"):
            pass
    with (bench.folder / "gfx942.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_static_checks_of_mutants_need_no_rocm_version_in_the_wheels_name():
    """The public wheel, since it became the default, has no such name: every run of mutants ended there."""
    by_static_checks(SimpleNamespace(wheel=Path(PUBLIC), rocm="7.2", codes={}), [], [], [])
