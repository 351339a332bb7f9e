"""Whether a wheel, its statement, its verification record, its SBOM and the sources agree. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from wheel_builder.audit import sbom as sbom_check
from wheel_builder.audit.contents import BUILT, BUILT_FOR_WINDOWS, file_problems, metadata_problems
from wheel_builder.build.packages import compiler_packages
from wheel_builder.build.product import Product
from wheel_builder.build.sbom import Materials, sbom_text
from wheel_builder.build.shim import Shim, shim_of
from wheel_builder.files.device.library import for_windows
from wheel_builder.files.wheels.candidates import has_candidates
from wheel_builder.files.wheels.wheelfile import WheelFile
from wheel_builder.matrix.model import PUBLIC
from wheel_builder.provenance import provenance as p
from wheel_builder.provenance.commit import NO_SOURCES, Recipe, Tree
from wheel_builder.provenance.form import form_problems, image_problems, source_problem
from wheel_builder.provenance.provenance import Provenance

ALL_IN_WORDS = (
    "the file is the statement's, the record and the SBOM are the file's, its Python files and metadata are "
    "the commit's, and the commit's sources and their flags and settings are those that it was built from"
)
UNSIGNED = (
    "signature  none beside the wheel: the author of the statement is unknown\n"
    "           a wheel from CI has an attestation: gh attestation verify WHEEL --repo {repository}"
)
UNCHECKED = (
    "signature  {name} is beside the wheel and was not checked here\n"
    "           check it: gh attestation verify WHEEL --bundle {name} --repo {repository}"
)
NAMED = 5
THERE = "verify it with the commit's own pipeline"
Parameters = Mapping[str, str | Sequence[str]]
Planned = Callable[[Provenance, Recipe], Parameters]
SIGNATURES = (".sigstore.json", ".sigstore", ".intoto.jsonl")


@dataclass(frozen=True)
class Facts:
    """Facts from the wheel and its files.

    ``sbom`` and ``record_sha256`` are empty if missing. ``record`` is the record's sha256 of the wheel.
    ``tree`` is None for an unusable commit. ``of_commit`` has the reason. ``code`` has the digest of each
    arch's code objects, ``remotes`` the addresses of the checkout's remotes, ``now`` the time.
    """

    wheel: WheelFile
    archs: frozenset[str]
    sbom: bytes
    record_name: str
    record_sha256: str
    record: str
    tree: Tree | None
    code: Mapping[str, str]
    remotes: Collection[str]
    now: datetime
    of_commit: str = ""

    @property
    def name(self) -> str:
        return self.wheel.path.name

    @property
    def sha256(self) -> str:
        return self.wheel.sha256

    @property
    def version(self) -> str:
        return str(self.wheel.version)


def provenance_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    """Every disagreement, in words."""
    candidates = has_candidates(facts.wheel.path)
    yield from form_problems(found, facts.code, facts.record_name, facts.now, candidates=candidates)
    yield from _file_problems(found, facts)
    yield from _record_problems(found, facts)
    if candidates:
        yield from _source_problems(found, facts)
        if facts.tree is not None:
            yield from _tree_problems(found, facts.tree, _of_candidates)
        return
    if shim := shim_of(facts.wheel.path):
        yield from _source_problems(found, facts)
        if facts.tree is not None:
            yield from _shim_problems(found, shim, facts.wheel, facts.tree)
        return
    yield from _sbom_problems(found, facts)
    yield from _recipe_problems(found, facts)


def _file_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    public = facts.tree.recipe.public if facts.tree and isinstance(facts.tree.recipe, Recipe) else ""
    if found.selected == PUBLIC and found.rocm and public and found.rocm != public:
        yield f"file: the statement says ROCm {found.rocm}, but the public wheel is built with {public}"
    problems = (
        *found.subject_problems(facts.name, facts.sha256),
        *statement_contradictions(found, facts.wheel, facts.archs),
    )
    yield from (f"file: {problem}" for problem in problems)


def statement_contradictions(found: Provenance, wheel: WheelFile, archs: frozenset[str]) -> Iterator[str]:
    """Contradictions between a statement and its wheel, which has code of ``archs``."""
    if found.version != str(wheel.version):
        yield f"the statement says version {found.version}, but the wheel is {wheel.version}"
    if found.rocm and wheel.version.local not in (None, f"rocm{found.rocm}"):
        yield f"the statement says ROCm {found.rocm}, but the wheel is {wheel.version}"
    if archs != frozenset(found.archs):
        said, held = _list(found.archs), _list(archs)
        yield f"the statement says archs {said}, but the wheel holds code for {held}"


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
    """Differences between the SBOM and a new one, written as by the build.

    Its data on the builder image come from the statement, everything else from the commit.
    """
    try:
        sbom_check.read(facts.sbom)
    except ValueError:
        yield "SBOM: the wheel has none that can be read"
        return
    if facts.tree is None or isinstance(facts.tree.recipe, str):
        return  # reported by another rule
    again = sbom_text(_materials(found, facts, facts.tree.content, facts.tree.recipe)).encode()
    differences = list(sbom_check.sbom_differences(facts.sbom, again))
    yield from (f"SBOM: {difference}" for difference in differences[:NAMED])
    if more := len(differences[NAMED:]):
        yield f"SBOM: {more} more of its values differ"
    if differences and not facts.tree.writes_same_sbom:
        yield f"SBOM: its commit writes it otherwise than this version; {THERE}"


def _materials(found: Provenance, facts: Facts, sources: str, recipe: Recipe) -> Materials:
    image = found.dependency(p.IMAGE).annotations
    return Materials(
        version=facts.version,
        sources=sources,
        system=image.os,
        packages=image.packages,
        zig=recipe.zig,
        libcxx=image.libcxx,
        torch=recipe.torch_headers,
        torch_sha256=recipe.torch_headers_sha256,
        zstd=recipe.zstd,
    )


def _recipe_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    yield from _source_problems(found, facts)
    if facts.tree is not None:
        yield from _tree_problems(found, facts.tree, _of_kernels)
        built = BUILT_FOR_WINDOWS if for_windows(facts.wheel) else BUILT
        yield from _content_problems(facts.wheel, facts.tree.product, built)
    yield from _image_problems(found)


def _image_problems(found: Provenance) -> Iterator[str]:
    """Contradictions in the statement's data on the builder image."""
    image = found.dependency(p.IMAGE).annotations
    if not image.packages:
        yield "recipe: the statement does not name the packages of the builder image"
    elif image.compiler != (expected := compiler_packages(image.packages)):
        said = _versions(image.compiler)
        yield f"recipe: it says compilers {said}, but its packages are {_versions(expected)}"
    inside = p.zig_uri(image.python_packages.get("ziglang", ""))
    if (stated := found.dependency(p.ZIG).uri) != inside:
        yield f"recipe: it says ziglang {stated or 'nothing'}, but the image has {inside}"


def _source_problems(found: Provenance, facts: Facts) -> Iterator[str]:
    source = found.dependency(p.SOURCE).annotations
    if source.dirty:
        yield f"recipe: it was built from sources that differ from their commit: {_some(source.changed)}"
    if not found.commit:
        yield "recipe: the statement names no commit, so the wheel cannot be rebuilt"
    elif facts.tree is None:
        yield f"recipe: {facts.of_commit}"
    elif problem := source_problem(found, facts.remotes):
        yield problem
    if facts.tree is not None and isinstance(facts.tree.recipe, Recipe):
        yield from image_problems(found, facts.tree.recipe)


def _tree_problems(found: Provenance, tree: Tree, planned: Planned) -> Iterator[str]:
    if tree.sources:
        yield from _digest_problems(found, tree)
    if isinstance(tree.recipe, str):
        yield f"recipe: that of its commit cannot be read by this version ({tree.recipe}); {THERE}"
    else:
        yield from _parameter_problems(found, planned(found, tree.recipe))


def _content_problems(wheel: WheelFile, product: Product | str, built: Collection[str]) -> Iterator[str]:
    """Differences of the wheel's files and metadata from those of its commit."""
    if isinstance(product, str):
        yield f"contents: what its commit puts in cannot be read here ({product}); {THERE}"
        return
    for said, expected in (*file_problems(wheel, product, built), *metadata_problems(wheel, product)):
        yield f"contents: found {said}; expected {expected}"


def _shim_problems(found: Provenance, shim: Shim, wheel: WheelFile, tree: Tree) -> Iterator[str]:
    said = found.dependency(p.SOURCE_TREE).digest.get("sha256", "none")
    product, digest = tree.shims.get(shim.name, NO_SOURCES)
    if said != digest:
        yield f"recipe: it says sources with sha256 {said}, but those of its commit have {digest}"
    yield from _content_problems(wheel, product, built=())


def _digest_problems(found: Provenance, tree: Tree) -> Iterator[str]:
    said = found.dependency(p.SOURCE_TREE).digest.get("sha256", "none")
    if said != tree.sources:
        yield f"recipe: it says sources with sha256 {said}, but those of its commit have {tree.sources}"
    content = found.dependency(p.SOURCE).annotations.content_sha256 or "none"
    if content != tree.content:
        yield f"recipe: it says kernels with sha256 {content}, but those of its commit have {tree.content}"


def _parameter_problems(found: Provenance, planned: Parameters) -> Iterator[str]:
    """Disagreements about the build's parameters, as far as the commit's sources determine them."""
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
    for name in [*planned, *sorted(said.keys() - planned.keys())]:
        if (was := said.get(name)) != (expected := planned.get(name)):
            yield f"recipe: it says {name} {_text(was)}, but those of its commit are {_text(expected)}"


def _of_kernels(found: Provenance, recipe: Recipe) -> Parameters:
    """Of a wheel of flash-attn-rocm."""
    return {
        **{f"{kind} flags": list(words) for kind, words in recipe.flags.items()},
        "llvm": recipe.llvm.get(found.rocm, ""),
        "platform_tag": recipe.platform_tag,
        "source_date_epoch": recipe.source_date_epoch,
        p.HEADERS: [p.headers_uri(recipe.torch_headers), recipe.torch_headers_sha256],
        p.TOOLS: recipe.requirements,
        p.ZIG: p.zig_uri(recipe.zig),
    }


def _of_candidates(found: Provenance, recipe: Recipe) -> Parameters:
    """Of a distribution of candidates, which has no host code."""
    return {
        "device flags": list(recipe.flags["device"]),
        "llvm": recipe.llvm.get(found.rocm, ""),
        "source_date_epoch": recipe.source_date_epoch,
        p.HEADERS: ["", ""],
        p.TOOLS: recipe.requirements,
        p.ZIG: "",
    }


def signature_words(beside: Iterator[str], repository: str = "OWNER/REPOSITORY") -> str:
    """The state of a signature, unchecked. ``beside`` are the files next to the wheel."""
    bundles = sorted(name for name in beside if name.endswith(SIGNATURES))
    words = UNCHECKED if bundles else UNSIGNED
    return words.format(name=bundles[0] if bundles else "", repository=repository)


def _versions(packages: Mapping[str, str]) -> str:
    return " ".join(f"{name}={version}" for name, version in packages.items()) or "none"


def _text(value: str | Sequence[str] | None) -> str:
    return (value if isinstance(value, str) else " ".join(filter(None, value or ()))) or "nothing"


def _list(names: frozenset[str] | tuple[str, ...]) -> str:
    return " ".join(sorted(names)) or "none"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(names[:5]) or "unknown files") + more
