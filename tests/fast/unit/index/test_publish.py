import json
import re
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import (
    DIST_INFO,
    good_files,
    project_wheel,
    record_text,
    write_statement,
    write_wheel,
)
from wheel_builder.base.errors import CommandFailedError, PublishError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import sha256_file
from wheel_builder.index.check import verify_index
from wheel_builder.index.folder import beside, read_contents, yank
from wheel_builder.index.publish import NEW_VERSION, publish, publish_all, upload
from wheel_builder.provenance.records import provenance_path, record_path, write_record

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "index"


def test_publishes_what_pip_needs(tmp_path, root):
    wheel = write_wheel(tmp_path)
    published = publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)

    assert published.simple == root / "rocm7.2" / "simple"
    assert (published.added, published.unchanged) == ((wheel.name,), ())
    project = published.simple / "flash-attn-rocm"
    assert (project / wheel.name).read_bytes() == wheel.read_bytes()
    assert (project / f"{wheel.name}.metadata").read_bytes() == good_files()[f"{DIST_INFO}/METADATA"]
    assert json.loads((project / "index.json").read_bytes())["files"][0]["requires-python"] == ">=3.10"
    assert verify_index(root) == ()


def test_the_same_file_again_is_nothing_to_do(tmp_path, root):
    wheel = write_wheel(tmp_path)
    publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.name != ".lock"}

    published = publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW + timedelta(days=1))

    assert (published.added, published.unchanged) == ((), (wheel.name,))
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.name != ".lock"} == before


def test_a_wheel_is_added_to_an_index_of_version_0_1_0(tmp_path, root):
    """tests/data/index-0.1.0 was written by that version's publisher."""
    shutil.copytree(CHECKOUT / "tests/data/index-0.1.0", root)
    old = next(root.rglob("*.whl"))
    content = old.read_bytes()
    new = project_wheel(tmp_path, "flash-attn-demo", "0.2.0+rocm7.2")

    publish([new], root, "7.2", catalogue=CATALOGUE, now=NOW)

    assert verify_index(root) == ()
    assert old.read_bytes() == content
    listed = json.loads((old.parent / "index.json").read_bytes())["files"]
    assert [each["filename"] for each in listed] == [old.name, new.name]


def test_another_content_under_a_published_name_is_refused(tmp_path, root):
    publish([project_wheel(tmp_path, "demo", "1.0")], root, "7.2", catalogue=CATALOGUE, now=NOW)
    new = project_wheel(tmp_path, "demo", "1.1")
    changed = project_wheel(tmp_path, "demo", "1.0", module=b"VALUE = 43\n")

    with pytest.raises(PublishError) as caught:
        publish([new, changed], root, "7.2", catalogue=CATALOGUE, now=NOW)

    (problem,) = caught.value.problems
    assert problem.startswith(
        "demo-1.0-py3-none-any.whl is published since 2026-01-02T03:04:05.000000Z with sha256 "
    )
    assert "a published file never changes; nothing was published" in caught.value.message
    assert "raise the version" in caught.value.advice
    assert not (root / "rocm7.2" / "simple" / "demo" / new.name).exists()
    assert verify_index(root) == ()


def test_what_an_interrupted_publisher_left_may_be_replaced(tmp_path, root):
    wheel = project_wheel(tmp_path, "demo", "1.0")
    left = root / "rocm7.2" / "simple" / "demo" / wheel.name
    left.parent.mkdir(parents=True)
    left.write_bytes(b"a wheel of an earlier build; no record, so nobody was told of it")
    publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    assert verify_index(root) == ()


def test_each_rocm_version_has_its_own_index(tmp_path, root):
    wheel = project_wheel(tmp_path, "flash-attn", "2.8.3")
    for rocm in ("6.4", "7.2"):
        publish([wheel], root, rocm, catalogue=CATALOGUE, now=NOW)
    for rocm in ("6.4", "7.2"):
        assert (root / f"rocm{rocm}" / "simple" / "flash-attn" / wheel.name).is_file()
    assert verify_index(root) == ()


def test_a_name_may_not_have_another_content_in_another_rocm_version(tmp_path, root):
    """The root offers every file under its one name."""
    publish([project_wheel(tmp_path, "demo", "1.0")], root, "6.4", catalogue=CATALOGUE, now=NOW)
    changed = project_wheel(tmp_path, "demo", "1.0", module=b"VALUE = 43\n")
    with pytest.raises(PublishError, match="a published file never changes"):
        publish([changed], root, "7.2", catalogue=CATALOGUE, now=NOW)


@pytest.mark.parametrize("rocm", ["../7.2", "7", "7.2/..", ""])
def test_what_is_no_rocm_version_is_no_folder(tmp_path, root, rocm):
    with pytest.raises(PublishError, match=r"is no ROCm version, expected one such as 7\.2"):
        publish([project_wheel(tmp_path, "demo", "1.0")], root, rocm, catalogue=CATALOGUE, now=NOW)
    assert not root.exists()


NUMERICS = "executed on an ISA emulator, not run on hardware"


def verified(wheel, **changes):
    """``wheel`` with its verification record."""
    shown = {"numerics": NUMERICS, "launches": {"a": 30, "b": 12}, "findings": [], "passed": True}
    write_record(wheel, {"sha256": sha256_file(wheel), "archs": {"gfx908": shown}} | changes)
    return wheel


def test_a_yanked_file_is_not_published_again(tmp_path, root):
    """Publishing reported success, and it stayed yanked."""
    wheel = write_wheel(tmp_path)
    publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    yank(root, "7.2", wheel.name, "wrong numbers", catalogue=CATALOGUE, now=NOW)
    with pytest.raises(PublishError) as caught:
        publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    assert str(caught.value) == (
        "a yanked file is not published again; nothing was published\n"
        f"  - {wheel.name} is yanked: wrong numbers\n"
        f"  next: {NEW_VERSION}"
    )
    assert verify_index(root) == ()


@pytest.mark.parametrize("numerics", ["\x1b[2Jexecuted", "\u202edetucexe", "two\nlines", " " * 3000])
def test_words_of_a_record_that_no_page_can_show_are_not_published(tmp_path, root, numerics):
    """They reached the terminal and the pages unchanged."""
    shown = {"numerics": numerics, "launches": {"a": 30}, "findings": [], "passed": True}
    wheel = verified(write_wheel(tmp_path), archs={"gfx908": shown})
    with pytest.raises(PublishError, match=r"verified\.gfx908: it has "):
        publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    assert not root.exists()


def test_the_record_and_the_statement_beside_a_wheel_are_published_with_it(tmp_path, root):
    wheel = verified(write_wheel(tmp_path), serves=["7.1"])
    write_statement(wheel)
    simple = publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW).simple

    published = simple / "flash-attn-rocm" / wheel.name
    assert beside(published, ".verification.json").read_bytes() == record_path(wheel).read_bytes()
    assert beside(published, ".provenance.json").read_bytes() == provenance_path(wheel).read_bytes()
    (entry,) = read_contents(root)["7.2"]["flash-attn-rocm"]
    assert entry.record.serves == ("7.1",)
    assert entry.record.verified == {
        "gfx908": f"{NUMERICS}; 42 launches of 2 kernels compared with float64, no finding"
    }
    assert verify_index(root) == ()


def test_a_later_verification_does_not_change_what_was_published(tmp_path, root):
    wheel = verified(write_wheel(tmp_path))
    publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    before = read_contents(root)
    published = publish([verified(wheel, more=1)], root, "7.2", catalogue=CATALOGUE, now=NOW)
    assert published.unchanged == (wheel.name,)
    assert read_contents(root) == before
    assert verify_index(root) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": "0"}, "it is about a wheel with sha256 0, but the wheel's is"),
        ({"archs": []}, "it is not a verification record"),
        ({"archs": {"gfx908": {}}}, "it is not a verification record"),
        ({"serves": ["7.1", "../x"]}, "serves has '../x', expected ROCm versions such as 7.2"),
        ({"serves": 7}, "it is not a verification record"),
        # Other spellings of 7.1, offered by the index as separate versions.
        ({"serves": ["7.01"]}, "serves has '7.01', expected ROCm versions such as 7.2"),
        ({"serves": ["07.1"]}, "serves has '07.1', expected ROCm versions such as 7.2"),
        ({"serves": ["\u0667.1"]}, "serves has '\u0667.1', expected ROCm versions such as 7.2"),
        ({"serves": ["7.1", "7.1"]}, "serves has '7.1' 2 times"),
        # Each had its own pages, which took 41 s.
        (
            {"serves": [f"{n // 100 + 1}.{n % 100}" for n in range(1000)]},
            "serves has 1000 ROCm versions, expected at most 50",
        ),
    ],
)
def test_a_wrong_record_beside_a_wheel_is_refused(tmp_path, root, changes, words):
    with pytest.raises(PublishError, match=re.escape(words)):
        publish([verified(write_wheel(tmp_path), **changes)], root, "7.2", catalogue=CATALOGUE, now=NOW)
    assert not root.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "it is not a provenance statement (_type: Field required)"),
        ("[" * 100_000, "it is not a provenance statement (its values are nested too deeply)"),
    ],
)
def test_what_is_no_statement_is_refused(tmp_path, root, text, words):
    """It was published unread, and could never be replaced."""
    wheel = verified(write_wheel(tmp_path))
    provenance_path(wheel).write_text(text)
    with pytest.raises(PublishError, match=re.escape(f"{wheel.name}.provenance.json: {words}")):
        publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    assert not root.exists()


@pytest.mark.parametrize("changes", [{"wheel": "b.whl"}, {"sha256": "0" * 64}])
def test_a_statement_about_another_wheel_is_refused(tmp_path, root, changes):
    wheel = verified(write_wheel(tmp_path))
    write_statement(wheel, **changes)
    with pytest.raises(PublishError, match=r"provenance\.json: the statement is about "):
        publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)
    assert not root.exists()


def test_a_record_that_is_nested_too_deep_is_refused(tmp_path, root):
    wheel = write_wheel(tmp_path)
    record_path(wheel).write_text("[" * 100_000)
    with pytest.raises(PublishError, match="it is not a verification record"):
        publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW)


def test_wheels_of_several_rocm_versions_are_published_all_or_none(tmp_path, root):
    """The first was published before the second was refused with "nothing was published"."""
    publish([project_wheel(tmp_path, "demo", "1.0+rocm7.2")], root, "7.2", catalogue=CATALOGUE, now=NOW)
    before = read_contents(root)
    new = project_wheel(tmp_path, "demo", "1.0+rocm6.4")
    changed = project_wheel(tmp_path, "demo", "1.0+rocm7.2", module=b"VALUE = 43\n")
    with pytest.raises(PublishError, match="nothing was published"):
        publish_all({"6.4": [new], "7.2": [changed]}, root, catalogue=CATALOGUE, now=NOW)
    assert read_contents(root) == before
    assert not (root / "rocm6.4").exists()
    assert verify_index(root) == ()

    newer = project_wheel(tmp_path, "demo", "1.1+rocm7.2")
    published = publish_all({"6.4": [new], "7.2": [newer]}, root, catalogue=CATALOGUE, now=NOW)
    assert {rocm: found.added for rocm, found in published.items()} == {
        "6.4": (new.name,), "7.2": (newer.name,),
    }  # fmt: skip
    assert verify_index(root) == ()


def test_one_name_with_two_contents_in_two_rocm_versions_is_refused(tmp_path, root):
    (tmp_path / "other").mkdir()
    pair = [
        project_wheel(tmp_path, "demo", "1.0"), project_wheel(tmp_path / "other", "demo", "1.0", module=b""),
    ]  # fmt: skip
    with pytest.raises(PublishError, match="given twice, with different content"):
        publish_all({"6.4": pair[:1], "7.2": pair[1:]}, root, catalogue=CATALOGUE, now=NOW)
    assert not root.exists()


def test_a_wheel_whose_record_is_wrong_is_refused(tmp_path, root):
    record = record_text(good_files() | {"flash_attn_rocm/__init__.py": b"other"})
    with pytest.raises(PublishError, match=r"flash_attn_rocm/__init__\.py is listed as sha256="):
        publish([write_wheel(tmp_path, record=record)], root, "7.2", catalogue=CATALOGUE, now=NOW)


def test_flash_attn_is_not_published_where_installers_would_take_another(tmp_path, root):
    """2.8.3+rocm1, from before build numbers, is above 2.8.3, so nobody would get the new build."""
    labelled = project_wheel(tmp_path, "flash-attn", "2.8.3+rocm1")
    publish([labelled], root, "7.2", catalogue=CATALOGUE, now=NOW)
    numbered = project_wheel(tmp_path, "flash-attn", "2.8.3", build="2")
    with pytest.raises(PublishError) as caught:
        publish([numbered], root, "6.4", catalogue=CATALOGUE, now=NOW)
    assert str(caught.value).startswith(
        "installers would never choose this flash-attn; nothing was published"
    )
    said = f"the index of ROCm 7.2 offers {labelled.name}, which installers take instead"
    assert caught.value.problems == (said,)
    assert "scripts/wheel-builder yank FILE --rocm V --reason TEXT" in caught.value.advice
    assert not (root / "rocm6.4").exists()
    yank(root, "7.2", labelled.name, "superseded", catalogue=CATALOGUE, now=NOW)
    assert publish([numbered], root, "6.4", catalogue=CATALOGUE, now=NOW).added == (numbered.name,)


def test_project_names_are_normalised(tmp_path, root):
    wheel = project_wheel(tmp_path, "Flash.Attn", "1.0")
    assert (
        publish([wheel], root, "7.2", catalogue=CATALOGUE, now=NOW).simple / "flash-attn" / wheel.name
    ).is_file()


def test_all_that_is_not_fit_to_be_listed_is_said_at_once(tmp_path, root):
    text = tmp_path / "text-1-py3-none-any.whl"
    text.write_text("no wheel")
    cut = project_wheel(tmp_path, "cut", "1.0")
    cut.write_bytes(cut.read_bytes()[:-40])
    renamed = project_wheel(tmp_path, "demo", "1.0").rename(tmp_path / "other-1.0-py3-none-any.whl")
    misplaced = project_wheel(tmp_path, "demo", "2.0+rocm6.4")
    twice = tmp_path / "twice"
    twice.mkdir()
    pair = [project_wheel(tmp_path, "two", "1"), project_wheel(twice, "two", "1", module=b"")]

    with pytest.raises(PublishError) as caught:
        publish([text, renamed, misplaced, *pair, cut], root, "7.2", catalogue=CATALOGUE, now=NOW)

    problems = caught.value.problems
    assert problems[0].startswith("text-1-py3-none-any.whl: not a readable zip file")
    assert problems[1].startswith("other-1.0-py3-none-any.whl: METADATA")
    assert (
        "demo-2.0+rocm6.4-py3-none-any.whl: it is for rocm6.4, but this is the index of rocm7.2" in problems
    )
    assert "two-1-py3-none-any.whl: given twice, with different content" in problems
    assert problems[-1].startswith("cut-1.0-py3-none-any.whl: not a readable zip file")
    assert not root.exists()


def test_a_wheel_whose_metadata_is_about_another(tmp_path, root):
    files = good_files()
    files[f"{DIST_INFO}/METADATA"] = files[f"{DIST_INFO}/METADATA"].replace(
        b"Name: flash-attn-rocm", b"Name: other"
    )
    with pytest.raises(PublishError, match=r"METADATA is about other 0\.1\.0\+rocm7\.2"):
        publish([write_wheel(tmp_path, files)], root, "7.2", catalogue=CATALOGUE, now=NOW)


class Twine:
    """A fake that records its commands and fails at ``fails`` with ``output``."""

    def __init__(self, fails="", output=""):
        self.fails = fails
        self.output = output
        self.commands = []

    def __call__(self, argv, **_):
        self.commands.append([str(part) for part in argv])
        if argv[3] == self.fails:
            raise CommandFailedError(self.output)
        return Completed("", 0)


def test_all_wheels_are_checked_before_the_first_is_uploaded(tmp_path):
    twine = Twine()
    upload([tmp_path / "a.whl", tmp_path / "b.whl"], "http://server/", log=tmp_path / "log", run=twine)

    check, send = twine.commands
    assert check[1:] == ["-m", "twine", "check", "--strict", str(tmp_path / "a.whl"), str(tmp_path / "b.whl")]
    assert send[3] == "upload"
    assert "--non-interactive" in send
    assert send[-4:] == [
        "--repository-url",
        "http://server/",
        str(tmp_path / "a.whl"),
        str(tmp_path / "b.whl"),
    ]


def test_nothing_is_uploaded_when_a_check_fails(tmp_path):
    twine = Twine("check", "bad readme")
    with pytest.raises(
        PublishError, match="twine check refuses the wheels; nothing was uploaded\n  - bad readme"
    ):
        upload([tmp_path / "a.whl"], "http://server/", log=tmp_path / "log", run=twine)
    assert len(twine.commands) == 1


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("HTTPError: 409 Conflict from http://server/", "http://server/ already has one of these files"),
        ("HTTPError: 400 Bad Request\n  |  Package already\n  |  exists!", "already has one of these files"),
        ("HTTPError: 403 Forbidden", "does not accept the credentials\n.*\n  next: set TWINE_USERNAME"),
        ("HTTPError: 500 Internal", "twine could not upload to http://server/"),
    ],
)
def test_a_refused_upload_is_said_in_words(tmp_path, output, words):
    with pytest.raises(PublishError, match=words):
        upload([tmp_path / "a.whl"], "http://server/", log=tmp_path / "log", run=Twine("upload", output))


def test_credentials_in_the_url_are_refused_and_not_shown(tmp_path):
    twine = Twine()
    with pytest.raises(PublishError) as caught:
        upload([tmp_path / "a.whl"], "https://me:hunter2@server/", log=tmp_path / "log", run=twine)
    assert "set TWINE_USERNAME and TWINE_PASSWORD instead" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert twine.commands == []
