"""Results on their way from one machine's store and engine to another's."""

import io
import tarfile

import pytest

from wheel_builder.base.errors import StoreError
from wheel_builder.base.process import Completed
from wheel_builder.base.store import Store, key_of
from wheel_builder.images.handover import copy_wheels, give, holds_images, take

IMAGE = {"ref": "builder:7.2-abc", "image_id": "sha256:" + "1" * 64}


class FakeEngine:
    """``docker save`` writes a file with the image's name. Other commands are only noted."""

    def __init__(self):
        self.commands = []

    def __call__(self, argv, **kwargs):
        self.commands.append([str(part) for part in argv])
        if argv[1] == "save":
            argv[3].write_text(str(argv[4]))
        return Completed("", 0)


def make(store, stage="device-code", inputs=None, facts=None):
    def fill(out):
        (out / "a.hsaco").write_bytes(b"code")
        return facts or {"arch": "gfx908"}

    return store.get_or_make(stage, inputs or {"arch": "gfx908"}, fill)


@pytest.fixture
def here(tmp_path):
    return Store(tmp_path / "here")


@pytest.fixture
def there(tmp_path):
    return Store(tmp_path / "there")


def test_what_is_given_counts_as_done_where_it_is_taken(here, there, tmp_path):
    made = make(here)
    [file] = give(here.used, tmp_path / "handed", log=tmp_path / "log")
    assert file.name == f"device-code-{made.key}.tar"
    assert take(tmp_path / "handed", there, log=tmp_path / "log") == [file.name]
    again = make(there)
    assert again.reused
    assert again.manifest == made.manifest
    assert (again.path / "a.hsaco").read_bytes() == b"code"


def test_a_store_knows_what_was_used_of_it(here):
    results = [make(here), make(here), make(here, inputs={"arch": "gfx942"})]
    assert [result.key for result in here.used] == [result.key for result in results]
    assert here.find("device-code", {"arch": "gfx908"})
    assert len(here.used) == 3


def test_an_image_goes_with_the_result_that_names_it(here, there, tmp_path):
    engine = FakeEngine()
    make(here, "image", facts=IMAGE)
    names = [path.name for path in give(here.used, tmp_path / "handed", log=tmp_path / "log", run=engine)]
    assert names[1:] == [f"image-sha256-{'1' * 64}.tar"]
    assert holds_images([tmp_path / "handed"])
    assert (tmp_path / "handed" / names[1]).read_text() == "builder:7.2-abc"
    take(tmp_path / "handed", there, log=tmp_path / "log", run=engine)
    assert engine.commands[-1][:3] == ["docker", "load", "--quiet"]
    assert there.find("image", {"arch": "gfx908"})


def test_what_is_there_or_was_taken_is_not_given_again(here, tmp_path):
    engine = FakeEngine()
    make(here, "image", facts=IMAGE)
    folder, log = tmp_path / "handed", tmp_path / "log"
    assert len(give(here.used, folder, log=log, run=engine)) == 2
    assert give(here.used, folder, log=log, run=engine) == []
    make(here)
    assert len(give(here.used, tmp_path / "made", taken=[folder], log=log, run=engine)) == 1
    assert len(engine.commands) == 1


def test_nothing_to_take_is_fine(there, tmp_path):
    assert take(tmp_path / "missing", there, log=tmp_path / "log") == []
    assert not holds_images([tmp_path / "missing"])


def test_a_result_that_is_here_already_stays(here, there, tmp_path):
    make(here)
    kept = make(there).path / "a.hsaco"
    before = kept.stat().st_ino
    give(here.used, tmp_path / "handed", log=tmp_path / "log")
    take(tmp_path / "handed", there, log=tmp_path / "log")
    assert kept.stat().st_ino == before


def test_a_changed_result_is_refused(here, there, tmp_path):
    made = make(here)
    (made.path / "a.hsaco").write_bytes(b"other")
    give(here.used, tmp_path / "handed", log=tmp_path / "log")
    with pytest.raises(StoreError, match=r"a\.hsaco differ from what the manifest recorded"):
        take(tmp_path / "handed", there, log=tmp_path / "log")
    assert there.find("device-code", {"arch": "gfx908"}) is None


def test_a_result_of_another_stage_is_refused(here, there, tmp_path):
    made = make(here)
    folder = tmp_path / "handed"
    give(here.used, folder, log=tmp_path / "log")
    (folder / f"device-code-{made.key}.tar").rename(folder / f"wheel-{made.key}.tar")
    other = key_of({"stage": "wheel", "inputs": {"arch": "gfx908"}})
    with pytest.raises(
        StoreError, match=f"{made.key}: no result of stage wheel, whose name would be {other}"
    ):
        take(folder, there, log=tmp_path / "log")


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "0123/../../out"])
def test_a_file_that_reaches_out_of_the_folder_is_refused(there, tmp_path, name):
    folder = tmp_path / "handed"
    folder.mkdir()
    with tarfile.open(folder / "wheel-0123.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(StoreError, match=r"(cannot be taken|expected one folder 0123).*\n.*download"):
        take(folder, there, log=tmp_path / "log")
    assert not (tmp_path / "out").exists()


def test_what_is_no_archive_is_refused(there, tmp_path):
    folder = tmp_path / "handed"
    folder.mkdir()
    (folder / "wheel-0123.tar").write_bytes(b"<html>not found</html>")
    with pytest.raises(StoreError, match=r"wheel-0123\.tar: cannot be taken"):
        take(folder, there, log=tmp_path / "log")


def test_an_archive_without_a_result_is_refused(there, tmp_path):
    folder = tmp_path / "handed"
    folder.mkdir()
    with tarfile.open(folder / "wheel-0123.tar", "w") as archive:
        member = tarfile.TarInfo("0123")
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    with pytest.raises(StoreError, match="0123: no result of stage wheel"):
        take(folder, there, log=tmp_path / "log")


def test_wheels_are_copied_with_their_statements_and_nothing_else(tmp_path):
    (tmp_path / "result").mkdir()
    wheel, statement = "a-1-py3-none-any.whl", "a-1-py3-none-any.whl.provenance.json"
    for name in (wheel, statement, "manifest.json"):
        (tmp_path / "result" / name).write_text(name)
    [copied] = copy_wheels([tmp_path / "result"], tmp_path / "to")
    assert copied == tmp_path / "to" / wheel
    assert {path.name for path in (tmp_path / "to").iterdir()} == {wheel, statement}
