"""The owner of a commit: names that anybody can give a commit, and those only the repository has."""

import subprocess
from pathlib import Path

import pytest

from tests.tools.made.checkouts import GIT, commit_all
from wheel_builder.provenance.standing import FETCH, commit_problem, standing_of


def git(root, *words):
    done = subprocess.run([*GIT, "-C", root, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def file_url(path):
    return f"file://{path}"


@pytest.fixture
def theirs(tmp_path):
    """A repository, and the commit of its branch main."""
    root = tmp_path / "theirs"
    root.mkdir()
    (root / "file").write_text("one\n")
    commit = commit_all(root)
    git(root, "branch", "--move", "main")
    return root, commit


@pytest.fixture
def fork(tmp_path, theirs):
    """A fork with an unaccepted commit, named by its branch main, its tag v9 and a pull request."""
    root = tmp_path / "fork"
    git(tmp_path, "clone", "--quiet", str(theirs[0]), str(root))
    git(root, "commit", "--quiet", "--allow-empty", "--message", "evil")
    commit = git(root, "rev-parse", "HEAD")
    git(root, "tag", "v9")
    git(theirs[0], "fetch", "--quiet", "--no-tags", str(root), f"{commit}:refs/pull/7/head")
    return root, commit


@pytest.fixture
def here(tmp_path, theirs, fork):
    """A maintainer's or a downloader's clone of the repository."""
    root = tmp_path / "here"
    git(tmp_path, "clone", "--quiet", file_url(theirs[0]), str(root))
    return root


def of_a_fork(here, fork, spec):
    git(here, "remote", "add", "friend", str(fork[0]))
    git(here, "config", "--replace-all", "remote.friend.fetch", spec)
    git(here, "fetch", "--quiet", "friend")


def replaced(here, fork):
    """``main`` appears to descend from the fork's commit."""
    git(here, "fetch", "--quiet", str(fork[0]), "main")
    main = git(here, "rev-parse", "origin/main")
    again = git(here, "commit-tree", "-p", fork[1], "-m", "all", "origin/main^{tree}")
    git(here, "update-ref", f"refs/replace/{main}", again)


def grafted(here, fork):
    git(here, "fetch", "--quiet", str(fork[0]), "main")
    (Path(here) / ".git/info").mkdir(exist_ok=True)
    (Path(here) / ".git/info/grafts").write_text(f"{git(here, 'rev-parse', 'origin/main')} {fork[1]}\n")


KINDS = {
    "a pull request that was checked out": lambda here, fork: (
        git(here, "fetch", "--quiet", "origin", "refs/pull/7/head:refs/heads/feature"),
        git(here, "checkout", "--quiet", "feature"),
    ),
    "a commit of one's own, not pushed": lambda here, fork: (
        git(here, "fetch", "--quiet", str(fork[0]), "main"),
        git(here, "reset", "--quiet", "--hard", "FETCH_HEAD"),
    ),
    "a fork's branch": lambda here, fork: of_a_fork(here, fork, "+refs/heads/*:refs/remotes/friend/*"),
    "a fork's branch among those of origin": lambda here, fork: of_a_fork(
        here, fork, "+refs/heads/main:refs/remotes/origin/next"
    ),
    "a fork's branch as a local one": lambda here, fork: of_a_fork(
        here, fork, "+refs/heads/main:refs/heads/next"
    ),
    "a fork's tag": lambda here, fork: git(here, "fetch", "--quiet", "--tags", str(fork[0])),
    "a pull request as a tag": lambda here, fork: (
        git(here, "config", "--add", "remote.origin.fetch", "+refs/pull/*/head:refs/tags/pull/*"),
        git(here, "fetch", "--quiet"),
    ),
    "a pull request as a branch": lambda here, fork: (
        git(here, "config", "--add", "remote.origin.fetch", "+refs/pull/*/head:refs/remotes/origin/pr/*"),
        git(here, "fetch", "--quiet"),
    ),
    "a replace ref": replaced,
    "a graft": grafted,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_anybody_can_name_is_nobodys(kind, here, fork, theirs):
    """Before names of other repositories were told apart, all but one of these were accepted."""
    KINDS[kind](here, fork)
    assert git(here, "for-each-ref", "--contains", fork[1]) or "graft" in kind
    assert commit_problem(here, fork[1]) == (
        f"commit {fork[1]} lies on no branch or tag of origin, so it may be anybody's; {FETCH}"
    )


def test_the_repositorys_own_names_count_and_are_said(here, theirs, fork):
    root, commit = theirs
    assert standing_of(here, commit).on == "branch main of origin"
    git(root, "tag", "v1")
    git(root, "commit", "--quiet", "--amend", "--message", "another")
    git(here, "fetch", "--quiet", "--tags", "--force")
    assert standing_of(here, commit).on == "tag v1 of origin"
    git(root, "tag", "--annotate", "--message", "two", "v2", commit)
    git(root, "tag", "--delete", "v1")
    git(here, "fetch", "--quiet", "--tags")
    assert standing_of(here, commit).on == "tag v2 of origin"


def test_a_tag_that_nobody_can_be_asked_for_is_no_proof(here, theirs, fork):
    git(here, "fetch", "--quiet", "--tags", str(fork[0]))
    git(here, "remote", "set-url", "origin", file_url("/nowhere"))
    words = f"commit {fork[1]} lies on tag v9 here, but origin does not answer which it has; run this again"
    assert commit_problem(here, fork[1]) == f"{words} where git ls-remote origin works"
    assert standing_of(here, theirs[1]).on == "branch main of origin"


def test_a_remote_of_another_name_is_not_the_repository(here, theirs):
    git(here, "remote", "rename", "origin", "friend")
    words = f"no remote of this checkout is called origin, so nobody vouches for commit {theirs[1]}; "
    assert commit_problem(here, theirs[1]) == f"{words}git remote rename the repository's own to origin"


def test_a_checkout_without_a_remote_is_a_repository_of_its_own(theirs):
    root, commit = theirs
    assert standing_of(root, commit).on == "branch main of this checkout, which has no remote"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://token@example.org/o/r.git", "origin (https://example.org/o/r.git)"),
        ("git@example.org:o/r.git", "origin"),
    ],
)
def test_the_repository_is_named_without_credentials(here, theirs, url, words):
    git(here, "remote", "set-url", "origin", url)
    assert standing_of(here, theirs[1]).on == f"branch main of {words}"
