import io
import os
import stat
import struct
import warnings
import zipfile

import pytest

from tests.tools.made.wheels import DIST_INFO, METADATA, VERSION, good_files, record_text, write_wheel
from wheel_builder.files.wheels.wheelfile import (
    WheelFileError,
    read_metadata,
    read_wheel,
    record_problems,
    wheel_headers,
    wheel_text_problems,
)


def test_a_good_wheel(tmp_path):
    path = write_wheel(tmp_path)
    wheel = read_wheel(path, max_mib=1)

    assert (wheel.name, str(wheel.version)) == ("flash-attn-rocm", VERSION)
    assert wheel.files.keys() == good_files().keys() | {f"{DIST_INFO}/RECORD"}
    assert wheel.size == path.stat().st_size
    assert list(record_problems(wheel)) == []
    assert read_metadata(wheel).name == "flash-attn-rocm"
    assert wheel_headers(wheel)["Root-Is-Purelib"] == ("false",)


def repack(path, change):
    """Rewrite the wheel with the additions of ``change(archive)``."""
    path = path.rename(path.with_suffix(".old"))
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(path.with_suffix(".whl"), "w") as new:
        for entry in old.infolist():
            new.writestr(entry, old.read(entry))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zipfile warns of the duplicate name, which the test needs
            change(new)
    return path.with_suffix(".whl")


@pytest.mark.parametrize(
    "name",
    [
        "../evil.py",
        "/etc/evil",
        "a/../../evil",
        "a//b",
        "./a",
        "c:evil",
        "a\\b",
        "flash_attn_rocm/new\nline",
        "..",
    ],
)
def test_a_path_that_leaves_the_wheel_is_refused(tmp_path, name):
    path = repack(write_wheel(tmp_path), lambda archive: archive.writestr(name, b""))
    with pytest.raises(WheelFileError) as caught:
        read_wheel(path, max_mib=1)
    assert f"{name!r} is not a path inside the wheel" in caught.value.problems


def test_a_name_that_is_there_twice_is_refused(tmp_path):
    name = "flash_attn_rocm/__init__.py"
    path = repack(write_wheel(tmp_path), lambda archive: archive.writestr(name, b"other"))
    with pytest.raises(WheelFileError, match=r"'flash_attn_rocm/__init__\.py' is in it 2 times"):
        read_wheel(path, max_mib=1)


def test_a_link_is_refused(tmp_path):
    entry = zipfile.ZipInfo("flash_attn_rocm/link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = repack(write_wheel(tmp_path), lambda archive: archive.writestr(entry, b"/etc/passwd"))
    with pytest.raises(WheelFileError, match=r"link' is not a regular file"):
        read_wheel(path, max_mib=1)


def test_a_bomb_is_not_unpacked(tmp_path):
    files = good_files() | {"flash_attn_rocm/zeros": bytes(4 << 20)}
    path = write_wheel(tmp_path, files)
    assert path.stat().st_size < 40_000
    with pytest.raises(
        WheelFileError, match=r"it unpacks to \d+ bytes; the most that is unpacked is 3355443\n"
    ):
        read_wheel(path, max_mib=0.1)


def test_a_bomb_that_lies_about_its_size_is_not_unpacked(tmp_path):
    path = write_wheel(tmp_path, good_files() | {"flash_attn_rocm/zeros": bytes(4 << 20)})
    data = path.read_bytes()
    assert data.count(struct.pack("<I", 4 << 20)) == 2
    path.write_bytes(data.replace(struct.pack("<I", 4 << 20), struct.pack("<I", 64)))
    with pytest.raises(WheelFileError, match="not a readable zip file: Bad CRC-32"):
        read_wheel(path, max_mib=0.1)


def test_a_huge_file_is_not_read(tmp_path):
    path = write_wheel(tmp_path)
    with path.open("r+b") as stream:
        stream.truncate(1 << 30)
    with pytest.raises(WheelFileError, match=r"it has 1073741824 bytes, and the limit is 3355443"):
        read_wheel(path, max_mib=0.1)


@pytest.mark.parametrize("what", ["/dev/zero", "/dev/null", "pipe", "folder"])
def test_what_is_no_plain_file_is_not_read(tmp_path, what):
    """A wheel linked to /dev/zero ended ``audit`` in a MemoryError. A pipe would have blocked it."""
    path = tmp_path / "a-1-py3-none-any.whl"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        path.symlink_to(what)
    with pytest.raises(WheelFileError, match=r"cannot be read: .*it is not a plain file"):
        read_wheel(path, max_mib=1)


def test_every_structural_problem_is_reported_at_once(tmp_path):
    def change(archive):
        archive.writestr("../one", b"")
        archive.writestr("/two", b"")

    with pytest.raises(WheelFileError) as caught:
        read_wheel(repack(write_wheel(tmp_path), change), max_mib=1)
    assert len(caught.value.problems) == 2
    assert "do not install this file" in caught.value.advice


@pytest.mark.parametrize("size", [0, 10, 700])
def test_a_file_that_is_cut_off_is_refused(tmp_path, size):
    path = write_wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(WheelFileError, match="not a readable zip file"):
        read_wheel(path, max_mib=1)


def test_a_packed_entry_without_an_end_of_its_own_is_refused(tmp_path):
    """The bytes are complete and the sum is right: zipfile accepts it, zlib's one-shot call refuses it."""
    path = write_wheel(tmp_path)
    data = bytearray(path.read_bytes())
    name, extra = struct.unpack_from("<HH", data, 26)
    data[30 + name + extra] &= ~1  # deflate's mark of the last block
    path.write_bytes(data)
    assert zipfile.ZipFile(path).read("flash_attn_rocm/__init__.py")
    with pytest.raises(WheelFileError, match="does not end where the directory says"):
        read_wheel(path, max_mib=1)


def test_an_encrypted_entry_is_refused(tmp_path):
    path = write_wheel(tmp_path)
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(WheelFileError, match=r"has the flags 0x1, expected at most 0x800"):
        read_wheel(path, max_mib=1)


END = {  # offset in the end record, width: meaning
    "disk number": (4, "<H"),
    "disk of the directory": (6, "<H"),
    "entries on this disk": (8, "<H"),
    "entries": (10, "<H"),
    "size of the directory": (12, "<I"),
    "offset of the directory": (16, "<I"),
    "bytes of comment": (20, "<H"),
}


@pytest.mark.parametrize("name", END)
def test_a_record_at_the_end_that_says_something_else(tmp_path, name):
    """zipfile ignores most of these, but uv and others rely on them."""
    at, form = END[name]
    path = write_wheel(tmp_path)
    data = bytearray(path.read_bytes())
    struct.pack_into(
        form, data, len(data) - 22 + at, struct.unpack_from(form, data, len(data) - 22 + at)[0] + 1
    )
    path.write_bytes(data)
    with pytest.raises(WheelFileError) as caught:
        read_wheel(path, max_mib=1)
    assert any(
        f"for {name}, where" in problem or "not a readable zip file" in problem
        for problem in caught.value.problems
    )


def test_extra_fields_and_comments_of_entries_are_refused(tmp_path):
    """An extra field may hold another name, which some programs use."""

    def change(archive):
        info = zipfile.ZipInfo("flash_attn_rocm/a.py")
        info.extra = struct.pack("<HH", 0x7075, 5) + b"\1abcd"
        archive.writestr(info, b"")
        info = zipfile.ZipInfo("flash_attn_rocm/b.py")
        info.comment = b"comment"
        archive.writestr(info, b"")

    with pytest.raises(WheelFileError) as caught:
        read_wheel(repack(write_wheel(tmp_path), change), max_mib=1)
    names = [
        problem.split("'")[1] for problem in caught.value.problems if "extra field or a comment" in problem
    ]
    assert names == ["flash_attn_rocm/a.py", "flash_attn_rocm/b.py"]


def test_sizes_that_follow_the_bytes_are_refused(tmp_path):
    """A streaming reader cannot find the end of such an entry."""

    class Pipe(io.RawIOBase):
        def __init__(self, path):
            self.file = path.open("wb")

        def write(self, data):
            return self.file.write(data)

        def writable(self):
            return True

        def flush(self):
            self.file.flush()

    good = write_wheel(tmp_path)
    files = {name: zipfile.ZipFile(good).read(name) for name in zipfile.ZipFile(good).namelist()}
    pipe = Pipe(good)
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    pipe.file.close()
    with pytest.raises(WheelFileError, match="has the flags 0x8, expected at most 0x800"):
        read_wheel(good, max_mib=1)


def test_a_name_that_is_no_wheels(tmp_path):
    path = write_wheel(tmp_path).rename(tmp_path / "wheel.zip")
    with pytest.raises(WheelFileError, match="not a wheel's file name"):
        read_wheel(path, max_mib=1)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(WheelFileError, match=r"cannot be read: .*No such file"):
        read_wheel(tmp_path / "a-1-py3-none-any.whl", max_mib=1)


def problems(tmp_path, record):
    return list(record_problems(read_wheel(write_wheel(tmp_path, record=record), max_mib=1)))


def test_record_without_a_file(tmp_path):
    record = record_text(good_files()).replace(b"flash_attn_rocm/__init__.py,", b"flash_attn_rocm/other.py,")
    assert problems(tmp_path, record) == [
        "flash_attn_rocm/other.py is listed but not in the wheel",
        "flash_attn_rocm/__init__.py is in the wheel but not listed",
    ]


def test_record_with_a_wrong_hash(tmp_path):
    record = record_text(good_files() | {"flash_attn_rocm/__init__.py": b"VALUE = 43\n"})
    (problem,) = problems(tmp_path, record)
    assert problem.startswith("flash_attn_rocm/__init__.py is listed as sha256=")


@pytest.mark.parametrize("row", [b"a.py,,\n", b"a.py,md5=00,1\n"])
def test_record_without_a_hash(tmp_path, row):
    record = record_text(good_files()).replace(b"flash_attn_rocm/__init__.py", row + b"#", 1)
    assert "a.py is listed but not in the wheel" in problems(tmp_path, record)
    record = record_text(good_files())
    line = next(r for r in record.splitlines(keepends=True) if r.startswith(b"flash_attn_rocm/__init__"))
    record = record.replace(line, row.replace(b"a.py", b"flash_attn_rocm/__init__.py"))
    (problem,) = problems(tmp_path, record)
    assert "__init__.py is listed as" in problem


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        # pip ended with an IndexError.
        (lambda record: record + b"\n", "row 7 has 0 columns, expected 3"),
        (lambda record: b"\n" + record, "row 1 has 0 columns, expected 3"),
        # uv refused these.
        (lambda record: record[:-2] + b"\n", "row 6 has 2 columns, expected 3"),
        (lambda record: record[:-1] + b",\n", "row 6 has 4 columns, expected 3"),
        (lambda record: record[:-3] + b",a,1\n", "RECORD is listed as a,1, but is nothing"),
    ],
)
def test_record_with_rows_of_another_form(tmp_path, edit, words):
    found = problems(tmp_path, edit(record_text(good_files())))
    assert any(problem.endswith(words) for problem in found), found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Both pip and uv refused to install the first.
        (b"Generator: t\xe9sts\n", "is not UTF-8: invalid continuation byte at byte 12"),
        (b"\nGenerator: tests\n", "line 1 is '', expected 'Field: value'"),
        (b"\xef\xbb\xbfGenerator: tests\n", "line 1 is '\\ufeffGenerator: tests', expected 'Field: value'"),
        (b"Generator: a\rTag: b\n", "line 1 is 'Generator: a\\rTag: b', expected 'Field: value'"),
        (b"Generator: tests \n", "line 1 is 'Generator: tests ', expected 'Field: value'"),
        (b"Generator: a\n b\n", "line 2 is ' b', expected 'Field: value'"),
        (b"Generator: a\n\nTag: b\n", "line 2 is '', expected 'Field: value'"),
    ],
)
def test_wheel_with_lines_of_another_form(tmp_path, text, words):
    wheel = read_wheel(write_wheel(tmp_path, good_files() | {f"{DIST_INFO}/WHEEL": text}), max_mib=1)
    [problem] = wheel_text_problems(wheel)
    assert problem == f"{DIST_INFO}/WHEEL{'' if words.startswith('is') else ':'} {words}"
    plain = read_wheel(write_wheel(tmp_path), max_mib=1)
    assert list(wheel_text_problems(plain)) == []


def test_of_many_odd_lines_a_few_are_told(tmp_path):
    files = good_files() | {f"{DIST_INFO}/WHEEL": b"odd\n" * 1000}
    wheel = read_wheel(write_wheel(tmp_path, files, record=b"odd\n" * 1000), max_mib=1)
    assert len(list(wheel_text_problems(wheel))) == 5
    assert sum("columns, expected 3" in problem for problem in record_problems(wheel)) == 5


@pytest.mark.parametrize("name", ["evil-1.0.dist-info/", "torch/", "é/", "flash_attn_rocm/"])
def test_an_entry_for_a_folder_is_refused(tmp_path, name):
    """pip found two dist-info folders, and uv left the others behind."""
    path = repack(write_wheel(tmp_path), lambda archive: archive.writestr(zipfile.ZipInfo(name), b""))
    with pytest.raises(WheelFileError) as caught:
        read_wheel(path, max_mib=1)
    [problem] = caught.value.problems
    assert problem == f"{name!r} is an entry for a folder; a wheel has entries for files only"


@pytest.mark.parametrize("attributes", [0x10, (stat.S_IFDIR | 0o755) << 16])
def test_a_file_that_is_marked_as_a_folder_is_refused(tmp_path, attributes):
    entry = zipfile.ZipInfo("flash_attn_rocm/a")
    entry.external_attr = attributes
    path = repack(write_wheel(tmp_path), lambda archive: archive.writestr(entry, b""))
    with pytest.raises(WheelFileError, match="is an entry for a folder"):
        read_wheel(path, max_mib=1)


def test_record_that_lists_twice(tmp_path):
    record = record_text(good_files())
    assert problems(tmp_path, record + record.splitlines(keepends=True)[0]) == [
        "flash_attn_rocm/__init__.py is listed 2 times"
    ]


@pytest.mark.parametrize("record", [b"\xff\xfe", b'"a'])
def test_record_that_is_no_table(tmp_path, record):
    (problem,) = problems(tmp_path, record)
    assert "RECORD cannot be read" in problem


def test_record_missing(tmp_path):
    path = write_wheel(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.py", b"")
    assert list(record_problems(read_wheel(path, max_mib=1))) == [f"{DIST_INFO}/RECORD is missing"]


def test_metadata_with_several_faults_reports_all(tmp_path):
    text = METADATA.replace("flash-attn-rocm", "-bad-").replace(">=3.10", "three")
    files = good_files() | {f"{DIST_INFO}/METADATA": text.encode()}
    with pytest.raises(WheelFileError) as caught:
        read_metadata(read_wheel(write_wheel(tmp_path, files), max_mib=1))
    assert len(caught.value.problems) == 2
    assert all(problem.startswith("METADATA: ") for problem in caught.value.problems)


def test_metadata_missing(tmp_path):
    files = {name: data for name, data in good_files().items() if not name.endswith("METADATA")}
    with pytest.raises(WheelFileError, match="METADATA"):
        read_metadata(read_wheel(write_wheel(tmp_path, files), max_mib=1))
