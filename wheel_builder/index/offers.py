"""The offer of each folder of the index, and every page that follows from the published files. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from packaging.utils import BuildTag, InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from wheel_builder.build.shim import NAMES as SHIM_NAMES
from wheel_builder.files.wheels.sidecars import ATTACHMENTS
from wheel_builder.files.wheels.variant import NULL, hardware_label, index_name, variants_text
from wheel_builder.index.finder import finder_pages
from wheel_builder.index.finder.data import Wheel, make_finder
from wheel_builder.index.simple.pages import Document, Entry, Record, project_pages, root_pages
from wheel_builder.matrix.catalogue import Catalogue
from wheel_builder.matrix.model import (
    PROJECT,
    PUBLIC,
    SIMPLE,
    VARIANTS,
    platform_of,
    simple_below,
    variants_below,
)
from wheel_builder.matrix.tuned.candidates import distributions

Projects = Mapping[str, tuple[Entry, ...]]  # by project; oldest version first
Contents = Mapping[str, Projects]  # by ROCm version, or PUBLIC; only the files in its own folder


def simple_pages(contents: Contents) -> dict[str, bytes]:
    """Every page read by installers: path below the root -> content, in the order of writing."""
    pages = _variant_pages(contents)
    for home in sorted(runtimes(contents)):
        pages |= _pages_of(f"{simple_below(home)}/", _plain(offered(contents, home)))
    return pages | _pages_of(f"{SIMPLE}/", _plain(everything(contents)))


def _variant_pages(contents: Contents) -> dict[str, bytes]:
    """The pages that list variants, and the variants' documents, none while no file has variants.

    They have a folder of their own: Poetry 2.5.1 parses a variant's name as a later local version.
    """
    documents = variant_documents(contents)
    pages = {
        f"{simple_below(home)}/{project}/{name}": documents[project][name].data
        for home, projects in contents.items()
        for project, entries in projects.items()
        for name in (index_name(entry.record.filename) for entry in entries if entry.variants)
    }
    for home in sorted(runtimes(contents)):
        if _have_variants(projects := offered(contents, home)):
            beside = {project: [_beside(entry) for entry in entries] for project, entries in projects.items()}
            pages |= _pages_of(f"{variants_below(home)}/", in_order(beside), documents)
    if documents:
        pages |= _pages_of(f"{VARIANTS}/", everything(contents), documents)
    return pages


def _have_variants(projects: Projects) -> bool:
    return any(entry.variants for entries in projects.values() for entry in entries)


def _beside(entry: Entry) -> Entry:
    """An entry of a page in ``simple``, for the page in the sibling folder."""
    return replace(entry, folder=entry.folder or f"../../{SIMPLE}/{entry.record.project}/")


def _plain(projects: Projects) -> Projects:
    return {name: tuple(replace(e, variants=None) for e in group) for name, group in projects.items()}


def variant_documents(contents: Contents) -> Mapping[str, Mapping[str, Document]]:
    """The files about variants, by project and file name: one for all variants of a version."""
    gpus: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
    times: dict[tuple[str, str], str] = {}
    for entry in (e for projects in contents.values() for group in projects.values() for e in group):
        if entry.variants:
            key = entry.record.project, index_name(entry.record.filename)
            gpus.setdefault(key, {}).update(variants_of(entry.record))
            times[key] = min(times.get(key, entry.variants.upload_time), entry.variants.upload_time)
    found: dict[str, dict[str, Document]] = {}
    for (project, name), labels in gpus.items():
        found.setdefault(project, {})[name] = Document(variants_text(labels), times[project, name])
    return found


def variants_of(record: Record) -> dict[str, tuple[str, ...]]:
    """The variants that a published wheel has or may have: label -> GPUs, none for the fallback.

    Wheels of one version for several platforms may serve different GPUs. A label means the same in all wheels
    of a version (PEP 825).
    """
    return {hardware_label(platform_of(record.filename)): tuple(sorted(record.verified)), NULL: ()}


def finder_pages_of(
    contents: Contents, catalogue: Catalogue, *, documented: bool = False
) -> dict[str, bytes]:
    """The page where users find their wheel, and its data. ``documented`` means docs/ exists."""
    wheels = [
        Wheel.of(
            _seen_from(entry, f"{simple_below(rocm)}/"),
            rocm,
            ATTACHMENTS,
            catalogue.public_built_with if rocm == PUBLIC else "",
        )
        for rocm, projects in contents.items()
        for project in (PROJECT, *distributions())
        for entry in projects.get(project, ())
    ]
    drop_ins = {project for projects in contents.values() for project in projects} & SHIM_NAMES
    return finder_pages(make_finder(catalogue, wheels, drop_ins=drop_ins), documented=documented)


def runtimes(contents: Contents) -> set[str]:
    """The ROCm versions that have wheels, and ``PUBLIC`` if it has some."""
    entries = [e for projects in contents.values() for group in projects.values() for e in group]
    return {*contents, *(rocm for entry in entries for rocm in entry.record.serves)}


def offered(contents: Contents, rocm: str) -> Projects:
    """The index of ``rocm``: its own files, and files of other versions that serve it.

    The drop-ins, such as flash-attn, serve every ROCm version, in all their builds, and candidates those of
    their wheel. Other files of another version are left out if ``rocm`` has an unyanked file of the same
    public version: installers would take the higher local label.
    """
    own = contents.get(rocm, {})
    mine = {
        (project, Version(e.record.version).public)
        for project in own
        for e in own[project]
        if e.yanked is None
    }
    found = {project: list(entries) for project, entries in own.items()}
    for home, projects in contents.items():
        for project, entries in projects.items() if home != rocm else ():
            for entry in entries if project not in distributions() else ():
                known = {each.record.filename for each in found.get(project, ())}
                taken = project not in SHIM_NAMES and (project, Version(entry.record.version).public) in mine
                if _serves(entry.record, rocm) and not taken and entry.record.filename not in known:
                    found.setdefault(project, []).append(_seen_from(entry, f"../../../{simple_below(home)}/"))
    for project, beside in _candidates_beside(contents, rocm, found.get(PROJECT, ())):
        found.setdefault(project, []).extend(beside)
    return in_order(found)


def _candidates_beside(
    contents: Contents, rocm: str, wheels: Sequence[Entry]
) -> Iterator[tuple[str, list[Entry]]]:
    """Distributions of candidates from other folders: they are where their wheel is offered."""
    offered_versions = {entry.record.version for entry in wheels}
    for home, projects in contents.items():
        for project in (projects.keys() & distributions().keys()) if home != rocm else ():
            mine = [each for each in projects[project] if each.record.version in offered_versions]
            if mine:
                yield project, [_seen_from(each, f"../../../{simple_below(home)}/") for each in mine]


def _serves(record: Record, rocm: str) -> bool:
    return rocm in record.serves or record.project in SHIM_NAMES


def everything(contents: Contents) -> Projects:
    """The root's files. A file in several versions' folders is listed once, yanked if one of them is."""
    found: dict[str, dict[str, Entry]] = {}
    for rocm, projects in contents.items():
        for project, entries in projects.items():
            for entry in entries:
                name = entry.record.filename
                first = found.setdefault(project, {}).setdefault(
                    name, _seen_from(entry, f"../../{simple_below(rocm)}/")
                )
                if first.yanked is None and entry.yanked is not None:
                    found[project][name] = replace(first, yanked=entry.yanked)
    return in_order({project: list(entries.values()) for project, entries in found.items()})


def _pages_of(
    folder: str, projects: Projects, documents: Mapping[str, Mapping[str, Document]] = MappingProxyType({})
) -> dict[str, bytes]:
    pages = {
        f"{folder}{project}/{name}": page
        for project, entries in projects.items()
        for name, page in project_pages(project, entries, documents.get(project, {})).items()
    }
    return pages | {folder + name: page for name, page in root_pages(projects).items()}


def _seen_from(entry: Entry, simple: str) -> Entry:
    return replace(entry, folder=f"{simple}{entry.record.project}/")


def in_order(projects: Mapping[str, list[Entry]]) -> dict[str, tuple[Entry, ...]]:
    """Projects by name, each with its oldest version first, and within a version the lowest build number."""
    return {project: tuple(sorted(entries, key=_age)) for project, entries in sorted(projects.items())}


def build_of(filename: str) -> BuildTag:
    """The build number in a wheel's name, or ()."""
    try:
        return parse_wheel_filename(filename)[2]
    except InvalidWheelFilename:
        return ()


def _age(entry: Entry) -> tuple[Version, BuildTag, str]:
    name = entry.record.filename
    return Version(entry.record.version), build_of(name), name
