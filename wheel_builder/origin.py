"""Where this checkout comes from, for labels: the repository's public address and the commit."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from wheel_builder.process import Runner, run


@dataclass(frozen=True)
class Origin:
    """``url`` is empty when the repository has no public address; ``revision`` when there is no git."""

    url: str = ""
    revision: str = ""


def read_origin(checkout: Path, *, run: Runner = run) -> Origin:
    """The origin and the commit of ``checkout``; the commit ends in "-changed" when files differ from it."""

    def git(*argv: str) -> str:
        done = run(["git", "-C", checkout, *argv], check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    changed = "-changed" if commit and git("status", "--porcelain") else ""
    return Origin(public_url(git("remote", "get-url", "origin")), f"{commit}{changed}")


def public_url(remote: str) -> str:
    """The address without user, password and parameters; empty for a path or another scheme."""
    parts = urlsplit(remote)
    if parts.scheme != "https" or not parts.hostname:
        return ""
    port = f":{parts.port}" if parts.port else ""
    return f"https://{parts.hostname}{port}{parts.path}"
