"""A message for each fault of an index, with advice."""

import json
from dataclasses import replace

import pytest

from tests.fast.unit.index.test_folder import FILE, NOW, root_of
from tests.tools.made.catalogues import CATALOGUE
from wheel_builder.base.durable import remove_parts
from wheel_builder.base.errors import PublishError
from wheel_builder.cli.commands.indexes import index
from wheel_builder.cli.main import main
from wheel_builder.index.check import check_index, verify_index
from wheel_builder.index.folder import add_file, changing, write_pages


@pytest.fixture
def simple(tmp_path):
    """The folder ``simple`` of an index with one file."""
    folder = tmp_path / "rocm7.2" / "simple"
    add_file(folder, FILE, NOW)
    write_pages(tmp_path, CATALOGUE)
    return folder


def test_a_sound_index_has_no_faults(simple):
    assert verify_index(root_of(simple)) == ()


def damaged(simple, name, data):
    """The faults after the content of ``name`` became ``data``, or after its removal for None."""
    path = (simple / name).resolve()
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    return verify_index(root_of(simple))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (f"demo/{FILE.filename}.verification.json", b"[]", "its record says"),
        (f"demo/{FILE.filename}.verification.json", None, "missing, though its record is there"),
        (f"demo/{FILE.filename}", b"other", "its record says"),
        (f"demo/{FILE.filename}", None, "missing, though its record is there"),
        (f"demo/{FILE.filename}.metadata", b"other", "its record says"),
        (f"demo/{FILE.filename}.metadata", None, "missing, though its record is there"),
        ("demo/index.html", b"", "the page differs from the records"),
        ("demo/index.json", None, "the page is missing"),
        ("index.html", b"", "the page differs from the records"),
        ("index.json", None, "the page is missing"),
        ("../../simple/demo/index.html", b"", "the page differs from the records"),
        ("../../simple/index.json", None, "the page is missing"),
        ("../../index.html", b"", "the page differs from the records"),
        ("../../wheels.json", None, "it cannot be read (FileNotFoundError)"),
        ("../../wheels.json", b"{}", "it cannot be read (KeyError)"),
    ],
)
def test_verify_explains_each_fault_and_publishing_again_heals(simple, name, data, words):
    (fault,) = damaged(simple, name, data)
    assert fault.startswith(f"{(simple / name).resolve()}: ")
    assert words in fault
    assert "publish the same wheels again" in fault or "scripts/wheel-builder index pages" in fault

    with changing(root_of(simple)):
        remove_parts(root_of(simple))
        add_file(simple, FILE, NOW)
        write_pages(root_of(simple), CATALOGUE)
    assert verify_index(root_of(simple)) == ()


LEFT = "demo-2-py3-none-any.whl"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"demo/.{FILE.filename}.part", "an interrupted publisher left it; the next publish removes it"),
        (f"demo/{LEFT}", "no page names it; an interrupted publisher may have left it; publish the same"),
        (f"demo/{LEFT}.metadata", "no page names it; an interrupted publisher may have left it; publish"),
    ],
)
def test_what_a_killed_publisher_leaves_is_no_fault(simple, name, words, capsys, monkeypatch):
    """Clients never see them. Once they were a fault, and ``index verify`` ended with an error."""
    (simple / name).write_bytes(b"wh")
    found = check_index(root_of(simple))
    assert found.faults == ()
    [leftover] = found.leftovers
    assert leftover.startswith(f"{simple / name}: {words}")
    monkeypatch.setattr(index, "OURS", None)  # a real index refuses the project demo
    assert main(["index", "verify", "--index", str(root_of(simple))]) == 0
    said = capsys.readouterr()
    assert f"note: {leftover}" in said.err
    assert "is sound" in said.out


@pytest.mark.parametrize(
    "name", ["demo/stray.whl", "demo/evil.html", f"other/{LEFT}", f"../{LEFT}", "demo/x.part", "../../x.py"]
)
def test_any_other_file_is_a_fault(simple, name):
    (simple / name).parent.mkdir(exist_ok=True)
    [fault] = damaged(simple, name, b"")
    assert fault == f"{(simple / name).resolve()}: no record knows it, it is not published; remove it"


def test_a_wheel_that_was_cut_off_is_called_so(simple):
    (fault,) = damaged(simple, f"demo/{FILE.filename}", b"wh")
    assert f"2 bytes of {len(FILE.data)}: it was cut off" in fault


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"demo/{FILE.filename}", "it cannot be read (Input/output error)"),
        ("demo/index.html", "the page cannot be read (Input/output error)"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_fault_and_no_traceback(simple, name, words):
    (simple / name).unlink()
    # Reading its start fails for every user, root included.
    (simple / name).symlink_to("/proc/self/mem")
    (fault,) = verify_index(root_of(simple))
    assert fault.startswith(
        f"{simple / name}: {words}; give this user the right to read it or mend the disk, or "
    )


def test_all_faults_are_told_at_once(simple):
    add_file(simple, replace(FILE, version="2", filename="demo-2-py3-none-any.whl"), NOW)
    (simple / "demo" / "demo-2-py3-none-any.whl.record.json").write_text("{")
    (simple / "demo" / FILE.filename).unlink()
    faults = verify_index(root_of(simple))
    assert len(faults) == 2
    assert "restore it from a copy of the index" in faults[0]
    assert "missing, though its record is there" in faults[1]


def test_what_verify_compares_the_page_with_is_what_it_was_made_with(simple):
    write_pages(root_of(simple), replace(CATALOGUE, gpus=CATALOGUE.gpus[:1]))
    assert verify_index(root_of(simple)) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"filename": "x"}',
        *(
            json.dumps(FILE.to_record(NOW).__dict__ | change)
            for change in (
                {"size": "5"},
                {"version": "one"},
                {"serves": ["7.1/../.."]},
                {"serves": ["7.01"]},
                {"serves": ["7.1", "7.1"]},
                {"serves": [f"1.{n}" for n in range(51)]},
                {"attachments": {"other": ""}},
                {"more": 1},
            )
        ),
    ],
)
def test_a_damaged_record_is_said_and_nothing_is_written(simple, text):
    record = simple / "demo" / f"{FILE.filename}.record.json"
    (fault,) = damaged(simple, f"demo/{record.name}", text.encode())
    assert fault.startswith(f"{record}: ")
    assert fault.endswith("restore it from a copy of the index")
    with pytest.raises(PublishError, match="cannot be read; nothing was changed"):
        write_pages(root_of(simple), CATALOGUE)


def test_a_record_of_another_file_is_damaged(simple):
    name = f"demo/{FILE.filename}.record.json"
    text = json.dumps(FILE.to_record(NOW).__dict__ | {"project": "other"})
    (fault,) = damaged(simple, name, text.encode())
    assert f"it is about other/{FILE.filename}" in fault


@pytest.mark.parametrize("rocm", ["7.01", "07.1", "seven"])
def test_a_folder_of_no_rocm_version_is_a_fault(simple, rocm):
    """Its files were offered under another spelling of 7.1."""
    add_file(root_of(simple) / f"rocm{rocm}" / "simple", FILE, NOW)
    [fault] = verify_index(root_of(simple))
    assert fault.startswith(f"{root_of(simple)}/rocm{rocm}: '{rocm}' is no ROCm version such as 7.2; ")


def test_no_index(tmp_path):
    assert verify_index(tmp_path) == (f"{tmp_path}: the index does not exist; publish a wheel first",)
