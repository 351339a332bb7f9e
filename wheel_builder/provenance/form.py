"""The form of a statement, and its parts that follow from the wheel, the commit or other parts. Pure.

An unchecked field could hold anything.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from wheel_builder.base.words import line_problem, visible
from wheel_builder.images.bases import made_ref
from wheel_builder.matrix.machine_run import FIRST_TIME
from wheel_builder.provenance import provenance as p
from wheel_builder.provenance.commit import Recipe
from wheel_builder.provenance.provenance import Provenance, RunDetails
from wheel_builder.provenance.statement import Resource

SHA256 = {"sha256": re.compile(r"[0-9a-f]{64}", re.ASCII)}
COMMIT = {"gitCommit": re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII)}
TIME = "%Y-%m-%dT%H:%M:%SZ"
REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9./:@_+-]{0,200}", re.ASCII)
# A workflow and a run of GitHub or a compatible server.
WORKFLOW = re.compile(
    r"(https://[^/\s]+/[\w.-]+/[\w.-]+)/\.github/workflows/[\w.-]+@refs/[\w./+-]+", re.ASCII
)
RUN = re.compile(r"(https://[^/\s]+/[\w.-]+/[\w.-]+)/actions/runs/\d+/attempts/\d+", re.ASCII)
SHORT = re.compile(r"(?:[\w.-]+@)?([\w.-]+):([^/\s].*)", re.ASCII)  # as git and ssh write an address
NOT_PINNED = frozenset({"pip"})  # comes with the image's Python
DEVICE_CODE = "device-code-"


class Shape(NamedTuple):
    """A resource's digests, whether it has an address, and its annotations."""

    digests: Mapping[str, re.Pattern[str]]
    uri: bool = False
    annotations: frozenset[str] = frozenset()


OF_SHIM = {
    p.SOURCE: Shape(COMMIT, uri=True, annotations=frozenset({"dirty", "changed", "content_sha256"})),
    p.SOURCE_TREE: Shape(SHA256),
    p.IMAGE: Shape(
        SHA256, annotations=frozenset({"ref", "os", "libcxx", "compiler", "packages", "python_packages"})
    ),
    p.BASE: Shape(SHA256, annotations=frozenset({"ref", "origin"})),
    p.TOOLS: Shape(SHA256),
}
OF_CANDIDATES = {**OF_SHIM, **{name: Shape(SHA256) for name in p.OWNERS.values()}}
DEPENDENCIES = {**OF_SHIM, p.HEADERS: Shape(SHA256, uri=True), p.ZIG: Shape({}, uri=True)}


def form_problems(
    found: Provenance,
    code: Mapping[str, str],
    record: str,
    now: datetime,
    *,
    candidates: bool = False,
) -> Iterator[str]:
    """Extra and missing parts of a statement, compared with those written by builds.

    ``code`` has the digest of each arch's code objects in the wheel. ``record`` is the name of its record.
    ``candidates``: it is about a distribution of candidates.
    """
    if len(set(found.archs)) != len(found.archs):
        yield f"file: the statement names an arch twice: {_listed(found.archs)}"
    if candidates:
        yield from _resources("dependency", found.dependencies, OF_CANDIDATES, p.OWNERS.values())
        if not any(one.name in p.OWNERS.values() for one in found.dependencies):
            yield f"recipe: it names no wheel that it belongs to; expected {_listed(p.OWNERS.values())}"
    else:
        yield from _resources("dependency", found.dependencies, DEPENDENCIES if found.rocm else OF_SHIM)
    made = [*(f"{DEVICE_CODE}{arch}" for arch in code), p.WHEEL_MANIFEST, record]
    yield from _resources("byproduct", found.byproducts, dict.fromkeys(made, Shape(SHA256)), (record,))
    for arch, digest in code.items():
        said = found.byproduct(f"{DEVICE_CODE}{arch}").digest.get("sha256", digest)
        if said != digest:
            yield f"file: it says device code of {arch} with sha256 {said}, but the wheel's has {digest}"
    yield from _run_problems(found.run, found.dependency(p.SOURCE).uri, now)


def _resources(
    what: str, found: Collection[Resource], shapes: Mapping[str, Shape], told: Collection[str] = ()
) -> Iterator[str]:
    """Resources of another shape. Those already ``told`` may be missing."""
    names = {one.name for one in found}
    if strange := sorted(names - shapes.keys()):
        yield f"recipe: it has the {what} {_quoted(strange[0])}; expected {_listed(shapes)}"
    if missing := [name for name in shapes if name not in names and name not in told]:
        yield f"recipe: it lacks the {what} {missing[0]}"
    for one in found:
        if shape := shapes.get(one.name):
            yield from (f"recipe: {one.name}: {problem}" for problem in _shape_problems(one, shape))


def _shape_problems(one: Resource, shape: Shape) -> Iterator[str]:
    for kind, digest in one.digest.items():
        if kind not in shape.digests or not shape.digests[kind].fullmatch(digest):
            yield f"it has the digest {_quoted(kind)} {_quoted(digest)}; expected {_listed(shape.digests)}"
    if missing := sorted(shape.digests.keys() - one.digest.keys() - {"gitCommit"}):
        yield f"it has no {missing[0]}"
    if one.uri and not shape.uri:
        yield f"it has the address {_quoted(one.uri)}; expected none"
    if strange := sorted(one.annotations.model_fields_set - shape.annotations):
        yield f"it says {strange[0]}; expected {_listed(sorted(shape.annotations)) or 'nothing'}"


def _run_problems(run: RunDetails, uri: str, now: datetime) -> Iterator[str]:
    try:
        when = datetime.strptime(run.finished, TIME).replace(tzinfo=UTC)
    except ValueError:
        yield f"run: it was finished at {_quoted(run.finished)}; expected a time such as 2026-11-21T10:00:00Z"
    else:
        if not FIRST_TIME <= when <= now:
            yield f"run: it was finished at {run.finished}; expected a time since {FIRST_TIME:%F} in the past"
    if run.builder == p.LOCAL:
        if run.invocation:
            yield f"run: {_quoted(run.invocation)} is no run of a machine of its user"
        return
    workflow, invocation = WORKFLOW.fullmatch(run.builder), RUN.fullmatch(run.invocation)
    if workflow is None:
        yield f"run: its builder is {_quoted(run.builder)}; expected {p.LOCAL} or a workflow's address"
    elif invocation is None or invocation[1] != workflow[1]:
        yield f"run: its run is {_quoted(run.invocation)}; expected one of {workflow[1]}"
    elif place_of(workflow[1]) != place_of(uri):
        yield f"run: its builder is a workflow of {workflow[1]}; expected one of its source, {_quoted(uri)}"


def place_of(address: str) -> tuple[str, str]:
    """The host and path shared by all addresses of a repository."""
    if short := SHORT.fullmatch(address):
        host, path = short[1], f"/{short[2]}"
    else:
        try:
            parts = urlsplit(address.removeprefix("git+"))
        except ValueError:
            return "", ""
        host, path = parts.hostname or "", parts.path
    return host.lower(), path.rstrip("/").removesuffix(".git")


def source_problem(found: Provenance, remotes: Collection[str]) -> str:
    """Why the commit is from another source than stated. ``remotes`` are the checkout's addresses."""
    uri = found.dependency(p.SOURCE).uri
    here = place_of(uri)
    if not uri or (all(here) and here in map(place_of, remotes)):
        return ""
    known = _listed([host + path for host, path in sorted(set(map(place_of, remotes)))]) or "none"
    return f"recipe: it says source {_quoted(uri)}, but this checkout's remotes are {known}"


def image_problems(found: Provenance, recipe: Recipe) -> Iterator[str]:
    """Differences of the images from the commit's matrix and requirements."""
    base, image = found.dependency(p.BASE).annotations, found.dependency(p.IMAGE).annotations
    of = [recipe.bases[found.rocm]] if found.rocm in recipe.bases else [*recipe.bases.values()]
    expected = [each for one in of for each in ((one.ref, "pulled"), (made_ref(one.suite), "mmdebstrap"))]
    if expected and (base.ref, base.origin) not in expected:
        words = " or ".join(f"{ref} ({origin})" for ref, origin in dict.fromkeys(expected) if ref)
        yield f"recipe: it says base {_quoted(base.ref)} ({_quoted(base.origin)}), expected {words}"
    if not REF.fullmatch(image.ref):
        yield f"recipe: it says image {_quoted(image.ref)}, expected the name of one"
    lacking = [name for one in of for name in one.packages if name not in image.packages]
    if lacking and len(of) == 1:
        yield f"recipe: its image has no {lacking[0]}, which its commit installs for ROCm {found.rocm}"
    pins = pins_of(recipe.pins)
    for name, version in image.python_packages.items():
        if name not in NOT_PINNED and version not in (pinned := pins.get(canonicalize_name(name), ())):
            words = " or ".join(pinned) or "none"
            yield f"recipe: its image has {name} {version} for Python, but its commit pins {words}"


def pins_of(requirements: str) -> Mapping[str, tuple[str, ...]]:
    """The versions of each project in a requirements file, several where they depend on Python's."""
    found: dict[str, tuple[str, ...]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", requirements, re.MULTILINE):
        known = canonicalize_name(name)
        found[known] = (*found.get(known, ()), version)
    return found


def _quoted(text: str) -> str:
    return repr(text[:80]) if line_problem(text) else visible(text[:200])


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)
