"""The record of a distribution: every candidate of the file is checked and executed, or there is none."""

import pytest

from tests.tools.made.candidates import ARCH, listed_and_bundles
from tests.tools.made.wheels import write_wheel
from wheel_builder.audit.candidates import audit_candidates
from wheel_builder.base.errors import VerifyError
from wheel_builder.extras.timings import verify
from wheel_builder.extras.tune.rows import Kernel
from wheel_builder.files.wheels.candidates import file_name, written
from wheel_builder.provenance.records import Demand, candidate_problems
from wheel_builder.provenance.verification import EMULATED, Verification


@pytest.fixture
def opened(tmp_path):
    listed, bundles = listed_and_bundles([write_wheel(tmp_path)])
    file = tmp_path / file_name(listed)
    file.write_bytes(written(listed, bundles, 315619200))
    return audit_candidates(file)


class Loaded:
    disassembly = ""


@pytest.fixture
def ran(monkeypatch):
    """What was checked and executed. ``wrong``: words by code."""

    class Ran(list):
        wrong: dict[bytes, str]

    found = Ran()
    found.wrong = {}

    def loaded(objects, _bench):
        subject = Loaded()
        subject.code = objects[0].data
        return (subject,)

    def execute(subject, kernel, tile, step, _results):
        found.append((kernel.name, subject.code, tile.rows, tile.threads, step))
        return found.wrong.get(subject.code, "")

    monkeypatch.setattr(verify, "subjects", loaded)
    monkeypatch.setattr(verify, "executed", execute)
    return found


def test_every_candidate_of_the_file_is_executed_as_its_list_says(opened, ran):
    record = verify.record_of(opened, None, None)
    assert sorted(code for _, code, *_ in ran) == sorted(
        c for rows in opened.codes.values() for c in rows.values()
    )
    assert {(rows, threads, step) for *_, rows, threads, step in ran} == {(64, 128, 32)}
    assert record["sha256"] == opened.wheel.sha256
    assert verify.words_of(record) == f"4 candidates of 2 kernels {EMULATED}"
    read = Verification.model_validate(record)
    assert [*candidate_problems(read, Demand((), candidates=opened.digests))] == []
    [one, *_] = read.candidates["fa_fwd_fp16_d64"].values()
    assert one.calls == ["executed against float64: unmasked and causal calls"]


@pytest.mark.parametrize("words", ["out[3] is 5, expected 1", "a wait is missing"])
def test_with_one_wrong_candidate_there_is_no_record(words, opened, ran):
    [(row, code), *_] = opened.codes["fa_fwd_fp16_d64"].items()
    ran.wrong[code] = words
    with pytest.raises(VerifyError) as caught:
        verify.record_of(opened, None, None)
    assert "has wrong candidates; no record was written" in str(caught.value)
    assert f"  - fa_fwd_fp16_d64, row {row}: {words}" in str(caught.value)
    assert "scripts/wheel-builder tuning-wheel" in caught.value.advice


@pytest.mark.parametrize("keys", [0, 1 << 30, "many"])
def test_a_tile_of_impossible_size_is_not_executed(keys, opened, ran):
    """The list is untrusted: as many keys would fill the memory."""

    class Listed:
        settings, rows, threads = ({"keys": keys},), 64, 128

    kernel = Kernel(ARCH, "fwd", "fp16", 64)
    assert verify.findings_of(kernel, Listed(), b"", None, None) == [
        f"its tile has {keys or None} rows, expected 1 to 1024"
    ]
    assert ran == []
