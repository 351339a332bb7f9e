"""The sources' part of wheels, without compiled files: Python files, licence, METADATA.

The build back end reads it from pyproject.toml. This module repeats that for the audit, which refuses
everything else.
"""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from wheel_builder.base.errors import AuditError, StoreError
from wheel_builder.base.store import walk_files

PROJECT = "pyproject.toml"
CONTENT_TYPES = {".md": "text/markdown", ".rst": "text/x-rst", ".txt": "text/plain"}
# Allowed keys of [project]. The build sets the version of flash-attn-rocm, from tool.flash-attn-rocm and the
# ROCm version.
KEYS = frozenset(
    {
        "name",
        "description",
        "readme",
        "requires-python",
        "license",
        "license-files",
        "dynamic",
        "dependencies",
    }
    | {"classifiers", "version", "urls"}
)


@dataclass(frozen=True)
class Product:
    """``files`` maps names in the wheel to sha256, ``licenses`` names below ``.dist-info/licenses``.

    ``fields`` are METADATA's headers, each with its values in alphabetical order, except Version and
    Metadata-Version. ``readme`` is its body. ``version`` is empty if the build sets it, ``build`` for wheels
    without a build number.
    """

    files: Mapping[str, str]
    licenses: Mapping[str, str]
    fields: Mapping[str, tuple[str, ...]]
    readme: bytes
    version: str = ""
    build: str = ""


def read_product(checkout: Path) -> Product:
    """The product of the sources in a folder. Raises ``AuditError`` if they have another form than
    today's."""
    try:
        found = tomllib.loads((checkout / PROJECT).read_text(encoding="utf-8"))
        project, target = found["project"], found["tool"]["hatch"]["build"]["targets"]["wheel"]
        product = _product(checkout, project, target["packages"], target.get("force-include", {}))
        return replace(product, build=str(found["tool"].get(project["name"], {}).get("build", "")))
    except (
        OSError,
        StoreError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        InvalidRequirement,
    ) as error:
        title = f"{PROJECT} does not say what is in a wheel in a form that the audit knows"
        problem = f"{type(error).__name__}: {error}".replace(f"{checkout}/", "")
        advice = "write [project] as it was, or teach wheel_builder/build/product.py what is new in it"
        raise AuditError(title, [problem], advice=advice) from error


def _product(
    checkout: Path, project: Mapping[str, Any], packages: list[str], included: Mapping[str, str]
) -> Product:
    if unknown := sorted(project.keys() - KEYS):
        message = f"project.{unknown[0]} is not known here"
        raise ValueError(message)
    licenses = sorted({file for glob in project["license-files"] for file in checkout.glob(glob)})
    files = {name: path for package in packages for name, path in _package_files(checkout / package)}
    files |= dict(included_files(checkout, included))
    return Product(
        {name: _sha256(path) for name, path in sorted(files.items())},
        {file.relative_to(checkout).as_posix(): _sha256(file) for file in licenses},
        _fields(project, [file.relative_to(checkout).as_posix() for file in licenses]),
        (checkout / project["readme"]).read_bytes(),
        str(project.get("version", "")),
    )


def _package_files(folder: Path) -> Iterator[tuple[str, Path]]:
    if not folder.is_dir():
        message = f"{folder} is not a folder"
        raise ValueError(message)
    for path in walk_files(folder):
        yield path.relative_to(folder.parent).as_posix(), path


def included_files(checkout: Path, included: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Names in the wheel with their files, for each entry of ``force-include``: files and whole folders."""
    for path, name in included.items():
        if not (checkout / path).resolve().is_relative_to(checkout.resolve()):
            message = f"{path} is not in the checkout"
            raise ValueError(message)
        for file in walk_files(checkout / path):
            yield (Path(name) / file.relative_to(checkout / path)).as_posix(), file


def _fields(project: Mapping[str, Any], licenses: list[str]) -> dict[str, tuple[str, ...]]:
    found = {
        "Name": [project["name"]],
        "Summary": [project["description"]],
        "License-Expression": [project["license"]],
        "License-File": licenses,
        "Classifier": project["classifiers"],
        "Project-URL": [f"{label}, {url}" for label, url in project.get("urls", {}).items()],
        "Requires-Python": [project["requires-python"]],
        "Requires-Dist": [str(Requirement(each)) for each in project["dependencies"]],
        "Description-Content-Type": [CONTENT_TYPES[Path(project["readme"]).suffix]],
    }
    return {name: tuple(sorted(values)) for name, values in found.items() if values}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
