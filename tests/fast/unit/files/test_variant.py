"""A variant is its wheel with one more file. Any other difference is reported."""

import io
import json
import zipfile

import pytest

from tests.tools.made.wheels import DIST_INFO, PLATFORM, VERSION, good_files, record_text, write_wheel
from wheel_builder.base.errors import WheelFileError
from wheel_builder.files.wheels.variant import (
    index_name,
    make_variant,
    value_problems,
    variant_name,
    variant_problems,
    variants_text,
    wheel_of,
)
from wheel_builder.files.wheels.wheelfile import open_wheel, read_wheel, record_problems

WHEEL_NAME = f"flash_attn_rocm-{VERSION}-py3-none-{PLATFORM}.whl"
INSIDE = f"{DIST_INFO}/variant.json"
TEXT = variants_text({"amd_linux": ("gfx908", "gfx1030")})


@pytest.fixture
def wheel(tmp_path):
    return read_wheel(write_wheel(tmp_path), max_mib=1)


def opened(wheel, data):
    """A variant as our own strict reader reads it."""
    return open_wheel(wheel.path, data, max_mib=1)


def test_a_variant_has_all_files_of_its_wheel_and_one_more(wheel):
    made = opened(wheel, make_variant(wheel, TEXT))
    record = f"{DIST_INFO}/RECORD"
    assert made.files[INSIDE] == TEXT
    assert list(record_problems(made)) == []
    assert {k: v for k, v in made.files.items() if k not in (INSIDE, record)} == {
        k: v for k, v in wheel.files.items() if k != record
    }
    rows, new = wheel.files[record].decode().splitlines(), made.files[record].decode().splitlines()
    assert new[:-1] == rows
    assert new[-1].startswith(f"{INSIDE},sha256=")
    assert list(variant_problems(wheel, made.data, TEXT)) == []


def archive(data):
    return zipfile.ZipFile(io.BytesIO(data))


def test_its_bytes_follow_from_the_wheel_alone(wheel):
    """Nothing is compressed again: another zlib would give other bytes."""
    data = make_variant(wheel, TEXT)
    assert make_variant(wheel, TEXT) == data
    with archive(wheel.data) as old, archive(data) as new:
        first = next(entry for entry in old.infolist() if not entry.filename.endswith("/RECORD"))
        for entry in old.infolist():
            copied = new.getinfo(entry.filename)
            assert (copied.date_time, copied.external_attr) == (entry.date_time, entry.external_attr)
            if not entry.filename.endswith("/RECORD"):
                assert (copied.compress_type, copied.compress_size) == (
                    entry.compress_type, entry.compress_size
                )  # fmt: skip
        end = first.header_offset + 30 + len(first.filename) + first.compress_size
        start = new.getinfo(first.filename).header_offset
        assert data[start : start + end - first.header_offset] == wheel.data[first.header_offset : end]
        assert new.getinfo(INSIDE).date_time == old.getinfo(f"{DIST_INFO}/RECORD").date_time


@pytest.mark.parametrize("at", [0, 2])
def test_record_may_be_anywhere_in_the_archive(tmp_path, at):
    """New entries get the time and the mode of RECORD."""
    files = good_files()
    names = list(files)
    names.insert(at, f"{DIST_INFO}/RECORD")
    # and its last line without a line break
    files[f"{DIST_INFO}/RECORD"] = record_text(good_files()).rstrip(b"\n")
    path = tmp_path / WHEEL_NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name in names:
            entry = zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6))
            entry.external_attr = 0o100755 << 16
            out.writestr(entry, files[name], zipfile.ZIP_DEFLATED)
    wheel = read_wheel(path, max_mib=1)
    data = make_variant(wheel, TEXT)
    assert list(record_problems(opened(wheel, data))) == []
    assert list(variant_problems(wheel, data, TEXT)) == []
    with archive(data) as made:
        stamps = {(entry.date_time, entry.external_attr >> 16) for entry in made.infolist()}
    assert stamps == {((2026, 1, 2, 3, 4, 6), 0o100755)}


def remade(data, change):
    """The archive ``data`` rewritten after ``change`` of its files, optionally with a right RECORD."""
    with archive(data) as old:
        entries = {entry.filename: (entry, old.read(entry)) for entry in old.infolist()}
    files = {name: content for name, (_, content) in entries.items()}
    change(files)
    record = f"{DIST_INFO}/RECORD"
    if record in files:
        files[record] = record_text({k: v for k, v in files.items() if k != record})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        for name, content in files.items():
            new.writestr(entries[name][0] if name in entries else zipfile.ZipInfo(name), content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.update({"flash_attn_rocm/__init__.py": b"VALUE = 666\n"}), "differs from the wheel's"),
        (lambda f: f.pop("flash_attn_rocm/__init__.py"), "flash_attn_rocm/__init__.py is missing"),
        (lambda f: f.update({"evil.pth": b"import evil\n"}), "evil.pth is not in the wheel"),
        (lambda f: f.update({INSIDE: b"{}"}), f"{INSIDE} says something else"),
        (lambda f: f.pop(INSIDE), f"{INSIDE} is missing"),
        (lambda f: f.pop(f"{DIST_INFO}/RECORD"), f"{DIST_INFO}/RECORD is missing"),
        (lambda f: None, "the archive is another one than is made of the wheel"),
    ],
    ids=["changed", "less", "more", "other-text", "no-text", "no-record", "packed-again"],
)
def test_whatever_differs_is_told(wheel, change, words):
    data = remade(make_variant(wheel, TEXT), change)
    assert any(words in problem for problem in variant_problems(wheel, data, TEXT))


def test_a_row_of_record_that_is_wrong_is_told(wheel):
    data = make_variant(wheel, TEXT)
    at = data.rindex(b"sha256=")
    changed = data[:at] + b"sha255=" + data[at + 7 :]
    with archive(data) as old:
        crc = old.getinfo(f"{DIST_INFO}/RECORD").CRC
        text = old.read(f"{DIST_INFO}/RECORD")
    new = zipfile.crc32(text[::-1].replace(b"sha256="[::-1], b"sha255="[::-1], 1)[::-1])
    changed = changed.replace(crc.to_bytes(4, "little"), new.to_bytes(4, "little"))
    assert any(f"{INSIDE} is listed as" in problem for problem in variant_problems(wheel, changed, TEXT))


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_what_is_no_archive_is_told(wheel, cut):
    data = make_variant(wheel, TEXT)[:cut] if cut != 1 else make_variant(wheel, TEXT) + b"more"
    assert list(variant_problems(wheel, data, TEXT))


def test_the_text_is_as_the_drafts_have_it():
    assert json.loads(variants_text({"null": (), "amd_linux": ("gfx908", "gfx1030")})) == {
        "$schema": "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json",
        "default-priorities": {"namespace": ["amd"]},
        "providers": {
            "amd": {
                "requires": ["rocm-bootstrap>=0.3"],
                "plugin-api": "rocm_bootstrap.variant_provider:AMDVariantPlugin",
            }
        },
        "variants": {"amd_linux": {"amd": {"gfx_arch": ["gfx1030", "gfx908"]}}, "null": {}},
    }
    ordered = variants_text({"amd_linux": ("gfx908", "gfx1030")})
    assert ordered == variants_text({"amd_linux": ("gfx1030", "gfx908")})


@pytest.mark.parametrize("gpu", ["", "gfx11-generic", "GFX908", "gfx908:xnack+", "gfx9\n", "gfx\uff1908"])
def test_what_no_property_can_have_is_no_value(gpu):
    assert list(value_problems(["gfx908", gpu])) == [
        f"{gpu!r} cannot be a value of amd :: gfx_arch: [a-z0-9_.]+"
    ]
    assert list(value_problems([])) == ["no record says which GPUs it serves"]


def test_names():
    assert variant_name("a-1.0-py3-none-any.whl", "null") == "a-1.0-py3-none-any-null.whl"
    assert index_name("a_b-1.0+rocm7.2-py3-none-any.whl") == "a_b-1.0+rocm7.2-variants.json"
    for name in ("a-1.0-py3-none-any.whl", "a-1.0-2-py3-none-manylinux_2_28_x86_64.whl"):
        assert wheel_of(variant_name(name, "amd_linux")) == name
        assert wheel_of(name) is None
    for name in ("", "x", "-null.whl", "a-1.0-py3-none-any-Null.whl", "a-1.0-py3-none-any-null.zip"):
        assert wheel_of(name) is None


def test_no_reader_of_wheels_takes_a_variant_for_one(wheel, tmp_path):
    """So `publish` and `verify` refuse a variant given as a wheel."""
    path = tmp_path / variant_name(wheel.path.name, "null")
    path.write_bytes(make_variant(wheel, TEXT))
    with pytest.raises(WheelFileError, match="not a wheel's file name"):
        read_wheel(path, max_mib=1)
