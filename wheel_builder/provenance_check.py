"""Whether a wheel, its statement, its verification record, its SBOM and the sources agree; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wheel_builder import provenance as p
from wheel_builder.provenance import Provenance
from wheel_builder.sbom import source_digest, versions
from wheel_builder.source import Recipe, Tree

ALL_IN_WORDS = (
    "the file is the statement's, the record and the SBOM are the file's, and the commit's sources and "
    "their flags and settings are those that it was built from"
)
UNSIGNED = (
    "signature  none beside the wheel: nothing here shows who wrote the statement\n"
    "           a wheel from CI has an attestation: gh attestation verify WHEEL --repo OWNER/REPOSITORY"
)
UNCHECKED = (
    "signature  {name} is beside the wheel and was not checked here\n"
    "           check it: gh attestation verify WHEEL --bundle {name} --repo OWNER/REPOSITORY"
)
THERE = "verify it with the commit's own pipeline"
SIGNATURES = (".sigstore.json", ".sigstore", ".intoto.jsonl")


@dataclass(frozen=True)
class Facts:
    """What the wheel itself says, and what lies beside it.

    ``sbom`` is None when there is none that can be read, ``record_sha256`` is empty without a record,
    ``record`` is what the record says of the wheel's sha256, and ``tree`` None when the commit is not in the
    checkout.
    """

    name: str
    sha256: str
    version: str
    archs: frozenset[str]
    sbom: Mapping[str, Any] | None
    record_name: str
    record_sha256: str
    record: str
    tree: Tree | None


def provenance_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    """Every disagreement, in words."""
    yield from _file_problems(found, facts)
    yield from _record_problems(found, facts)
    yield from _sbom_problems(found, facts)
    yield from _recipe_problems(found, facts)


def _file_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    yield from (f"file: {problem}" for problem in found.subject_problems(facts.name, facts.sha256))
    if found.version != facts.version:
        yield f"file: the statement says version {found.version}, but the wheel is {facts.version}"
    if not facts.version.endswith(f"+rocm{found.rocm}"):
        yield f"file: the statement says ROCm {found.rocm}, but the wheel is {facts.version}"
    if facts.archs != frozenset(found.archs):
        said, held = _list(found.archs), _list(facts.archs)
        yield f"file: the statement says archs {said}, but the wheel holds code for {held}"


def _record_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    said = found.byproduct(facts.record_name).digest.get("sha256", "")
    if not facts.record_sha256:
        yield f"record: there is no {facts.record_name} beside the wheel"
    elif not said:
        yield "record: the statement names none, so the wheel was not verified when it was written"
    elif said != facts.record_sha256:
        yield f"record: the statement says sha256 {said}, but the file's is {facts.record_sha256}"
    if facts.record_sha256 and facts.record != facts.sha256:
        yield f"record: it is about a wheel with sha256 {facts.record or 'unknown'}"


def _sbom_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    if facts.sbom is None:
        yield "SBOM: the wheel has none that can be read"
        return
    named = versions(facts.sbom)
    for name, version in _stated_versions(found).items():
        if named.get(name) != version:
            said = named.get(name, "nothing")
            yield f"SBOM: it says {name} {said}, but the statement {version or 'nothing'}"
    said = found.dependency(p.SOURCE).annotations.get("content_sha256", "")
    if (sources := source_digest(facts.sbom)) != said:
        yield f"SBOM: it says sources with sha256 {sources}, but the statement {said or 'none'}"


def _stated_versions(found: Provenance) -> dict[str, str]:
    image = found.dependency(p.IMAGE).annotations
    named = {name: found.dependency(name).uri.rpartition("@")[2] for name in ("ziglang",)}
    named["torch"] = found.dependency(p.HEADERS).uri.rpartition("@")[2]
    return {**named, "libc++": str(image.get("libcxx", "")), **image.get("compiler", {})}


def _recipe_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    source = found.dependency(p.SOURCE)
    changed = source.annotations.get("changed", ())
    if source.annotations.get("dirty", True):
        yield f"recipe: it was built from sources that differ from their commit: {_some(list(changed))}"
    if not found.commit:
        yield "recipe: the statement names no commit, so nobody can build the wheel again"
    elif facts.tree is None:
        yield f"recipe: this checkout does not have commit {found.commit}; git fetch, then verify again"
    else:
        yield from _tree_problems(found, facts.tree)
    if not found.packages:
        yield "recipe: the statement does not name the packages of the builder image"


def _tree_problems(found: Provenance, tree: Tree) -> Iterator[str]:
    said = found.dependency(p.SOURCE_TREE).digest.get("sha256", "none")
    if said != tree.sources:
        yield f"recipe: it says sources with sha256 {said}, but those of its commit have {tree.sources}"
    content = found.dependency(p.SOURCE).annotations.get("content_sha256", "none")
    if content != tree.content:
        yield f"recipe: it says kernels with sha256 {content}, but those of its commit have {tree.content}"
    if isinstance(tree.recipe, str):
        yield f"recipe: that of its commit cannot be read by this version ({tree.recipe}); {THERE}"
    else:
        yield from _parameter_problems(found, tree.recipe)


def _parameter_problems(found: Provenance, recipe: Recipe) -> Iterator[str]:
    """What the statement says of the build besides its commit, where the commit's sources determine it."""
    headers, tools = found.dependency(p.HEADERS), found.dependency(p.TOOLS)
    flags = {f"{kind} flags": list(words) for kind, words in found.parameters.get("flags", {}).items()}
    rest = {name: value for name, value in found.parameters.items() if name != "flags"}
    said = {
        **flags,
        **rest,
        p.HEADERS: [headers.uri, headers.digest.get("sha256", "")],
        p.TOOLS: tools.digest.get("sha256", ""),
        p.ZIG: found.dependency(p.ZIG).uri,
    }
    planned = {
        **{f"{kind} flags": list(words) for kind, words in recipe.flags.items()},
        "llvm": recipe.llvm.get(found.rocm, ""),
        "platform_tag": recipe.platform_tag,
        "source_date_epoch": recipe.source_date_epoch,
        p.HEADERS: [p.headers_uri(recipe.torch_headers), recipe.torch_headers_sha256],
        p.TOOLS: recipe.requirements,
        p.ZIG: p.zig_uri(recipe.zig),
    }
    for name in [*planned, *sorted(said.keys() - planned.keys())]:
        if (was := said.get(name)) != (expected := planned.get(name)):
            yield f"recipe: it says {name} {_text(was)}, but those of its commit are {_text(expected)}"


def signature_words(beside: Iterator[str]) -> str:
    """What can be said of a signature without checking one; ``beside`` are the files beside the wheel."""
    bundles = sorted(name for name in beside if name.endswith(SIGNATURES))
    return UNCHECKED.format(name=bundles[0]) if bundles else UNSIGNED


def _text(value: str | Sequence[str] | None) -> str:
    return (value if isinstance(value, str) else " ".join(filter(None, value or ()))) or "nothing"


def _list(names: frozenset[str] | tuple[str, ...]) -> str:
    return " ".join(sorted(names)) or "none"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(names[:5]) or "unknown files") + more
