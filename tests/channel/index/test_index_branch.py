"""The published index as a branch: it keeps every file and its history, and stores no credential."""

import os
import shutil
import subprocess

import pytest

from tests.conftest import CHECKOUT


def git(*argv, cwd):
    return subprocess.run(["git", *argv], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def remote(tmp_path):
    git("init", "--quiet", "--bare", "remote", cwd=tmp_path)
    return tmp_path / "remote"


@pytest.fixture
def checkout(tmp_path, remote):
    """A checkout of the repository, as a runner has it."""

    def make(name):
        root = tmp_path / name
        (root / ".ci").mkdir(parents=True)
        shutil.copy2(CHECKOUT / ".ci" / "index-branch", root / ".ci")
        git("init", "--quiet", cwd=root)
        git("remote", "add", "origin", str(remote), cwd=root)
        return root

    return make


def branch(root, action, folder="index", *, check=True, **env):
    done = subprocess.run(
        [".ci/index-branch", action, folder],
        cwd=root, env=os.environ | env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done


def commits(remote):
    return git("log", "--format=%s", "index", cwd=remote).splitlines()


def test_the_first_index_is_empty_and_the_next_has_what_was_kept(checkout, remote):
    first, second = checkout("first"), checkout("second")
    assert "beginning with an empty index" in branch(first, "get").stdout
    assert list((first / "index").iterdir()) == []
    (first / "index" / "rocm7.2").mkdir()
    (first / "index" / "rocm7.2" / "a.whl").write_text("a")
    (first / "index" / ".lock").touch()
    branch(first, "keep")
    branch(second, "get")
    assert [p.name for p in (second / "index").iterdir()] == ["rocm7.2"]
    assert (second / "index" / "rocm7.2" / "a.whl").read_text() == "a"


def test_nothing_new_is_no_commit(checkout, remote):
    root = checkout("root")
    branch(root, "get")
    (root / "index" / "a").touch()
    branch(root, "keep")
    assert "nothing is new" in branch(root, "keep").stdout
    assert len(commits(remote)) == 1


def test_a_slower_publisher_is_refused_and_overwrites_nothing(checkout, remote):
    fast, slow = checkout("fast"), checkout("slow")
    for root in (fast, slow):
        branch(root, "get")
        (root / "index" / root.name).touch()
    branch(fast, "keep")
    refused = branch(slow, "keep", check=False)
    assert refused.returncode != 0
    assert "rejected" in refused.stderr
    assert git("ls-tree", "--name-only", "index", cwd=remote).split() == ["fast"]


def test_a_remote_that_does_not_answer_is_not_an_empty_index(checkout, remote):
    root = checkout("root")
    shutil.rmtree(remote)
    assert branch(root, "get", check=False).returncode == 128


def test_the_token_is_in_no_file_and_in_no_output(checkout, remote):
    root = checkout("root")
    said = branch(root, "get", GH_TOKEN="planted-token", GIT_TRACE="1")
    (root / "index" / "a").touch()
    kept = branch(root, "keep", GH_TOKEN="planted-token", GIT_TRACE="1")
    texts = [said.stdout, said.stderr, kept.stdout, kept.stderr]
    texts += [f.read_bytes().decode(errors="replace") for f in root.rglob("*") if f.is_file()]
    encoded = "eC1hY2Nlc3MtdG9rZW46cGxhbnRlZC10b2tlbg"
    assert not any("planted-token" in text or encoded in text for text in texts)


def test_other_words_are_wrong_usage(checkout):
    done = branch(checkout("root"), "push", check=False)
    assert done.returncode == 2
    assert "usage: .ci/index-branch get|keep DIR" in done.stderr
