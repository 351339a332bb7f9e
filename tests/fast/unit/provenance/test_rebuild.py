"""Rebuilding: cases without evidence, the packages it asks for, and its messages about the image."""

from dataclasses import replace

import pytest
import yaml

from tests.conftest import CHECKOUT
from tests.fast.unit.provenance.test_provenance import COMMIT, IMAGE, made, wheel  # noqa: F401  fixtures
from wheel_builder.base.errors import RebuildError
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.provenance.attest import write_provenance
from wheel_builder.provenance.rebuild import _build, image_words, obstacles, pin_packages, rebuild
from wheel_builder.provenance.statement import Annotations

PACKAGES = {"clang-22": "1:22.1.8-3", "hipcc": "7.2.4+dfsg-1~exp1", "bash": "5.3-4"}


def test_a_statement_of_a_clean_known_commit_can_be_rebuilt(wheel, made):  # noqa: F811
    assert list(obstacles(made, read_wheel(wheel, max_mib=64), "")) == []


def test_every_obstacle_at_once(wheel, made):  # noqa: F811
    source = made.dependency("source")
    dirty = source.model_copy(
        update={"digest": {}, "annotations": Annotations(dirty=True, changed=["kernels/a.hpp"])}
    )
    found = replace(made, sha256="0" * 64, dependencies=(dirty,))
    text = "\n".join(obstacles(found, read_wheel(wheel, max_mib=64), "it is not here"))
    assert "the statement is about a wheel with sha256 0000" in text
    assert "its sources differed from their commit: kernels/a.hpp" in text
    assert "the statement names no commit" in text


def test_a_commit_that_is_not_here(wheel, made, tmp_path):  # noqa: F811
    write_provenance(wheel, made)

    def run(argv, **_):
        raise AssertionError(argv)

    with pytest.raises(RebuildError, match=rf"does not have commit {COMMIT}; git fetch"):
        rebuild(wheel, CHECKOUT, jobs=1, log=tmp_path / "log", run=lambda argv, **_: Gone())


class Gone:
    """git's answer about a missing commit."""

    returncode, stdout = 1, ""


def test_packages_of_the_one_row_are_pinned_and_the_file_stays_a_matrix(tmp_path):
    text = (CHECKOUT / "matrix.yaml").read_text()
    pinned = tmp_path / "matrix.yaml"
    pinned.write_text(pin_packages(text, "7.2", PACKAGES))
    rows = {rocm.version: dict(rocm.packages) for rocm in load_matrix(pinned).rocm}
    assert rows["7.2"] == {
        "sid": ("clang-22=1:22.1.8-3", "lld-22", "llvm-22"),
        "experimental": ("hipcc=7.2.4+dfsg-1~exp1", "libamdhip64-dev", "rocm-device-libs-22"),
    }
    before = {row["version"]: row["packages"] for row in yaml.safe_load(text)["rocm"]}
    assert rows["6.4"]["sid"] == tuple(before["6.4"]["sid"])


@pytest.mark.parametrize("row", ["hipcc=7.2.3-1", '"hipcc=7.2.3-1"', "'hipcc=1:7.2.3~rc1-1'", '"hipcc"'])
def test_a_package_that_the_row_pins_gets_the_statements_version(row):
    """It once became ``name=version=version``, in two pairs of quotes."""
    text = f'rocm:\n  - version: "7.2"\n    packages:\n      sid: [{row}, lld-22, "bashful=1"]\n'
    found = yaml.safe_load(pin_packages(text, "7.2", PACKAGES))
    assert found["rocm"][0]["packages"]["sid"] == ["hipcc=7.2.4+dfsg-1~exp1", "lld-22", "bashful=1"]


def test_an_unknown_rocm_version_pins_nothing():
    text = (CHECKOUT / "matrix.yaml").read_text()
    assert pin_packages(text, "9.9", PACKAGES) == text


def test_the_image_is_told_in_words(made):  # noqa: F811
    facts = IMAGE.facts
    assert image_words(made, facts) == f"the statement's own image, {facts['image_id']}"
    other = {**facts, "image_id": "sha256:5"}
    assert image_words(made, other) == (
        "an image built anew, whose packages are all of the statement's versions"
    )
    newer = {**other, "packages": {**facts["packages"], "clang-22": "1:22.1.8-4"}}
    assert image_words(made, newer) == (
        "an image built anew, in which 1 packages differ: clang-22 was 1:22.1.8-3 and is 1:22.1.8-4"
    )


@pytest.mark.parametrize(
    ("tag", "options"), [("manylinux_2_28_x86_64", []), ("win_amd64", ["--platforms", "windows"])]
)
def test_a_wheel_is_built_again_for_its_own_platform(made, tmp_path, tag, options):  # noqa: F811
    """The public wheels of both platforms are selected by the same --rocm."""
    folder = tmp_path / "build/wheel/key"
    folder.mkdir(parents=True)
    (folder / "a.whl").touch()
    found = replace(made, wheel=f"flash_attn_rocm-0.1.0-py3-none-{tag}.whl", version="0.1.0")
    commands = []
    _build(found, tmp_path, jobs=1, log=tmp_path / "log", run=lambda argv, **_: commands.append(argv))
    [argv] = commands
    assert argv[argv.index("--rocm") + 1] == "public"
    assert argv[argv.index("--archs") + 2 : argv.index("--jobs")] == options
