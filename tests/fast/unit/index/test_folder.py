import errno
import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import project_wheel
from wheel_builder.base.durable import remove_parts
from wheel_builder.base.errors import PublishError
from wheel_builder.base.store import sha256_file
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.index.check import verify_index
from wheel_builder.index.folder import (
    add_file,
    changing,
    newest_wheels,
    read_contents,
    write_pages,
    yank,
)
from wheel_builder.index.incoming import described
from wheel_builder.index.simple.pages import Entry, Record, project_pages, root_pages
from wheel_builder.provenance.records import write_record

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


@cache
def demo(version="1.0+rocm7.2", serves=("7.1",), project="demo", build=""):
    """A wheel of the project demo with a verification record, as publishing reads them."""
    with tempfile.TemporaryDirectory() as folder:
        path = project_wheel(Path(folder), project, version, requires=">=3.10", build=build)
        archs = {"gfx908": {"numerics": "executed on an ISA emulator"}}
        write_record(path, {"sha256": sha256_file(path), "archs": archs, "serves": serves})
        file, problems = described(read_wheel(path, max_mib=1))
    assert problems == []
    return file


FILE = demo()
ENTRY = Entry(FILE.to_record(NOW), None)


class Links(HTMLParser):
    """The attributes of every link on a page, and its meta tags."""

    def __init__(self, page):
        super().__init__()
        self.links = []
        self.meta = {}
        self.feed(page.decode())

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.links.append(dict(attributes))
        if tag == "meta" and "name" in dict(attributes):
            self.meta[dict(attributes)["name"]] = dict(attributes)["content"]


def test_html_of_a_project():
    page = Links(project_pages("demo", [ENTRY])["index.html"])
    metadata = f"sha256={ENTRY.record.metadata_sha256}"

    assert page.meta["pypi:repository-version"] == "1.1"
    assert page.links == [
        {
            "href": f"demo-1.0%2Brocm7.2-py3-none-any.whl#sha256={ENTRY.record.sha256}",
            "data-core-metadata": metadata,
            "data-dist-info-metadata": metadata,
            "data-upload-time": "2026-01-02T03:04:05.000678Z",
            "data-requires-python": ">=3.10",
        }
    ]


def test_html_escapes_what_it_shows():
    record = replace(ENTRY.record, filename='a-1-py3-none-"<b>&.whl', requires_python='>=3"<script>')
    text = project_pages("demo", [Entry(record, '"><i>')])["index.html"].decode()

    assert "<script>" not in text
    assert "<i>" not in text
    assert "<b>" not in text
    (link,) = Links(text.encode()).links
    assert (link["data-requires-python"], link["data-yanked"]) == ('>=3"<script>', '"><i>')


def test_json_of_a_project():
    document = json.loads(project_pages("demo", [ENTRY])["index.json"])
    metadata = {"sha256": ENTRY.record.metadata_sha256}

    assert document == {
        "meta": {"api-version": "1.1"},
        "name": "demo",
        "versions": ["1.0+rocm7.2"],
        "files": [
            {
                "filename": FILE.filename,
                "url": "demo-1.0%2Brocm7.2-py3-none-any.whl",
                "hashes": {"sha256": ENTRY.record.sha256},
                "size": len(FILE.data),
                "upload-time": "2026-01-02T03:04:05.000678Z",
                "core-metadata": metadata,
                "dist-info-metadata": metadata,
                "yanked": False,
                "requires-python": ">=3.10",
            }
        ],
    }


def test_without_requires_python_the_key_is_absent():
    pages = project_pages("demo", [Entry(replace(ENTRY.record, requires_python=""), None)])
    assert "requires-python" not in json.loads(pages["index.json"])["files"][0]
    assert "data-requires-python" not in Links(pages["index.html"]).links[0]


@pytest.mark.parametrize(("reason", "json_value"), [("broken", "broken"), ("", True)])
def test_yanked(reason, json_value):
    pages = project_pages("demo", [Entry(ENTRY.record, reason)])
    assert json.loads(pages["index.json"])["files"][0]["yanked"] == json_value
    assert Links(pages["index.html"]).links[0]["data-yanked"] == reason


def test_root_pages():
    pages = root_pages(["zeta", "demo"])
    assert [link["href"] for link in Links(pages["index.html"]).links] == ["demo/", "zeta/"]
    assert json.loads(pages["index.json"])["projects"] == [{"name": "demo"}, {"name": "zeta"}]


def test_upload_time_is_in_utc():
    east = NOW.astimezone(timezone(timedelta(hours=5)))
    assert FILE.to_record(east).upload_time == "2026-01-02T03:04:05.000678Z"


@pytest.fixture
def simple(tmp_path):
    """The folder ``simple`` of an index with one file."""
    folder = tmp_path / "rocm7.2" / "simple"
    assert add_file(folder, FILE, NOW)
    write_pages(tmp_path, CATALOGUE)
    return folder


def root_of(simple):
    return simple.parent.parent


def test_adding_a_file_again_changes_nothing(simple):
    before = contents(simple)
    assert not add_file(simple, FILE, NOW + timedelta(days=1))
    write_pages(root_of(simple), CATALOGUE)
    assert contents(simple) == before


def contents(folder):
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()
    }


def test_versions_are_in_order(simple):
    for version in ("1.10", "1.9"):
        add_file(simple, replace(FILE, version=version, filename=f"demo-{version}-py3-none-any.whl"), NOW)
    assert [e.record.version for e in read_contents(root_of(simple))["7.2"]["demo"]] == [
        "1.0+rocm7.2",
        "1.9",
        "1.10",
    ]


def test_yank_marks_the_file_and_keeps_it(simple, tmp_path):
    yank(tmp_path, "7.2", FILE.filename, "wrong numbers", catalogue=CATALOGUE, now=NOW)
    yank(tmp_path, "7.2", FILE.filename, "another reason", catalogue=CATALOGUE, now=NOW)

    assert read_contents(root_of(simple))["7.2"]["demo"][0].yanked == "wrong numbers; another reason"
    assert b'data-yanked="wrong numbers; another reason"' in (simple / "demo" / "index.html").read_bytes()
    assert (simple / "demo" / FILE.filename).read_bytes() == FILE.data
    assert verify_index(root_of(simple)) == ()


def test_a_second_yank_keeps_the_first_reason_and_its_time(simple, tmp_path):
    later = NOW + timedelta(days=1)
    for reason, now in (("first", NOW), ("second", later), ("first", later)):
        yank(tmp_path, "7.2", FILE.filename, reason, catalogue=CATALOGUE, now=now)
    mark = json.loads((simple / "demo" / f"{FILE.filename}.yanked.json").read_bytes())
    assert mark == {
        "reason": "first",
        "time": NOW.isoformat(),
        "later": [{"reason": "second", "time": later.isoformat()}],
    }


def test_a_mark_of_the_first_release_is_read(simple, tmp_path):
    mark = simple / "demo" / f"{FILE.filename}.yanked.json"
    mark.write_text('{\n  "reason": "wrong",\n  "time": "2026-01-02T03:04:05+00:00"\n}\n')
    write_pages(tmp_path, CATALOGUE)
    assert verify_index(tmp_path) == ()
    before = mark.read_bytes()
    yank(tmp_path, "7.2", FILE.filename, "wrong", catalogue=CATALOGUE, now=NOW)
    assert mark.read_bytes() == before


def test_yank_of_what_is_not_there(simple, tmp_path):
    with pytest.raises(
        PublishError, match=r"other\.whl cannot be yanked\n  - no such file in the index of ROCm 7\.2"
    ):
        yank(tmp_path, "7.2", "other.whl", "reason", catalogue=CATALOGUE, now=NOW)


def test_a_reason_that_no_page_can_show_is_refused_before_anything_is_written(simple, tmp_path):
    """Its mark was written and made every later command fail with a traceback."""
    before = contents(tmp_path)
    for reason in ("caf\udce9", "a\x1b[2Jb", "two\nlines", "\u202ereversed", " "):
        with pytest.raises(PublishError) as caught:
            yank(tmp_path, "7.2", FILE.filename, reason, catalogue=CATALOGUE, now=NOW)
        assert str(caught.value).startswith(
            f"{FILE.filename} cannot be yanked: its reason is no line of text\n  - --reason: it "
        )
        assert "next: give the reason as one line of UTF-8 text" in str(caught.value)
    assert contents(tmp_path) == before
    assert verify_index(tmp_path) == ()


BAD_MARKS = {
    "of 0.1.0": b'{"reason": "caf\\udce9", "time": "t"}',
    "an escape": b'{"reason": "\\u001b[2J", "time": "t"}',
    "a bidi override": '{"reason": "\u202e", "time": "t"}'.encode(),
    "not UTF-8": b'{"reason": "caf\xe9", "time": "t"}',
    "a number": b'{"reason": 1, "time": "t"}',
    "null": b'{"reason": null, "time": "t"}',
    "twice": b'{"reason": "a", "reason": "b", "time": "t"}',
    "no reason": b'{"time": "t"}',
    "a list": b"[]",
    "nothing": b"",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("mark", BAD_MARKS.values(), ids=BAD_MARKS)
def test_a_bad_mark_is_told_with_the_way_out_and_stops_nothing_for_good(simple, tmp_path, mark):
    path = simple / "demo" / f"{FILE.filename}.yanked.json"
    path.write_bytes(mark)
    before = contents(tmp_path)
    [fault] = verify_index(tmp_path)
    assert fault.startswith(f"{path}: the mark of a yanked file cannot be read (")
    assert fault.endswith("remove this file, then yank the wheel once more with a reason of plain text")
    for change in (
        lambda: yank(tmp_path, "7.2", FILE.filename, "wrong", catalogue=CATALOGUE, now=NOW),
        lambda: write_pages(tmp_path, CATALOGUE),
        lambda: newest_wheels(tmp_path, "7.2"),
    ):
        with pytest.raises(PublishError) as caught:
            change()
        assert list(caught.value.problems) == [fault]
    assert contents(tmp_path) == before | {tmp_path / ".lock": contents(tmp_path)[tmp_path / ".lock"]}

    path.unlink()
    yank(tmp_path, "7.2", FILE.filename, "wrong numbers", catalogue=CATALOGUE, now=NOW)
    assert verify_index(tmp_path) == ()


def test_a_record_with_text_that_no_page_can_show_is_told(simple, tmp_path):
    path = simple / "demo" / f"{FILE.filename}.record.json"
    path.write_bytes(path.read_bytes().replace(b"executed on", b"executed\\u001b[2J on"))
    [fault] = verify_index(tmp_path)
    assert fault.startswith(f"{path}: verified.gfx908: it has U+001B (a control character) as character 9")


def test_the_newest_wheel_is_ours_of_that_rocm_and_not_yanked(simple, tmp_path):
    assert newest_wheels(tmp_path, "7.2") == []
    for version in ("1.10", "1.9", "1.11"):
        name = f"flash_attn_rocm-{version}-py3-none-any.whl"
        add_file(simple, replace(FILE, project="flash-attn-rocm", version=version, filename=name), NOW)
    yank(tmp_path, "7.2", name, "wrong numbers", catalogue=CATALOGUE, now=NOW)
    [found] = newest_wheels(tmp_path, "7.2")
    assert found == simple / "flash-attn-rocm" / "flash_attn_rocm-1.10-py3-none-any.whl"
    assert found.is_file()
    assert newest_wheels(tmp_path, "6.4") == []


def test_the_newest_wheels_are_one_for_each_platform(simple, tmp_path):
    """Otherwise the public wheel for Windows would be rebuilt in place of the one for Linux."""
    names = [
        f"flash_attn_rocm-{version}-py3-none-{tag}.whl"
        for tag in ("manylinux_2_28_x86_64", "win_amd64")
        for version in ("1.9", "1.10")
    ]
    for name in names:
        file = replace(FILE, project="flash-attn-rocm", version=name.split("-")[1], filename=name)
        add_file(simple, file, NOW)
    assert [path.name for path in newest_wheels(tmp_path, "7.2")] == [names[1], names[3]]


def test_parts_of_an_interrupted_publisher_go(simple):
    part = simple / "demo" / f".{FILE.filename}.part"
    part.write_bytes(b"wh")
    remove_parts(simple)
    assert not part.exists()
    assert verify_index(root_of(simple)) == ()


def test_files_are_durable_before_they_get_their_name(simple, monkeypatch):
    """Every file is flushed to disk before its rename."""
    events = []
    fsync, replace_ = os.fsync, type(simple).replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: (events.append(("sync", str(Path(f"/proc/self/fd/{fd}").readlink()))), fsync(fd)),
    )
    monkeypatch.setattr(
        type(simple), "replace", lambda a, b: (events.append(("name", str(a))), replace_(a, b))
    )

    add_file(simple, replace(FILE, filename="demo-2-py3-none-any.whl", version="2"), NOW)

    named = [index for index, (what, _) in enumerate(events) if what == "name"]
    assert len(named) == 4
    assert all(events[index - 1] == ("sync", events[index][1]) for index in named)
    assert all(events[index + 1] == ("sync", str(simple / "demo")) for index in named)


def test_records_hold_every_fact():
    assert ENTRY.record == Record(
        filename=FILE.filename,
        project="demo",
        version="1.0+rocm7.2",
        requires_python=">=3.10",
        size=len(FILE.data),
        sha256=FILE.sha256,
        metadata_sha256=ENTRY.record.metadata_sha256,
        upload_time="2026-01-02T03:04:05.000678Z",
        serves=("7.1",),
        verified={"gfx908": "executed on an ISA emulator"},
        attachments={"verification": hashlib.sha256(FILE.attachments["verification"]).hexdigest()},
    )


def test_an_index_of_the_first_release_is_read(simple):
    """Its records have no runtimes, archs or attachments."""
    record = simple / "demo" / f"{FILE.filename}.record.json"
    old = json.loads(record.read_bytes())
    for later in ("serves", "verified", "attachments"):
        del old[later]
    record.write_text(json.dumps(old))
    (simple / "demo" / f"{FILE.filename}.verification.json").unlink()
    shutil.rmtree(root_of(simple) / "rocm7.1")
    add_file(simple, FILE, NOW)  # keeps a record without attachments as it is
    write_pages(root_of(simple), CATALOGUE)
    assert verify_index(root_of(simple)) == ()


def test_a_disk_that_fails_is_told_in_words(tmp_path):
    with pytest.raises(PublishError) as caught, changing(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.whl")
    assert str(caught.value) == (
        f"the index {tmp_path} could not be written to the end; what clients see of it is sound\n"
        "  - a.whl: No space left on device\n"
        "  next: make room (df -h), then publish the same wheels again: "
        "it completes what is missing and changes nothing else"
    )


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EACCES, "give this user the right to read and write a.whl, then yank the same file again"),
        (errno.EPERM, "give this user the right to read and write a.whl, then yank the same file again"),
        (errno.EROFS, "mount the file system writable, then yank the same file again"),
        (errno.EDQUOT, "make room (df -h), then yank the same file again"),
        (errno.EIO, "mend the disk, then yank the same file again"),
    ],
)
def test_the_advice_is_that_for_the_failure(simple, tmp_path, monkeypatch, code, advice):
    """The advice was to make room after "permission denied", and to publish after a failed yank."""

    def fail(*_):
        raise OSError(code, os.strerror(code), "a.whl")

    monkeypatch.setattr("wheel_builder.index.folder.ensure", fail)
    with pytest.raises(PublishError) as caught:
        yank(tmp_path, "7.2", FILE.filename, "wrong", catalogue=CATALOGUE, now=NOW)
    assert caught.value.advice == advice


@pytest.fixture
def umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_an_index_that_only_its_writer_may_read(tmp_path, umask):
    """With umask 077 a web server answered 403, and no message explained it."""
    root = tmp_path / "index"
    add_file(root / "rocm7.2" / "simple", FILE, NOW)
    write_pages(root, CATALOGUE)
    [fault] = verify_index(root)
    assert fault.startswith(f"{root / 'index.html'} and ")
    assert fault.endswith(
        f"a web server may not; chmod -R a+rX {root}, and set umask 022 before the next command"
    )
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert verify_index(root) == ()


def test_a_yanked_file_is_restored_and_not_published_again(simple, tmp_path):
    yank(tmp_path, "7.2", FILE.filename, "wrong", catalogue=CATALOGUE, now=NOW)
    (simple / "demo" / FILE.filename).unlink()
    [fault] = verify_index(tmp_path)
    assert fault.endswith("missing, though its record is there; restore it from a copy of the index")
