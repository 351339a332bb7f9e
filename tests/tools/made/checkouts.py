"""Small checkouts with the files read by the wheel stage, and git repositories of them."""

import shutil
import subprocess

from tests.conftest import CHECKOUT
from wheel_builder.build.device_code import SOURCES
from wheel_builder.build.wheel_inputs import FILE, PROJECT, read_inputs

GIT = ("git", "-c", "user.name=tester", "-c", "user.email=tester@localhost", "-c", "commit.gpgsign=false")


def copy_sources(root):
    """This checkout's sources of wheels and of their device code, below ``root``."""
    for name in (PROJECT, FILE, *read_inputs(CHECKOUT).sources, *SOURCES):
        source, to = CHECKOUT / name, root / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy2(source, to)


def commit_all(root):
    """Commit everything below ``root`` to a repository there. Returns the commit."""
    git = [*GIT, "-C", root]
    for command in (("init", "--quiet"), ("add", "--force", "."), ("commit", "--quiet", "--message", "all")):
        subprocess.run([*git, *command], check=True)
    return subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
