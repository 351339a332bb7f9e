"""The audit refuses every wheel that pip or uv refuses."""

import io
import struct
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.tools.made.wheels import (
    DIST_INFO,
    EXPECTATION,
    METADATA,
    WHEEL,
    good_files,
    record_text,
    write_wheel,
)
from wheel_builder.audit.stage import audit_wheel
from wheel_builder.base.errors import AuditError

UV = Path(sysconfig.get_path("scripts")) / "uv"
INSTALLERS = {
    "pip": [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
    "uv": [UV, "pip", "install", "--quiet", "--offline", "--no-cache", "--python", sys.executable],
}


def installs(name, wheel, target):
    """Whether an installer takes the wheel."""
    options = ["--no-index", "--no-deps", "--target", target]
    # In its own folder, so that uv finds no project.
    done = subprocess.run(
        [*INSTALLERS[name], *options, wheel], cwd=wheel.parent, capture_output=True, timeout=60, check=False
    )
    return done.returncode == 0


def end(offset, form, change):
    """The wheel with a changed number in its end record."""

    def edit(data):
        at = len(data) - 22 + offset
        struct.pack_into(form, data, at, struct.unpack_from(form, data, at)[0] + change)
        return data

    return edit


def last_comment(data, length):
    """The wheel with a comment length for the last directory entry, but without the comment."""
    struct.pack_into("<H", data, data.rindex(b"PK\x01\x02") + 32, length)
    return data


def files(**changes):
    """The wheel with other files and a matching RECORD."""
    return good_files() | {name.replace("DIST_INFO", DIST_INFO): data for name, data in changes.items()}


def with_folder(name):
    """The wheel with an entry for a folder."""

    def edit(data):
        packed = io.BytesIO(data)
        with zipfile.ZipFile(packed, "a") as archive:
            archive.writestr(zipfile.ZipInfo(name), b"")
        return packed.getvalue()

    return edit


def without(name):
    return {inside: data for inside, data in good_files().items() if inside != name}


DAMAGED = {
    "entries": end(10, "<H", 1),
    "entries here": end(8, "<H", 1),
    "fewer entries": end(10, "<H", -1),
    "disk": end(4, "<H", 1),
    "directory size": end(12, "<I", 1),
    "directory offset": end(16, "<I", 1),
    "comment length": end(20, "<H", 1),
    "a comment": lambda data: end(20, "<H", 3)(data) + b"abc",
    "bytes after": lambda data: data + b"abc",
    "bytes before": lambda data: b"abc" + data,
    "cut off": lambda data: data[:-30],
    # uv refuses it. pip, like zipfile, reads the available part of the comment, here empty.
    "length of the last entry's comment": lambda data: last_comment(data, 225),
    "a changed byte": lambda data: data[:60] + bytes([data[60] ^ 255]) + data[61:],
    "a folder: dist-info": with_folder("evil-1.0.dist-info/"),
    "a folder: torch": with_folder("torch/"),
    "a folder: not ASCII": with_folder("é/"),
    "a folder: of its own": with_folder("flash_attn_rocm/"),
    "a folder: data": with_folder(f"{DIST_INFO.removesuffix('dist-info')}data/x/"),
}
TEXT = record_text(good_files())
CONTENT = {
    "Wheel-Version 2.0": files(**{"DIST_INFO/WHEEL": WHEEL.replace("1.0", "2.0").encode()}),
    "no WHEEL": without(f"{DIST_INFO}/WHEEL"),
    "no METADATA": without(f"{DIST_INFO}/METADATA"),
    "another name": files(**{"DIST_INFO/METADATA": METADATA.replace("flash-attn", "evil").encode()}),
    "another version": files(**{"DIST_INFO/METADATA": METADATA.replace("0.1.0", "9").encode()}),
    "no text": files(**{"DIST_INFO/METADATA": b"\xff\xfe"}),
    "a broken script": files(**{"DIST_INFO/entry_points.txt": b"[console_scripts]\npip = :::\n"}),
    "a path outside": files(**{"../evil.py": b""}),
    "an absolute path": files(**{"/tmp/evil.py": b""}),
    "a second dist-info": files(**{"evil-1.dist-info/METADATA": b""}),
    "8-bit Generator": files(**{"DIST_INFO/WHEEL": WHEEL.replace("tests", "tésts").encode("latin-1")}),
    "BOM in WHEEL": files(**{"DIST_INFO/WHEEL": WHEEL.encode("utf-8-sig")}),
    "blank line before WHEEL": files(**{"DIST_INFO/WHEEL": b"\n" + WHEEL.encode()}),
    "no field in WHEEL": files(**{"DIST_INFO/WHEEL": b"rubbish\n" + WHEEL.encode()}),
    "small letters in WHEEL": files(**{"DIST_INFO/WHEEL": WHEEL.lower().encode()}),
    "8-bit description": files(**{"DIST_INFO/METADATA": METADATA.encode().replace(b"tests.", b"t\xe9sts.")}),
    "8-bit summary": files(**{"DIST_INFO/METADATA": METADATA.replace("a wheel", "é").encode("latin-1")}),
    "BOM in METADATA": files(**{"DIST_INFO/METADATA": METADATA.encode("utf-8-sig")}),
    "blank line before METADATA": files(**{"DIST_INFO/METADATA": b"\n" + METADATA.encode()}),
}
RECORDS = {
    "a wrong hash": TEXT.replace(b"sha256=", b"sha256=A", 1),
    "no text": b"\xff",
    "empty": b"",
    "a blank line at its start": b"\n" + TEXT,
    "a blank line": TEXT.replace(b"\n", b"\n\n", 1),
    "a blank line at its end": TEXT + b"\n",
    "a form feed at its end": TEXT + b"\x0c\n",
    "a line of a space": TEXT + b" \n",
    "four columns": TEXT.replace(b"\n", b",x\n", 1),
    "two columns": TEXT.replace(b"RECORD,,", b"RECORD,"),
    "four columns for itself": TEXT.replace(b"RECORD,,", b"RECORD,,,"),
    "a space after a size": TEXT.replace(b"\n", b" \n", 1),
    "a NUL": TEXT + b"\0",
}


def empty_folders(target):
    """Empty folders left by an installer."""
    folders = (path for path in target.rglob("*") if path.is_dir() and not any(path.iterdir()))
    return sorted(path.relative_to(target).as_posix() for path in folders)


def refused_by_the_audit(wheel):
    """Whether the audit refuses it, independent of the installers."""
    with pytest.raises(AuditError) as caught:
        audit_wheel(wheel, EXPECTATION)
    assert caught.value.problems


def taken(wheel, folder):
    """The installers that accept a wheel refused by the audit."""
    refused_by_the_audit(wheel)
    return {name: installs(name, wheel, folder / name) for name in INSTALLERS}


def test_a_good_wheel_is_taken_by_all(tmp_path):
    wheel = write_wheel(tmp_path)
    # The tag names a platform, so the installers have to run on it.
    assert {name: installs(name, wheel, tmp_path / name) for name in INSTALLERS} == {"pip": True, "uv": True}
    audit_wheel(wheel, EXPECTATION)


@pytest.mark.parametrize("edit", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_zip(tmp_path, edit):
    wheel = write_wheel(tmp_path)
    wheel.write_bytes(edit(bytearray(wheel.read_bytes())))
    refused_by_the_audit(wheel)


@pytest.mark.parametrize("content", CONTENT.values(), ids=CONTENT)
def test_content_that_is_not_of_a_wheel(tmp_path, content):
    refused_by_the_audit(write_wheel(tmp_path, content))


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_that_is_none(tmp_path, record):
    refused_by_the_audit(write_wheel(tmp_path, record=record))


@pytest.mark.parametrize(
    ("options", "takers"),
    [
        ({"files": CONTENT["Wheel-Version 2.0"]}, {"pip": False, "uv": False}),
        ({"files": CONTENT["8-bit Generator"]}, {"pip": False, "uv": False}),
        ({"record": RECORDS["a blank line"]}, {"pip": False, "uv": True}),
        ({"record": RECORDS["two columns"]}, {"pip": True, "uv": False}),
    ],
)
def test_installers_refuse_something_here(tmp_path, options, takers):
    """Guards the tests above: they need refusals by the installers."""
    assert taken(write_wheel(tmp_path, **options), tmp_path) == takers


def test_installers_trip_over_entries_for_folders(tmp_path):
    takers = {}
    for kind in ("dist-info", "torch"):
        (folder := tmp_path / kind).mkdir()
        wheel = write_wheel(folder)
        wheel.write_bytes(DAMAGED[f"a folder: {kind}"](wheel.read_bytes()))
        takers[kind] = taken(wheel, folder)
    assert takers == {"dist-info": {"pip": False, "uv": False}, "torch": {"pip": True, "uv": True}}
    assert empty_folders(tmp_path / "torch" / "uv") == ["torch"]
