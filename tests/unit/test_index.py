import errno
import hashlib
import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.catalogues import CATALOGUE
from wheel_builder.durable import remove_parts
from wheel_builder.errors import PublishError
from wheel_builder.index import (
    NewFile,
    add_file,
    changing,
    newest_wheel,
    read_contents,
    write_pages,
    yank,
)
from wheel_builder.index_check import verify_index
from wheel_builder.index_pages import Entry, Record, project_pages, root_pages

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
FILE = NewFile(
    filename="demo-1.0+rocm7.2-py3-none-any.whl",
    project="demo",
    version="1.0+rocm7.2",
    requires_python=">=3.10,<4",
    data=b"wheel",
    metadata=b"metadata",
    serves=("7.1",),
    verified={"gfx908": "executed on an ISA emulator"},
    attachments={"verification": b"{}"},
)
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
            "data-requires-python": ">=3.10,<4",
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
                "size": 5,
                "upload-time": "2026-01-02T03:04:05.000678Z",
                "core-metadata": metadata,
                "dist-info-metadata": metadata,
                "yanked": False,
                "requires-python": ">=3.10,<4",
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

    assert read_contents(root_of(simple))["7.2"]["demo"][0].yanked == "wrong numbers"
    assert b'data-yanked="wrong numbers"' in (simple / "demo" / "index.html").read_bytes()
    assert (simple / "demo" / FILE.filename).read_bytes() == b"wheel"
    assert verify_index(root_of(simple)) == ()


def test_yank_of_what_is_not_there(simple, tmp_path):
    with pytest.raises(
        PublishError, match=r"other\.whl cannot be yanked\n  - no such file in the index of ROCm 7\.2"
    ):
        yank(tmp_path, "7.2", "other.whl", "reason", catalogue=CATALOGUE, now=NOW)


def test_the_newest_wheel_is_ours_of_that_rocm_and_not_yanked(simple, tmp_path):
    assert newest_wheel(tmp_path, "7.2") is None
    for version in ("1.10", "1.9", "1.11"):
        name = f"flash_attn_rocm-{version}-py3-none-any.whl"
        add_file(simple, replace(FILE, project="flash-attn-rocm", version=version, filename=name), NOW)
    yank(tmp_path, "7.2", name, "wrong numbers", catalogue=CATALOGUE, now=NOW)
    found = newest_wheel(tmp_path, "7.2")
    assert found == simple / "flash-attn-rocm" / "flash_attn_rocm-1.10-py3-none-any.whl"
    assert found.is_file()
    assert newest_wheel(tmp_path, "6.4") is None


def test_parts_of_an_interrupted_publisher_go(simple):
    part = simple / "demo" / f".{FILE.filename}.part"
    part.write_bytes(b"wh")
    remove_parts(simple)
    assert not part.exists()
    assert verify_index(root_of(simple)) == ()


def test_files_are_durable_before_they_get_their_name(simple, monkeypatch):
    """Whatever is renamed into place was flushed to the disk before."""
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
        requires_python=">=3.10,<4",
        size=5,
        sha256=FILE.sha256,
        metadata_sha256=ENTRY.record.metadata_sha256,
        upload_time="2026-01-02T03:04:05.000678Z",
        serves=("7.1",),
        verified={"gfx908": "executed on an ISA emulator"},
        attachments={"verification": hashlib.sha256(b"{}").hexdigest()},
    )


def test_an_index_of_the_first_release_is_read(simple):
    """Its records say nothing of runtimes, archs and attachments."""
    record = simple / "demo" / f"{FILE.filename}.record.json"
    old = json.loads(record.read_bytes())
    for later in ("serves", "verified", "attachments"):
        del old[later]
    record.write_text(json.dumps(old))
    (simple / "demo" / f"{FILE.filename}.verification.json").unlink()
    shutil.rmtree(root_of(simple) / "rocm7.1")
    add_file(simple, FILE, NOW)  # does not attach to a record that does not know of it
    write_pages(root_of(simple), CATALOGUE)
    assert verify_index(root_of(simple)) == ()


def test_a_disk_that_fails_is_told_in_words(tmp_path):
    with pytest.raises(PublishError) as caught, changing(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a.whl")
    assert str(caught.value) == (
        f"the index {tmp_path} could not be written to the end; what clients see of it is sound\n"
        "  - a.whl: No space left on device\n"
        "  next: make room or mend the disk, then publish the same wheels again: "
        "it completes what is missing and changes nothing else"
    )
