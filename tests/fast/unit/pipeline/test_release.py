import json
import os
import re
import shutil
from dataclasses import replace
from functools import partial

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.elves import Edit
from tests.tools.made.finished import finished_files, finished_shim, finished_wheel, planned_job
from tests.tools.made.wheels import (
    ARCHS,
    LIBRARY,
)
from wheel_builder.base.errors import (
    AuditError,
    DeviceCodeError,
    ProvenanceError,
    PublishError,
    SelectionError,
    WheelError,
)
from wheel_builder.base.store import Artifact, sha256_file
from wheel_builder.base.words import shown as shown_path
from wheel_builder.build.shim import FLASH_ATTN, SHIMS, wheel_name
from wheel_builder.extras.timings.distribute import of_release
from wheel_builder.index.check import Found, check_index, verify_index
from wheel_builder.index.folder import read_contents
from wheel_builder.index.local import RELEASE_ELSEWHERE
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.matrix.model import Plan, Selection
from wheel_builder.matrix.plan import plan
from wheel_builder.matrix.support_table import TABLE, planned_kernels
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.images import begin
from wheel_builder.pipeline.publication import publish_files, upload_files
from wheel_builder.pipeline.release import (
    Released,
    newest_wheel,
    publish_wheel,
    release,
)
from wheel_builder.pipeline.summary import DIRTY, release_text
from wheel_builder.pipeline.summary import WINDOWS as NOT_ON_WINDOWS
from wheel_builder.pipeline.verification import audit_files, expectation, job_of, verification
from wheel_builder.provenance.attest import write_provenance
from wheel_builder.provenance.provenance import read_provenance
from wheel_builder.provenance.records import provenance_path, record_path
from wheel_builder.provenance.statement import Annotations
from wheel_builder.verify.wine import HOW, NOT_EXECUTED

NAME = "flash_attn_rocm-0.1.0+rocm7.2-py3-none-manylinux_2_28_x86_64.whl"
WINDOWS = "flash_attn_rocm-0.1.0-py3-none-win_amd64.whl"


@pytest.fixture
def job(matrix):
    """The job of the tests' wheels, for their archs."""
    return job_of(CHECKOUT / NAME, matrix, ARCHS)


@pytest.fixture
def context(tmp_path):
    return RunContext(tmp_path, tmp_path / "build", tmp_path / "dist", tmp_path / "index", jobs=1)


@pytest.fixture
def steps_of(context, package):
    """The titles of a release's steps."""

    def planned(*jobs, runtimes=()):
        made = release(Plan(jobs, (), package, runtimes=runtimes), context, None)
        return [step.title for step in made.steps.planned]

    return planned


@pytest.fixture
def verifying(context, matrix):
    """The titles of the steps that verify wheels."""

    def planned(*names, archs=()):
        steps = begin(context, matrix.package)
        verification(steps, [CHECKOUT / name for name in names], matrix, archs=archs)
        return [step.title for step in steps.planned]

    return planned


def test_the_steps_of_a_release_are_in_the_flows_order(job, steps_of):
    titles = steps_of(job)
    assert titles == [
        "container engine",
        "verify image",
        "rocm7.2 builder image",
        "rocm7.2 device code gfx908",
        "rocm7.2 device code gfx942",
        "rocm7.2 device code gfx1030",
        "rocm7.2 device code gfx1100",
        "rocm7.2 wheel and repair",
        "rocm7.2 audit",
        "rocm7.2 emulator",
        "rocm7.2 static checks",
        "rocm7.2 emulate gfx908",
        "rocm7.2 emulate gfx942",
        "rocm7.2 emulate gfx1030",
        "rocm7.2 emulate gfx1100",
        "rocm7.2 load under HIP runtimes",
        "rocm7.2 verify",
        "rocm7.2 distribution flash-attn",
        "rocm7.2 distribution flash-attn-3",
        "rocm7.2 distribution sageattention",
        "rocm7.2 publish",
        "rocm7.2 install from the index",
    ]


def test_candidates_are_made_before_anything_is_published(matrix, context):
    """For the archs that matrix.yaml lists and the wheel has, once for the wheels of all platforms."""
    made = plan(matrix, Selection(rocm=("public",), platforms=("linux", "windows")))
    candidates = partial(of_release, ("gfx908", "gfx1100", "gfx900"))
    steps = [step.title for step in release(made, context, None, candidates).steps.planned]
    at = steps.index("public distribution sageattention")
    assert steps[at + 1 : at + 4] == [
        "public candidates gfx908",
        "public candidates gfx1100",
        "public publish",
    ]
    assert sum("candidates" in step for step in steps) == 2


def test_the_public_wheel_needs_the_image_of_every_runtime_that_it_is_for(matrix, steps_of):
    made = plan(matrix, Selection(rocm=("public",), platforms=("linux", "windows")))
    steps = steps_of(*made.jobs, runtimes=made.runtimes)
    assert steps[steps.index("public audit") + 1] == "rocm6.4 HIP runtime"
    assert steps.count("rocm6.4 HIP runtime") == 1


def test_a_wheel_for_windows_is_verified_and_installed_under_wine(matrix, steps_of, verifying):
    steps = steps_of(job_of(CHECKOUT / WINDOWS, matrix))
    assert steps[:3] == ["container engine", "image with wine", "public-windows builder image"]
    assert steps[-9:] == [
        "public-windows audit",
        "public-windows emulator",
        "public-windows static checks",
        "public-windows emulator for Windows",
        "public-windows emulate gfx1100 under wine",
        "public-windows emulate gfx1201 under wine",
        "public-windows verify under wine",
        "public-windows publish",
        "public-windows install from the index",
    ]
    assert verifying(WINDOWS) == [
        "container engine", "image with wine", "public-windows builder image", *steps[-8:-2]
    ]  # fmt: skip


def test_each_wheel_is_verified_with_the_steps_of_its_own_job(verifying):
    steps = verifying(NAME, NAME, archs=ARCHS)
    assert steps[:2] == ["container engine", "verify image"]
    assert steps[2:] == [*steps[2:11], *steps[2:11]]
    assert (steps[2], steps[10]) == ("rocm7.2 builder image", "rocm7.2 verify")


def test_a_wheel_belongs_to_the_job_of_its_local_label(matrix):
    assert job_of(CHECKOUT / NAME, matrix).rocm.version == "7.2"


def test_a_wheel_of_an_unknown_rocm_version_is_refused(matrix):
    with pytest.raises(SelectionError, match=r"unknown ROCm version '9\.9'"):
        job_of(CHECKOUT / NAME.replace("7.2", "9.9"), matrix)


def test_what_is_no_wheel_is_refused(matrix):
    with pytest.raises(WheelError, match=r"notes\.txt is not a wheel's file name"):
        job_of(CHECKOUT / "notes.txt", matrix)


def test_the_newest_wheel_of_a_job_is_found(job, tmp_path):
    for age, version in ((20, "0.2.0"), (10, "0.3.0")):
        file = tmp_path / NAME.replace("0.1.0", version)
        file.touch()
        os.utime(file, (age, age))
    (tmp_path / NAME.replace("7.2", "6.4")).touch()
    assert newest_wheel(job, tmp_path).name == NAME.replace("0.1.0", "0.2.0")


def test_the_public_wheel_for_linux_is_not_the_newer_one_for_windows(matrix, tmp_path):
    """Neither version has a label, so an image of the public wheel got the DLL."""
    linux = NAME.replace("+rocm7.2", "")
    windows = linux.replace("manylinux_2_28_x86_64", "win_amd64")
    for age, name in ((10, linux), (20, windows)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    for name in (linux, windows):
        assert newest_wheel(job_of(tmp_path / name, matrix), tmp_path).name == name


def test_no_finished_wheel_says_how_to_make_one(job, tmp_path):
    with pytest.raises(WheelError, match=r"scripts/release --rocm 7\.2"):
        newest_wheel(job, tmp_path)


@pytest.mark.parametrize("before", [None, b"an older build of the same name"])
def test_a_wheel_is_in_dist_as_a_whole_or_not_at_all(before, job, tmp_path, context):
    (tmp_path / "store").mkdir()
    built = tmp_path / "store" / NAME
    built.write_bytes(b"wheel")
    context.dist.mkdir()
    finished = context.dist / NAME
    if before:
        finished.write_bytes(before)
    # The copy is written here first, and every write finds the disk full.
    (context.dist / f".{NAME}.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        publish_wheel([built], None, None, job, context, None)
    assert caught.value.filename == str(finished)
    assert (finished.read_bytes() if finished.exists() else None) == before
    assert [file.name for file in context.dist.iterdir()] == ([NAME] if before else [])


def test_the_audit_expects_the_plan_and_the_support_table(job, package):
    expected = expectation(job, package, CHECKOUT)
    assert set(expected.kernels) == set(job.archs)
    assert all(expected.kernels[arch] for arch in job.archs)
    assert expected.version == "0.1.0+rocm7.2"
    assert expected.tag == "py3-none-manylinux_2_28_x86_64"


def test_the_matrix_knows_exactly_the_archs_of_the_kernels(matrix):
    kernels = planned_kernels(CHECKOUT, [arch.code for arch in matrix.archs])
    assert all(kernels.values())


def test_a_bad_support_table_is_an_error_with_all_its_problems(tmp_path):
    tables = ("kernels/generated/archs.json", "kernels/generated/kinds.json", TABLE)
    for name in ("kernels/build/instances/generate.py", *tables):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((CHECKOUT / name).read_text())
    (tmp_path / TABLE).write_text(
        '[[kernels]]\nop = "fwd"\ndtypes = ["fp8"]\nhead_dims = [64]\nneeds = ["speed"]\n'
    )
    with pytest.raises(DeviceCodeError) as caught:
        planned_kernels(tmp_path, ["gfx908"])
    assert "fp8" in str(caught.value)
    assert "speed" in str(caught.value)


def test_the_summary_has_all_that_a_user_needs(job, tmp_path):
    shown = {"passed": True, "launches": {"a": 170, "b": 171}, "instances": {
        "a": {"nearest_to_its_bound": {"error": 5e-4, "allowed": 1e-3}},
        "b": {"nearest_to_its_bound": {"error": 0.006, "allowed": 0.01}},
        "compared bit for bit": {"nearest_to_its_bound": {"error": 0.0, "allowed": 0.0}},
    }}  # fmt: skip
    one = Released(
        job=job, wheel=tmp_path / NAME, bytes=300_000, sha256="ab" * 32,
        cpu_seconds={"gfx908": 5.4, "gfx942": 4.6}, cache=(51, 1), index_url="file:///index/rocm7.2/simple",
        requirement="flash-attn-rocm==0.1.0+rocm7.2", first_use={"seconds_to_first_result": 3.2},
        record={"archs": dict.fromkeys(sorted(job.archs), shown)},
    )  # fmt: skip
    text = release_text([one], 90.0)
    assert f"sha256    {'ab' * 32}" in text
    assert "size      300000 bytes" in text
    assert "archs     gfx908 gfx942 gfx1030 gfx1100" in text
    assert "gfx908 5, gfx942 5" in text
    assert "cache     had 51 of 52 code objects (98%)" in text
    assert (
        "executed  on an ISA emulator, not run on hardware; errors against float64, of what is allowed:"
        in text
    )
    executed = re.findall(r"(gfx\d+) 341 launches, at most 60%, no finding", text)
    assert executed == list(job.archs)
    line = "pip install flash-attn-rocm==0.1.0+rocm7.2 --index-url file:///index/rocm7.2/simple"
    assert line in text
    assert "1.5 CPU-minutes" in text
    assert f"image     scripts/wheel-builder runtime-image {shown_path(tmp_path / NAME)}" in text
    assert "note" not in text
    assert f"note      {DIRTY}" in release_text([replace(one, dirty=True)], 90.0)
    assert "add --force-reinstall --no-deps to" in release_text([replace(one, replaced=True)], 90.0)


def test_the_summary_of_a_wheel_for_windows_says_that_it_was_wine(matrix, tmp_path):
    job = replace(job_of(CHECKOUT / WINDOWS, matrix), archs=("gfx1030", "gfx1100"))
    nearest = {"nearest_to_its_bound": {"error": 5e-4, "allowed": 1e-3}}
    record = {"archs": {
        "gfx1030": {"passed": False},
        "gfx1100": {"passed": True, "launches": {"a": 341}, "instances": {"a": nearest}},
    }}  # fmt: skip
    one = Released(
        job=job, wheel=tmp_path / WINDOWS, bytes=300_000, sha256="ab" * 32, cpu_seconds={}, cache=(0, 0),
        index_url="file:///index/public/simple", requirement="flash-attn-rocm==0.1.0",
        first_use={"seconds_to_first_result": 3}, record=record,
    )  # fmt: skip
    lines = release_text([one], 90.0).splitlines()
    assert lines[5:] == [
        "checked   installed from the index by pip for Windows under wine; first result, on a CPU, after 3 s",
        f"executed  {HOW.removeprefix('executed ')}; errors against float64, of what is allowed:",
        "          gfx1100 341 launches, at most 50%, no finding",
        f"          gfx1030 {NOT_EXECUTED}",
        "install   pip install flash-attn-rocm==0.1.0 --index-url file:///index/public/simple",
        f"note      {NOT_ON_WINDOWS}",
        "",
        "this run cost 1.5 CPU-minutes on the whole machine",
    ]


def linked_again(*checkout):
    """A finished wheel's files whose library has another last instruction."""
    files = finished_files(*checkout)
    library = Edit(files[LIBRARY])
    last = library.of_section(".text")["size"] - 1
    return files | {LIBRARY: library.content(".text", last, b"\xf4").data}


def released(tmp_path, wheel, shims, job, matrix):
    """A release's publication of ``wheel``, with its record and statement."""
    context = RunContext(tmp_path, tmp_path / "build", tmp_path / "dist", tmp_path / "index", jobs=1)
    record = Artifact(tmp_path, {"facts": json.loads(record_path(wheel).read_text())}, reused=False)
    statement = read_provenance(provenance_path(wheel))
    return publish_wheel([wheel, *shims], record, statement, job, context, catalogue_of(matrix))


def test_a_second_release_after_an_edit_replaces_its_wheel(tmp_path, matrix, checkout):
    """It ended with "a published file never changes". A public release never uses that index."""
    changed, job = linked_again(*checkout), planned_job(checkout[0], "7.2")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = finished_wheel(tmp_path / "first", *checkout)
    second = finished_wheel(tmp_path / "second", *checkout, files=changed)
    shims = [finished_shim(tmp_path, *checkout, shim) for shim in SHIMS]
    found = [released(tmp_path, wheel, shims, job, matrix) for wheel in (first, second)]
    assert [each.replaced for each in found] == [(), (NAME,)]
    contents = read_contents(tmp_path / "index")["7.2"]
    assert set(contents) == {*NAMES, "flash-attn-rocm"}
    [entry] = contents["flash-attn-rocm"]
    assert entry.record.sha256 == sha256_file(second)
    assert check_index(tmp_path / "index") == Found(())
    with pytest.raises(PublishError, match=f"- {re.escape(NAME)} was written by a release on this machine"):
        publish_files([first], matrix, tmp_path / "index", checkout[0])


@pytest.mark.parametrize("edited", [False, True])
def test_a_release_into_a_public_index_ends_before_anything_is_built(
    edited, tmp_path, matrix, job, package, checkout
):
    """A wheel of other sources was refused only after seven minutes. Every other wheel was added."""
    index = tmp_path / "index"
    publish_files([finished_wheel(tmp_path, *checkout)], matrix, index, checkout[0])
    changed = tmp_path / "changed"
    shutil.copytree(checkout[0], changed, ignore=shutil.ignore_patterns(".git"))
    if edited:
        (changed / "LICENSE").write_text("another\n")
    context = RunContext(changed, tmp_path / "build", tmp_path / "dist", index, jobs=1)
    with pytest.raises(PublishError, match="others may have used it; nothing was built") as caught:
        release(Plan((job,), (), package), context, catalogue_of(matrix)).run(plain=True)
    assert caught.value.advice == RELEASE_ELSEWHERE
    assert not (tmp_path / "build").exists()


# Publishing finished wheels

NAMES = [shim.name for shim in SHIMS]


def published_names(root):
    return {
        entry.record.filename
        for projects in read_contents(root).values()
        for entries in projects.values()
        for entry in entries
    }


def test_files_of_several_rocm_versions_are_published_each_to_its_index(tmp_path, matrix, checkout):
    files = [finished_wheel(tmp_path, *checkout, rocm) for rocm in ("7.2", "6.4")]
    root = tmp_path / "index"
    found = publish_files(files, matrix, root, checkout[0])
    assert found == [root / "rocm7.2/simple", root / "rocm6.4/simple"]
    assert published_names(root) == {file.name for file in files}
    assert verify_index(root) == ()


@pytest.mark.parametrize("shim", SHIMS, ids=NAMES)
def test_flash_attn_goes_to_every_index_that_has_the_kernels(tmp_path, matrix, checkout, shim):
    files = [finished_wheel(tmp_path, *checkout, rocm) for rocm in ("7.2", "6.4")]
    files.append(finished_shim(tmp_path, *checkout, shim))
    root = tmp_path / "index"
    publish_files(files, matrix, root, checkout[0])
    for rocm in ("7.2", "6.4"):
        published = root / f"rocm{rocm}/simple/{shim.name}" / files[2].name
        assert published.read_bytes() == files[2].read_bytes()
    assert verify_index(root) == ()


def test_flash_attn_alone_belongs_to_no_index(tmp_path, matrix, checkout):
    with pytest.raises(
        PublishError, match="a wheel of flash-attn, flash-attn-3 or sageattention alone belongs to no index"
    ) as caught:
        publish_files([finished_shim(tmp_path, *checkout)], matrix, tmp_path / "index", checkout[0])
    assert caught.value.problems == (f"{wheel_name(FLASH_ATTN, CHECKOUT)} is for every ROCm version",)
    assert caught.value.advice == "name wheels of flash-attn-rocm with it"


@pytest.mark.parametrize("which", SHIMS, ids=NAMES)
@pytest.mark.parametrize("what", ["record", "sources", "statement"])
def test_flash_attn_is_held_to_its_record_and_its_commit(what, which, tmp_path, matrix, checkout):
    wheel, shim = finished_wheel(tmp_path, *checkout), finished_shim(tmp_path, *checkout, which)
    if what == "record":
        record_path(shim).unlink()
        wanted = f"{shim.name}: there is no {record_path(shim).name} beside it"
    elif what == "sources":
        text = provenance_path(shim).read_text()
        digest = read_provenance(provenance_path(shim)).dependency("source-tree").digest["sha256"]
        provenance_path(shim).write_text(text.replace(digest, "0" * 64))
        wanted = f"{shim.name}: recipe: it says sources with sha256 {'0' * 64}, but those of its commit"
    else:
        provenance_path(shim).unlink()
        wanted = f"{shim.name}: there is no {provenance_path(shim).name} beside it"
    with pytest.raises((PublishError, ProvenanceError)) as caught:
        publish_files([wheel, shim], matrix, tmp_path / "index", checkout[0])
    assert any(problem.startswith(wanted) for problem in caught.value.problems), caught.value.problems
    assert not (tmp_path / "index").exists()


def test_files_are_published_all_or_none(tmp_path, matrix, checkout):
    """Once ``publish A B`` published A and then said that nothing was published."""
    root = tmp_path / "index"
    publish_files([finished_wheel(tmp_path, *checkout)], matrix, root, checkout[0])
    changed = linked_again(*checkout)
    files = [finished_wheel(tmp_path, *checkout, "6.4"), finished_wheel(tmp_path, *checkout, files=changed)]
    with pytest.raises(PublishError, match="a published file never changes; nothing was published"):
        publish_files(files, matrix, root, checkout[0])
    assert published_names(root) == {files[1].name}
    assert not (root / "rocm6.4").exists()


def test_a_file_without_a_statement_keeps_all_from_being_published(tmp_path, matrix, checkout):
    files = [finished_wheel(tmp_path, *checkout, rocm) for rocm in ("6.4", "7.2")]
    provenance_path(files[1]).unlink()
    with pytest.raises(PublishError) as caught:
        publish_files(files, matrix, tmp_path / "index", checkout[0])
    assert caught.value.problems == (
        f"{files[1].name}: there is no {files[1].name}.provenance.json beside it",
    )
    assert not (tmp_path / "index").exists()


def test_a_file_of_an_index_is_not_verified_in_its_place(tmp_path, matrix, checkout):
    """Verification would write its record there, so it is refused before any step."""
    [simple] = publish_files([finished_wheel(tmp_path, *checkout)], matrix, tmp_path / "index", checkout[0])
    [published] = simple.glob("*/*.whl")
    with pytest.raises(PublishError, match=r"is a file of an index\n  next: copy the wheel"):
        audit_files([published], matrix, None)
    assert verify_index(tmp_path / "index") == ()


HOSTILE = {
    "a commit of zeros": lambda found: with_source(found, digest={"gitCommit": "0" * 40}),
    "changed sources": lambda found: with_source(
        found, annotations=Annotations(dirty=True, content_sha256="5" * 64)
    ),
    "another ROCm version": lambda found: replace(found, rocm="6.4"),
    "other flags": lambda found: replace(
        found, parameters={**found.parameters, "flags": {"device": ["-O0"]}}
    ),
    "other archs": lambda found: replace(found, archs=("gfx908",)),
}


def with_source(found, **changes):
    source = found.dependency("source").model_copy(update=changes)
    return replace(found, dependencies=(source, *found.dependencies[1:]))


@pytest.mark.parametrize("edit", HOSTILE.values(), ids=HOSTILE)
def test_what_verify_provenance_refuses_is_neither_published_nor_uploaded(tmp_path, matrix, checkout, edit):
    """Each of these was published."""
    wheel = finished_wheel(tmp_path, *checkout)
    write_provenance(wheel, edit(read_provenance(provenance_path(wheel))))
    root, log = tmp_path / "index", tmp_path / "log"
    for give in (
        lambda: publish_files([wheel], matrix, root, checkout[0]),
        lambda: upload_files([wheel], matrix, "http://127.0.0.1:9", checkout[0], log=log),
    ):
        with pytest.raises(ProvenanceError, match="nothing was published: not every wheel agrees") as caught:
            give()
        assert all(problem.startswith(f"{wheel.name}: ") for problem in caught.value.problems)
        assert "publish from a checkout with that commit" in caught.value.advice
    assert not root.exists()
    assert not log.exists()


def test_what_the_audit_refuses_or_lacks_its_record_is_not_uploaded(tmp_path, matrix, checkout):
    changed = finished_files(*checkout) | {"flash_attn_rocm/_evil.py": b""}
    url, log = "http://127.0.0.1:9", tmp_path / "log"
    with pytest.raises(AuditError, match=r"contents: found flash_attn_rocm/_evil\.py"):
        upload_files([finished_wheel(tmp_path, *checkout, files=changed)], matrix, url, checkout[0], log=log)
    wheel = finished_wheel(tmp_path, *checkout)
    record_path(wheel).unlink()
    with pytest.raises(PublishError, match=r"there is no .* beside it"):
        upload_files([wheel], matrix, url, checkout[0], log=log)
    assert not log.exists()
