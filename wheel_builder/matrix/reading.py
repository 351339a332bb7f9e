"""matrix.yaml to a checked ``Matrix``. All mistakes are reported at once, with line and correction.

Pydantic checks keys and types against the dataclasses of ``model``. The rules below check everything else.
They look at the document instead of the finished value: so a wrong type in one row does not hide an unknown
arch in another. Names reach command lines and Dockerfiles. Each therefore has a narrow form, free of
characters special to a shell. kernels/tables/gpus.toml lists the GPUs and the machine code of each.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from itertools import chain
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from wheel_builder.base.errors import MatrixError
from wheel_builder.base.words import LINE, unknown
from wheel_builder.matrix.document import Document, Key, Problem, read_document
from wheel_builder.matrix.model import (
    PUBLIC,
    VERSION,
    Addresses,
    Arch,
    Exclude,
    Matrix,
    NotBuilt,
    OtherArch,
    Package,
    Public,
    Rocm,
    Upstream,
)
from wheel_builder.tables import archs
from wheel_builder.tables.archs import GPUS, known_products
from wheel_builder.tables.products import GFX, Product

MAX_WHEEL_MIB = 1024
# Where the matrix names archs with machine code of their own.
NAMING_CODE = (
    ("rocm", "*", "archs", "*"),
    ("exclude", "*", "arch"),
    ("public", "windows", "*"),
    ("tuning", "*"),
)


@dataclass(frozen=True)
class Gpus:
    """Known GPUs: products, and the code objects of those that have kernels.

    ``codes`` also has targets for several GPUs. ``overrides``: values of HSA_OVERRIDE_GFX_VERSION for GPUs
    missing from PyTorch's builds. ``cdna``: GPUs for data centres.
    """

    products: Mapping[str, Product]
    codes: Mapping[str, str]
    overrides: Mapping[str, str] = field(default_factory=dict)
    cdna: Collection[str] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.products, *self.codes)))


def known_gpus() -> Gpus:
    """The GPUs of the checkout's tables."""
    gpus = archs.known_gpus().values()
    codes, overrides = ({g.name: getattr(g, key) for g in gpus} for key in ("code_object", "torch_override"))
    cdna = [name for name, arch in archs.known_archs().items() if arch.isa.family == "cdna"]
    return Gpus(known_products(), codes, overrides, cdna)


@dataclass(frozen=True)
class File:
    """The keys of matrix.yaml."""

    default_rocm: str
    package: Package
    rocm: tuple[Rocm, ...]
    exclude: tuple[Exclude, ...]
    upstream: Upstream
    public: Public
    not_built: tuple[NotBuilt, ...] = ()
    addresses: Addresses = field(default_factory=Addresses)
    tuning: tuple[str, ...] = ()


_KEYS: Mapping[Key, type] = {
    (): File,
    ("package",): Package,
    ("rocm", "*"): Rocm,
    ("exclude", "*"): Exclude,
    ("not_built", "*"): NotBuilt,
    ("upstream",): Upstream,
    ("public",): Public,
    ("addresses",): Addresses,
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
_ARCH = (GFX, "an arch such as gfx1100")
_LINE = (LINE, "one line of text")
_RELEASE = (r"\d+\.\d+\.\d+", 'a release such as "2.13.0"')
_URL = (r"(https://[a-z0-9.-]+(:\d+)?(/[\w.~%/-]*)?)?", 'an address such as https://host/path, or ""')
_SHA256 = (r"[0-9a-f]{64}", "64 lowercase hexadecimal digits")
_FORMATS: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("default_rocm",): (f"{VERSION}|{PUBLIC}", f"{_VERSION[1]}, or {PUBLIC}"),
    ("package", "torch_floor"): _VERSION,
    ("package", "torch_headers"): _RELEASE,
    ("package", "torch_headers_sha256"): _SHA256,
    ("package", "platform_tag"): (r"manylinux_2_\d{1,2}_x86_64", "a tag such as manylinux_2_28_x86_64"),
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
    ("not_built", "*", "reason"): _LINE,
    **{("addresses", name): _URL for name in ("repository", "issues", "index")},
    ("addresses", "security"): (rf"{_URL[0]}|mailto:[\w.+-]+@[\w.-]+", f"{_URL[1]}, or mailto:name@host"),
    ("public", "built_with"): _VERSION,
    ("public", "runtimes", "*"): _VERSION,
    ("public", "like", "*", "*"): _VERSION,
    ("public", "windows", "*"): _ARCH,
    ("tuning", "*"): _ARCH,
    ("upstream", "version"): _RELEASE,
    ("upstream", "sha256"): _SHA256,
    ("upstream", "archs", "*"): _ARCH,
}

_NOT_EMPTY = (
    ("rocm",),
    ("rocm", "*", "archs"),
    ("rocm", "*", "packages"),
    ("rocm", "*", "packages", "*"),
    ("not_built", "*", "archs"),
    ("public", "runtimes"),
    ("public", "like", "*"),
    ("public", "windows"),
    ("upstream", "archs"),
)

_UNIQUE = (
    ("rocm", "*", "version"),
    ("rocm", "*", "archs", "*"),
    ("rocm", "*", "packages", "*", "*"),
    ("public", "runtimes", "*"),
    ("public", "windows", "*"),
    ("tuning", "*"),
    ("upstream", "archs", "*"),
)


def load_matrix(path: Path, gpus: Gpus | None = None) -> Matrix:
    """Read and check matrix.yaml, for ``gpus``, by default those of the checkout.

    Raises ``MatrixError`` with every problem, in the order of the file's lines.
    """
    document, gpus = read_document(path), gpus or known_gpus()
    file, type_problems = _to_model(document)
    problems = [*document.problems, *type_problems, *chain.from_iterable(rule(document) for rule in _RULES)]
    problems += _arch_problems(document, gpus)
    if problems or file is None:
        ordered = sorted(problems, key=lambda problem: document.line(problem.key))
        title = f"{document.name}: {len(ordered)} problem{'s' if len(ordered) > 1 else ''}"
        raise MatrixError(
            title,
            [document.report(problem) for problem in ordered],
            advice="correct these lines; the comments at the top of matrix.yaml explain each key",
        )
    return _with_products(file, gpus)


def _with_products(file: File, gpus: Gpus) -> Matrix:
    built = {arch for rocm in file.rocm for arch in rocm.archs}
    reasons = {arch: row.reason for row in file.not_built for arch in row.archs}
    archs = (
        Arch(
            **asdict(gpus.products.get(name, Product(name, ""))),
            code_object=gpus.codes[name],
            torch_override=gpus.overrides.get(name, ""),
        )
        for name in gpus.names
        if gpus.codes.get(name) in built
    )
    others = (
        OtherArch(**asdict(product), reason=reasons[name])
        for name, product in gpus.products.items()
        if name in reasons
    )
    return Matrix(
        file.default_rocm, file.package, tuple(archs), file.rocm, file.exclude, file.upstream, file.public,
        tuple(others), file.addresses, file.tuning,
    )  # fmt: skip


def _to_model(document: Document) -> tuple[File | None, list[Problem]]:
    # Strict mode accepts lists as tuples and mappings as dataclasses only from JSON.
    text = json.dumps(_with_pairs(document.data))
    try:
        return _form().validate_json(text, strict=True, extra="forbid"), []
    except ValidationError as error:
        return None, [_type_problem(document, one) for one in error.errors(include_url=False)]


@cache  # building it takes longer than reading the file with it
def _form() -> TypeAdapter[File]:
    return TypeAdapter(File)


def _with_pairs(data: object) -> object:
    """``packages`` and ``like`` as the model's pairs. Other values become None, which the model refuses."""
    if not isinstance(data, dict):
        return data
    found = data | {"public": _row_with_pairs(data["public"], "like")} if "public" in data else data
    if not isinstance(data.get("rocm"), list):
        return found
    return found | {"rocm": [_row_with_pairs(row, "packages") for row in data["rocm"]]}


def _row_with_pairs(row: object, name: str) -> object:
    if not isinstance(row, dict) or name not in row:
        return row
    pairs = row[name]
    return row | {name: list(pairs.items()) if isinstance(pairs, dict) else None}


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
            key, f'{spelling} without quotes is not text to YAML (7.10 would become 7.1): write "{spelling}"'
        )
    expected = _EXPECTED.get(kind, error["msg"])
    if key[-1:] == ("packages",):
        expected = "Debian suites, each with a list of packages"
    if key == ("public", "like"):
        expected = "ROCm versions, each with a list of others"
    return Problem(key, f"expected {expected}, found {_kind(found)}")


def _document_key(document: Document, loc: tuple[str | int, ...]) -> Key:
    """Undo the pairs of ``_with_pairs``: packages[1][1][0] is the first package of the second suite."""
    if loc[:2] == ("public", "like") and len(loc) > 2:
        versions = list(document.data["public"]["like"])
        return (*loc[:2], versions[int(loc[2])], *loc[4:])
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
    versions = [text for _, text in document.texts("rocm", "*", "version")]
    for pattern in (
        ("exclude", "*", "rocm"),
        ("default_rocm",),
        ("public", "built_with"),
        ("public", "runtimes", "*"),
    ):
        for key, text in document.texts(*pattern):
            known = [*versions, PUBLIC] if key == ("default_rocm",) else versions
            if text not in known:
                yield Problem(key, unknown("ROCm version", text, known))


def _arch_problems(document: Document, gpus: Gpus) -> list[Problem]:
    """Every GPU is built or listed under ``not_built``. Built ones have machine code of their own."""
    own = [name for name, code in gpus.codes.items() if name == code]
    found = [
        Problem(key, _no_code(text, own, gpus))
        for pattern in NAMING_CODE
        for key, text in document.texts(*pattern)
        if text not in own
    ]
    found += [
        Problem(key, f"{text} is for data centres, and no driver for Windows has it; remove it")
        for key, text in document.texts("public", "windows", "*")
        if text in gpus.cdna
    ]
    rows = reversed([*document.texts("rocm", "*", "archs", "*")])
    lines = {text: document.line(key) for key, text in rows}
    built = {name: lines[code] for name, code in gpus.codes.items() if code in lines}
    others: dict[str, int] = {}
    for key, text in document.texts("not_built", "*", "archs", "*"):
        if text not in gpus.names:
            found.append(Problem(key, unknown("arch", text, gpus.names)))
        elif text in built:
            found.append(Problem(key, f"{text!r} is built on line {built[text]}; remove one"))
        elif text in others:
            found.append(Problem(key, f"{text!r} stands twice; the first is on line {others[text]}"))
        others.setdefault(text, document.line(key))
    advice = f"of {GPUS} is neither built nor under not_built; add it there with the reason"
    missing = (name for name in gpus.names if name not in built and name not in others)
    # A misspelt name is missing too.
    return found or [Problem(("not_built",), f"{name} {advice}") for name in missing]


def _no_code(name: str, own: list[str], gpus: Gpus) -> str:
    if name in gpus.codes:
        return f"{name!r} runs the code of {gpus.codes[name]}; name that"
    if name in gpus.products:
        return f"there are no kernels for {name!r}: {GPUS} has no more than its names"
    return unknown("arch", name, own)


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
            yield Problem(key, "built_in_ci is false without a 'note' with the reason")


def _exclude_problems(document: Document) -> Iterator[Problem]:
    built = _archs_by_version(document)
    known = {arch for archs in built.values() for arch in archs}
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


def _public_problems(document: Document) -> Iterator[Problem]:
    """The public wheel's parts are built and loaded in CI."""
    unfit = {
        _text(document, (*key, "version")): "is not built in CI"
        for key, row in document.find("rocm", "*")
        if isinstance(row, dict) and row.get("built_in_ci") is False
    }
    unfit |= {
        _text(document, (*key, "rocm")): f"is excluded on line {document.line(key)}"
        for key, row in document.find("exclude", "*")
        if isinstance(row, dict) and "arch" not in row
    }
    runtimes = [text for _, text in document.texts("public", "runtimes", "*")]
    used = [*document.texts("public", "built_with"), *document.texts("public", "runtimes", "*")]
    yield from (
        Problem(key, f"ROCm {text} {unfit[text]}; name another") for key, text in used if text in unfit
    )
    built_with = ("public", "built_with")
    text, versions = _text(document, built_with), [text for _, text in document.texts("rocm", "*", "version")]
    if runtimes and text in versions and text not in runtimes:
        yield Problem(built_with, f"ROCm {text} is not among runtimes; a wheel loads where it was built")
    for key, _ in document.find("public", "like", "*"):
        if isinstance(key[-1], str) and key[-1] not in runtimes:
            yield Problem(key, unknown("ROCm version in runtimes", key[-1], runtimes))
    seen = dict.fromkeys(runtimes)
    for key, text in document.texts("public", "like", "*", "*"):
        if text in seen:
            yield Problem(key, f"ROCm {text} stands twice among what the public wheel is for; keep one")
        elif unfit.get(text, "").startswith("is excluded"):
            yield Problem(key, f"ROCm {text} {unfit[text]}; remove it")
        seen[text] = None
    if runtimes and all(re.fullmatch(VERSION, text) for text in seen):
        yield from _order_problems(document, runtimes)


def _order_problems(document: Document, runtimes: Sequence[str]) -> Iterator[Problem]:
    """The oldest runtime comes first, as documents say, and a version is listed under a runtime of its
    ABI.

    The number in libamdhip64.so.N grows with ROCm's major version.
    """
    ordered = sorted(runtimes, key=_numbers)
    if list(runtimes) != ordered:
        yield Problem(("public", "runtimes"), f"expected the oldest first: {', '.join(ordered)}")
    for key, text in document.texts("public", "like", "*", "*"):
        runtime, number = key[2], _numbers(text)
        nearest = [one for one in ordered if _numbers(one)[0] <= number[0]]
        if number < _numbers(ordered[0]):
            yield Problem(
                key, f"ROCm {text} is older than {ordered[0]}, under which the wheel is loaded first"
            )
        elif runtime in runtimes and _numbers(nearest[-1])[0] != _numbers(str(runtime))[0]:
            yield Problem(key, f"ROCm {text} has not the ABI of {runtime}; write it under {nearest[-1]}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


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
    _provider_problems,
    _exclude_problems,
    _default_problems,
    _public_problems,
)
