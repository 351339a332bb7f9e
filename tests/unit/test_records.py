"""What publish asks of a wheel's verification record, in words."""

import hashlib
import json

import pytest

from wheel_builder.errors import PublishError
from wheel_builder.records import record_path, require_records, write_record

ARCHS = ("gfx908", "gfx942")
NUMERICS = "executed on an ISA emulator, not run on hardware"


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
    } | changes


def record(**archs):
    return {
        "sha256": hashlib.sha256(b"wheel").hexdigest(),
        "archs": {arch: shown() for arch in ARCHS} | archs,
    }


def words(wheel):
    with pytest.raises(PublishError) as caught:
        require_records({wheel: ARCHS})
    text = str(caught.value)
    assert text.startswith("nothing was published: not every wheel has a passing verification record")
    assert "next: verify it first: python -m wheel_builder verify" in text
    return text


def test_a_wheel_with_a_passing_record_for_each_arch_may_be_published(wheel):
    write_record(wheel, record())
    require_records({wheel: ARCHS})


def test_a_record_may_be_about_more_archs_than_the_wheel_has(wheel):
    write_record(wheel, record(gfx1030=shown(passed=False)))
    require_records({wheel: ARCHS})


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


@pytest.mark.parametrize("change", [{"passed": False}, {"passed": "yes"}, {"launches": {}}])
def test_an_arch_that_did_not_pass(wheel, change):
    write_record(wheel, record(gfx942=shown(**change)))
    assert f"gfx942 did not pass: {NUMERICS}" in words(wheel)


def test_a_record_from_before_there_was_an_emulator(wheel):
    old = {"code_objects": "present", "numerics": "not executed: neither on a GPU nor on an ISA emulator"}
    write_record(wheel, record(gfx908=old))
    assert "gfx908 did not pass: not executed: neither on a GPU nor on an ISA emulator" in words(wheel)


def test_findings_are_told(wheel):
    write_record(
        wheel, record(gfx942=shown(passed=False, findings=["lds-race: store conflicts with a read"]))
    )
    assert "gfx942: lds-race: store conflicts with a read" in words(wheel)


def test_all_problems_of_all_wheels_are_told_at_once(wheel, tmp_path):
    write_record(wheel, record(gfx908=shown(passed=False), gfx942=shown(launches={})))
    other = tmp_path / "b-1+rocm7.2-py3-none-any.whl"
    other.write_bytes(b"other")
    with pytest.raises(PublishError) as caught:
        require_records({wheel: ARCHS, other: ARCHS})
    assert len(caught.value.problems) == 3


def test_a_record_is_replaced_as_a_whole(wheel, tmp_path):
    write_record(wheel, record())
    path = write_record(wheel, {"sha256": "new", "archs": {}})
    assert json.loads(path.read_text())["sha256"] == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == [wheel.name, path.name]
