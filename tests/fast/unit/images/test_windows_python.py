"""dockerfiles/wine/windows_python.sh with stand-ins for wine: what a Python under wine is started with."""

import os
import subprocess

import pytest

from tests.conftest import CHECKOUT

SCRIPT = CHECKOUT / "dockerfiles/wine/windows_python.sh"
WINE = """#!/bin/sh
[ "$1" = wineboot ] && exit
echo "$ONEDNN_MAX_CPU_ISA $*"
exit "${STATUS:-0}"
"""


@pytest.fixture
def windows_python(tmp_path):
    for name, text in (("wine64", WINE), ("wineserver", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def start(*words, **env):
        found = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **env}
        return subprocess.run(
            ["sh", SCRIPT, *words], env=found, capture_output=True, text=True, check=False, timeout=60
        )

    return start


def test_products_do_without_amx(windows_python):
    """On processors with AMX, products of bf16 ended all suites under wine in an illegal instruction."""
    assert windows_python("-c", "1").stdout == "AVX512_CORE_BF16 /opt/windows/python/python.exe -c 1\n"
    assert windows_python(ONEDNN_MAX_CPU_ISA="AVX2").stdout.startswith("AVX2 ")


def test_the_status_is_that_of_python(windows_python):
    """Its output goes through a pipe, whose own status would be another."""
    assert windows_python().returncode == 0
    failed = windows_python("-c", "1", STATUS="7")
    assert (failed.returncode, failed.stdout.split()[-1]) == (7, "1")
