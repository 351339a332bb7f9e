"""Where a build's sources come from: the commit, what differs from it, and the sources of another commit."""

import ast
import re
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from wheel_builder.errors import MatrixError
from wheel_builder.matrix import load_matrix
from wheel_builder.process import Runner, run
from wheel_builder.stages.wheel import SOURCE_DATE_EPOCH, SOURCES, content_digest
from wheel_builder.store import sha256_file, sha256_tree

# What wheels and their builder images come from.
MATRIX, REQUIREMENTS = "matrix.yaml", "dockerfiles/builder-requirements.txt"
PATHS = (*SOURCES, "dockerfiles", MATRIX)
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True)
class Source:
    """``changed`` are files that differ from the commit; ``content`` is ``content_digest``.

    ``commit`` is empty outside git; ``uri`` is where the commit can be fetched, empty when unknown.
    """

    commit: str
    uri: str
    changed: tuple[str, ...]
    content: str
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    source_date_epoch: str = SOURCE_DATE_EPOCH

    @property
    def url(self) -> str:
        """``uri`` for a browser."""
        return self.uri.removeprefix("git+")

    @property
    def revision(self) -> str:
        """The commit, and a word when files differ from it."""
        return f"{self.commit}-changed" if self.commit and self.changed else self.commit


def read_source(checkout: Path, *, run: Runner = run) -> Source:
    """What git and the files of ``checkout`` say."""
    git: list[str | Path] = ["git", "-C", checkout]
    head = run([*git, "rev-parse", "--verify", "--quiet", "HEAD"], check=False)
    commit = head.stdout.strip() if head.returncode == 0 else ""
    listed = [*git, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored"]
    status = run([*listed, "--", *PATHS]).stdout if commit else ""
    remote = run([*git, "remote", "get-url", "origin"], check=False)
    return Source(
        commit=commit,
        uri=remote_uri(remote.stdout.strip()) if remote.returncode == 0 else "",
        changed=changed_files(status),
        content=content_digest(checkout),
        flags=read_flags(checkout),
    )


def changed_files(status: str) -> tuple[str, ...]:
    """The files of ``git status --porcelain -z``, ignored ones too, without Python's caches."""
    names = (entry[3:] for entry in status.split("\0") if entry)
    return tuple(sorted(name for name in names if "__pycache__" not in name.split("/")))


def remote_uri(url: str) -> str:
    """A remote's URL as SLSA writes it, without what may be a credential; empty for a folder's path."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "ssh", "git") or not parts.hostname:
        return ""
    host = parts.hostname + (f":{parts.port}" if parts.port else "")
    return "git+" + urlunsplit((parts.scheme, host, parts.path, "", ""))


def read_flags(checkout: Path) -> Mapping[str, tuple[str, ...]]:
    """The compilers' flags: ``device`` from the kernels' build script, ``host`` from zig's file."""
    device = _constant(checkout / "kernels/instances/build.py", "COMPILE")
    host = (checkout / "kernels/zig_flags.txt").read_text(encoding="ascii").split()
    return {"device": tuple(device), "host": tuple(host)}


def _constant(script: Path, name: str) -> Any:  # noqa: ANN401 - whatever a literal is
    """The literal that a module assigns to ``name``, without running the module."""
    values = {
        target.id: node.value
        for node in ast.parse(script.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return ast.literal_eval(values[name])


@dataclass(frozen=True)
class Recipe:
    """How sources are built, as they say it; ``llvm`` by ROCm version, digests are sha256.

    ``requirements`` is the digest of what is installed into builder images, ``zig`` the release among it.
    """

    flags: Mapping[str, Sequence[str]]
    llvm: Mapping[str, str]
    platform_tag: str
    source_date_epoch: str
    torch_headers: str
    torch_headers_sha256: str
    requirements: str
    zig: str


def _pinned(requirements: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}==(\S+)", requirements, re.MULTILINE)
    if found is None:
        message = f"{REQUIREMENTS} does not pin {name}"
        raise ValueError(message)
    return found[1]


def read_recipe(checkout: Path) -> Recipe:
    """The recipe of the sources in a folder.

    Raises ``MatrixError``, ``OSError``, ``LookupError``, ``SyntaxError``, ``TypeError`` or ``ValueError``
    where they have another form than this version's.
    """
    matrix = load_matrix(checkout / MATRIX)
    return Recipe(
        flags=read_flags(checkout),
        llvm={row.version: row.llvm for row in matrix.rocm},
        platform_tag=matrix.package.platform_tag,
        source_date_epoch=str(_constant(checkout / "wheel_builder/stages/wheel.py", "SOURCE_DATE_EPOCH")),
        torch_headers=matrix.package.torch_headers,
        torch_headers_sha256=matrix.package.torch_headers_sha256,
        requirements=sha256_file(checkout / REQUIREMENTS),
        zig=_pinned((checkout / REQUIREMENTS).read_text(encoding="utf-8"), "ziglang"),
    )


@dataclass(frozen=True)
class Tree:
    """The sources of a commit: ``content`` as in ``Source``, ``sources`` the digest that keys wheels.

    ``recipe`` is in words why it cannot be read when the commit's sources have another form than these.
    """

    content: str
    sources: str
    recipe: Recipe | str


def read_tree(checkout: Path, commit: str, *, run: Runner = run) -> Tree | None:
    """What a commit's sources say; None when ``checkout`` does not have the commit."""
    if not has_commit(checkout, commit, run=run):
        return None
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-") as name:
        archive, root = Path(name) / "sources.tar", Path(name) / "sources"
        run(["git", "-C", checkout, "archive", "--output", archive, commit, "--", *PATHS])
        with tarfile.open(archive) as tar:
            tar.extractall(root, filter="data")
        sources = sha256_tree(root, [root / path for path in SOURCES])
        return Tree(content_digest(root), sources, _recipe_or_reason(root))


def _recipe_or_reason(root: Path) -> Recipe | str:
    try:
        return read_recipe(root)
    except MatrixError as error:
        reason = error.message.replace("\n  - ", "; ")
    except (OSError, LookupError, SyntaxError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
    return reason.replace(f"{root}/", "")


def has_commit(checkout: Path, commit: str, *, run: Runner = run) -> bool:
    """Whether the repository of ``checkout`` has the commit; a name that is no commit's is not there."""
    if not COMMIT.fullmatch(commit):
        return False
    return run(["git", "-C", checkout, "cat-file", "-e", f"{commit}^{{commit}}"], check=False).returncode == 0
