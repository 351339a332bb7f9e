"""The pages of the package index as text: PEP 503, 592, 629, 714 and 825 in HTML, 691 and 700 in JSON."""

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from wheel_builder.files.wheels.variant import index_name, variant_name

API_VERSION = "1.1"
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_PAGE = "index.html"
JSON_PAGE = "index.json"


@dataclass(frozen=True)
class Record:
    """One published file. ``upload_time`` is RFC 3339 in UTC, ``project`` is the normalised name.

    ``serves``: further ROCm versions whose runtimes loaded it. ``verified``: the result for each arch, in
    words.
    ``attachments``: the sha256 of each file published with it, by kind.
    """

    filename: str
    project: str
    version: str
    requires_python: str
    size: int
    sha256: str
    metadata_sha256: str
    upload_time: str
    serves: tuple[str, ...] = ()
    verified: Mapping[str, str] = field(default_factory=dict)
    attachments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """A file made from a published wheel (PEP 825)."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Variants:
    """The variants of a published wheel, by label. ``upload_time`` is as in its record."""

    schema: str
    upload_time: str
    wheels: Mapping[str, Variant]


@dataclass(frozen=True)
class Entry:
    """A record as a page shows it.

    ``yanked`` is the reason, or None. ``folder`` leads from the page to the file: "" or a relative URL with a
    final slash. Both hold for the wheel's variants too.
    """

    record: Record
    yanked: str | None
    folder: str = ""
    variants: Variants | None = None

    @property
    def url(self) -> str:
        """Relative to the page."""
        return self.folder + quote(self.record.filename)


@dataclass(frozen=True)
class Document:
    """The index's file about the variants of a version.

    It grows with each platform's wheel, so pages omit its hash, which is optional in PEP 825.
    """

    data: bytes
    upload_time: str


def project_pages(
    project: str, entries: Sequence[Entry], documents: Mapping[str, Document] = MappingProxyType({})
) -> dict[str, bytes]:
    """The pages of one project: file name -> content. ``documents`` are about its variants, by file name."""
    versions = list(dict.fromkeys(entry.record.version for entry in entries))
    files = [each for entry in entries for each in (entry, *_variants(entry))]
    named = [(index_name(entry.record.filename), entry.folder) for entry in entries if entry.variants]
    about = {name: folder + quote(name) for name, folder in named}
    told = [_json_about(name, url, documents[name]) for name, url in about.items()]
    document = _document(name=project, versions=versions, files=[*map(_json_file, files), *told])
    links = [_link(f"{e.url}#sha256={e.record.sha256}", e.record.filename, _flags(e)) for e in files]
    links += [_link(url, name, {}) for name, url in about.items()]
    return {HTML_PAGE: _html(f"Links for {project}", links), JSON_PAGE: json_bytes(document)}


def _variants(entry: Entry) -> Iterator[Entry]:
    """The variants of a file, as entries of their own."""
    record = entry.record
    if entry.variants:
        for label, made in entry.variants.wheels.items():
            own = replace(
                record,
                filename=variant_name(record.filename, label),
                size=made.size,
                sha256=made.sha256,
                upload_time=entry.variants.upload_time,
            )
            yield replace(entry, record=own, variants=None)


def root_pages(projects: Iterable[str]) -> dict[str, bytes]:
    """The pages that list the projects: file name -> content."""
    names = sorted(projects)
    document = _document(projects=[{"name": name} for name in names])
    links = (_link(f"{name}/", name, {}) for name in names)
    return {HTML_PAGE: _html("Simple index", links), JSON_PAGE: json_bytes(document)}


def _document(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"meta": {"api-version": API_VERSION}, **fields}


def _json_file(entry: Entry) -> dict[str, Any]:
    record = entry.record
    metadata = {"sha256": record.metadata_sha256}
    yanked = False if entry.yanked is None else entry.yanked or True
    return {
        "filename": record.filename,
        "url": entry.url,
        "hashes": {"sha256": record.sha256},
        "size": record.size,
        "upload-time": record.upload_time,
        "core-metadata": metadata,
        "dist-info-metadata": metadata,
        "yanked": yanked,
        **({"requires-python": record.requires_python} if record.requires_python else {}),
    }


def _json_about(name: str, url: str, document: Document) -> dict[str, Any]:
    return {
        "filename": name,
        "url": url,
        "hashes": {},
        "size": len(document.data),
        "upload-time": document.upload_time,
        "yanked": False,
    }


def _flags(entry: Entry) -> dict[str, str]:
    metadata = f"sha256={entry.record.metadata_sha256}"
    # The last one is non-standard. With it uv uses the time also from servers that give everybody HTML.
    flags = {
        "data-core-metadata": metadata, "data-dist-info-metadata": metadata,
        "data-upload-time": entry.record.upload_time,
    }  # fmt: skip
    if entry.record.requires_python:
        flags["data-requires-python"] = entry.record.requires_python
    if entry.yanked is not None:
        flags["data-yanked"] = entry.yanked
    return flags


def _link(target: str, text: str, flags: Mapping[str, str]) -> str:
    attributes = "".join(
        f' {name}="{html.escape(value)}"' for name, value in {"href": target, **flags}.items()
    )
    return f"    <a{attributes}>{html.escape(text)}</a><br>"


def _html(title: str, links: Iterable[str]) -> bytes:
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "  <head>",
        '    <meta charset="utf-8">',
        f'    <meta name="pypi:repository-version" content="{API_VERSION}">',
        f"    <title>{html.escape(title)}</title>",
        "  </head>",
        "  <body>",
        f"    <h1>{html.escape(title)}</h1>",
        *links,
        "  </body>",
        "</html>",
        "",
    ]
    return "\n".join(lines).encode()


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """``document`` as JSON in this index's layout."""
    return (json.dumps(document, indent=2) + "\n").encode()
