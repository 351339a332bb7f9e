"""Checks that a wheel's SBOM exists, matches the wheel, and is reproducible. Pure."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic_core import from_json

from wheel_builder.build import sbom

FOLDER = "sboms"
CLANG = re.compile(r"clang-[0-9]+|rocm-llvm")
SHOWN = 80  # characters of a value
PASSING = ("serialNumber",)
PASSING_METADATA = ("timestamp",)


def find(files: Mapping[str, bytes], dist_info: str) -> dict[str, bytes]:
    """The wheel's SBOMs by name."""
    start = f"{dist_info}/{FOLDER}/"
    return {name.removeprefix(start): data for name, data in files.items() if name.startswith(start)}


def read(data: bytes) -> dict[str, Any]:
    """An SBOM's document. Raises ``ValueError`` when it is not well formed."""
    document: dict[str, Any] = from_json(data)
    try:
        if (document["bomFormat"], document["specVersion"]) != ("CycloneDX", sbom.SPEC_VERSION):
            message = f"{document['bomFormat']} {document['specVersion']}, not CycloneDX {sbom.SPEC_VERSION}"
            raise ValueError(message)
        sbom.versions(document)
        sbom.source_digest(document)
        str(document["metadata"]["component"]["version"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        message = f"it has not the form of a SBOM ({type(error).__name__}: {error})"
        raise ValueError(message) from error
    return document


def sbom_problems(
    found: Mapping[str, bytes], *, version: str, torch: str, compilers: Collection[str]
) -> Iterator[str]:
    """Problems of the wheel's SBOMs. ``compilers`` are the clang releases named in code objects."""
    if set(found) != {sbom.FILE}:
        yield f"{', '.join(sorted(found)) or 'no SBOM'} in {FOLDER}/, expected {sbom.FILE}"
        return
    try:
        document = read(found[sbom.FILE])
    except ValueError as error:
        yield f"{sbom.FILE} cannot be read: {error}"
        return
    yield from (f"{name} in it, which differs from build to build" for name in _passing(document))
    product = document["metadata"]["component"]["version"]
    if product != version:
        yield f"it is about version {product}, but the wheel is {version}"
    versions = sbom.versions(document)
    for name in ("libc++", "ziglang", "torch", "zstd"):
        if not versions.get(name):
            yield f"it does not name {name} and its version"
    if torch != versions.get("torch", torch):
        yield f"it says torch {versions['torch']}, but headers of torch {torch} are planned"
    if not re.fullmatch(r"[0-9a-f]{64}", sbom.source_digest(document)):
        yield "it has no sha256 of the sources"
    yield from _compiler_problems(versions, compilers)


def sbom_differences(found: bytes, expected: bytes) -> Iterator[str]:
    """Differences between an SBOM accepted by ``read`` and ``expected``, the one written by its build."""
    values, planned = (dict(_leaves(from_json(data))) for data in (found, expected))
    differing = [
        (place, said, wanted)
        for place in dict.fromkeys([*planned, *values])
        if (said := values.get(place, "missing")) != (wanted := planned.get(place, "missing"))
    ]
    yield from (f"{place} is {said[:SHOWN]}, expected {wanted[:SHOWN]}" for place, said, wanted in differing)
    if found != expected and not differing:
        yield "it says the same as its build wrote, in other bytes"


def _leaves(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Every single value and empty list of a document as JSON, with its place, components by name."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{place}.{key}".removeprefix("."))
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            name = inner.get("name", at) if isinstance(inner, dict) else at
            yield from _leaves(inner, f"{place}[{name}]")
    else:
        yield place, json.dumps(value)


def _passing(document: Mapping[str, Any]) -> list[str]:
    return [
        *(name for name in PASSING if name in document),
        *(name for name in PASSING_METADATA if name in document["metadata"]),
    ]


def _compiler_problems(versions: Mapping[str, str], compilers: Collection[str]) -> Iterator[str]:
    named = {release(version) for name, version in versions.items() if CLANG.fullmatch(name)}
    if not compilers:
        yield "no code object names its compiler, so the SBOM's cannot be compared"
    elif named != set(compilers):
        yield f"it names clang {_list(named)}, but the code objects say {_list(compilers)}"


def release(version: str) -> str:
    """The upstream release in a package's version: ``22.1.8`` of ``1:22.1.8-3``."""
    match = re.match(r"(?:\d+:)?(\d+\.\d+\.\d+)", version)
    return match[1] if match else version


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
