"""A seeded attack: mutants of wheels, records and statements. Their author could make all else true.

Each mutant is either refused or harmless. If refused, it gets a message and its own exit code, and the index
keeps every byte. If harmless, the installed files match the commit.

A hundred of each kind, 25 of the DLL in the wheel for Windows, a thousand in a full run.
"""

import io
import json
import logging
import random
import struct
import subprocess
import zipfile
from functools import cache

import pytest

from tests.channel.wheel_rules.test_installers import INSTALLERS, empty_folders, installs
from tests.tools.made import pes
from tests.tools.made.checkouts import GIT
from tests.tools.made.documents import changed, places
from tests.tools.made.finished import finished_files, finished_wheel, repository, state
from tests.tools.made.wheels import DIST_INFO, SBOM
from wheel_builder.audit.dll_memory import HEADER
from wheel_builder.base import errors
from wheel_builder.files.binaries import elf
from wheel_builder.files.binaries.elflayout import EM_X86_64, elf_layout_problems
from wheel_builder.files.binaries.pe import read_pe
from wheel_builder.files.binaries.pememory import functions, relocations, thread_storage
from wheel_builder.files.device.library import LIBRARY, WINDOWS_LIBRARY
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.matrix.model import PUBLIC, WINDOWS
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.pipeline.publication import publish_files
from wheel_builder.provenance import attest
from wheel_builder.provenance.records import provenance_path, record_path

LOG = logging.getLogger(__name__)
SEED = 20261122
SHORT, FULL = 100, 1000
NAMES = (
    "evil.py", "evil.pth", "flash_attn_rocm/_evil.py", "flash_attn_rocm/__pycache__/a.pyc", "../evil.py",
    "flash_attn_rocm/evil.dll", "flash_attn/__init__.py", f"{DIST_INFO}/entry_points.txt", "/etc/evil",
    "a\\b",
    f"{DIST_INFO}/direct_url.json", f"{DIST_INFO}/licenses/../x", "evil-1.dist-info/METADATA", "\u202egpj.py",
    "flash_attn_rocm/LIBRARY", "flash_attn_rocm-0.1.0+rocm7.2.data/scripts/pip", "C:evil", "a/" * 600,
)  # fmt: skip
FOLDERS = (
    "evil-1.0.dist-info/", "torch/", "\u00e9/", "flash_attn_rocm/", f"{DIST_INFO}/", f"{DIST_INFO}/licenses/",
    "flash_attn_rocm-0.1.0+rocm7.2.data/scripts/", "a/b/c/",
)  # fmt: skip
HEADERS = (
    b"Requires-Dist: evil @ http://evil.invalid/e\n", b"Requires-Dist: torch\n", b"Provides-Extra: all\n",
    b"Wheel-Version: 2.0\n", b"Tag: py3-none-any\n", b"Build: 1\n", b"Version: 9\n", b"Name: evil\n",
    b"Requires-Python: <3\n", b"License-File: ../../x\n", b"Dynamic: version\n", b"X: \xff\n", b"\0\n",
    b"Author: \x1b[2J\n",
)  # fmt: skip
VALUES = (
    None, True, False, -1, 0, 1e308, "", "x", "\x1b[2J", "\u202e", "\udce9", [], {}, ["x"], {"a": 1},
    "0" * 64, "7.1", "7.01", "99.1", [f"{n // 100 + 1}.{n % 100}" for n in range(1000)],
)  # fmt: skip


def flipped(rng, data, start=0, end=None):
    """Change one byte of a part."""
    out = bytearray(data)
    if out:
        at = rng.randrange(start, min(len(out), end or len(out)))
        out[at] ^= rng.randrange(1, 256)
    return bytes(out)


def added(rng, files):
    content = rng.choice((b"", b"import os\n", b"\x7fELF", bytes(3 << 20)))
    return files | {rng.choice(NAMES): content}


def dropped(rng, files):
    name = rng.choice(sorted(files))
    return {inside: data for inside, data in files.items() if inside != name}


def replaced(rng, files):
    name = rng.choice(sorted(files.keys() - {LIBRARY}))
    return files | {name: rng.choice((b"", flipped(rng, files[name])))}


def headed(rng, files):
    name = f"{DIST_INFO}/{rng.choice(('METADATA', 'WHEEL'))}"
    return files | {name: rng.choice(HEADERS) + files[name]}


def billed(rng, files):
    """Change one value of the SBOM."""
    document = json.loads(files[SBOM])
    lie = changed(document, rng.choice([place for place in places(document) if place]), rng.choice(VALUES))
    return files | {SBOM: f"{json.dumps(lie, indent=1, sort_keys=True)}\n".encode()}


def lettered(rng, files):
    """Add a byte to METADATA or WHEEL."""
    name = f"{DIST_INFO}/{rng.choice(('METADATA', 'WHEEL', 'WHEEL'))}"
    at, letter = rng.randrange(len(files[name])), rng.choice((b"\xe9", b"\n", b"\r", b"\0", b" ", b"\x85"))
    return files | {name: files[name][:at] + letter + files[name][at:]}


def linked(rng, files):
    """Change the library's header or program headers."""
    return files | {LIBRARY: flipped(rng, files[LIBRARY], 0, 64 + 3 * 56)}


def unpacked_damage(rng, data):
    return flipped(rng, data)


def end_damage(rng, data):
    """Damage the directory or the record at the end."""
    return flipped(rng, data, len(data) - 600)


def end_numbers(rng, data):
    out, (at, form) = (
        bytearray(data),
        rng.choice(((4, "<H"), (8, "<H"), (10, "<H"), (12, "<I"), (16, "<I"), (20, "<H"))),
    )
    struct.pack_into(form, out, len(out) - 22 + at, rng.choice((0, 1, 255, 65535)))
    return bytes(out)


def recorded(rng, data):
    """Add something to RECORD."""
    packed = io.BytesIO()
    more = rng.choice((b"\n", b"\r\n", b",", b"\x0c", b" ", b"\xe9", b"\0", b'"', b",,\n", b"evil.py,,\n"))
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w") as new:
        for entry in old.infolist():
            text = old.read(entry)
            if entry.filename.endswith("/RECORD"):
                at = rng.choice([0, len(text), *(n + 1 for n, byte in enumerate(text) if byte == ord("\n"))])
                text = text[:at] + more + text[at:]
            new.writestr(entry, text)
    return packed.getvalue()


def foldered(rng, data):
    """Add an entry for a folder."""
    packed = io.BytesIO(data)
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr(zipfile.ZipInfo(rng.choice(FOLDERS)), b"")
    return packed.getvalue()


def cut(rng, data):
    return data[: rng.randrange(len(data))]


def wrapped(rng, data):
    return rng.choice((data + b"PK", b"MZ" + data, data + data))


OF_FILES, OF_BYTES = (
    (added, dropped, replaced, headed, lettered, billed, linked),
    (unpacked_damage, end_damage, end_numbers, recorded, foldered, cut, wrapped),
)


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """Look up a commit only once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attest, "read_tree", cache(attest.read_tree))
        yield


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkout")
    return root, repository(root)


@pytest.fixture(scope="module")
def matrix(checkout):
    return load_matrix(checkout[0] / "matrix.yaml")


@pytest.fixture(scope="module")
def good(checkout):
    return finished_files(*checkout)


def everything(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != ".lock"}


def refused(wheel, matrix, root, checkout):
    """Whether publishing refuses it, with a message and an exit code, and the index is unchanged."""
    before = everything(root)
    try:
        publish_files([wheel], matrix, root, checkout[0])
    except errors.WheelBuilderError as error:
        refusal = error
    else:
        return False
    assert refusal.exit_code > 1
    assert refusal.message
    assert refusal.advice
    assert everything(root) == before
    return True


def is_harmless(wheel, good):
    files = read_wheel(wheel, max_mib=64).files
    library = files[LIBRARY]
    assert elf_layout_problems(library, EM_X86_64) == ()
    held, expected = elf.read_elf(library), elf.read_elf(good[LIBRARY])
    assert (held.needed, held.undefined, held.exported) == (
        expected.needed,
        expected.undefined,
        expected.exported,
    )
    # Spaces around METADATA's description are harmless.
    metadata = f"{DIST_INFO}/METADATA"
    assert files[metadata].split() == good[metadata].split()
    apart = (LIBRARY, metadata, f"{DIST_INFO}/RECORD")
    rest = {name: data for name, data in files.items() if name not in apart}
    return rest == {name: data for name, data in good.items() if name not in apart}


def attack_wheels(count, tmp_path, matrix, checkout, good):
    """Counts of refused and harmless mutants. Both pip and uv install the accepted ones."""
    rng, found = random.Random(SEED), {"refused": 0, "harmless": 0}
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        edit = rng.choice(OF_FILES + OF_BYTES)
        # Its author writes RECORD, verification record and statement for the result.
        if edit in OF_FILES:
            wheel = finished_wheel(folder, *checkout, files=edit(rng, good))
        else:
            wheel = finished_wheel(folder, *checkout, files=good, edit=lambda data, e=edit: e(rng, data))
        if refused(wheel, matrix, folder / "index", checkout):
            found["refused"] += 1
            continue
        assert is_harmless(wheel, good), (number, edit.__name__)
        found["harmless"] += 1
        taken = {name: installs(name, wheel, folder / name) for name in INSTALLERS}
        assert all(taken.values()), (number, edit.__name__, taken)
        assert [left for name in taken for left in empty_folders(folder / name)] == []
    return found


# Sections read by a loader besides code and device code.
OF_LOADER = (".rdata", ".data", ".pdata", ".tls", ".reloc")


def linked_dll(rng, data):
    """A DLL with changed headers, tables, pointers or padding, or with bytes after its last section.

    Code is unchanged: an audit cannot judge its behaviour.
    """
    sections = [section for section in read_pe(data).sections if section.name in OF_LOADER]
    places = [(0, pes.HEADERS), *((each.file_at, each.file_at + each.file_size) for each in sections)]
    begin, end = rng.choice(places)
    return rng.choice((*(flipped(rng, data, begin, end) for _ in range(5)), data + b"MZ"))


def as_loaded(data):
    """The view of Windows' loader of a DLL, in whole pages, with tables as the reader parses them."""
    dll = read_pe(data)
    sections = [(each.address, -(-each.size // 4096), each.flags) for each in dll.sections]
    own = (".rdata", ".data", ".tls")  # besides tables and pointers they hold the library's own data
    rest = [data[each.file_at :][: each.file_size] for each in dll.sections if each.name not in own]
    memory = (relocations(dll), functions(dll), thread_storage(dll), dll.written)
    header = {name: dll.header[name] for name in HEADER}
    tables = (dll.imports, dll.exports, dll.exported, dll.directories, dll.dll_characteristics, dll.overlay)
    return *tables, *memory, header, sections, rest


def attack_dlls(count, tmp_path, matrix, checkout):
    """Attack the wheel for Windows likewise, with mutants of its DLL."""
    rng, found = random.Random(SEED), {"refused": 0, "harmless": 0}
    good = finished_files(*checkout, PUBLIC, WINDOWS)
    expected = as_loaded(good[WINDOWS_LIBRARY])
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        # The first is the good one, which must be accepted. Otherwise the test would be empty.
        mutant = linked_dll(rng, good[WINDOWS_LIBRARY]) if number else good[WINDOWS_LIBRARY]
        files = {**good, WINDOWS_LIBRARY: mutant}
        wheel = finished_wheel(folder, *checkout, PUBLIC, files=files, platform=WINDOWS)
        if refused(wheel, matrix, folder / "index", checkout):
            found["refused"] += 1
            continue
        assert as_loaded(mutant) == expected, number
        found["harmless"] += 1
    return found


def attack_papers(count, tmp_path, matrix, checkout, good):
    """Mutants of record and statement of a good wheel, in turn, with the same counts for each."""
    rng = random.Random(SEED)
    wheel = finished_wheel(tmp_path, *checkout, files=good)
    found = {path: {"refused": 0, "harmless": 0} for path in (record_path(wheel), provenance_path(wheel))}
    papers = {path: json.loads(path.read_bytes()) for path in (record_path(wheel), provenance_path(wheel))}
    for number in range(count):
        for path, document in papers.items():
            path.write_text(json.dumps(document))
        path = list(papers)[number % 2]
        place = rng.choice([place for place in places(papers[path]) if place])
        text = json.dumps(changed(papers[path], place, rng.choice(VALUES)))
        path.write_bytes(
            rng.choice((text.encode(), text.encode(), flipped(rng, text.encode()), text[:-3].encode()))
        )
        if path == record_path(wheel):
            state(wheel, *checkout)  # as its author would
        root = tmp_path / f"index{number}"
        if refused(wheel, matrix, root, checkout):
            found[path]["refused"] += 1
            continue
        found[path]["harmless"] += 1
        assert is_harmless(wheel, good)
        pages = b"".join(everything(root).values())
        assert b"\\u001b" not in pages.replace(path.read_bytes(), b""), (number, place)
    return {path.name.rpartition(".whl.")[2]: counts for path, counts in found.items()}


def test_mutants_of_wheels(tmp_path, matrix, checkout, good):
    found = attack_wheels(SHORT, tmp_path, matrix, checkout, good)
    LOG.info("%s", found)  # shown with --log-cli-level=INFO
    assert found["refused"] > SHORT * 0.8


def test_mutants_of_dlls(tmp_path, matrix, checkout):
    found = attack_dlls(SHORT // 4, tmp_path, matrix, checkout)
    LOG.info("%s", found)  # shown with --log-cli-level=INFO
    assert found["refused"] > SHORT / 4 * 0.8
    assert found["harmless"] > 0, "a good wheel is refused, too"


def refusals(found, count):
    """Enough refusals of each kind: a larger part of a record is unrelated to the wheel."""
    assert set(found) == {"verification.json", "provenance.json"}
    assert found["verification.json"]["refused"] > count / 2 * 0.7
    assert found["provenance.json"]["refused"] > count / 2 * 0.9


def test_mutants_of_records_and_statements(tmp_path, matrix, checkout, good):
    found = attack_papers(SHORT, tmp_path, matrix, checkout, good)
    LOG.info("%s", found)  # shown with --log-cli-level=INFO
    refusals(found, SHORT)


def test_the_wheel_that_is_attacked_is_published(tmp_path, matrix, checkout, good):
    wheel = finished_wheel(tmp_path, *checkout, files=good)
    assert not refused(wheel, matrix, tmp_path / "index", checkout)
    assert is_harmless(wheel, good)


def test_a_commit_that_lies_on_no_branch_is_refused(tmp_path, matrix, checkout, good):
    """Its sources match the wheel, and its object is in the checkout. Publishing once accepted it."""
    root, commit = checkout
    git = [*GIT, "-C", root]
    command = [*git, "commit-tree", "-p", commit, "-m", "stray", f"{commit}^{{tree}}"]
    stray = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    wheel = finished_wheel(tmp_path, *checkout, files=good)
    statement = provenance_path(wheel)
    statement.write_text(statement.read_text().replace(commit, stray))
    with pytest.raises(errors.ProvenanceError, match=f"{stray} lies on no branch or tag of this checkout"):
        publish_files([wheel], matrix, tmp_path / "index", root)
    assert not (tmp_path / "index").exists()


@pytest.mark.full
def test_a_thousand_mutants_of_wheels(tmp_path, matrix, checkout, good):
    found = attack_wheels(FULL, tmp_path, matrix, checkout, good)
    LOG.info("%s", found)  # shown with --log-cli-level=INFO
    assert found["refused"] > FULL * 0.8


@pytest.mark.full
def test_a_thousand_mutants_of_dlls(tmp_path, matrix, checkout):
    found = attack_dlls(FULL, tmp_path, matrix, checkout)
    LOG.info("%s", found)  # shown with --log-cli-level=INFO
    assert found["refused"] > FULL * 0.9


@pytest.mark.full
def test_a_thousand_mutants_of_records_and_statements(tmp_path, matrix, checkout, good):
    found = attack_papers(FULL, tmp_path, matrix, checkout, good)
    LOG.info("%s", found)  # shown with --log-cli-level=INFO
    refusals(found, FULL)
