"""The released wheel's SBOM and statement, and the wheel built once more from its statement."""

import json
import re
import shutil
import subprocess

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import ProvenanceError, RebuildError
from wheel_builder.build.sbom import FILE
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.provenance.attest import verify_provenance
from wheel_builder.provenance.provenance import read_provenance
from wheel_builder.provenance.rebuild import rebuild
from wheel_builder.provenance.records import provenance_path, record_path

CHANGED = "recipe: it was built from sources that differ from their commit"


@pytest.fixture
def statement(release):
    return read_provenance(provenance_path(release.wheel))


def is_clean():
    """Whether the sources covered by a statement are unchanged in the checkout."""
    argv = ["git", "status", "--porcelain", "--", "kernels", "wheel_builder", "dockerfiles", "matrix.yaml"]
    argv += ["pyproject.toml", "LICENSE"]
    return not subprocess.run(argv, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout


def test_the_sbom_in_the_wheel_is_valid(release):
    # Imported late: the import makes parsers for two seconds, and each process collects this file.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    wheel = read_wheel(release.wheel, max_mib=64)
    text = wheel.files[f"{wheel.dist_info}/sboms/{FILE}"].decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


@pytest.mark.parametrize(("rocm", "package"), [("6.4", "libamdhip64-6"), ("7.2", "libamdhip64-7")])
def test_the_library_was_loaded_beside_the_real_runtimes(record, rocm, package):
    assert record["runtimes"][rocm].startswith(f"loaded with {package} ")
    assert "no code was loaded to a device" in record["runtimes"][rocm]


@pytest.fixture
def branch(tmp_path):
    """A clone whose origin has this checkout's commit on a branch. CI has a pull request's commit on none."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", CHECKOUT, clone], check=True)
    fetched = ["git", "update-ref", "refs/remotes/origin/main", "HEAD"]
    subprocess.run(fetched, cwd=clone, check=True)
    return clone


def test_the_statement_agrees_with_all_there_is(release, statement, branch):
    """In a checkout with changes, these are the only fault reported."""
    if is_clean():
        said = verify_provenance(release.wheel, branch)
        assert f"commit     {statement.commit}" in said
        assert re.search(r"^lies on    branch \S+ of origin$", said, re.MULTILINE)
        assert "signature  none beside the wheel" in said
    else:
        with pytest.raises(ProvenanceError, match=CHANGED):
            verify_provenance(release.wheel, branch)


def test_the_statement_is_published_with_the_wheel(release):
    [published] = release.index.glob("*/simple/flash-attn-rocm/*.provenance.json")
    assert json.loads(published.read_text()) == json.loads(provenance_path(release.wheel).read_text())


def test_a_changed_wheel_is_found_out(release, tmp_path):
    copy = tmp_path / release.wheel.name
    for path in (release.wheel, record_path(release.wheel), provenance_path(release.wheel)):
        shutil.copy(path, tmp_path)
    copy.write_bytes(copy.read_bytes()[:-1] + b"\1")
    with pytest.raises(ProvenanceError) as caught:
        verify_provenance(copy, CHECKOUT)
    assert "file: the statement is about a wheel with sha256" in str(caught.value)


@pytest.mark.full
def test_a_rebuild_from_the_statement_is_the_same_bit_for_bit(release, statement, tmp_path):
    if not is_clean():
        with pytest.raises(RebuildError, match="its sources differed from their commit"):
            rebuild(release.wheel, CHECKOUT, jobs=2, log=tmp_path / "log")
        return
    rebuilt = rebuild(release.wheel, CHECKOUT, jobs=2, log=tmp_path / "log")
    assert rebuilt.sha256 == release.says("sha256")
    assert rebuilt.commit == statement.commit
    assert rebuilt.image.startswith("the statement's own image")
    listed = subprocess.run(
        ["git", "worktree", "list"], cwd=CHECKOUT, check=True, capture_output=True, text=True
    )
    assert "flash-attn-rocm-rebuild-" not in listed.stdout
