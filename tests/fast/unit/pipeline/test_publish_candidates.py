"""Distributions of candidates, published beside their wheel: what is refused, and where they are offered."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.fast.unit.pipeline.test_release import linked_again
from tests.tools.made.candidates import (
    ARCH,
    code_of,
    finished_candidates,
    listed_and_bundles,
    record_of,
    state,
)
from tests.tools.made.finished import finished_files, finished_wheel, planned_job
from tests.tools.made.wheels import LIBRARY, write_wheel
from wheel_builder.base.errors import AuditError, PublishError, WheelBuilderError
from wheel_builder.base.store import Artifact, sha256_file
from wheel_builder.cli.commands.indexes.index import OURS
from wheel_builder.files.device.library import device_code
from wheel_builder.files.device.packing import packed
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.index import owners
from wheel_builder.index.check import Found, check_index
from wheel_builder.index.folder import read_contents, yank
from wheel_builder.index.owners import newest_wheels
from wheel_builder.index.publish import publish
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.matrix.model import LINUX, WINDOWS
from wheel_builder.matrix.tuned.candidates import parse_candidates
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.publication import publish_files
from wheel_builder.pipeline.release import publish_wheel
from wheel_builder.provenance.attest import verify_provenance
from wheel_builder.provenance.provenance import read_provenance
from wheel_builder.provenance.records import provenance_path, record_path, write_record

NOW = datetime(2026, 11, 29, tzinfo=UTC)
NAME = f"flash-attn-rocm-tuning-{ARCH}"
FILE = f"flash_attn_rocm_tuning_{ARCH}-0.1.0-py3-none-any.whl"


@pytest.fixture
def wheel(tmp_path, checkout):
    return finished_wheel(tmp_path, *checkout, "public")


@pytest.fixture
def candidates(tmp_path, wheel, checkout):
    return finished_candidates(tmp_path, [wheel], *checkout)


def names_in(root, home="public"):
    return {entry.record.filename for entries in read_contents(root)[home].values() for entry in entries}


def refused(files, matrix, tmp_path, checkout):
    """The problems, with which nothing was written."""
    with pytest.raises(WheelBuilderError) as caught:
        publish_files(files, matrix, tmp_path / "index", checkout[0])
    assert not (tmp_path / "index").exists() or not [*(tmp_path / "index").rglob("*.whl")]
    return caught.value


def test_they_are_published_with_their_wheel_or_after_it(wheel, candidates, matrix, tmp_path, checkout):
    for root, parts in (
        (tmp_path / "one", [[wheel, candidates]]),
        (tmp_path / "two", [[wheel], [candidates]]),
    ):
        for files in parts:
            assert publish_files(files, matrix, root, checkout[0]) == [root / "public/simple"]
        assert names_in(root) == {wheel.name, FILE}
        assert check_index(root, ours=OURS) == Found(())
        offered = [path.parent.name for path in (root / "simple").glob("*/index.json")]
        assert NAME in offered
        # The public wheel serves it, so its candidates are there, too.
        assert FILE in (root / f"rocm7.2/simple/{NAME}/index.html").read_text()


def test_their_statement_and_record_say_what_was_executed(candidates, wheel, checkout):
    words = verify_provenance(candidates, checkout[0])
    assert f"commit     {checkout[1]}" in words
    found = read_provenance(provenance_path(candidates))
    assert found.archs == (ARCH,)
    assert found.dependency("wheel-linux").digest == {"sha256": sha256_file(wheel)}
    assert found.byproduct(record_path(candidates).name).digest == {
        "sha256": sha256_file(record_path(candidates))
    }


def test_they_are_made_for_the_newest_public_wheel_of_an_index(wheel, matrix, tmp_path, checkout):
    root = tmp_path / "index"
    with pytest.raises(PublishError, match="has no public wheel of flash-attn-rocm") as caught:
        newest_wheels(root)
    assert caught.value.advice == "publish one, or name its file"
    publish_files([wheel], matrix, root, checkout[0])
    [found] = newest_wheels(root)
    assert (found.name, found.read_bytes()) == (wheel.name, wheel.read_bytes())
    yank(root, "public", wheel.name, "it is wrong", catalogue=catalogue_of(matrix), now=NOW)
    with pytest.raises(PublishError, match="has no public wheel"):
        newest_wheels(root)


def test_without_their_wheel_they_are_refused(candidates, matrix, tmp_path, checkout):
    error = refused([candidates], matrix, tmp_path, checkout)
    assert error.problems == (
        f"{FILE}: they are for flash-attn-rocm 0.1.0, which is neither named nor in the index",
    )
    assert "publish them with their wheel, or after it" in error.advice


def test_those_of_another_build_of_the_version_are_refused(wheel, matrix, tmp_path, checkout):
    (tmp_path / "other").mkdir()
    listed, bundles = listed_and_bundles([wheel])
    listed = replace(listed, wheel=replace(listed.wheel, libraries=("5" * 64,)))
    mine = finished_candidates(tmp_path / "other", [wheel], *checkout, made=(listed, bundles))
    [problem] = refused([wheel, mine], matrix, tmp_path, checkout).problems
    library = hashlib.sha256(finished_files(*checkout, "public")[LIBRARY]).hexdigest()
    assert problem == (
        f"{FILE}: they do not belong to {wheel.name}: its library has sha256 {library}, "
        f"they are for {'5' * 64}"
    )


def test_a_later_wheel_that_contradicts_published_ones_is_refused(
    wheel, candidates, matrix, tmp_path, checkout
):
    """They do not name the twin's library: nothing is published that ``index verify`` would refuse."""
    twin, root = finished_wheel(tmp_path, *checkout, "public", platform=WINDOWS), tmp_path / "index"
    publish_files([wheel, candidates], matrix, root, checkout[0])
    with pytest.raises(PublishError) as caught:
        publish_files([twin], matrix, root, checkout[0])
    [problem] = caught.value.problems
    assert problem.startswith(f"{FILE}: they do not belong to {twin.name}: its library has sha256 ")
    assert check_index(root, ours=OURS) == Found(())


def test_those_of_other_rows_are_refused(wheel, matrix, tmp_path, checkout):
    listed, bundles = listed_and_bundles([wheel])
    name = min(listed.kernels)
    kernels = {**listed.kernels, name: replace(listed.kernels[name], shipped="01234567")}
    mine = finished_candidates(tmp_path, [wheel], *checkout, made=(replace(listed, kernels=kernels), bundles))
    [problem] = refused([wheel, mine], matrix, tmp_path, checkout).problems
    assert (
        f"has the rows {listed.kernels[name].shipped} of {name}; they are compared with 01234567" in problem
    )


def test_a_version_has_one_set_of_candidates(wheel, candidates, matrix, tmp_path, checkout):
    publish_files([wheel, candidates], matrix, tmp_path / "index", checkout[0])
    (tmp_path / "other").mkdir()
    made = listed_and_bundles([wheel], codes=lambda arch, kernel, number: code_of(arch, kernel, number + 7))
    other = finished_candidates(tmp_path / "other", [wheel], *checkout, made=made)
    with pytest.raises(PublishError, match="a published file never changes") as caught:
        publish_files([other], matrix, tmp_path / "index", checkout[0])
    assert FILE in caught.value.problems[0]
    published = tmp_path / "index/public/simple" / NAME / FILE
    assert published.read_bytes() == candidates.read_bytes()


def test_those_of_two_versions_lie_beside_each_other(wheel, candidates, matrix, tmp_path, checkout):
    labelled = finished_wheel(tmp_path, *checkout, "7.2")
    other = finished_candidates(tmp_path, [labelled], *checkout, "7.2")
    root = tmp_path / "index"
    publish_files([wheel, candidates, labelled, other], matrix, root, checkout[0])
    assert names_in(root) == {wheel.name, FILE}
    assert names_in(root, "7.2") == {labelled.name, other.name}
    # Each belongs to its own wheel: that of ROCm 7.2 has its own ones only.
    assert FILE not in (root / f"rocm7.2/simple/{NAME}/index.html").read_text()
    assert check_index(root, ours=OURS) == Found(())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"findings": ["out[3] is 5, expected 1"]}, "out[3] is 5, expected 1"),
        ({"checked": False}, "its machine code did not pass the static checks"),
        ({"calls": []}, "no call was executed"),
        ({"numerics": "tested on a GPU"}, "it says 'tested on a GPU', expected"),
        ({"sha256": "6" * 64}, f"code with sha256 {'6' * 64} was executed, but the wheel's has"),
    ],
)
def test_a_candidate_that_failed_is_not_published(
    changes, words, wheel, candidates, matrix, tmp_path, checkout
):
    listed, _ = listed_and_bundles([wheel])
    write_record(candidates, record_of(candidates, listed, **changes))
    state(candidates, listed, [wheel], *checkout)
    problems = refused([wheel, candidates], matrix, tmp_path, checkout).problems
    assert len(problems) == 4
    assert all(words in problem for problem in problems)


@pytest.mark.parametrize("what", ["missing", "more", "none"])
def test_the_record_names_every_candidate_and_no_other(what, wheel, candidates, matrix, tmp_path, checkout):
    listed, _ = listed_and_bundles([wheel])
    record, name = record_of(candidates, listed), min(listed.kernels)
    rows = record["candidates"][name]
    if what == "missing":
        gone, _ = rows.popitem()
        words = f"{name}, row {gone}: it was not executed"
    elif what == "more":
        rows["01234567"] = dict(next(iter(rows.values())))
        words = f"{name}, row 01234567: the wheel has no such candidate"
    else:
        record_path(candidates).unlink()
        words = f"there is no {record_path(candidates).name} beside it"
    if what != "none":
        write_record(candidates, record)
        state(candidates, listed, [wheel], *checkout)
    [problem] = refused([wheel, candidates], matrix, tmp_path, checkout).problems
    assert words in problem


def changed_statement(candidates, old, new):
    path = provenance_path(candidates)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("what", ["sources", "flags", "wheel", "arch", "record"])
def test_they_are_held_to_their_statement(what, wheel, candidates, matrix, tmp_path, checkout):
    found = read_provenance(provenance_path(candidates))
    old, new, words = {
        "sources": (
            found.dependency("source-tree").digest["sha256"], "0" * 64,
            f"recipe: it says sources with sha256 {'0' * 64}, but those of its commit",
        ),
        "flags": ('"-O3"', '"-O0"', "recipe: it says device flags"),
        "wheel": ('"wheel-linux"', '"wheel-mine"', "recipe: it has the dependency wheel-mine"),
        "arch": (f'"{ARCH}"', '"gfx942"', "says archs gfx942, but the wheel holds code for gfx1100"),
        "record": (sha256_file(record_path(candidates)), "0" * 64, "it names a record with sha256"),
    }[what]  # fmt: skip
    changed_statement(candidates, old, new)
    problems = refused([wheel, candidates], matrix, tmp_path, checkout).problems
    assert any(words in problem for problem in problems), problems


def rewritten(candidates, edit):
    """The distribution with other files, and a record about it."""
    files = dict(read_wheel(candidates, max_mib=4).files)
    edit(files)
    record = next(name for name in files if name.endswith("/RECORD"))
    files.pop(record)
    write_wheel(candidates.parent, files, name=candidates.name)
    return candidates


@pytest.mark.parametrize("what", ["code", "extra", "requires", "arch", "version", "json"])
def test_a_file_that_does_not_follow_from_its_list_is_refused(
    what, wheel, candidates, matrix, tmp_path, checkout
):
    package = f"flash_attn_rocm_tuning_{ARCH}"

    def edit(files):
        if what == "code":
            files[f"{package}/fa_fwd_fp16_d64.hipfb"] += b"\0"
        elif what == "extra":
            files[f"{package}/more.py"] = b"import os\n"
        elif what == "requires":
            name = next(name for name in files if name.endswith("/METADATA"))
            files[name] = files[name].replace(b"flash-attn-rocm==0.1.0", b"flash-attn-rocm>=0.1.0")
        else:
            name = f"{package}/candidates.json"
            old, new = {
                "arch": (b'"gfx1100"', b'"gfx1030"'),
                "version": (b'"0.1.0"', b'"0.2.0"'),
                "json": (b"{", b"["),
            }[what]
            files[name] = files[name].replace(old, new)

    words = {
        "code": "fa_fwd_fp16_d64.hipfb has",
        "extra": f"contents: found {package}/more.py; expected only the list",
        "requires": "METADATA, ",
        "arch": "it is not the id of its settings",
        "version": "it is for flash-attn-rocm 0.2.0; expected 0.1.0",
        "json": "candidates.json: ",
    }[what]  # fmt: skip
    rewritten(candidates, edit)
    error = refused([wheel, candidates], matrix, tmp_path, checkout)
    assert isinstance(error, AuditError)
    assert any(words in problem for problem in error.problems), error.problems
    # The index itself refuses it as well, whoever calls it.
    with pytest.raises(PublishError) as caught:
        publish([candidates], tmp_path / "direct", "public", catalogue=catalogue_of(matrix), now=NOW)
    assert any(words in problem for problem in caught.value.problems), caught.value.problems


def test_the_wheel_of_another_arch_under_this_name_is_refused(wheel, matrix, tmp_path, checkout):
    (tmp_path / "other").mkdir()
    other = finished_candidates(tmp_path / "other", [wheel], *checkout, arch="gfx1030")
    mine = other.rename(tmp_path / FILE)
    error = refused([wheel, mine], matrix, tmp_path, checkout)
    assert isinstance(error, AuditError)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("flash_attn_rocm_tuning_gfx99999", "no arch has the distribution flash-attn-rocm-tuning-gfx99999"),
        ("flash_attn_rocm_tuning_gfx1101", "no arch has the distribution flash-attn-rocm-tuning-gfx1101"),
        ("flash_attn_rocm_tunlng_gfx1100", "file-name"),
    ],
)
def test_a_name_that_looks_like_one_is_refused(name, words, wheel, candidates, matrix, tmp_path, checkout):
    """gfx1101 runs the code of gfx1100, so it has no distribution of its own."""
    mine = candidates.rename(tmp_path / FILE.replace(f"flash_attn_rocm_tuning_{ARCH}", name))
    problems = refused([wheel, mine], matrix, tmp_path, checkout).problems
    assert any(words in problem for problem in problems), problems


def test_code_for_another_arch_or_kernel_is_refused(wheel, matrix, tmp_path, checkout):
    for codes, words in (
        (
            lambda _, kernel, number: code_of("gfx942", kernel, number),
            "is compiled for gfx942; expected gfx1100",
        ),
        (
            lambda arch, _, number: code_of(arch, "fa_other", number),
            "has the kernels fa_other; expected fa_fwd",
        ),
    ):
        mine = finished_candidates(
            tmp_path, [wheel], *checkout, made=listed_and_bundles([wheel], codes=codes)
        )
        problems = refused([wheel, mine], matrix, tmp_path, checkout).problems
        assert len(problems) == 4
        assert all(words in problem for problem in problems)


def test_a_candidate_that_is_too_large_is_refused(wheel, matrix, tmp_path, checkout):
    made = listed_and_bundles([wheel], codes=lambda a, k, n: code_of(a, k, n, size=(1 << 20) + 64))
    mine = finished_candidates(tmp_path, [wheel], *checkout, made=made)
    problems = refused([wheel, mine], matrix, tmp_path, checkout).problems
    assert any("size: found" in p or "expected at most 1048576" in p for p in problems), problems


def test_what_unpacks_to_too_much_is_not_unpacked(wheel, matrix, tmp_path, checkout):
    listed, bundles = listed_and_bundles([wheel])
    name = min(listed.kernels)
    rows = sorted(listed.kernels[name].candidates)
    bundles[name] = packed(ARCH, dict.fromkeys(rows, bytes(9 << 20)))
    code = replace(
        listed.kernels[name].code, bytes=len(bundles[name]), sha256=hashlib.sha256(bundles[name]).hexdigest()
    )
    kernels = {**listed.kernels, name: replace(listed.kernels[name], code=code)}
    mine = finished_candidates(tmp_path, [wheel], *checkout, made=(replace(listed, kernels=kernels), bundles))
    [problem] = refused([wheel, mine], matrix, tmp_path, checkout).problems
    assert f"{name}: compressed offload bundle" in problem
    assert "more than the 16777216 allowed" in problem


def test_index_verify_finds_candidates_without_their_wheel(wheel, candidates, matrix, tmp_path, checkout):
    root = tmp_path / "index"
    publish_files([wheel, candidates], matrix, root, checkout[0])
    for path in (root / "public/simple/flash-attn-rocm").glob("*.whl*"):
        path.unlink()
    faults = check_index(root, ours=OURS).faults
    assert any("which is neither named nor in the index" in fault for fault in faults)


def test_a_release_replaces_a_wheel_together_with_its_candidates(
    wheel, candidates, matrix, tmp_path, checkout
):
    """They would be for a library that the local index has no more."""
    context = RunContext(tmp_path, tmp_path / "build", tmp_path / "dist", tmp_path / "index", jobs=1)
    job, statement = planned_job(checkout[0], "public"), read_provenance(provenance_path(wheel))
    (tmp_path / "second").mkdir()
    second = finished_wheel(tmp_path / "second", *checkout, "public", files=linked_again(*checkout, "public"))
    for one, more in ((wheel, [candidates]), (second, [])):
        record = Artifact(tmp_path, {"facts": json.loads(record_path(one).read_text())}, reused=False)
        statement = read_provenance(provenance_path(one))
        publish_wheel([one, *more], record, statement, job, context, catalogue_of(matrix))
        expected = {one.name, *(each.name for each in more)}
        assert names_in(tmp_path / "index") == expected
    assert check_index(tmp_path / "index", ours=OURS) == Found(())


def test_a_local_index_keeps_no_candidates_that_a_twin_contradicts(
    wheel, candidates, matrix, tmp_path, checkout
):
    context = RunContext(tmp_path, tmp_path / "build", tmp_path / "dist", tmp_path / "index", jobs=1)
    twin = finished_wheel(tmp_path, *checkout, "public", platform=WINDOWS)
    for platform, files in ((LINUX, [wheel, candidates]), (WINDOWS, [twin])):
        record = Artifact(tmp_path, {"facts": json.loads(record_path(files[0]).read_text())}, reused=False)
        statement = read_provenance(provenance_path(files[0]))
        job = planned_job(checkout[0], "public", platform)
        publish_wheel(files, record, statement, job, context, catalogue_of(matrix))
    assert names_in(tmp_path / "index") == {wheel.name, twin.name}
    assert check_index(tmp_path / "index", ours=OURS) == Found(())


def test_a_published_wheel_is_opened_once_for_all_of_its_candidates(wheel, candidates, tmp_path, monkeypatch):
    """Those of several archs. Opening it decompresses all of its code."""
    seen, published = [], read_wheel(candidates, max_mib=4)
    listed = parse_candidates(published.files[f"flash_attn_rocm_tuning_{ARCH}/candidates.json"])
    others = replace(listed, wheel=replace(listed.wheel, libraries=("5" * 64,)))
    mine = [
        (replace(published, path=tmp_path / f"{n}.whl"), each)
        for n, each in enumerate((listed, others, None))
    ]
    monkeypatch.setattr(owners, "_published_candidates", lambda *_: mine)
    monkeypatch.setattr(owners, "_published", lambda *_, **__: [read_wheel(wheel, max_mib=64)])
    monkeypatch.setattr(owners, "device_code", lambda one: (seen.append(one.path.name), device_code(one))[1])
    assert owners.strangers(tmp_path, [], ()) == {"1.whl", "2.whl"}
    assert seen == [wheel.name]
    assert [fault.partition(":")[0] for fault in owners.faults(tmp_path)] == [str(tmp_path / "1.whl")]
    assert seen == [wheel.name] * 2
