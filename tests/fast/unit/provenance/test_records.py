"""Requirements of publish for a wheel's verification record, in words."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import write_statement, write_wheel
from wheel_builder.base.errors import PublishError
from wheel_builder.base.store import sha256_file
from wheel_builder.build.source import constant
from wheel_builder.files.wheels.sidecars import ATTACHMENTS, RECORD_SUFFIX
from wheel_builder.index.check import verify_index
from wheel_builder.index.publish import publish
from wheel_builder.provenance.records import (
    PROVENANCE_SUFFIX,
    SUFFIX,
    Demand,
    provenance_path,
    record_path,
    record_problems,
    require_attachments,
    write_record,
)
from wheel_builder.provenance.verification import EMULATED, read_verification

ARCHS = ("gfx908", "gfx942")
VERSIONS = ("7.2", "7.1", "6.4")
NUMERICS = "executed on an ISA emulator, not run on hardware"
LINUX = Demand(ARCHS, VERSIONS)


@pytest.fixture
def wheel(tmp_path):
    file = tmp_path / "a-1+rocm7.2-py3-none-any.whl"
    file.write_bytes(b"wheel")
    return file


def shown(**changes):
    return {
        "passed": True,
        "numerics": NUMERICS,
        "launches": {"fa_fwd_fp16_d64": 9},
        "findings": [],
        "tier": "release",
    } | changes


def record(**archs):
    return {
        "sha256": hashlib.sha256(b"wheel").hexdigest(),
        "archs": {arch: shown() for arch in ARCHS} | archs,
    }


@pytest.mark.parametrize("kind", [SUFFIX, PROVENANCE_SUFFIX])
def test_a_paper_without_an_end_is_none(wheel, kind):
    """A link to /dev/zero ended publishing in a MemoryError."""
    for suffix in (SUFFIX, PROVENANCE_SUFFIX):
        wheel.with_name(wheel.name + suffix).write_text("{}")
    path = wheel.with_name(wheel.name + kind)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert ("it is not a plain file" if kind == SUFFIX else f"there is no {path.name}") in words(wheel)


def words(wheel):
    with pytest.raises(PublishError) as caught:
        require_attachments({wheel: LINUX})
    text = str(caught.value)
    assert text.startswith("nothing was published: not every wheel has a passing verification record")
    assert "next: verify it first: scripts/wheel-builder verify" in text
    return text


def test_a_wheel_with_a_passing_record_for_each_arch_may_be_published(wheel):
    write_record(wheel, record())
    write_statement(wheel)
    require_attachments({wheel: LINUX})


def test_a_record_is_about_no_arch_that_the_wheel_has_not(wheel):
    """The page and the wheel's variants listed such an arch, whatever the record said about it."""
    for shown_of_it in (shown(passed=False), shown(), shown(numerics="certified by AMD")):
        write_record(wheel, record(gfx1030=shown_of_it))
        write_statement(wheel)
        said = "it is about gfx1030, but the wheel lacks its code; expected gfx908, gfx942"
        assert f"{wheel.name}.verification.json: {said}" in words(wheel)


@pytest.mark.parametrize(
    "numerics",
    [
        "measured on an MI300X; certified by AMD",
        "run on hardware",
        f"{NUMERICS}, and on an MI300X",
        NUMERICS.upper(),
        f" {NUMERICS}",
        "",
    ],
)
def test_a_record_of_linux_has_no_words_of_its_own(wheel, numerics):
    """These words reached the page. For Windows they were already compared."""
    write_record(wheel, record(gfx942=shown(numerics=numerics)))
    write_statement(wheel)
    said = f"{wheel.name}.verification.json: gfx942: it says {numerics!r}, expected {NUMERICS!r}"
    assert said in words(wheel)


def test_the_words_are_those_of_the_suite():
    assert (
        constant(CHECKOUT / "kernels/python/flash_attn_rocm/suite/target.py", "EMULATED")
        == EMULATED
        == NUMERICS
    )


OWN = {"gfx908": {"fa_fwd_fp16_d64"}, "gfx942": {"fa_fwd_fp16_d64", "fa_bwd_fp16_d64"}}
BOTH = {"fa_fwd_fp16_d64": 9, "fa_bwd_fp16_d64": 3}


@pytest.mark.parametrize(
    ("launches", "said"),
    [
        (BOTH | {"k": 1}, "gfx942: launches has k, which the wheel has not for that arch"),
        ({"k": 1}, "gfx942: fa_bwd_fp16_d64 was never launched; expected all 2 kernels of the wheel"),
        ({"fa_fwd_fp16_d64": 9}, "gfx942: fa_bwd_fp16_d64 was never launched; expected all 2 kernels"),
        (BOTH | {"fa_bwd_fp16_d64": 0}, "gfx942: fa_bwd_fp16_d64 was never launched; expected all 2"),
    ],
)
def test_a_record_counts_the_launches_of_the_wheels_kernels_and_of_no_others(wheel, launches, said):
    """One launch of a kernel named k was enough."""
    write_record(wheel, record(gfx942=shown(launches=launches)))
    problems = list(record_problems(wheel, replace(LINUX, kernels=OWN)))
    assert any(said in problem for problem in problems), problems
    write_record(wheel, record(gfx942=shown(launches=BOTH)))
    assert list(record_problems(wheel, replace(LINUX, kernels=OWN))) == []


def test_a_record_compares_no_kernel_that_the_wheel_has_not(wheel):
    write_record(wheel, record(gfx908=shown(instances={"k": {"cases": 3}})))
    [problem] = record_problems(wheel, replace(LINUX, kernels=OWN | {"gfx942": {"fa_fwd_fp16_d64"}}))
    assert problem.endswith("gfx908: instances has k, which the wheel has not for that arch")


def test_a_record_serves_only_rocm_versions_of_the_matrix(wheel):
    """Any version was offered, even 99.1."""
    write_record(wheel, record() | {"serves": ["6.4", "99.1", "7.01"]})
    write_statement(wheel)
    said = f"{wheel.name}.verification.json: serves has ROCm '7.01' and 1 more; known: 7.2, 7.1, 6.4"
    assert said in words(wheel)
    write_record(wheel, record() | {"serves": ["6.4"]})
    write_statement(wheel)
    require_attachments({wheel: LINUX})


def test_a_wheel_without_a_record(wheel):
    assert f"{wheel.name}: there is no {wheel.name}.verification.json beside it" in words(wheel)


def test_a_record_of_another_wheel(wheel):
    write_record(wheel, record())
    wheel.write_bytes(b"built again")
    assert "it is about a wheel with sha256" in words(wheel)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"archs": [], "sha256": ""}', '{"archs": {}}'])
def test_what_is_no_record(wheel, text):
    record_path(wheel).write_text(text)
    assert "it is not a verification record" in words(wheel)


def test_an_arch_that_was_not_verified(wheel):
    found = record()
    del found["archs"]["gfx942"]
    write_record(wheel, found)
    text = words(wheel)
    assert f"{wheel.name}: gfx942 was not verified" in text
    assert "gfx908" not in text


@pytest.mark.parametrize("change", [{"passed": False}, {"launches": {}}])
def test_an_arch_that_did_not_pass(wheel, change):
    write_record(wheel, record(gfx942=shown(**change)))
    assert f"gfx942 did not pass: {NUMERICS}" in words(wheel)


@pytest.mark.parametrize("tier", ["", "quick", "\x1b[2J"])
def test_a_record_of_fewer_tests_than_a_release_runs_is_refused(wheel, monkeypatch, tier):
    """FA_QUICK=1 in the environment once made publish and upload accept such a record."""
    monkeypatch.setenv("FA_QUICK", "1")
    write_record(wheel, record(gfx942=shown(tier=tier, quick=True)))
    write_statement(wheel)
    assert (
        f"{wheel.name}: gfx942: the record does not say that all tests of a release passed (tier, expected "
        "release or nightly); verify it again"
    ) in words(wheel)


def test_a_nightly_record_is_enough_and_says_what_it_is(wheel):
    write_record(wheel, record(gfx942=shown(tier="nightly")))
    write_statement(wheel)
    require_attachments({wheel: LINUX})
    assert read_verification(record_path(wheel).read_bytes()).archs["gfx942"].words == (
        f"{NUMERICS}; by the nightly suite 9 launches of 1 kernels compared with float64, no finding"
    )


def test_a_record_is_about_the_gpus_that_run_its_code():
    words = NUMERICS
    found = record(gfx1030=shown(gpus=["gfx1030", "gfx1031"]))
    gpus = read_verification(json.dumps(found).encode()).gpus
    assert gpus["gfx1030"].startswith(f"{words}; ")
    assert gpus["gfx1031"] == f"the code of gfx1030: {gpus['gfx1030']}"
    assert gpus.keys() == {*found["archs"], "gfx1031"}


def test_a_record_may_not_name_a_gpu_that_runs_other_code(wheel):
    write_record(wheel, record(gfx942=shown(gpus=["gfx942", "gfx1201"])))
    said = "it says that gfx1201 runs the code of gfx942, and kernels/tables/gpus.toml does not"
    assert f"{wheel.name}.verification.json: {said}" in words(wheel)


def test_a_record_from_before_there_was_an_emulator(wheel):
    old = {"code_objects": "present", "numerics": "not executed: neither on a GPU nor on an ISA emulator"}
    write_record(wheel, record(gfx908=old))
    assert "gfx908 did not pass: not executed: neither on a GPU nor on an ISA emulator" in words(wheel)


def test_findings_are_told(wheel):
    write_record(
        wheel, record(gfx942=shown(passed=False, findings=["lds-race: store conflicts with a read"]))
    )
    assert "gfx942: lds-race: store conflicts with a read" in words(wheel)


def about(gfx908):
    return b'{"sha256": "a", "archs": {"gfx908": {"numerics": "n", ' + gfx908 + b"}}}"


HOSTILE = {
    "NaN": about(b'"instances": {"a": {"cases": 1, "worst_error": NaN}}'),
    "a key twice": about(b'"passed": false, "passed": true'),
    "a negative count": about(b'"launches": {"a": -1}'),
    "a boolean count": about(b'"launches": {"a": true}'),
    "a fraction": about(b'"launches": {"a": 1.5}'),
    "negative cases": about(b'"instances": {"a": {"cases": -1}}'),
    "negative tests": about(b'"tests": {"passed": -5}'),
    "null findings": about(b'"findings": null'),
    "null launches": about(b'"launches": null'),
    "findings of another form": about(b'"findings": {"a": 1}'),
    "a word for true": about(b'"passed": "yes"'),
    "half a character": about(b'"checks": "\\ud800"'),
    "a null arch": b'{"sha256": "a", "archs": {"gfx908": null}}',
    "null archs": b'{"sha256": "a", "archs": null}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_record_is_read_strictly(wheel, text):
    record_path(wheel).write_bytes(text)
    write_statement(wheel)
    [problem] = [line for line in words(wheel).splitlines() if line.startswith("  - ")]
    assert problem.startswith(f"  - {wheel.name}.verification.json: it is not a verification record (")


def test_what_is_hostile_there_is_what_was_changed():
    assert read_verification(about(b'"launches": {"a": 1}')).archs["gfx908"].launches == {"a": 1}


@pytest.mark.parametrize("change", [{"launches": {"a": 0}}, {"findings": ["lds-race"], "passed": True}])
def test_a_record_that_contradicts_itself_does_not_vouch(wheel, change):
    write_record(wheel, record(gfx942=shown(**change)))
    assert f"gfx942 did not pass: {NUMERICS}" in words(wheel)


# Statements


def test_a_wheel_without_a_statement_is_not_published(wheel):
    write_record(wheel, record())
    text = words(wheel)
    assert f"{wheel.name}: there is no {wheel.name}.provenance.json beside it" in text
    assert "only a build writes the statement: scripts/wheel-builder wheel" in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"wheel": "b.whl"}, "the statement is about b.whl, but this is a-1+rocm7.2-py3-none-any.whl"),
        ({"sha256": "0" * 64}, f"the statement is about a wheel with sha256 {'0' * 64}, but the wheel's is"),
    ],
)
def test_a_statement_about_another_wheel_is_not_published(wheel, changes, told):
    write_record(wheel, record())
    write_statement(wheel, **changes)
    assert f"{wheel.name}.provenance.json: {told}" in words(wheel)


def test_a_statement_about_another_record_is_not_published(wheel):
    write_record(wheel, record())
    write_statement(wheel)
    write_record(wheel, record(more=shown()))
    assert f"{wheel.name}.provenance.json: it names a record with sha256" in words(wheel)


def test_what_is_no_statement_is_not_published(wheel):
    """It was published unread once."""
    write_record(wheel, record())
    provenance_path(wheel).write_text("{}")
    assert f"{wheel.name}.provenance.json: it is not a provenance statement (_type: " in words(wheel)


# In an index


def test_beside_a_wheel_in_an_index_nothing_is_written(tmp_path):
    """A verification there overwrote the index's own record, which blocked all publishing."""
    wheel = write_wheel(tmp_path)
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": {}})
    write_statement(wheel)
    root = tmp_path / "index"
    simple = publish([wheel], root, "7.2", catalogue=CATALOGUE, now=datetime.now(UTC)).simple
    published = simple / "flash-attn-rocm" / wheel.name
    for write in (lambda: write_record(published, {"archs": {}}), lambda: write_statement(published)):
        with pytest.raises(PublishError) as caught:
            write()
        assert f"{published} is a file of an index" in str(caught.value)
        assert "next: copy the wheel to a separate folder and use it there" in str(caught.value)
    assert verify_index(root) == ()
    assert publish([wheel], root, "7.2", catalogue=CATALOGUE, now=datetime.now(UTC)).unchanged == (
        wheel.name,
    )


def test_no_file_of_a_wheel_has_the_name_of_the_indexes_record():
    assert RECORD_SUFFIX not in {SUFFIX, PROVENANCE_SUFFIX}
    assert set(ATTACHMENTS.values()) == {SUFFIX, PROVENANCE_SUFFIX}


def test_all_problems_of_all_wheels_are_told_at_once(wheel, tmp_path):
    write_record(wheel, record(gfx908=shown(passed=False), gfx942=shown(launches={})))
    other = tmp_path / "b-1+rocm7.2-py3-none-any.whl"
    other.write_bytes(b"other")
    with pytest.raises(PublishError) as caught:
        require_attachments({wheel: LINUX, other: LINUX})
    assert len(caught.value.problems) == 5


def test_a_record_is_replaced_as_a_whole(wheel, tmp_path):
    write_record(wheel, record())
    path = write_record(wheel, {"sha256": "new", "archs": {}})
    assert json.loads(path.read_text())["sha256"] == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == [wheel.name, path.name]
