"""matrix.yaml to a checked ``Matrix``; all mistakes at once, each with its line and what to write.

Pydantic checks keys and types against the dataclasses of ``model``.  The rules below check what
types cannot say.  They look at the document, not at the finished value, so that a wrong type in
one row does not hide an unknown arch in another.  Names reach command lines and Dockerfiles, so
each has a narrow form; none may hold a character that means something to a shell.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from wheel_builder.base.errors import MatrixError
from wheel_builder.base.words import LINE, unknown
from wheel_builder.matrix.catalogue import code_names, device_names
from wheel_builder.matrix.document import Document, Key, Problem, read_document
from wheel_builder.matrix.model import VERSION, Arch, Exclude, Matrix, OtherArch, Package, Rocm, Upstream

MAX_WHEEL_MIB = 1024

_KEYS: Mapping[Key, type] = {
    (): Matrix,
    ("package",): Package,
    ("archs", "*"): Arch,
    ("other_archs", "*"): OtherArch,
    ("rocm", "*"): Rocm,
    ("exclude", "*"): Exclude,
    ("upstream",): Upstream,
}

_EXPECTED = {
    "string_type": "text",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dataclass_type": "keys with values",
    "literal_error": "debian or vendor",
}

_VERSION = (VERSION, 'a version such as "7.2"')
_SUITE = (r"[a-z][a-z0-9-]*", "the name of a Debian suite such as sid")
_ARCH = (r"gfx[1-9][0-9a-f]{2,3}", "an arch such as gfx1100")
_LINE = (LINE, "one line of text")
_RELEASE = (r"\d+\.\d+\.\d+", 'a release such as "2.13.0"')
_SHA256 = (r"[0-9a-f]{64}", "64 lowercase hexadecimal digits")
_FORMATS: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("default_rocm",): _VERSION,
    ("package", "torch_floor"): _VERSION,
    ("package", "torch_headers"): _RELEASE,
    ("package", "torch_headers_sha256"): _SHA256,
    ("package", "platform_tag"): (r"manylinux_2_\d{1,2}_x86_64", "a tag such as manylinux_2_28_x86_64"),
    ("archs", "*", "name"): _ARCH,
    ("archs", "*", "devices"): _LINE,
    ("archs", "*", "code_names"): _LINE,
    ("archs", "*", "processors"): _LINE,
    ("other_archs", "*", "name"): _ARCH,
    ("other_archs", "*", "devices"): _LINE,
    ("other_archs", "*", "code_names"): _LINE,
    ("other_archs", "*", "processors"): _LINE,
    ("other_archs", "*", "reason"): _LINE,
    ("rocm", "*", "version"): _VERSION,
    ("rocm", "*", "base"): (
        r"[a-z0-9][A-Za-z0-9._/-]*(:[0-9]+/[A-Za-z0-9._/-]+)?(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?",
        "an image such as debian:sid-slim",
    ),
    ("rocm", "*", "llvm"): (
        r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+",
        "an absolute folder such as /usr/lib/llvm-22/bin",
    ),
    ("rocm", "*", "suite"): _SUITE,
    ("rocm", "*", "packages", "*", "*"): (
        r"[a-z0-9][a-z0-9.+-]+(=[A-Za-z0-9.+:~-]+)?",
        "a Debian package such as clang-22 or hipcc=7.0.2-1",
    ),
    ("rocm", "*", "note"): _LINE,
    ("exclude", "*", "reason"): _LINE,
    ("upstream", "version"): _RELEASE,
    ("upstream", "sha256"): _SHA256,
    ("upstream", "archs", "*"): _ARCH,
}

_NOT_EMPTY = (
    ("archs",),
    ("rocm",),
    ("rocm", "*", "archs"),
    ("rocm", "*", "packages"),
    ("rocm", "*", "packages", "*"),
    ("upstream", "archs"),
)

_UNIQUE = (
    ("archs", "*", "name"),
    ("other_archs", "*", "name"),
    ("rocm", "*", "version"),
    ("rocm", "*", "archs", "*"),
    ("rocm", "*", "packages", "*", "*"),
    ("upstream", "archs", "*"),
)


def load_matrix(path: Path) -> Matrix:
    """Read and check matrix.yaml.

    Raises ``MatrixError`` with every problem, in the order of the file's lines.
    """
    document = read_document(path)
    matrix, type_problems = _to_model(document)
    problems = [*document.problems, *type_problems, *chain.from_iterable(rule(document) for rule in _RULES)]
    if problems or matrix is None:
        ordered = sorted(problems, key=lambda problem: document.line(problem.key))
        title = f"{document.name}: {len(ordered)} problem{'s' if len(ordered) > 1 else ''}"
        raise MatrixError(
            title,
            [document.report(problem) for problem in ordered],
            advice="correct these lines; the comments at the top of matrix.yaml say what each key means",
        )
    return matrix


def _to_model(document: Document) -> tuple[Matrix | None, list[Problem]]:
    # Strict mode takes lists for tuples and mappings for dataclasses only from JSON.
    text = json.dumps(_with_pairs(document.data))
    try:
        return TypeAdapter(Matrix).validate_json(text, strict=True, extra="forbid"), []
    except ValidationError as error:
        return None, [_type_problem(document, one) for one in error.errors(include_url=False)]


def _with_pairs(data: object) -> object:
    """``packages`` as the model's pairs; None, which the model refuses, if it is not a mapping."""
    if not isinstance(data, dict) or not isinstance(data.get("rocm"), list):
        return data
    return data | {"rocm": [_row_with_pairs(row) for row in data["rocm"]]}


def _row_with_pairs(row: object) -> object:
    if not isinstance(row, dict) or "packages" not in row:
        return row
    packages = row["packages"]
    return row | {"packages": list(packages.items()) if isinstance(packages, dict) else None}


def _type_problem(document: Document, error: ErrorDetails) -> Problem:
    key = _document_key(document, error["loc"])
    kind = error["type"]
    if kind == "missing":
        return Problem(key[:-1], f"key {key[-1]!r} is missing")
    if kind == "unexpected_keyword_argument":
        return Problem(key, unknown("key", str(key[-1]), _known_keys(key[:-1])))
    found = document.value(key)
    if kind == "string_type" and isinstance(found, float | bool) and key in document.spelling:
        spelling = document.spelling[key]
        return Problem(
            key, f'{spelling} without quotes is no text to YAML (7.10 would become 7.1): write "{spelling}"'
        )
    expected = _EXPECTED.get(kind, error["msg"])
    if key[-1:] == ("packages",):
        expected = "Debian suites, each with a list of packages"
    return Problem(key, f"expected {expected}, found {_kind(found)}")


def _document_key(document: Document, loc: tuple[str | int, ...]) -> Key:
    """Undo the pairs of ``_with_pairs``: packages[1][1][0] is the first package of the second suite."""
    if loc[:1] != ("rocm",) or loc[2:3] != ("packages",) or len(loc) < 4:
        return loc
    suites = list(document.data["rocm"][loc[1]]["packages"])
    return (*loc[:3], suites[int(loc[3])], *loc[5:])


def _known_keys(parent: Key) -> list[str]:
    pattern = tuple("*" if isinstance(part, int) else part for part in parent)
    return [field.name for field in fields(_KEYS[pattern])]


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "keys with values"
    return repr(value)


def _format_problems(document: Document) -> Iterator[Problem]:
    for pattern, (form, expected) in _FORMATS.items():
        for key, value in document.find(*pattern):
            if isinstance(value, str) and not re.fullmatch(form, value, re.ASCII):
                yield Problem(key, f"expected {expected}, found {value!r}")
    for key, _ in document.find("rocm", "*", "packages", "*"):
        if isinstance(key[-1], str) and not re.fullmatch(_SUITE[0], key[-1], re.ASCII):
            yield Problem(key, f"expected {_SUITE[1]}, found {key[-1]!r}")
    for key, value in document.find("package", "max_wheel_mib"):
        if isinstance(value, float) and not 0 < value <= MAX_WHEEL_MIB:
            yield Problem(
                key, f"expected more than 0 and at most {MAX_WHEEL_MIB}, found {document.spelling[key]}"
            )


def _empty_problems(document: Document) -> Iterator[Problem]:
    for pattern in _NOT_EMPTY:
        for key, value in document.find(*pattern):
            if value in ([], {}):
                yield Problem(key, "is empty; it needs at least one entry")


def _duplicate_problems(document: Document) -> Iterator[Problem]:
    for pattern in _UNIQUE:
        first: dict[tuple[Key, str], Key] = {}
        for key, text in document.texts(*pattern):
            # Names are unique among all rows, items of a list only within their row.
            scope = key[:1] if isinstance(key[-1], str) else key[: min(3, len(key) - 1)]
            if (scope, text) in first:
                line = document.line(first[scope, text])
                yield Problem(key, f"{text!r} stands twice; the first is on line {line}")
            first.setdefault((scope, text), key)


def _unknown_problems(document: Document) -> Iterator[Problem]:
    archs = [text for _, text in document.texts("archs", "*", "name")]
    versions = [text for _, text in document.texts("rocm", "*", "version")]
    references: list[tuple[str, list[str], tuple[str, ...]]] = [
        ("arch", archs, ("rocm", "*", "archs", "*")),
        ("arch", archs, ("exclude", "*", "arch")),
        ("ROCm version", versions, ("exclude", "*", "rocm")),
        ("ROCm version", versions, ("default_rocm",)),
    ]
    for kind, known, pattern in references:
        for key, text in document.texts(*pattern):
            if text not in known:
                yield Problem(key, unknown(kind, text, known))


def _other_arch_problems(document: Document) -> Iterator[Problem]:
    built = [text for _, text in document.texts("archs", "*", "name")]
    for key, text in document.texts("other_archs", "*", "name"):
        if text in built:
            yield Problem(key, f"{text!r} stands under archs too; remove one")


def _gpu_problems(document: Document) -> Iterator[Problem]:
    """A GPU, under whichever of its names, is of one arch."""
    keys = [
        (key, name)
        for field, split in (("devices", device_names), ("code_names", code_names))
        for rows in ("archs", "other_archs")
        for key, text in document.texts(rows, "*", field)
        for name in split(text)
    ]
    first: dict[str, Key] = {}
    for key, name in sorted(keys, key=lambda each: document.line(each[0])):
        known = " ".join(name.casefold().split())
        if re.fullmatch(_ARCH[0], known):
            yield Problem(key, f"{name!r} is an arch and no name of a GPU; give the arch a row of its own")
        elif known in first:
            yield Problem(key, f"{name!r} stands twice; the first is on line {document.line(first[known])}")
        first.setdefault(known, key)


def _provider_problems(document: Document) -> Iterator[Problem]:
    for key, row in document.find("rocm", "*"):
        if not isinstance(row, dict):
            continue
        for name in ("suite", "packages"):
            if row.get("provider") == "debian" and name not in row:
                yield Problem(key, f"key {name!r} is missing; provider debian installs ROCm from it")
            if row.get("provider") == "vendor" and name in row:
                yield Problem((*key, name), "provider vendor brings its own ROCm; remove this key")
        if row.get("built_in_ci") is False and not row.get("note"):
            yield Problem(key, "built_in_ci is false without a 'note' that says why")


def _exclude_problems(document: Document) -> Iterator[Problem]:
    known = [text for _, text in document.texts("archs", "*", "name")]
    built = _archs_by_version(document)
    excluded = [
        (key, tuple(_text(document, (*key, name)) for name in ("rocm", "arch")))
        for key, row in document.find("exclude", "*")
        if isinstance(row, dict) and "rocm" in row
    ]
    counts = Counter(pair for _, pair in excluded)
    for key, (version, arch) in excluded:
        if arch in known and version in built and arch not in built[version]:
            yield Problem(key, f"matches nothing: ROCm {version} is not built for {arch}; remove it")
        if counts[version, arch] > 1 or (arch and counts[version, ""]):
            yield Problem(key, f"ROCm {version} {arch}".rstrip() + " is excluded twice; keep one")


def _default_problems(document: Document) -> Iterator[Problem]:
    default = _text(document, ("default_rocm",))
    for key, row in document.find("exclude", "*"):
        if isinstance(row, dict) and "arch" not in row and _text(document, (*key, "rocm")) == default:
            line = document.line(key)
            yield Problem(("default_rocm",), f"ROCm {default} is excluded on line {line}; name another")
    for key, row in document.find("rocm", "*"):
        if (
            isinstance(row, dict)
            and row.get("built_in_ci") is False
            and _text(document, (*key, "version")) == default
        ):
            yield Problem(("default_rocm",), f"ROCm {default} is not built in CI; name another")


def _archs_by_version(document: Document) -> dict[str, list[str]]:
    return {
        version: [
            text for arch_key, text in document.texts("rocm", "*", "archs", "*") if arch_key[1] == key[1]
        ]
        for key, version in document.texts("rocm", "*", "version")
    }


def _text(document: Document, key: Key) -> str:
    return document.spelling.get(key, "")


_RULES: tuple[Callable[[Document], Iterator[Problem]], ...] = (
    _format_problems,
    _empty_problems,
    _duplicate_problems,
    _unknown_problems,
    _other_arch_problems,
    _gpu_problems,
    _provider_problems,
    _exclude_problems,
    _default_problems,
)
