"""The origin of a build's sources: the commit, and differences from it."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from wheel_builder.base.process import Runner, run
from wheel_builder.build.shim import FOLDERS
from wheel_builder.build.wheel_inputs import read_inputs, sources_digest
from wheel_builder.matrix.model import LINUX, WINDOWS

# Everything that affects wheels and their builder images, including the pipeline.
PATHS = (
    "pyproject.toml", "LICENSE", "kernels", *FOLDERS, "wheel_builder", "dockerfiles", "matrix.yaml",
)  # fmt: skip
ZIG_FLAGS = {LINUX: "zig_flags.txt", WINDOWS: "zig_flags_windows.txt"}
FLOORS = "kernels/python/flash_attn_rocm/values/floors.py"
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
# Commits are read unaltered: replacement objects and grafts are disabled. git never prompts.
GIT = ("env", "GIT_GRAFT_FILE=/dev/null", "GIT_TERMINAL_PROMPT=0", "git", "--no-replace-objects")


@dataclass(frozen=True)
class Source:
    """``changed`` are files that differ from the commit. ``content`` is ``sources_digest``.

    ``commit`` is empty outside git. ``uri`` is an address to fetch the commit from, empty if unknown.
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


def git_of(checkout: Path) -> list[str | Path]:
    """The start of a git command for ``checkout``."""
    return [*GIT, "-C", checkout]


def read_source(checkout: Path, *, platform: str = LINUX, run: Runner = run) -> Source:
    """The source of a wheel for ``platform``, from git and the files of ``checkout``."""
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
    """The addresses of the remotes of ``checkout``, as stored by git."""
    listed = run(["git", "-C", checkout, "config", "--get-regexp", r"^remote\..*\.url$"], check=False).stdout
    return tuple(line.partition(" ")[2] for line in listed.splitlines())


def changed_files(status: str) -> tuple[str, ...]:
    """The files printed by ``git status --porcelain -z``, with ignored ones, without Python's caches."""
    names = (entry[3:] for entry in status.split("\0") if entry)
    return tuple(sorted(name for name in names if "__pycache__" not in name.split("/")))


def remote_uri(url: str) -> str:
    """A remote's URL in SLSA's form, with all possible credentials removed, empty for a local path."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # an impossible port or host: nothing can be fetched from there
        return ""
    if parts.scheme not in ("http", "https", "ssh", "git") or not host:
        return ""
    host += f":{port}" if port else ""
    return "git+" + urlunsplit((parts.scheme, host, parts.path, "", ""))


def read_flags(checkout: Path, platform: str = LINUX) -> Mapping[str, tuple[str, ...]]:
    """The compilers' flags: ``device`` from the kernels' build script, ``host`` from zig's file."""
    folder = checkout / "kernels/build"
    if not folder.is_dir():
        folder = checkout / "kernels"  # of version 0.1.0
    device = constant(folder / "instances/build.py", "COMPILE")
    host = (folder / ZIG_FLAGS[platform]).read_text(encoding="ascii")
    if "{glibc}" in host:
        host = host.format(glibc=".".join(map(str, constant(checkout / FLOORS, "GLIBC_FLOOR"))))
    return {"device": tuple(device), "host": tuple(host.split())}


def constant(script: Path, name: str) -> Any:  # noqa: ANN401 - whatever a literal is
    """The literal assigned to ``name`` in a module, read without running it."""
    values = {
        target.id: node.value
        for node in ast.parse(script.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return ast.literal_eval(values[name])
