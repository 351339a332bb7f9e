"""Files handed from one machine to another: names and sha256, sent separately and compared on arrival.

Jobs of one CI run share their artefacts, and any job may add or replace one. The outputs of a job are its
own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wheel_builder.base.errors import PublishError
from wheel_builder.base.store import sha256_file
from wheel_builder.base.strict_json import read_json
from wheel_builder.base.words import visible

TITLE = "the files differ from those handed over"
ADVICE = "discard the files; find the job that wrote them, and run the right job again"


def digests_of(files: Sequence[Path]) -> dict[str, str]:
    """The sha256 of each file by its name."""
    return {file.name: sha256_file(file) for file in sorted(files, key=lambda file: file.name)}


def output_line(name: str, digests: Mapping[str, str]) -> str:
    """A line for ``$GITHUB_OUTPUT``. Dots in the name become underscores."""
    return f"{name.replace('.', '_')}={json.dumps(digests, separators=(',', ':'))}"


def read_digests(texts: Sequence[str]) -> dict[str, str]:
    """Parse the outputs of jobs: objects of sha256 by name, or nested objects of this form as text.

    Raises ``ValueError`` for any other text, and for a repeated name.
    """
    found: dict[str, str] = {}
    for text in texts:
        told = read_json(text.encode())
        if not isinstance(told, dict):
            message = f"expected an object with a sha256 for each name, found {visible(text[:80])!r}"
            raise ValueError(message)  # noqa: TRY004
        for name, value in told.items():
            if not isinstance(value, str):
                message = f"{visible(name)!r} has no text for a sha256"
                raise ValueError(message)  # noqa: TRY004
            # A skipped row of a matrix has an empty output.
            inner = read_digests([value]) if value.startswith("{") else {name: value} if value else {}
            if twice := found.keys() & inner.keys():
                message = f"{visible(min(twice))} is told twice"
                raise ValueError(message)
            found |= inner
    return found


def require_digests(files: Sequence[Path], told: Mapping[str, str], *, some: bool = False) -> None:
    """Raise ``PublishError`` unless ``files`` match ``told`` exactly, or with ``some``, a part of it."""
    if problems := list(_problems(files, told, some=some)):
        raise PublishError(TITLE, problems, advice=ADVICE)


def _problems(files: Sequence[Path], told: Mapping[str, str], *, some: bool) -> Iterator[str]:
    if not told:
        yield "no job told of any file"
    strange = [file for file in files if file.is_symlink() or not file.is_file()]
    yield from (f"{visible(str(file))}: it is not a plain file" for file in strange)
    found = digests_of([file for file in files if file not in strange])
    for name, digest in found.items():
        if name not in told:
            yield f"{visible(name)}: no job told of this file"
        elif told[name] != digest:
            yield f"{name}: its sha256 is {digest}, and the job that made it told {visible(told[name])}"
    if not some:
        yield from (f"{visible(name)}: it did not arrive" for name in sorted(told.keys() - found.keys()))
