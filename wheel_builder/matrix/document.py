"""YAML text to plain values with their positions in the file.

The text is untrusted. Its size and depth are bounded. Anchors, aliases and tags are refused: they could make
a small text large, or run code. Numbers keep their spelling, so error messages show an unquoted version as
written: 7.10, not 7.1. (ruamel.yaml keeps neither the spelling nor the line of every repeated key.)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wheel_builder.base.errors import MatrixError
from wheel_builder.base.words import shown

# libyaml: a fifteenth of the time of the parser in Python.
LOADER = yaml.CSafeLoader
MAX_BYTES = 64 * 1024
MAX_DEPTH = 8

Key = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem:
    """A problem at one key of the document."""

    key: Key
    text: str


@dataclass(frozen=True)
class Document:
    """The values of a YAML file, with the place (``lines``) and ``spelling`` of each.

    ``data`` holds dict, list, str, float, bool and None. ``problems`` are mistakes invisible in the values,
    such as repeated keys.
    """

    name: str
    data: Any
    lines: Mapping[Key, int]
    spelling: Mapping[Key, str]
    problems: tuple[Problem, ...]

    def find(self, *pattern: str) -> Iterator[tuple[Key, Any]]:
        """All matching keys and values. ``*`` stands for every item or key of one level."""
        return _find(self.data, pattern)

    def texts(self, *pattern: str) -> Iterator[tuple[Key, str]]:
        """Like ``find`` for single values, as written in the file."""
        return ((key, self.spelling[key]) for key, _ in self.find(*pattern) if key in self.spelling)

    def value(self, key: Key) -> object:
        """The value at an existing key."""
        value = self.data
        for part in key:
            value = value[part]
        return value

    def line(self, key: Key) -> int:
        """The line of the key, or of its nearest parent in the file."""
        while key not in self.lines:
            key = key[:-1]
        return self.lines[key]

    def report(self, problem: Problem) -> str:
        where = _key_text(problem.key)
        return f"{self.name}:{self.line(problem.key)}: {where}{': ' if where else ''}{problem.text}"


def read_document(path: Path) -> Document:
    """Read a YAML file. Raises ``MatrixError`` for invalid YAML, and for features not allowed here."""
    name = shown(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refusal(name, "cannot be read", error.strerror or str(error)) from error
    if len(raw) > MAX_BYTES:
        raise _refusal(name, "too large", f"it may have {MAX_BYTES // 1024} KiB")
    try:
        text = raw.decode("utf-8")
        _refuse_tricks(text, name)
        return _convert(yaml.compose(text, Loader=LOADER), name)
    except UnicodeDecodeError as error:
        raise _refusal(name, "not UTF-8", f"byte {error.start} is no text") from error
    except yaml.YAMLError as error:
        raise _refusal(name, "not YAML", _yaml_problem(error, name)) from error


def _find(data: object, pattern: tuple[str, ...]) -> Iterator[tuple[Key, Any]]:
    if not pattern:
        yield (), data
        return
    for part, child in _children(data, pattern[0]):
        for key, value in _find(child, pattern[1:]):
            yield (part, *key), value


def _children(data: object, part: str) -> list[tuple[str | int, Any]]:
    if part == "*" and isinstance(data, list):
        return list(enumerate(data))
    if isinstance(data, dict):
        return [(key, value) for key, value in data.items() if part in ("*", key)]
    return []


def _refuse_tricks(text: str, name: str) -> None:
    """Check the parser's events, before anything is built from them."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        place = f"{name}:{event.start_mark.line + 1}" if event.start_mark else name
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _refusal(name, "not allowed", f"{place}: anchors and aliases; repeat the value")
        if tag := getattr(event, "tag", None):
            raise _refusal(name, "not allowed", f"{place}: the tag {tag}; remove it")
        if depth > MAX_DEPTH:
            raise _refusal(name, "not allowed", f"{place}: more than {MAX_DEPTH} levels")


def _convert(root: yaml.Node | None, name: str) -> Document:
    lines: dict[Key, int] = {(): 1}
    spelling: dict[Key, str] = {}
    problems: list[Problem] = []

    def value_of(node: yaml.Node, key: Key) -> object:
        lines.setdefault(key, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return mapping_of(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [value_of(item, (*key, index)) for index, item in enumerate(node.value)]
        spelling[key] = str(node.value)
        return _scalar(node)

    def mapping_of(node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                problems.append(Problem(key, f"line {line}: a key must be a plain word"))
            elif key_node.value in values:
                first = lines[(*key, key_node.value)]
                problems.append(
                    Problem(key, f"key {key_node.value!r} stands twice: lines {first} and {line}")
                )
            else:
                lines[(*key, key_node.value)] = line
                values[key_node.value] = value_of(value_node, (*key, key_node.value))
        return values

    data = value_of(root, ()) if root else None
    return Document(name, data, lines, spelling, tuple(problems))


def _refusal(name: str, what: str, problem: str) -> MatrixError:
    return MatrixError(f"{name}: {what}", [problem])


def _scalar(node: yaml.Node) -> str | float | bool | None:
    kind = node.tag.rpartition(":")[2]
    text = str(node.value)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    if kind in ("int", "float"):
        try:
            return float(text)
        except ValueError:  # 0x10, 1:30 and similar forms, unused here
            return text
    return text


def _key_text(key: Key) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key)
    return text.removeprefix(".")


def _yaml_problem(error: yaml.YAMLError, name: str) -> str:
    mark = getattr(error, "problem_mark", None)
    words = getattr(error, "problem", None) or str(error)
    return f"{name}:{mark.line + 1}:{mark.column + 1}: {words}" if mark else f"{name}: {words}"
