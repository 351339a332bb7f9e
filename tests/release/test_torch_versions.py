"""The wheel on older releases of PyTorch: torch.compile and scaled_dot_product_attention.

``verify`` runs all tests of the wheel on the newest supported release. The pins are in tests/data.
"""

import shutil

import pytest

from tests.conftest import CHECKOUT
from tests.installed.drop_in.download import TARGET, pip_download
from tests.tools import torches
from wheel_builder.images.docker import Mount
from wheel_builder.images.wheel_tests import Suite, run_suite

TESTS, PINS = CHECKOUT / "tests/installed/wheel", CHECKOUT / "tests/data"
FILES = "conftest.py", "archs.py", "exact.py", "pytorch/test_compile.py", "pytorch/test_sdpa.py"
INSIDE = "/torch"
# By default only the oldest: each is a download of half a gigabyte or more.
VERSIONS = ["2.10", *(pytest.param(each, marks=pytest.mark.full) for each in ("2.11", "2.12"))]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """``folder_of(version)``: the release, unpacked."""

    def make(version):
        folder = tmp_path_factory.mktemp(f"torch-{version}")
        done = pip_download(PINS / f"torch-{version}.txt", folder, *TARGET)
        assert done.returncode == 0, done.stderr
        [wheel] = folder.glob("*.whl")
        torches.unpack(wheel, folder)
        wheel.unlink()
        folder.chmod(0o755)  # for the container's user
        return folder

    return make


def test_the_pins_are_all_releases_from_the_oldest_on(package):
    pinned = sorted(file.stem.removeprefix("torch-") for file in PINS.glob("torch-*.txt"))
    oldest, newest = (int(version.split(".")[1]) for version in (package.torch_floor, package.torch_headers))
    assert pinned == [f"2.{minor}" for minor in range(oldest, newest)]


@pytest.mark.parametrize("version", VERSIONS)
def test_compile_and_sdpa(version, folder_of, release, verifier, tmp_path, context):
    tests, out = tmp_path / "tests", tmp_path / "out"
    tests.mkdir()
    out.mkdir()
    for name in FILES:
        shutil.copy(TESTS / name, tests)
    env = (("PYTHONPATH", INSIDE), ("LD_LIBRARY_PATH", f"{INSIDE}/{torches.STAND_INS}"))
    suite = Suite(tests, (Mount(folder_of(version), INSIDE),), env)
    log = context.log(f"torch-{version}")
    counts = run_suite(release.wheel, suite, image=verifier, out=out, log=log)
    assert counts["passed"] >= 60
