"""Provenance: a wheel's inputs and build, as an in-toto statement with SLSA's v1 predicate.

``make_provenance`` is pure. The statement lies next to the wheel (``records.provenance_path``) and is
published with it. Equal inputs give equal statements, except ``runDetails``. Anybody can write a statement.
Only a signature, made in CI and not here, proves the author.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from wheel_builder.base.errors import ProvenanceError
from wheel_builder.base.plain import read_plain
from wheel_builder.base.store import Artifact, key_of, sha256_file
from wheel_builder.base.strict_json import read_json
from wheel_builder.build.device_code import code_objects
from wheel_builder.build.packages import compiler_packages
from wheel_builder.build.source import Source
from wheel_builder.matrix.model import PLATFORMS, PUBLIC, Job, Package, platform_of
from wheel_builder.provenance.statement import (
    Builder,
    Definition,
    Details,
    External,
    Metadata,
    Parameters,
    Predicate,
    Resource,
    Sha256,
    Statement,
    Subject,
)

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:flash-attn-rocm:wheel-builder:1"
LOCAL = "urn:flash-attn-rocm:builder:a-machine-of-its-user"
SOURCE, SOURCE_TREE, IMAGE, BASE, HEADERS, ZIG, TOOLS = (
    "source", "source-tree", "builder-image", "base-image", "torch-headers", "ziglang",
    "builder-requirements",
)  # fmt: skip
WHEEL_MANIFEST = "wheel-manifest"
# The wheels that candidates belong to, by platform.
OWNERS = {platform: f"wheel-{platform}" for platform in PLATFORMS}
REQUIREMENTS = "builder-requirements.txt"
WRITE_AGAIN = "write it again: scripts/wheel-builder release; or fetch the file once more"


@dataclass(frozen=True)
class RunDetails:
    """Who built and when. ``invocation`` names the CI's run, empty elsewhere."""

    builder: str
    finished: str
    invocation: str = ""


@dataclass(frozen=True)
class Provenance:
    """The statement's content: ``dependencies`` and ``byproducts`` by name.

    ``rocm`` is the version of the build, also for the public wheel.
    """

    wheel: str
    sha256: str
    rocm: str
    archs: tuple[str, ...]
    version: str
    parameters: Mapping[str, Any]
    dependencies: tuple[Resource, ...]
    byproducts: tuple[Resource, ...]
    run: RunDetails

    def dependency(self, name: str) -> Resource:
        return next((one for one in self.dependencies if one.name == name), Resource(name=name))

    @property
    def selected(self) -> str:
        """Its value of --rocm."""
        return self.rocm if "+" in self.version else PUBLIC

    @property
    def platform(self) -> str:
        """Its value of --platforms."""
        return platform_of(self.wheel)

    @property
    def packages(self) -> Mapping[str, str]:
        """The builder image's packages: name -> exact version."""
        return self.dependency(IMAGE).annotations.packages

    @property
    def commit(self) -> str:
        return self.dependency(SOURCE).digest.get("gitCommit", "")

    def byproduct(self, name: str) -> Resource:
        return next((one for one in self.byproducts if one.name == name), Resource(name=name))

    def subject_problems(self, wheel: str, sha256: str) -> Iterator[str]:
        """Why this statement is about another file than ``wheel`` with this sha256."""
        if self.wheel != wheel:
            yield f"the statement is about {self.wheel}, but this is {wheel}"
        if self.sha256 != sha256:
            yield f"the statement is about a wheel with sha256 {self.sha256}, but the wheel's is {sha256}"

    def with_byproduct(self, resource: Resource) -> "Provenance":
        """A copy with ``resource`` in place of the byproduct of this name."""
        others = (one for one in self.byproducts if one.name != resource.name)
        return replace(self, byproducts=(*others, resource))

    def to_json(self) -> str:
        return _to_statement(self).model_dump_json(by_alias=True, exclude_unset=True, indent=2) + "\n"


def make_provenance(
    job: Job,
    package: Package,
    source: Source,
    *,
    version: str,
    image: Artifact,
    device_code: Sequence[Artifact],
    wheel: Artifact,
    run: RunDetails,
) -> Provenance:
    """The statement about a wheel, from its stages' stored facts, before there is a verification record."""
    return Provenance(
        wheel=str(wheel.facts["wheel"]),
        sha256=str(wheel.facts["sha256"]),
        rocm=job.rocm.version,
        archs=job.archs,
        version=version,
        parameters={
            "flags": {arch: list(flags) for arch, flags in source.flags.items()},
            "llvm": job.rocm.llvm,
            "platform_tag": job.platform_tag(package),
            "source_date_epoch": source.source_date_epoch,
        },
        dependencies=(*_sources(source, wheel), *_environment(package, image)),
        byproducts=(
            *(_resource(f"device-code-{c.facts['arch']}", {"sha256": code_digest(c)}) for c in device_code),
            _resource(WHEEL_MANIFEST, {"sha256": sha256_file(wheel.path / "manifest.json")}),
        ),
        run=run,
    )


def make_shim_provenance(
    source: Source, *, version: str, image: Artifact, wheel: Artifact, run: RunDetails
) -> Provenance:
    """The statement about a wheel of a drop-in, such as flash-attn, for every ROCm version and arch."""
    sources = str(wheel.manifest["inputs"]["sources"])
    return Provenance(
        wheel=str(wheel.facts["wheel"]),
        sha256=str(wheel.facts["sha256"]),
        rocm="",
        archs=(),
        version=version,
        parameters={"source_date_epoch": source.source_date_epoch},
        dependencies=(*_sources(replace(source, content=sources), wheel), *_image_resources(image)),
        byproducts=(_resource(WHEEL_MANIFEST, {"sha256": sha256_file(wheel.path / "manifest.json")}),),
        run=run,
    )


def make_candidates_provenance(
    job: Job,
    arch: str,
    source: Source,
    *,
    version: str,
    image: Artifact,
    wheel: Artifact,
    owners: Mapping[str, str],
    codes: Mapping[str, Mapping[str, str]],
    run: RunDetails,
) -> Provenance:
    """The statement about a distribution of candidates for ``arch``.

    ``owners``: the sha256 of the wheels that they belong to, by file name. ``codes``: of code objects, by
    kernel and row.
    """
    return Provenance(
        wheel=str(wheel.facts["wheel"]),
        sha256=str(wheel.facts["sha256"]),
        rocm=job.rocm.version,
        archs=(arch,),
        version=version,
        parameters={
            "flags": {"device": list(source.flags["device"])},
            "llvm": job.rocm.llvm,
            "source_date_epoch": source.source_date_epoch,
        },
        dependencies=(
            *_sources(source, wheel),
            *_image_resources(image),
            *(_resource(OWNERS[platform_of(name)], {"sha256": owners[name]}) for name in sorted(owners)),
        ),
        byproducts=(
            _resource(f"device-code-{arch}", {"sha256": candidates_digest(codes)}),
            _resource(WHEEL_MANIFEST, {"sha256": sha256_file(wheel.path / "manifest.json")}),
        ),
        run=run,
    )


def candidates_digest(codes: Mapping[str, Mapping[str, str]]) -> str:
    """One sha256 over the code objects of candidates, given by kernel and row."""
    files = {f"{name}-{row}.hsaco": sha for name, rows in codes.items() for row, sha in rows.items()}
    return key_of(files, length=64)


def headers_uri(release: str) -> str:
    """Torch's headers as a package URL."""
    return f"pkg:pypi/torch@{release}"


def zig_uri(release: str) -> str:
    """Zig as a package URL."""
    return f"pkg:pypi/ziglang@{release}"


def code_digest(code: Artifact) -> str:
    """One sha256 over an arch's code objects."""
    return key_of(code_objects(code), length=64)


def run_details(environ: Mapping[str, str], finished: str) -> RunDetails:
    """Describes GitHub's CI when ``environ`` is its runner's, a plain machine otherwise."""
    if environ.get("GITHUB_ACTIONS") != "true":
        return RunDetails(LOCAL, finished)
    server, repository = environ["GITHUB_SERVER_URL"], environ["GITHUB_REPOSITORY"]
    run = f"{environ['GITHUB_RUN_ID']}/attempts/{environ.get('GITHUB_RUN_ATTEMPT', '1')}"
    builder = f"{server}/{environ['GITHUB_WORKFLOW_REF']}"
    return RunDetails(builder, finished, f"{server}/{repository}/actions/runs/{run}")


def read_provenance(path: Path) -> Provenance:
    """Read a statement from an untrusted file. Raises ``ProvenanceError`` with all problems."""
    try:
        data = read_plain(path)
    except FileNotFoundError as error:
        missing = f"there is no {path.name} beside the wheel"
        raise ProvenanceError(missing, [f"{path} is not there"], advice=WRITE_AGAIN) from error
    except OSError as error:
        title = f"{path.name} cannot be read"
        raise ProvenanceError(title, [f"{path}: {error.strerror or error}"], advice=WRITE_AGAIN) from error
    return parse_provenance(data, path.name)


def parse_provenance(data: bytes, name: str) -> Provenance:
    """The reverse of ``Provenance.to_json`` for a file called ``name``. Raises ``ProvenanceError``."""
    title = f"{name} is not a provenance statement of this pipeline"
    try:
        read_json(data)
    except ValueError as error:
        raise ProvenanceError(title, [str(error)], advice=WRITE_AGAIN) from error
    try:
        statement = Statement.model_validate_json(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        lines = [": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"]))) for one in found]
        raise ProvenanceError(title, lines, advice=WRITE_AGAIN) from error
    types = (statement.type, statement.predicate_type, statement.predicate.build_definition.build_type)
    if types != (expected := (STATEMENT, PREDICATE, BUILD_TYPE)):
        problem = f"its types are {', '.join(types)}; expected {', '.join(expected)}"
        raise ProvenanceError(title, [problem], advice=WRITE_AGAIN)
    return _from_statement(statement)


def _to_statement(provenance: Provenance) -> Statement:
    run = provenance.run
    invocation = {"invocation_id": run.invocation} if run.invocation else {}
    return Statement(
        _type=STATEMENT,
        subject=[Subject(name=provenance.wheel, digest=Sha256(sha256=provenance.sha256))],
        predicate_type=PREDICATE,
        predicate=Predicate(
            build_definition=Definition(
                build_type=BUILD_TYPE,
                external_parameters=External(
                    rocm=provenance.rocm, archs=list(provenance.archs), version=provenance.version
                ),
                internal_parameters=Parameters(**provenance.parameters),
                resolved_dependencies=list(provenance.dependencies),
            ),
            run_details=Details(
                builder=Builder(id=run.builder),
                metadata=Metadata(**invocation, finished_on=run.finished),
                byproducts=list(provenance.byproducts),
            ),
        ),
    )


def _from_statement(statement: Statement) -> Provenance:
    [subject] = statement.subject
    definition, details = statement.predicate.build_definition, statement.predicate.run_details
    external = definition.external_parameters
    return Provenance(
        wheel=subject.name,
        sha256=subject.digest.sha256,
        rocm=external.rocm,
        archs=tuple(external.archs),
        version=external.version,
        parameters=definition.internal_parameters.model_dump(exclude_unset=True),
        dependencies=tuple(definition.resolved_dependencies),
        byproducts=tuple(details.byproducts),
        run=RunDetails(details.builder.id, details.metadata.finished_on, details.metadata.invocation_id),
    )


def _sources(source: Source, wheel: Artifact) -> tuple[Resource, ...]:
    changed = {"dirty": True, "changed": list(source.changed)} if source.changed else {"dirty": False}
    commit = {"gitCommit": source.commit} if source.commit else {}
    annotations = {**changed, "content_sha256": source.content}
    return (
        _resource(SOURCE, commit, source.uri, annotations),
        _resource(SOURCE_TREE, {"sha256": str(wheel.manifest["inputs"]["sources"])}),
    )


def _environment(package: Package, image: Artifact) -> tuple[Resource, ...]:
    facts = image.facts
    inside, base, tools = _image_resources(image)
    return (
        inside,
        base,
        _resource(HEADERS, {"sha256": package.torch_headers_sha256}, headers_uri(package.torch_headers)),
        _resource(ZIG, uri=zig_uri(facts["python_packages"]["ziglang"])),
        tools,
    )


def _image_resources(image: Artifact) -> tuple[Resource, Resource, Resource]:
    """The builder image, its inputs, and its tools."""
    facts, base = image.facts, image.facts["base"]
    inside = {
        "ref": facts["ref"],
        "os": facts["os"],
        "libcxx": facts["libcxx"],
        "compiler": compiler_packages(facts["packages"]),
        "packages": dict(facts["packages"]),
        "python_packages": dict(sorted(facts["python_packages"].items())),
    }
    origin = {"ref": base["ref"], "origin": base["origin"]}
    return (
        _resource(IMAGE, _digest(facts["image_id"]), annotations=inside),
        _resource(BASE, _digest(base["image_id"]), annotations=origin),
        _resource(TOOLS, {"sha256": image.manifest["inputs"]["files"][REQUIREMENTS]}),
    )


def _digest(image_id: str) -> dict[str, str]:
    algorithm, _, value = image_id.partition(":")
    return {algorithm: value}


def _resource(
    name: str,
    digest: Mapping[str, str] = MappingProxyType({}),
    uri: str = "",
    annotations: Mapping[str, Any] = MappingProxyType({}),
) -> Resource:
    """A resource without its empty fields."""
    said = {"digest": dict(digest), "uri": uri, "annotations": dict(annotations)}
    return Resource.model_validate({"name": name, **{key: value for key, value in said.items() if value}})
