"""A log of 200 MB takes under 10 s of CPU and 200 MB of memory, and two million lines under 20 s."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LINES = (Path(__file__).parent / "logs/ck-interrupted.txt").read_bytes().splitlines(keepends=True)
SIZE = 200_000_000
# A process's own maximum survives exec, so the reader is the child of another process.
MEASURED = """\
import json, resource, subprocess, sys
argv = [sys.executable, "-m", "wheel_builder", "explain-log", sys.argv[1], "--json"]
found = json.loads(subprocess.run(argv, stdout=subprocess.PIPE).stdout)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
told = [found["done"], found["total"], found["lines"]]
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss, *told]))
"""


@pytest.fixture
def log(tmp_path):
    """Upstream's first step and its warnings, repeated."""
    at = next(at for at, line in enumerate(LINES) if line.startswith(b"[1/2782]"))
    step = LINES[at]
    warnings = b"".join(line for line in LINES if b"warning: " in line or b"included from" in line)
    path = tmp_path / "build.log"
    with path.open("wb") as stream:
        count = size = 0
        while size < SIZE:
            count += 1
            named = step.replace(b"[1/2782]", b"[%d/99999]" % count).replace(b"_d128_", b"_d%d_" % count)
            size += stream.write(named + warnings)
    yield path, count
    path.unlink()


@pytest.mark.full
def test_two_hundred_megabytes(log):
    path, count = log
    done = subprocess.run([sys.executable, "-c", MEASURED, path], stdout=subprocess.PIPE, check=True)
    seconds, kib, steps, total, lines = json.loads(done.stdout)
    assert (steps, total) == (count, 99999)
    assert lines > count
    assert seconds < 10
    assert kib * 1024 < SIZE


@pytest.mark.full
@pytest.mark.parametrize(
    "line",
    [
        b"x%d.hip:3:1: error: expected ';'\n",
        b"/opt/rocm/bin/hipcc -O3 -c csrc/m%d.hip -o build/m.o\n",
        b"%d not found\n",
    ],
)
def test_two_million_lines_that_are_looked_at(tmp_path, line):
    """This took 27 to 34 s: each line was searched once per mark."""
    path = tmp_path / "build.log"
    path.write_bytes(b"".join(line % at for at in range(2_000_000)))
    done = subprocess.run([sys.executable, "-c", MEASURED, path], stdout=subprocess.PIPE, check=True)
    seconds, _, _, _, lines = json.loads(done.stdout)
    assert lines == 2_000_000
    assert seconds < 20
