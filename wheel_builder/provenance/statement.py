"""The form of a provenance statement in JSON: in-toto's statement with SLSA's v1 predicate.

These models write and read statements. Anybody can write one, so reading is strict: every value has its type,
unknown keys are refused, and names are unique.
"""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

# Strict, because packages are written into matrix.yaml and from there into commands.
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+:~_!-]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Camel(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True
    )


class Parameters(_Strict):
    flags: dict[str, list[str]] = {}
    llvm: str = ""
    platform_tag: str = ""
    source_date_epoch: str = ""


class Annotations(_Strict):
    """Facts about a source or an image besides its digest."""

    dirty: bool = True
    changed: list[str] = []
    content_sha256: str = ""
    ref: str = ""
    origin: str = ""
    os: str = ""
    libcxx: str = ""
    compiler: dict[Word, Word] = {}
    packages: dict[Word, Word] = {}
    python_packages: dict[Word, Word] = {}


class Resource(_Strict):
    """An input or a further output of the build (SLSA's ResourceDescriptor)."""

    name: str
    digest: dict[str, str] = {}
    uri: str = ""
    annotations: Annotations = Annotations()


def _each_once(found: list[Resource]) -> list[Resource]:
    names = [one.name for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        message = f"each name may stand there once, but {', '.join(twice)} stands there again"
        raise ValueError(message)
    return found


Resources = Annotated[list[Resource], AfterValidator(_each_once)]


class Sha256(_Strict):
    sha256: str


class Subject(_Strict):
    name: str
    digest: Sha256


class External(_Strict):
    rocm: str
    archs: list[str]
    version: str


class Definition(_Camel):
    build_type: str
    external_parameters: External
    internal_parameters: Parameters
    resolved_dependencies: Resources


class Builder(_Strict):
    id: str


class Metadata(_Camel):
    finished_on: str
    invocation_id: str = ""


class Details(_Camel):
    builder: Builder
    metadata: Metadata
    byproducts: Resources


class Predicate(_Camel):
    build_definition: Definition
    run_details: Details


class Statement(_Camel):
    type: str = Field(alias="_type")
    subject: Annotated[list[Subject], Field(min_length=1, max_length=1)]
    predicate_type: str
    predicate: Predicate
