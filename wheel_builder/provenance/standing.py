"""Whether a commit lies on a branch or tag of a checkout's repository.

Anybody can have a commit fetched, for instance by a pull request, and give it any local name. So only names
in the repository itself count: its branches, as last fetched from the remote ``origin``, and its tags. git
stores tags without their remote, so ``origin`` is asked for them. A checkout without a remote is its own
repository.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from wheel_builder.base.process import Runner, run
from wheel_builder.build.source import COMMIT, git_of, remote_uri

ORIGIN = "origin"
BRANCHES, TAGS, REMOTES = "refs/heads/", "refs/tags/", "refs/remotes/"
FETCH = "git fetch --tags the branch that has it (with --unshallow in a shallow clone), then run this again"


@dataclass(frozen=True)
class Standing:
    """``on`` is a branch or tag with the commit, in words. If it is empty, ``problem`` is the reason."""

    on: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Refspec:
    """A remote's fetch setting: the pattern there and the one here."""

    remote: str
    there: str
    here: str


def commit_problem(checkout: Path, commit: str, *, run: Runner = run) -> str:
    """Why ``commit`` proves nothing for the repository of ``checkout``, empty if it does."""
    return standing_of(checkout, commit, run=run).problem


def standing_of(checkout: Path, commit: str, *, run: Runner = run) -> Standing:
    """The place of ``commit`` in the repository of ``checkout``. HEAD alone is no proof."""
    git = git_of(checkout)
    known = COMMIT.fullmatch(commit) is not None
    if not known or run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], check=False).returncode != 0:
        return Standing(problem=f"this checkout does not have commit {commit}; {FETCH}")
    form = "--format=%(objectname) %(refname)"
    listed = run([*git, "for-each-ref", form, "--contains", commit], check=False).stdout
    refs = {name: value for value, name in map(str.split, listed.splitlines())}
    remotes = run([*git, "remote"], check=False).stdout.split()
    if not remotes:
        mine = sorted(name for name in refs if name.startswith((BRANCHES, TAGS)))
        on = f"{_words(mine[0])} of this checkout, which has no remote" if mine else ""
        return Standing(on, "" if mine else _nowhere(commit, "this checkout"))
    if ORIGIN not in remotes:
        problem = f"no remote of this checkout is called {ORIGIN}, so nobody vouches for commit {commit}"
        return Standing(problem=f"{problem}; git remote rename the repository's own to {ORIGIN}")
    where = _address(run([*git, "remote", "get-url", ORIGIN], check=False).stdout.strip())
    specs = refspecs(run([*git, "config", "--get-regexp", r"^remote\..*\.fetch$"], check=False).stdout)
    branches = [branch for name in sorted(refs) if (branch := branch_of(name, specs))]
    if branches:
        return Standing(f"branch {branches[0]} of {where}")
    tags = {name: value for name, value in refs.items() if name.startswith(TAGS)}
    return _on_a_tag(git, commit, tags, where, run)


def _on_a_tag(
    git: Sequence[str | Path], commit: str, tags: Mapping[str, str], where: str, run: Runner
) -> Standing:
    """Whether ``origin`` has one of the local ``tags``."""
    if not tags:
        return Standing(problem=_nowhere(commit, where))
    asked = run([*git, "ls-remote", "--tags", ORIGIN, *sorted(tags)], check=False)
    if asked.returncode != 0:
        problem = (
            f"commit {commit} lies on {_words(min(tags))} here, but {where} does not answer which it has"
        )
        return Standing(problem=f"{problem}; run this again where git ls-remote {ORIGIN} works")
    same = [name for value, name in map(str.split, asked.stdout.splitlines()) if tags.get(name) == value]
    return Standing(f"{_words(same[0])} of {where}") if same else Standing(problem=_nowhere(commit, where))


def refspecs(settings: str) -> tuple[Refspec, ...]:
    """The refspecs in remotes' settings, as printed by git."""

    def parsed() -> Iterator[Refspec]:
        for line in settings.splitlines():
            name, _, spec = line.partition(" ")
            there, _, here = spec.strip().lstrip("+").partition(":")
            if here:
                yield Refspec(name.removeprefix("remote.").removesuffix(".fetch"), there, here)

    return tuple(parsed())


def branch_of(ref: str, specs: Sequence[Refspec]) -> str:
    """The branch of ``origin`` behind a full name, empty if it may be anything else."""
    matching = [spec for spec in specs if fnmatchcase(ref, spec.here)]
    own = all(spec.remote == ORIGIN and spec.there.startswith(BRANCHES) for spec in matching)
    short = ref.removeprefix(f"{REMOTES}{ORIGIN}/")
    return short if matching and own and ref.startswith(REMOTES) and short != "HEAD" else ""


def _nowhere(commit: str, where: str) -> str:
    return f"commit {commit} lies on no branch or tag of {where}, so it may be anybody's; {FETCH}"


def _words(ref: str) -> str:
    kind, _, name = ref.removeprefix("refs/").partition("/")
    return f"{'branch' if kind == 'heads' else 'tag'} {name}"


def _address(url: str) -> str:
    """The remote in words, with all possible credentials removed."""
    return f"{ORIGIN} ({uri.removeprefix('git+')})" if (uri := remote_uri(url)) else ORIGIN
