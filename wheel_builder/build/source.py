"""Where a build's sources come from: the commit, and what differs from it."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from wheel_builder.base.process import Runner, run
from wheel_builder.build.wheel_inputs import read_inputs, sources_digest
from wheel_builder.matrix.model import LINUX, WINDOWS

# Everything that affects wheels and their builder images, the pipeline included.
PATHS = (
    "pyproject.toml", "LICENSE", "kernels", "shim", "shim3", "wheel_builder", "dockerfiles", "matrix.yaml",
)  # fmt: skip
ZIG_FLAGS = {LINUX: "kernels/zig_flags.txt", WINDOWS: "kernels/zig_flags_windows.txt"}
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
FETCH = "git fetch --tags the branch that has it (with --unshallow in a shallow clone), then run this again"


@dataclass(frozen=True)
class Source:
    """``changed`` are files that differ from the commit; ``content`` is ``sources_digest``.

    ``commit`` is empty outside git; ``uri`` is where the commit can be fetched, empty when unknown.
    """

    commit: str
    uri: str
    changed: tuple[str, ...]
    content: str
    flags: Mapping[str, Sequence[str]]
    source_date_epoch: str

    @property
    def url(self) -> str:
        """``uri`` as a link for a browser."""
        return self.uri.removeprefix("git+")

    @property
    def revision(self) -> str:
        """The commit, with a note when files differ from it."""
        return f"{self.commit}-changed" if self.commit and self.changed else self.commit


def read_source(checkout: Path, *, platform: str = LINUX, run: Runner = run) -> Source:
    """What git and the files of ``checkout`` say of a wheel for ``platform``."""
    git: list[str | Path] = ["git", "-C", checkout]
    head = run([*git, "rev-parse", "--verify", "--quiet", "HEAD"], check=False)
    commit = head.stdout.strip() if head.returncode == 0 else ""
    listed = [*git, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored"]
    status = run([*listed, "--", *PATHS]).stdout if commit else ""
    remote = run([*git, "remote", "get-url", "origin"], check=False)
    inputs = read_inputs(checkout)
    return Source(
        commit=commit,
        uri=remote_uri(remote.stdout.strip()) if remote.returncode == 0 else "",
        changed=changed_files(status),
        content=sources_digest(checkout, inputs),
        source_date_epoch=inputs.source_date_epoch,
        flags=read_flags(checkout, platform),
    )


def read_remotes(checkout: Path, *, run: Runner = run) -> tuple[str, ...]:
    """The addresses that ``checkout`` is fetched from, as git has them."""
    listed = run(["git", "-C", checkout, "config", "--get-regexp", r"^remote\..*\.url$"], check=False).stdout
    return tuple(line.partition(" ")[2] for line in listed.splitlines())


def changed_files(status: str) -> tuple[str, ...]:
    """The files that ``git status --porcelain -z`` printed, ignored ones included, Python's caches not."""
    names = (entry[3:] for entry in status.split("\0") if entry)
    return tuple(sorted(name for name in names if "__pycache__" not in name.split("/")))


def remote_uri(url: str) -> str:
    """A remote's URL as SLSA writes it, without anything that may be a credential; empty for a local path."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "ssh", "git") or not parts.hostname:
        return ""
    host = parts.hostname + (f":{parts.port}" if parts.port else "")
    return "git+" + urlunsplit((parts.scheme, host, parts.path, "", ""))


def read_flags(checkout: Path, platform: str = LINUX) -> Mapping[str, tuple[str, ...]]:
    """The compilers' flags: ``device`` from the kernels' build script, ``host`` from zig's file."""
    device = constant(checkout / "kernels/instances/build.py", "COMPILE")
    host = (checkout / ZIG_FLAGS[platform]).read_text(encoding="ascii").split()
    return {"device": tuple(device), "host": tuple(host)}


def constant(script: Path, name: str) -> Any:  # noqa: ANN401 - whatever a literal is
    """The literal that a module assigns to ``name``, without running the module."""
    values = {
        target.id: node.value
        for node in ast.parse(script.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return ast.literal_eval(values[name])


def commit_problem(checkout: Path, commit: str, *, run: Runner = run) -> str:
    """Why nothing is concluded from ``commit`` in the repository of ``checkout``; empty when something is.

    The commit has to lie on a branch or a tag, because anybody can have a commit fetched, by a pull request
    for instance.  Branches are those here and those of remotes.  What HEAD names does not count by itself.
    """
    git: list[str | Path] = ["git", "-C", checkout]
    known = COMMIT.fullmatch(commit) is not None
    if not known or run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], check=False).returncode != 0:
        return f"this checkout does not have commit {commit}; {FETCH}"
    listed = run([*git, "for-each-ref", "--format=%(refname)", "--contains", commit], check=False).stdout
    fetched = refspecs(run([*git, "config", "--get-regexp", r"^remote\..*\.fetch$"], check=False).stdout)
    if any(is_branch_or_tag(ref, fetched) for ref in listed.split()):
        return ""
    return f"commit {commit} lies on no branch or tag of this checkout, so it may be anybody's; {FETCH}"


def refspecs(settings: str) -> tuple[tuple[str, str], ...]:
    """What remotes' settings fetch, as git prints them: pairs of a pattern there and one here."""
    words = (line.split()[-1].lstrip("+").partition(":") for line in settings.splitlines() if line.strip())
    return tuple((there, here) for there, _, here in words if here)


def is_branch_or_tag(ref: str, fetched: Sequence[tuple[str, str]]) -> bool:
    """Whether a full name is a branch's or a tag's; a remote's branch is fetched from ``refs/heads``."""
    sources = [there for there, here in fetched if fnmatchcase(ref, here)]
    if ref.startswith("refs/remotes/"):
        return bool(sources) and all(there.startswith("refs/heads/") for there in sources)
    return ref.startswith(("refs/heads/", "refs/tags/"))
