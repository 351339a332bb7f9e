import hashlib
import json
import threading

import pytest

from wheel_builder.base.errors import StoreError
from wheel_builder.base.store import Store, key_of, sha256_tree


def write(text):
    def make(folder):
        (folder / "out.txt").write_text(text)
        return {"said": text}

    return make


def test_a_result_is_made_once_and_found_again(tmp_path):
    store = Store(tmp_path)
    first = store.get_or_make("stage", {"a": 1}, write("one"))
    second = store.get_or_make("stage", {"a": 1}, write("two"))
    assert (first.reused, second.reused) == (False, True)
    assert second.facts == {"said": "one"}
    assert (second.path / "out.txt").read_text() == "one"


def test_other_inputs_are_another_result(tmp_path):
    store = Store(tmp_path)
    first = store.get_or_make("stage", {"a": 1}, write("one"))
    second = store.get_or_make("stage", {"a": 2}, write("two"))
    assert first.path != second.path
    assert store.find("stage", {"a": 3}) is None


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_stage_leaves_nothing_that_looks_like_a_result(tmp_path, failure):
    def make(folder):
        (folder / "half.txt").write_text("half")
        raise failure

    store = Store(tmp_path)
    with pytest.raises(failure):
        store.get_or_make("stage", {"a": 1}, make)
    assert store.find("stage", {"a": 1}) is None
    assert [path.name for path in (tmp_path / "stage").iterdir() if path.is_dir()] == []
    assert store.get_or_make("stage", {"a": 1}, write("whole")).facts == {"said": "whole"}


def test_what_a_killed_run_left_is_cleared_away(tmp_path):
    store = Store(tmp_path)
    key = store.get_or_make("stage", {"a": 1}, write("one")).key
    other = Store(tmp_path / "other")
    stale = other.root / "stage" / f".{key}-dead"
    stale.mkdir(parents=True)
    other.get_or_make("stage", {"a": 1}, write("one"))
    assert not stale.exists()


def test_a_changed_result_is_refused_in_words(tmp_path):
    store = Store(tmp_path)
    path = store.get_or_make("stage", {"a": 1}, write("one")).path
    (path / "out.txt").write_text("changed")
    with pytest.raises(StoreError) as caught:
        store.find("stage", {"a": 1})
    assert "out.txt" in str(caught.value)
    assert f"rm -r {path}" in str(caught.value)


def test_the_manifest_names_inputs_and_digests(tmp_path):
    path = Store(tmp_path).get_or_make("stage", {"a": 1}, write("one")).path
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["inputs"] == {"a": 1}
    assert manifest["files"] == {"out.txt": hashlib.sha256(b"one").hexdigest()}


def test_two_that_want_the_same_result_make_it_once(tmp_path):
    made = []

    def make(folder):
        made.append(folder)
        return write("one")(folder)

    threads = [
        threading.Thread(target=Store(tmp_path).get_or_make, args=("stage", {"a": 1}, make)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_tree_digest_sees_names_contents_and_run_bits(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("x")
    digests = [sha256_tree(tmp_path, [tmp_path])]
    file.chmod(0o755)
    digests.append(sha256_tree(tmp_path, [tmp_path]))
    file.write_text("y")
    digests.append(sha256_tree(tmp_path, [tmp_path]))
    file.rename(tmp_path / "b.txt")
    digests.append(sha256_tree(tmp_path, [tmp_path]))
    assert len(set(digests)) == 4


def test_a_tree_digest_leaves_out_caches_and_refuses_what_is_not_there(tmp_path):
    (tmp_path / "a.py").write_text("x")
    before = sha256_tree(tmp_path, [tmp_path])
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")
    assert sha256_tree(tmp_path, [tmp_path]) == before
    with pytest.raises(StoreError, match="not there"):
        sha256_tree(tmp_path, [tmp_path / "gone"])


def test_a_key_does_not_depend_on_order():
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
