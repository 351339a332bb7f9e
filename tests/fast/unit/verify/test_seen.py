"""The parts of a wheel seen by the emulated suite: a change of each part changes the digest."""

import pytest

from tests.tools.made.pes import DATA, READ, Dll
from tests.tools.made.wheels import (
    DIST_INFO,
    LIBRARY,
    SBOM,
    code_object,
    good_files,
    library,
    of_each,
    write_wheel,
)
from wheel_builder.base.errors import VerifyError
from wheel_builder.files.device.library import WINDOWS_LIBRARY
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.verify.seen import copied, digest_of, files_at, listing_of, package_part, subjects_of

MODULE = "flash_attn_rocm/__init__.py"
METADATA = f"{DIST_INFO}/METADATA"
FILES = {
    **good_files(),
    MODULE: b'"""Words."""\nVALUE = 42  # why\n',
    "flash_attn_rocm/py.typed": b"",
    "flash_attn_rocm/suite/chosen.json": b"[1]",
    f"{DIST_INFO}/licenses/LICENSE": b"MIT",
}
HEADERS = good_files()[METADATA]
WORDS = {
    "row ids": {"flash_attn_rocm/values/rows.json": b"{}"},
    "counts of reports": {"flash_attn_rocm/values/measured.json": b"{}"},
    "a docstring": {MODULE: b'"""Other."""\nVALUE = 42  # why\n'},
    "a comment": {MODULE: b'"""Words."""\n\n# Why so.\nVALUE = 42\n'},
    "the description": {METADATA: HEADERS + b"\nMore words, of commit 0123456789abcdef.\n"},
    "the SBOM": {SBOM: b"{}"},
    "the licence": {f"{DIST_INFO}/licenses/LICENSE": b"ISC"},
    "the library, a part of its own": {LIBRARY: library(soname="")},
}
CHANGES = {
    "a name like that of row ids": {"flash_attn_rocm/suite/rows.json": b"{}"},
    "code": {MODULE: b'"""Words."""\nVALUE = 43\n'},
    "a docstring gone": {MODULE: b"VALUE = 42\n"},
    "a new module": {"flash_attn_rocm/more.py": b""},
    "data": {"flash_attn_rocm/suite/chosen.json": b"[1, 2]"},
    "spaces in data": {"flash_attn_rocm/suite/chosen.json": b"[1] "},
    "compiled Python": {"flash_attn_rocm/__init__.pyc": b"\0"},
    "a file that Python reads at start": {"words.pth": b"import os"},
    "a comment of a script": {"flash_attn_rocm-0.1.0.data/scripts/run.py": b"#!python\n# words\n"},
    "a plugin of pytest": {f"{DIST_INFO}/entry_points.txt": b"[pytest11]\nx = flash_attn_rocm\n"},
    "the version": {METADATA: HEADERS.replace(b"Version: 0.1.0", b"Version: 0.1.1")},
    "a requirement": {METADATA: HEADERS.replace(b"\n\n", b"\nRequires-Dist: numpy\n\n")},
    "the tag": {f"{DIST_INFO}/WHEEL": b"Wheel-Version: 1.0\n"},
    "a name like RECORD": {f"{DIST_INFO}/RECORD.py": b""},
    "a name like METADATA": {f"{DIST_INFO}/METADATA.json": b"{}"},
    "a folder of that name": {"sboms/module.py": b""},
}


def part(folder, **changes):
    return package_part(read_wheel(write_wheel(folder, {**FILES, **changes}), max_mib=64))


def of_dll(folder, kernel, **changes):
    """The suite's view, for gfx1100, of a wheel for Windows whose DLL has code of two archs."""
    codes = {
        arch: code_object(arch, [kernel if arch == "gfx1100" else "other"]) for arch in ("gfx1030", "gfx1100")
    }
    dll = Dll(extra=((".hip_fat", of_each(codes), DATA | READ),), **changes).data
    files = {name: data for name, data in good_files().items() if name != LIBRARY}
    wheel = write_wheel(folder, {**files, WINDOWS_LIBRARY: dll})
    return subjects_of(wheel, ["gfx1100"])["gfx1100"].parts


def test_of_a_wheel_for_windows_it_sees_the_archs_code_and_the_whole_dll(tmp_path):
    found = of_dll(tmp_path, "one")
    assert of_dll(tmp_path, "one") == found
    for changed, parts in (("two", {"code", "library"}), ("one", {"library"})):
        other = of_dll(tmp_path, changed, **({"overlay": b"x"} if changed == "one" else {}))
        assert {name for name in found if found[name] != other[name]} == parts


@pytest.mark.parametrize("change", WORDS.values(), ids=WORDS)
def test_words_have_no_part_in_it(tmp_path, change):
    assert part(tmp_path, **change) == part(tmp_path)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_all_else_has(tmp_path, change):
    assert part(tmp_path, **change) != part(tmp_path)


def test_a_file_gone_is_another_package(tmp_path):
    files = {name: data for name, data in FILES.items() if not name.endswith("py.typed")}
    assert package_part(read_wheel(write_wheel(tmp_path, files), max_mib=64)) != part(tmp_path)


def test_code_objects_are_numbered_within_their_arch(tmp_path):
    """Otherwise a new kernel of another arch would run all others again."""
    for name in ("gfx908-0", "gfx90a:xnack+-1", "gfx908-2", "gfx908-10"):
        for kind in (".co", ".s"):
            (tmp_path / f"{name}{kind}").write_text(name + kind)
    found = {name: file.name for name, file in listing_of(tmp_path, "gfx908").items()}
    assert found == {
        "0.co": "gfx908-0.co", "0.s": "gfx908-0.s", "1.co": "gfx908-2.co", "1.s": "gfx908-2.s",
        "2.co": "gfx908-10.co", "2.s": "gfx908-10.s",
    }  # fmt: skip
    assert [file.name for file in listing_of(tmp_path, "gfx90a").values()] == [
        "gfx90a:xnack+-1.co",
        "gfx90a:xnack+-1.s",
    ]


def test_names_and_run_bits_have_a_part_in_it(tmp_path):
    (tmp_path / "a.py").write_text("A = 1\n")
    digests = [digest_of(files_at(tmp_path))]
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    digests.append(digest_of(files_at(tmp_path)))
    (tmp_path / "b.py").chmod(0o755)
    digests.append(digest_of(files_at(tmp_path)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "b.py").rename(tmp_path / "folder/b.py")
    digests.append(digest_of(files_at(tmp_path)))
    assert len(set(digests)) == 4


def test_copies_are_without_caches(tmp_path):
    """Python accepts old bytecode for a file of equal size edited within the second."""
    (tmp_path / "tests/__pycache__").mkdir(parents=True)
    (tmp_path / "tests/a.py").write_text("A = 1\n")
    (tmp_path / "tests/__pycache__/a.cpython-314.pyc").write_bytes(b"old")
    files = files_at(tmp_path / "tests")
    copy = copied(files, tmp_path / "to", digest_of(files))
    assert [file.relative_to(copy).as_posix() for file in copy.rglob("*")] == ["a.py"]


def test_a_file_alone_is_copied_under_its_name(tmp_path):
    (tmp_path / "a.py").write_text("A = 1\n")
    files = files_at(tmp_path / "a.py")
    assert copied(files, tmp_path / "to", digest_of(files)) == tmp_path / "to/a.py"


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(VerifyError, match="gone: not there, but a suite needs it\n  next: restore it: git"):
        files_at(tmp_path / "gone")
