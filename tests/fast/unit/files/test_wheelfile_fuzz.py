"""Any bytes are refused with a message, or read as every installer would read them."""

import contextlib
import io
import struct
import tracemalloc
import warnings
import zipfile
import zlib

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.tools.made.wheels import DIST_INFO, PLATFORM, VERSION, good_files, record_text, write_wheel
from wheel_builder.base.errors import WheelFileError
from wheel_builder.files.wheels.wheelfile import read_metadata, read_wheel, record_problems, wheel_headers

NAME = f"flash_attn_rocm-{VERSION}-py3-none-{PLATFORM}.whl"
MAX_MIB = 0.1
FILES = good_files()
ODD_NAMES = (
    "",
    ".",
    "..",
    "a/../b",
    "/a",
    "a//b",
    "a\\b",
    "C:a",
    "a\0b",
    "a\nb",
    "\u202ea",
    "a" * 256,
    "a/" * 600,
)
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def good(folder):
    return write_wheel(folder).read_bytes()


def read(folder, data, name=NAME):
    """The wheel's files, after all checks of the pipeline. None if it is refused."""
    path = folder / name
    path.write_bytes(data)
    try:
        wheel = read_wheel(path, max_mib=MAX_MIB)
    except WheelFileError:
        return None
    assert all(isinstance(problem, str) for problem in record_problems(wheel))
    wheel_headers(wheel)
    with contextlib.suppress(WheelFileError):
        read_metadata(wheel)
    return dict(wheel.files)


def read_as_a_stream(data):
    """Like streaming installers: from local headers only, ignoring the directory at the end."""
    found, position = {}, 0
    while data[position : position + 4] == b"PK\3\4":
        flags, method = struct.unpack_from("<HH", data, position + 6)
        packed, size, name, extra = struct.unpack_from("<IIHH", data, position + 18)
        assert not flags & 8
        key = data[position + 30 : position + 30 + name].decode("utf-8" if flags & 0x800 else "cp437")
        body = data[position + 30 + name + extra :][:packed]
        assert key not in found
        found[key] = zlib.decompress(body, -15) if method else body
        assert len(found[key]) == size
        position += 30 + name + extra + packed
    assert data[position : position + 4] == (b"PK\1\2" if found else b"PK\5\6")
    return {name: content for name, content in found.items() if not name.endswith("/")}


@FUZZ
@given(st.data())
def test_damaged_wheels(folder, good, data):
    """Bytes changed, removed or inserted anywhere, mostly in the structure at the end."""
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed)) | st.integers(max(0, len(changed) - 600), len(changed)))
        drop, put = data.draw(st.sampled_from([(1, 1), (0, 4), (4, 0), (2, 2)]))
        changed[at : at + drop] = data.draw(st.binary(min_size=put, max_size=put))
    found = read(folder, bytes(changed))
    if found is not None:
        assert found == read_as_a_stream(bytes(changed))


@FUZZ
@given(st.integers(0, 10_000))
def test_truncated_wheels(folder, good, size):
    assume(size < len(good))
    assert read(folder, good[:size]) is None


@FUZZ
@given(st.binary(max_size=200), st.integers(0, 1))
def test_what_is_put_before_or_after_a_wheel(folder, good, more, side):
    assume(more)
    assert read(folder, more + good if side else good + more) is None


@FUZZ
@given(
    st.lists(st.tuples(st.sampled_from(ODD_NAMES) | st.text(max_size=12), st.binary(max_size=20)), max_size=4)
)
@example([("a", b""), ("a", b"")])
@example([("a", b""), ("a/b", b"")])
@example([("a/", b"x")])
def test_odd_names(folder, files):
    packed = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of duplicate names
        for name, content in files:
            entry = zipfile.ZipInfo("x")
            entry.filename = name
            try:
                archive.writestr(entry, content)
            except UnicodeEncodeError:
                assume(False)
    found = read(folder, packed.getvalue())
    if found is not None:
        assert found == dict(files)
        assert found == read_as_a_stream(packed.getvalue())
        for name in found:
            inside = (folder / "out" / name).resolve()
            assert inside.is_relative_to((folder / "out").resolve())
            assert inside.relative_to((folder / "out").resolve()).as_posix() == name
        assert not any(name in ODD_NAMES for name in found)


@FUZZ
@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_any_record(folder, text):
    path = write_wheel(folder, record=text, name=NAME)
    assert list(record_problems(read_wheel(path, max_mib=MAX_MIB)))


@FUZZ
@given(st.sampled_from(sorted(FILES)), st.binary(max_size=30))
def test_a_file_that_is_not_what_record_says_is_named(folder, name, content):
    assume(content != FILES[name])
    path = write_wheel(folder, FILES | {name: content}, record=record_text(FILES))
    (problem,) = record_problems(read_wheel(path, max_mib=MAX_MIB))
    assert problem.startswith(f"{name} is listed as ")


LINES = st.sampled_from(
    ["Name", "Version", "Requires-Dist", "Requires-Python", "Dynamic", "Project-URL", "X"]
)


@FUZZ
@given(
    st.binary(max_size=300)
    | st.lists(st.tuples(LINES, st.text(max_size=30)), max_size=8).map(
        lambda rows: "\n".join(f"{key}: {value}" for key, value in rows).encode("utf-8", "replace")
    )
)
def test_any_metadata_and_wheel_file(folder, text):
    files = FILES | {f"{DIST_INFO}/METADATA": text, f"{DIST_INFO}/WHEEL": text}
    assert read(folder, write_wheel(folder, files).read_bytes()) is not None


@FUZZ
@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_file_name(folder, good, name):
    read(folder, good, f"{name}.whl" if len(name.encode()) < 200 else "x.whl")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_that_lies_takes_no_memory(folder, method):
    """It unpacks to 16 MiB and promises 64 bytes."""
    size, packed = 1 << 24, io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("flash_attn_rocm/zeros", bytes(size))
    data = bytearray(packed.getvalue())
    for at in (22, data.rindex(b"PK\1\2") + 24):
        assert struct.unpack_from("<I", data, at) == (size,)
        struct.pack_into("<I", data, at, 64)
    tracemalloc.start()
    assert read(folder, bytes(data)) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_headers_that_overlap_are_refused(folder):
    """A bomb whose many entries share one body."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(1000))
        archive.writestr("b", b"")
    data = bytearray(packed.getvalue())
    first = data.index(b"PK\1\2")
    second = data.index(b"PK\1\2", first + 1)
    data[second + 42 : second + 46] = struct.pack("<I", 0)
    assert read(folder, bytes(data)) is None


def test_too_many_entries(folder):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number in range(10_001):
            archive.writestr(str(number), b"")
    (folder / NAME).write_bytes(packed.getvalue())
    with pytest.raises(WheelFileError, match="it has 10001 entries; the most that is unpacked is 10000"):
        read_wheel(folder / NAME, max_mib=100)
