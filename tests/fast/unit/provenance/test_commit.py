"""A commit's sources and its wheels, in the layout of 0.1.0 and in today's."""

import shutil
import subprocess

import pytest

from tests.conftest import CHECKOUT
from tests.tools.made.checkouts import GIT, commit_all, copy_sources
from wheel_builder.base.store import sha256_file, sha256_tree
from wheel_builder.build.source import read_flags, read_source
from wheel_builder.build.wheel_inputs import FILE, read_inputs
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.provenance.commit import read_recipe, read_tree, tree_of_commit
from wheel_builder.provenance.standing import FETCH, commit_problem

REQUIREMENTS = "dockerfiles/builder/builder-requirements.txt"
FIRST = CHECKOUT / "tests/data/first-layout"
BUILD = {"today": "kernels/build", "first": "kernels"}
LOCK = {"today": REQUIREMENTS, "first": "dockerfiles/builder-requirements.txt"}
LLVM = {
    "7.2": "/usr/lib/llvm-22/bin",
    "7.1": "/opt/rocm/llvm/bin",
    "7.0": "/opt/rocm/llvm/bin",
    "6.4": "/usr/lib/llvm-21/bin",
    "5.7": "/usr/lib/llvm-17/bin",
}


def recipe_files(root, matrix, layout):
    """Files read from a commit besides a wheel's sources."""
    (root / LOCK[layout]).parent.mkdir(parents=True)
    shutil.copy(CHECKOUT / REQUIREMENTS, root / LOCK[layout])
    shutil.copy(matrix, root / "matrix.yaml")


@pytest.fixture
def today(tmp_path):
    """A repository in today's layout, and its commit."""
    root = tmp_path / "today"
    copy_sources(root)
    recipe_files(root, CHECKOUT / "matrix.yaml", "today")
    return root, commit_all(root)


@pytest.fixture
def first(tmp_path):
    """A repository in the layout of 0.1.0, with its matrix.yaml."""
    root = tmp_path / "first"
    for name in ("kernels/instances", "wheel_builder/stages"):
        (root / name).mkdir(parents=True)
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "LICENSE").write_text("MIT\n")
    (root / "kernels/instances/build.py").write_text('COMPILE = ("-O3", "-fuse-cuid=none")\n')
    (root / "kernels/zig_flags.txt").write_text("-target x86_64-linux-gnu.2.28\n")
    (root / "wheel_builder/stages/wheel.py").write_text('SOURCE_DATE_EPOCH = "315619200"\n')
    recipe_files(root, FIRST / "matrix.yaml", "first")
    return root, commit_all(root)


def test_a_commit_says_what_goes_into_its_wheels(today):
    root, commit = today
    before, source = read_tree(root, commit), read_source(root)
    assert before.content == before.sources == source.content
    assert (source.commit, source.changed, source.source_date_epoch) == (commit, (), "315619200")
    # The commit's own list is read, not the list of this checkout.
    file = root / FILE
    file.write_text(file.read_text(encoding="utf-8").replace('    "LICENSE",\n', ""), encoding="utf-8")
    shorter = read_tree(root, commit_all(root))
    assert shorter.sources != before.sources
    (root / "LICENSE").write_text("changed\n")
    assert read_tree(root, commit_all(root)).sources == shorter.sources
    tree_of_commit.cache_clear()
    assert read_tree(root, commit) == before


def test_the_first_layout_is_read_by_its_own_lists(first):
    root, commit = first
    found = read_tree(root, commit)
    paths = [root / name for name in ("pyproject.toml", "LICENSE", "kernels", "wheel_builder")]
    assert found.sources == sha256_tree(root, paths)
    assert found.content == sha256_tree(root, [root / "LICENSE", root / "kernels"])
    assert found.recipe.source_date_epoch == "315619200"
    assert found.recipe.flags == {
        "device": ("-O3", "-fuse-cuid=none"), "host": ("-target", "x86_64-linux-gnu.2.28"),
    }  # fmt: skip
    assert found.recipe.llvm == LLVM
    assert found.recipe.platform_tag == "manylinux_2_28_x86_64"


def test_the_recipe_is_what_the_sources_say():
    found, matrix = (
        read_recipe(CHECKOUT, read_inputs(CHECKOUT).source_date_epoch),
        load_matrix(CHECKOUT / "matrix.yaml"),
    )
    assert found.flags == read_flags(CHECKOUT)
    assert found.llvm == {row.version: row.llvm for row in matrix.rocm}
    assert found.requirements == sha256_file(CHECKOUT / REQUIREMENTS)
    assert f"ziglang=={found.zig} " in (CHECKOUT / REQUIREMENTS).read_text()
    assert (found.torch_headers, found.torch_headers_sha256) == (
        matrix.package.torch_headers, matrix.package.torch_headers_sha256,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("matrix.yaml", "rocm: 5\n", "ValueError: matrix.yaml: no package, or no rows of rocm"),
        ("matrix.yaml", "archs: [\n", "matrix.yaml"),
        ("{lock}", "", "ValueError: builder-requirements.txt does not pin ziglang"),
        ("{build}/instances/build.py", "COMPILE = flags()\n", "ValueError: malformed node"),
    ],
)
@pytest.mark.parametrize("layout", ["today", "first"])
def test_a_recipe_of_another_form_has_a_reason(request, layout, name, text, reason):
    """The digests of its sources are still read."""
    root, _ = request.getfixturevalue(layout)
    (root / name.format(build=BUILD[layout], lock=LOCK[layout])).write_text(text, encoding="utf-8")
    found = read_tree(root, commit_all(root))
    assert len(found.content) == len(found.sources) == 64
    assert reason in found.recipe
    assert "flash-attn-rocm-" not in found.recipe


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sources = 5", "TypeError"),
        ("sources = [", "TOMLDecodeError"),
        ('sources = ["kernels/gone"]\npyproject = []\nsource_date_epoch = ""', "kernels/gone: not there"),
    ],
)
def test_a_list_that_cannot_be_read_has_a_reason_and_no_digests(today, text, reason):
    root, _ = today
    (root / FILE).write_text(text, encoding="utf-8")
    found = read_tree(root, commit_all(root))
    assert (found.content, found.sources) == ("", "")
    assert reason in found.recipe


def test_sources_of_neither_layout_are_not_taken_for_one(today):
    root, _ = today
    (root / FILE).unlink()
    assert "stages/wheel.py" in read_tree(root, commit_all(root)).recipe


def test_a_commit_that_is_not_there(today):
    assert read_tree(today[0], "c0ffee" * 6 + "c0ff") is None
    assert read_tree(today[0], "--help") is None
    assert commit_problem(today[0], "--help") == f"this checkout does not have commit --help; {FETCH}"


def git(root, *words):
    done = subprocess.run([*GIT, "-C", root, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def another_commit(root):
    """A commit on top of HEAD. Its object exists, but nothing names it."""
    return git(root, "commit-tree", "-p", "HEAD", "-m", "stray", "HEAD^{tree}")


def test_a_commit_on_no_branch_or_tag_shows_nothing(today):
    """It passed if its object was there, as for a pull request fetched by somebody."""
    root, commit = today
    assert commit_problem(root, commit) == ""
    stray = another_commit(root)
    words = f"commit {stray} lies on no branch or tag of this checkout, so it may be anybody's; {FETCH}"
    for name in ("", "refs/pull/7/head", "refs/remotes/pull/7/merge", "refs/stash", "refs/notes/commits"):
        if name:
            git(root, "update-ref", name, stray)
        assert commit_problem(root, stray) == words
        assert read_tree(root, stray) is None
    git(root, "checkout", "--quiet", "--detach", stray)
    assert commit_problem(root, stray) == words, "HEAD is no branch"
    git(root, "tag", "v1", stray)
    assert commit_problem(root, stray) == ""
    assert read_tree(root, stray) is not None


def test_a_commit_of_a_remote_branch_counts_and_one_of_a_pull_request_does_not(today, tmp_path):
    root, commit = today
    stray = another_commit(root)
    git(root, "update-ref", "refs/pull/7/head", stray)
    there = tmp_path / "there"
    git(tmp_path, "clone", "--quiet", str(root), str(there))
    git(there, "config", "--add", "remote.origin.fetch", "+refs/pull/*/head:refs/remotes/origin/pr/*")
    git(there, "fetch", "--quiet")
    git(there, "checkout", "--quiet", "--detach")
    git(there, "branch", "--delete", "--force", git(root, "branch", "--show-current"))
    assert "refs/remotes/origin/pr/7" in git(there, "for-each-ref", "--contains", stray)
    assert commit_problem(there, commit) == ""
    assert "lies on no branch or tag" in commit_problem(there, stray)


def test_a_shallow_checkout_of_ci_knows_its_own_commit(today, tmp_path):
    """As actions/checkout leaves it for a branch and for a tag: one commit, for a tag a detached HEAD."""
    root, first = today
    git(root, "commit", "--quiet", "--allow-empty", "--message", "second")
    second = git(root, "rev-parse", "HEAD")
    git(root, "tag", "v2")
    for kind, words in {"branch": ("-B", "main"), "tag": ("--detach",)}.items():
        there = tmp_path / kind
        git(tmp_path, "init", "--quiet", str(there))
        git(there, "remote", "add", "origin", f"file://{root}")
        ref = {"branch": "refs/remotes/origin/main", "tag": "refs/tags/v2"}[kind]
        source = second if kind == "branch" else ref
        git(there, "fetch", "--quiet", "--no-tags", "--depth=1", "origin", f"+{source}:{ref}")
        git(there, "checkout", "--quiet", *words, ref)
        assert commit_problem(there, second) == ""
        assert commit_problem(there, first).startswith(f"this checkout does not have commit {first}; ")
        assert "--unshallow" in commit_problem(there, first)
