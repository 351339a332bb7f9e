"""A local index replaces the earlier wheel by a changed one. A public index never does.

Local and public wheels never share a folder.
"""

from datetime import UTC, datetime, timedelta

import pytest

from tests.tools.made.catalogues import CATALOGUE
from tests.tools.made.wheels import project_wheel
from wheel_builder.base.errors import PublishError
from wheel_builder.base.store import sha256_file
from wheel_builder.index.check import Found, check_index
from wheel_builder.index.folder import read_contents, yank
from wheel_builder.index.local import MARK, PUBLISH_ELSEWHERE, RELEASE_ELSEWHERE, is_local
from wheel_builder.index.publish import publish

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "index"


def wheel(tmp_path, number=1, version="1.0"):
    """``demo`` with another content for each number."""
    (folder := tmp_path / str(number)).mkdir(exist_ok=True)
    return project_wheel(folder, "demo", version, module=f"VALUE = {number}\n".encode())


def release(root, *wheels, rocm="7.2", later=0):
    now = NOW + timedelta(days=later)
    return publish(wheels, root, rocm, catalogue=CATALOGUE, now=now, to_others=False)


def publish_to_others(root, *wheels, rocm="7.2"):
    return publish(wheels, root, rocm, catalogue=CATALOGUE, now=NOW)


def files_of(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def published(root, rocm="7.2"):
    return [(entry.record.sha256, entry.yanked) for entry in read_contents(root)[rocm]["demo"]]


def test_a_second_release_after_an_edit_replaces_the_wheel(tmp_path, root):
    """It ended after seven minutes with "a published file never changes"."""
    first, second = wheel(tmp_path, 1), wheel(tmp_path, 2)
    assert release(root, first).replaced == ()
    found = release(root, second, later=1)
    assert (found.added, found.replaced) == ((second.name,), (second.name,))
    assert published(root) == [(sha256_file(second), None)]
    assert (root / "rocm7.2/simple/demo" / second.name).read_bytes() == second.read_bytes()
    assert check_index(root) == Found(())
    # A third run without an edit changes nothing.
    again = release(root, second, later=2)
    assert (again.added, again.unchanged, again.replaced) == ((), (second.name,), ())


def test_other_files_stay_and_every_copy_of_the_name_is_replaced(tmp_path, root):
    """The root offers each name once, so one name must have one content."""
    other = wheel(tmp_path, 0, "0.9")
    release(root, wheel(tmp_path, 1), other)
    release(root, wheel(tmp_path, 1), rocm="6.4")
    release(root, second := wheel(tmp_path, 2))
    assert published(root) == [(sha256_file(other), None), (sha256_file(second), None)]
    assert "6.4" not in read_contents(root)
    assert check_index(root) == Found(())


def test_a_yanked_file_of_a_local_index_is_replaced_too(tmp_path, root):
    release(root, first := wheel(tmp_path, 1))
    yank(root, "7.2", first.name, "wrong numbers", catalogue=CATALOGUE, now=NOW)
    with pytest.raises(PublishError, match="a yanked file is not published again"):
        release(root, first)
    assert published(root) == [(sha256_file(first), "wrong numbers")]
    release(root, second := wheel(tmp_path, 2))
    assert published(root) == [(sha256_file(second), None)]
    assert check_index(root) == Found(())


def test_what_others_were_given_never_changes(tmp_path, root):
    publish_to_others(root, first := wheel(tmp_path, 1))
    assert not is_local(root)
    refused = {release: "others may have used it", publish_to_others: "a published file never changes"}
    for again, why in refused.items():
        with pytest.raises(PublishError, match=f"{why}; nothing was published"):
            again(root, wheel(tmp_path, 2))
        assert published(root) == [(sha256_file(first), None)]
        assert not is_local(root)


def test_a_local_index_is_never_given_away(tmp_path, root):
    """Publishing one good wheel also published all unchecked wheels left there by releases."""
    for number, version in enumerate(("1.0", "2.0")):
        release(root, wheel(tmp_path, number, version))
    assert "a changed wheel replaces" in (root / MARK).read_text()
    before = files_of(root)
    with pytest.raises(PublishError) as caught:
        publish_to_others(root, wheel(tmp_path, 3, "3.0"))
    assert caught.value.message.splitlines() == [
        f"{root} is a local index, whose wheels are not for others; nothing was published",
        "  - demo-1.0-py3-none-any.whl was written by a release on this machine",
        "  - demo-2.0-py3-none-any.whl was written by a release on this machine",
    ]
    assert caught.value.advice == PUBLISH_ELSEWHERE
    assert files_of(root) == before
    release(root, wheel(tmp_path, 4))


@pytest.mark.parametrize("rocm", ["7.2", "6.4"])
def test_a_release_writes_nothing_into_a_public_index(tmp_path, root, rocm):
    """It added its wheel without a check of its commit, and said that it is for this machine."""
    publish_to_others(root, wheel(tmp_path, 1))
    before = files_of(root)
    with pytest.raises(PublishError) as caught:
        release(root, wheel(tmp_path, 2, "2.0"), rocm=rocm)
    assert caught.value.message.splitlines() == [
        f"{root} is not a local index: others may have used it; nothing was published",
        "  - it has index.html, rocm7.2, simple, wheels.json, and no file .local",
    ]
    assert caught.value.advice == RELEASE_ELSEWHERE
    assert files_of(root) == before


@pytest.mark.parametrize("left", ["", ".lock", ".git/config", "..local.part"])
def test_an_empty_folder_becomes_what_is_written_first(tmp_path, root, left):
    root.mkdir()
    if left:
        (root / left).parent.mkdir(exist_ok=True)
        (root / left).touch()
    release(root, wheel(tmp_path, 1))
    assert is_local(root)


def test_documents_without_a_wheel_are_public_too(tmp_path, root):
    """The index of a project may begin with its documents."""
    (root / "docs").mkdir(parents=True)
    with pytest.raises(PublishError, match="it has docs, and no file"):
        release(root, wheel(tmp_path, 1))


def test_a_half_published_index_is_public(tmp_path, root):
    (root / "rocm7.2/simple/demo").mkdir(parents=True)
    with pytest.raises(PublishError, match="others may have used it"):
        release(root, wheel(tmp_path, 1))


def test_a_local_index_whose_records_cannot_be_read_is_not_given_away_either(tmp_path, root):
    release(root, wheel(tmp_path, 1))
    next(root.rglob("*.record.json")).write_text("{}")
    with pytest.raises(PublishError, match=r"\.local says so"):
        publish_to_others(root, wheel(tmp_path, 3, "3.0"))


def test_a_refused_wheel_leaves_a_local_index_as_it_is(tmp_path, root):
    release(root, first := wheel(tmp_path, 1))
    bad = wheel(tmp_path, 2)
    bad.write_bytes(bad.read_bytes()[:-1])
    with pytest.raises(PublishError):
        release(root, bad)
    assert is_local(root)
    assert published(root) == [(sha256_file(first), None)]
