"""``bench`` beside upstream's own Triton kernels for AMD GPUs, in Triton's interpreter.

Upstream takes the calls of ``bench``, and its results are those of the plain formula. Nothing is timed.
"""

import json

import pytest

from tests.conftest import CHECKOUT
from tests.installed.drop_in.download import TARGET, pip_download
from tests.tools.sdist import folder_of_sdist
from wheel_builder.images.docker import Mount, run_in

PROGRAM, PINS = CHECKOUT / "tests/tools/bench_beside.py", CHECKOUT / "tests/data/upstream-triton.txt"
PACKAGES, SDIST, INSTALLED = "/packages", "/upstream", "/tmp/installed"
RUN = f"""
set -eu
python -m pip install --no-index --no-deps --quiet --target {INSTALLED} {PACKAGES}/*.whl /wheel/*.whl
PYTHONPATH={SDIST}:{INSTALLED} python /program.py
"""
ENVIRONMENT = {"FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE", "TRITON_INTERPRET": "1"}
BOUND = 2**-8  # two roundings of fp16 at 4, the largest gradient of these calls
SHAPES = 2 * 5


@pytest.mark.full  # downloads 300 MB
def test_upstreams_triton_kernels_are_rows_of_bench(release, verifier, context, tmp_path):
    packages = tmp_path / "packages"
    packages.mkdir()
    done = pip_download(PINS, packages, *TARGET)
    assert done.returncode == 0, done.stderr
    upstream = folder_of_sdist("flash_attn", tmp_path / "upstream", context)
    mounts = [
        Mount(packages, PACKAGES), Mount(upstream, SDIST),
        Mount(release.wheel, f"/wheel/{release.wheel.name}"), Mount(PROGRAM, "/program.py"),
    ]  # fmt: skip
    log = context.log("bench-beside")
    said = run_in(verifier.facts["ref"], ["sh", "-c", RUN], mounts=mounts, env=ENVIRONMENT, log=log).stdout
    found = json.loads(said.splitlines()[-1])
    assert (found["file"], found["problems"]) == (f"{SDIST}/flash_attn/__init__.py", [])
    assert len(found["rows"]) == SHAPES
    for row in found["rows"]:
        assert (row["implementation"], row["path"], row["problem"]) == ("flash_attn", "flash_attn", "")
        assert 0 < row["difference"] <= BOUND
