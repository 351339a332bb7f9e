"""The order in which two processes take the suite's files."""

from tests.conftest import CHECKOUT, turn

NEEDS_NOTHING = {"index", "lint", "page", "unit", "wheel_rules"}
NEEDS_IMAGES = {"device", "emulator", "host", "layout", "perf"}
# They run in the verify container, or in that with wine.
ELSEWHERE = {"wheel", "fake_hip", "numerics", "windows", "shim", "shim3", "drop_in"}


def test_what_waits_for_images_comes_after_what_does_not():
    chain = [turn(f"tests/{name}::test") for name in ("container/test_images.py", "release/test_release.py")]
    nothing = [turn(f"tests/{name}/test_a.py::test") for name in NEEDS_NOTHING]
    images = [turn(f"tests/{name}/test_a.py::test") for name in NEEDS_IMAGES]
    release = turn("tests/release/test_verify.py::test")
    assert max(chain) < min(nothing) == max(nothing) < min(images) <= max(images) < release


def test_each_folder_of_tests_has_its_place():
    folders = {file.parent.name for file in CHECKOUT.glob("tests/*/test_*.py")}
    folders |= {file.parents[1].name for file in CHECKOUT.glob("tests/*/*/test_*.py")}
    assert folders == NEEDS_NOTHING | NEEDS_IMAGES | ELSEWHERE | {"container", "release"}
