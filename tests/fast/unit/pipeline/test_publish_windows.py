"""Publishing the wheel for Windows: its facts in the index, and the refusals."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.fast.unit.provenance.test_provenance import IMAGE
from tests.tools.made.checkouts import commit_all
from tests.tools.made.finished import NUMERICS, finished_files, finished_record, finished_wheel, state
from tests.tools.made.wheels import write_wheel
from wheel_builder.base.errors import AuditError, ProvenanceError, PublishError, SelectionError, WheelError
from wheel_builder.base.store import Artifact
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY
from wheel_builder.index.check import verify_index
from wheel_builder.index.folder import read_contents
from wheel_builder.index.publish import publish
from wheel_builder.matrix.catalogue import catalogue_of
from wheel_builder.matrix.model import LINUX, WINDOWS
from wheel_builder.pipeline.context import RunContext
from wheel_builder.pipeline.publication import publish_files, upload_files
from wheel_builder.pipeline.release import provenance_of
from wheel_builder.pipeline.shim import shims_beside
from wheel_builder.pipeline.verification import job_of
from wheel_builder.provenance.attest import verify_provenance, write_provenance
from wheel_builder.provenance.provenance import read_provenance
from wheel_builder.provenance.records import provenance_path, record_path, write_record
from wheel_builder.verify.wine import HOW, NOT_EXECUTED

NAME = "flash_attn_rocm-0.1.0-py3-none-win_amd64.whl"
LINUX_NAME = "flash_attn_rocm-0.1.0-py3-none-manylinux_2_28_x86_64.whl"


@pytest.fixture(scope="module")
def made(checkout, tmp_path_factory):
    """The public wheels of the commit, and the files with them."""
    folder = tmp_path_factory.mktemp("made")
    return [finished_wheel(folder, *checkout, "public", platform=platform) for platform in (LINUX, WINDOWS)]


def copied(wheel, folder):
    for path in (wheel, record_path(wheel), provenance_path(wheel)):
        shutil.copy2(path, folder)
    return folder / wheel.name


@pytest.fixture
def linux(made, tmp_path):
    return copied(made[0], tmp_path)


@pytest.fixture
def windows(made, tmp_path):
    return copied(made[1], tmp_path)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "index"


def refused(wheel, matrix, root, checkout):
    """Why publishing refuses all of it."""
    with pytest.raises((AuditError, ProvenanceError, PublishError)) as caught:
        publish_files([wheel], matrix, root, checkout[0])
    assert not root.exists()
    return caught.value.problems


def recorded(wheel, checkout, change):
    """Write another record, and a statement that names it."""
    record = finished_record(wheel, checkout[0], "public", WINDOWS)
    write_record(wheel, change(record) or record)
    state(wheel, *checkout, "public", WINDOWS)


def entries(root, home="public"):
    return {entry.record.filename: entry.record for entry in read_contents(root)[home]["flash-attn-rocm"]}


def test_it_is_published_with_its_record_and_statement(windows, matrix, root, checkout):
    assert publish_files([windows], matrix, root, checkout[0]) == [root / "public/simple"]
    published = root / "public/simple/flash-attn-rocm" / NAME
    for path in (windows, record_path(windows), provenance_path(windows)):
        assert published.with_name(path.name).read_bytes() == path.read_bytes()
    record = entries(root)[NAME]
    assert record.serves == ()
    assert record.verified["gfx1100"] == (f"{HOW}; 2 launches of 2 kernels compared with float64, no finding")
    assert record.verified["gfx1030"] == NOT_EXECUTED
    assert verify_index(root) == ()
    assert "the commit's sources and their flags" in verify_provenance(windows, checkout[0])


def test_a_release_states_of_it_what_its_commit_says(windows, matrix, tmp_path, checkout):
    """Its DLL has another target than the library for Linux."""
    job, context = job_of(windows, matrix), RunContext(checkout[0], *[tmp_path] * 3, jobs=1)
    found = read_provenance(provenance_path(windows))
    facts = {"wheel": windows.name, "sha256": found.sha256}
    built = Artifact(tmp_path, {"key": "w", "inputs": {"sources": "0" * 64}, "facts": facts}, reused=True)
    (tmp_path / "manifest.json").write_text("{}")
    made = provenance_of(job, matrix.package, IMAGE, [], built, context)
    assert made.parameters == found.parameters
    assert made.parameters["platform_tag"] == "win_amd64"
    assert "x86_64-windows-gnu" in made.parameters["flags"]["host"]
    assert (made.selected, made.platform) == ("public", "windows")


def test_both_platforms_are_one_version_of_the_public_index(linux, windows, matrix, root, checkout):
    publish_files([linux], matrix, root, checkout[0])
    before = {
        path: path.read_bytes() for path in (root / "public/simple/flash-attn-rocm").glob(f"{LINUX_NAME}*")
    }
    publish_files([windows], matrix, root, checkout[0])
    assert set(entries(root)) == {NAME, LINUX_NAME}
    assert {path: path.read_bytes() for path in before} == before
    for home in ("7.2", "6.4"):  # the wheel for Linux serves these
        names = json.loads((root / f"rocm{home}/simple/flash-attn-rocm/index.json").read_bytes())["files"]
        assert [each["filename"] for each in names] == [LINUX_NAME]
    assert verify_index(root) == ()


def test_each_platform_has_variants_for_the_gpus_that_its_record_names(
    linux, windows, matrix, root, checkout
):
    publish_files([linux, windows], matrix, root, checkout[0], variants=True)
    about = root / "public/simple/flash-attn-rocm/flash_attn_rocm-0.1.0-variants.json"
    found = json.loads(about.read_bytes())["variants"]
    gpus = {label: set(found[label]["amd"]["gfx_arch"]) for label in ("amd_linux", "amd_windows")}
    assert found.keys() - gpus.keys() == {"null"}
    assert gpus == {
        "amd_linux": set(entries(root)[LINUX_NAME].verified), "amd_windows": set(entries(root)[NAME].verified)
    }  # fmt: skip
    assert gpus["amd_linux"] - gpus["amd_windows"] == {"gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"}
    for home in ("7.2", "6.4"):
        names = json.loads((root / f"rocm{home}/variants/flash-attn-rocm/index.json").read_bytes())["files"]
        assert not [each["filename"] for each in names if "win_amd64" in each["filename"]]
    assert verify_index(root) == ()


def test_a_full_run_is_told_as_such(windows, matrix, root, checkout):
    def full(record):
        passed = record["archs"]["gfx1100"]
        return record | {"archs": dict.fromkeys(record["archs"], passed)}

    recorded(windows, checkout, full)
    publish_files([windows], matrix, root, checkout[0])
    assert all(words.startswith(HOW) for words in entries(root)[NAME].verified.values())


EXPECTED = "gfx1100, gfx1201, gfx1012, gfx1030, gfx1102, gfx1151"
# False content of a record, and the message.
WRONG = {
    "an arch that has to be executed was not": (
        lambda archs: archs | {"gfx1100": archs["gfx1030"]},
        f"{NAME}: gfx1100 did not pass: {NOT_EXECUTED}",
    ),
    "an arch ran and found something": (
        lambda archs: archs | {"gfx1030": archs["gfx1100"] | {"passed": False, "findings": ["wrong sum"]}},
        f"{NAME}: gfx1030: wrong sum",
    ),
    "an arch ran and did not pass": (
        lambda archs: archs | {"gfx1030": archs["gfx1100"] | {"passed": False}},
        f"{NAME}: gfx1030 did not pass: {HOW}",
    ),
    "an arch is missing": (
        lambda archs: {arch: shown for arch, shown in archs.items() if arch != "gfx1102"},
        f"{NAME}: gfx1102 was not verified",
    ),
    "no arch was executed": (
        lambda archs: dict.fromkeys(archs, archs["gfx1030"]),
        f"{NAME}: gfx1201 did not pass: {NOT_EXECUTED}",
    ),
    "an arch that the wheel has no code for": (
        lambda archs: archs | {"gfx942": archs["gfx1100"]},
        f"{NAME}.verification.json: it is about gfx942, but the wheel lacks its code; expected {EXPECTED}",
    ),
    "words of Linux": (
        lambda archs: archs | {"gfx1100": archs["gfx1100"] | {"numerics": NUMERICS}},
        f"{NAME}.verification.json: gfx1100: it says '{NUMERICS}', expected '{HOW}'",
    ),
    "words that nobody has shown": (
        lambda archs: archs | {"gfx1030": archs["gfx1030"] | {"numerics": "run on Windows"}},
        f"{NAME}.verification.json: gfx1030: it says 'run on Windows', expected '{NOT_EXECUTED}'",
    ),
}


@pytest.mark.parametrize(("change", "words"), WRONG.values(), ids=WRONG)
def test_a_record_that_says_what_was_not_shown(change, words, windows, matrix, root, checkout):
    recorded(windows, checkout, lambda record: record | {"archs": change(record["archs"])})
    assert words in refused(windows, matrix, root, checkout)


def test_it_serves_no_rocm_version_of_linux(windows, matrix, root, checkout):
    """Otherwise that version's index would offer it.

    If the wheel for Linux has another version, it would be the only offer.
    """
    recorded(windows, checkout, lambda record: record | {"serves": ["7.2"]})
    assert refused(windows, matrix, root, checkout) == (
        f"{NAME}.verification.json: serves has ROCm '7.2'; known: none, it was loaded under no runtime",
    )


def test_the_record_of_the_wheel_for_linux_under_its_name(linux, windows, matrix, root, checkout):
    record_path(windows).write_bytes(record_path(linux).read_bytes())
    state(windows, *checkout, "public", WINDOWS)
    [problem] = refused(windows, matrix, root, checkout)
    assert problem.startswith(f"{NAME}.verification.json: it is about a wheel with sha256 ")
    # The forged record with the wheel's right hash.
    forged = finished_record(windows, checkout[0], "public") | {"wheel": LINUX_NAME}
    recorded(windows, checkout, lambda _: forged)
    problems = refused(windows, matrix, root, checkout)
    assert problems[0] == f"{NAME}.verification.json: it is about {LINUX_NAME}, but the wheel is {NAME}"
    assert "serves has ROCm" in problems[1]
    assert any("it is about gfx942, but the wheel lacks its code" in problem for problem in problems)
    assert any("expected 'executed under wine" in problem for problem in problems)


def test_the_statement_of_the_wheel_for_linux_under_its_name(linux, windows, matrix, root, checkout):
    found = read_provenance(provenance_path(linux))
    own = read_provenance(provenance_path(windows))
    write_provenance(windows, replace(found, wheel=own.wheel, sha256=own.sha256, archs=own.archs))
    problems = refused(windows, matrix, root, checkout)
    assert (
        f"{NAME}: recipe: it says platform_tag manylinux_2_28_x86_64, but those of its commit are win_amd64"
        in (problems)
    )
    assert any("recipe: it says host flags -target x86_64-linux-gnu" in problem for problem in problems)


@pytest.mark.parametrize(
    "tag",
    ["win_arm64", "win32", "any", "manylinux_2_28_x86_64.win_amd64", "linux_x86_64", "macosx_11_0_arm64"],
)
def test_a_foreign_tag(tag, windows, matrix, root, checkout):
    renamed = windows.rename(windows.with_name(NAME.replace("win_amd64", tag)))
    write_record(renamed, finished_record(renamed, checkout[0], "public", WINDOWS))
    state(renamed, *checkout, "public", WINDOWS)
    assert any(
        f"file-name: found {renamed.name}" in problem for problem in refused(renamed, matrix, root, checkout)
    )


@pytest.mark.parametrize(("name", "platform"), [(LINUX_NAME, WINDOWS), (NAME, LINUX)])
def test_the_content_of_one_platform_under_the_name_of_the_other(
    name, platform, tmp_path, matrix, root, checkout
):
    content = finished_files(*checkout, "public", platform)
    wheel = write_wheel(tmp_path, content, name=name)
    write_record(wheel, finished_record(wheel, checkout[0], "public", platform))
    state(wheel, *checkout, "public", platform)
    problems = refused(wheel, matrix, root, checkout)
    library = LIBRARY if name == NAME else WINDOWS_LIBRARY
    assert any(f"contents: found {library}" in problem for problem in problems)


def test_what_is_not_published_is_not_uploaded_either(windows, matrix, checkout, tmp_path):
    record_path(windows).unlink()
    log = tmp_path / "log"
    with pytest.raises(PublishError, match=r"there is no .*win_amd64\.whl\.verification\.json beside it"):
        upload_files([windows], matrix, "http://127.0.0.1:9", checkout[0], log=log)
    assert not log.exists()


def test_a_version_of_one_rocm_version_for_windows(windows, matrix, root, checkout):
    """Only the public wheel is for Windows."""
    renamed = windows.rename(windows.with_name(NAME.replace("0.1.0", "0.1.0+rocm7.2")))
    with pytest.raises(SelectionError, match="one wheel for Windows is for every ROCm version"):
        publish_files([renamed], matrix, root, checkout[0])
    assert not root.exists()


@pytest.fixture(scope="module")
def edited(checkout, tmp_path_factory):
    """The next commit of a clone, with another readme in the wheel."""
    root = tmp_path_factory.mktemp("edited") / "checkout"
    shutil.copytree(checkout[0], root, symlinks=True)
    readme = root / "kernels/python/README.md"
    readme.write_text(readme.read_text() + "\nAnother paragraph.\n")
    return root, commit_all(root)


def test_platforms_of_different_sources_are_not_one_version(
    tmp_path, windows, matrix, root, checkout, edited
):
    """uv and poetry read the METADATA of one file and assume it for all."""
    linux = finished_wheel(tmp_path, *edited, "public")
    publish_files([windows], matrix, root, checkout[0])
    before = read_contents(root)
    with pytest.raises(PublishError) as caught:
        publish_files([linux], matrix, root, edited[0])
    assert caught.value.message.startswith(
        "the wheels of one version have to be of the same sources; nothing was published"
    )
    metadata, sources = caught.value.problems
    assert metadata.startswith(f"{LINUX_NAME}: its METADATA has sha256 ")
    assert f"but that of {NAME}, of the same version, has " in metadata
    assert sources.startswith(f"{LINUX_NAME}: it is of sources with sha256 ")
    assert "raise the version in pyproject.toml" in caught.value.advice
    assert read_contents(root) == before
    assert verify_index(root) == ()


def test_platforms_of_different_sources_given_together(tmp_path, windows, matrix, root, checkout, edited):
    linux = finished_wheel(tmp_path, *edited, "public")
    with pytest.raises(PublishError, match="have to be of the same sources") as caught:
        publish_files([linux, windows], matrix, root, edited[0])
    assert {problem.split(":")[0] for problem in caught.value.problems} == {NAME, LINUX_NAME}
    assert not list(root.glob("*/simple"))


def test_the_distributions_are_not_tested_beside_it(windows, matrix):
    with pytest.raises(WheelError, match="no wheel for Linux is named"):
        shims_beside(None, [windows], matrix, windows.parent)


def test_in_a_local_index_the_older_wheel_of_another_platform_goes(
    tmp_path, windows, matrix, root, checkout, edited
):
    catalogue = catalogue_of(matrix)
    for wheel in (windows, finished_wheel(tmp_path, *edited, "public")):
        publish([wheel], root, "public", catalogue=catalogue, now=datetime.now(UTC), to_others=False)
    assert set(entries(root)) == {LINUX_NAME}
    assert verify_index(root) == ()


def test_nothing_published_is_overwritten(tmp_path, windows, matrix, root, checkout):
    publish_files([windows], matrix, root, checkout[0])
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}
    (again := tmp_path / "again").mkdir()
    files = finished_files(*checkout, "public", WINDOWS)
    library = files[WINDOWS_LIBRARY]
    changed = files | {WINDOWS_LIBRARY: library[:0x400] + b"\x90" + library[0x401:]}
    other = finished_wheel(again, *checkout, "public", changed, platform=WINDOWS)
    with pytest.raises(PublishError, match="a published file never changes; nothing was published"):
        publish_files([other], matrix, root, checkout[0])
    # A later verification leaves the published record unchanged.
    recorded(windows, checkout, lambda record: record | {"more": 1})
    publish_files([windows], matrix, root, checkout[0])
    assert {path: path.read_bytes() for path in before} == before
    assert verify_index(root) == ()
