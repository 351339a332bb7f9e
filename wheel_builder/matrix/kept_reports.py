"""Reports of users' machines, as they are kept in the tree: files that a maintainer signed off."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def read_kept(folder: Path, take: Callable[[bytes, Mapping[str, T]], T]) -> tuple[dict[str, T], list[str]]:
    """The reports of a folder by file name, and the problems of all others.

    ``take`` makes a report of a file's bytes, beside those before it. It raises ``ValueError`` for a problem.
    """
    taken: dict[str, T] = {}
    problems = []
    for path in sorted(folder.glob("*.json")):
        try:
            taken[path.name] = take(path.read_bytes(), taken)
        except (OSError, ValueError) as error:
            problems.append(f"{path.name}: {error}")
    return taken, problems
