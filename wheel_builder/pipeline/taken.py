"""Whether an index can take what a release would build; told before anything is built.

Sources that differ from those of the published wheel of the same name make another wheel, because their
digest stands in its SBOM.  What shows only in compiled device code is told by ``publish``, at the end.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from wheel_builder.base.errors import ProvenanceError, PublishError
from wheel_builder.build.wheel import wheel_version
from wheel_builder.build.wheel_inputs import read_inputs, sources_digest
from wheel_builder.index import local
from wheel_builder.index.folder import simple_of
from wheel_builder.matrix.model import PROJECT, Job
from wheel_builder.provenance.provenance import SOURCE_TREE, read_provenance
from wheel_builder.provenance.records import provenance_path

ADVICE = (
    "raise the version in pyproject.toml, or release to an index of its own: scripts/release --index DIR; "
    "if nobody else was given {index}, remove it"
)


def refuse_taken(jobs: Sequence[Job], checkout: Path, index: Path) -> None:
    """Raise ``PublishError`` when ``index``, given to others, has wheels of these jobs from other sources."""
    if local.is_local(index) or not index.is_dir():
        return
    digest = sources_digest(checkout, read_inputs(checkout))
    problems = [problem for job in jobs for problem in _problems(job, checkout, index, digest)]
    if problems := list(dict.fromkeys(problems)):  # wheels of one version for both platforms are together
        title = "a published file never changes; nothing was built"
        raise PublishError(title, problems, advice=ADVICE.format(index=index))


def _problems(job: Job, checkout: Path, index: Path, digest: str) -> Iterator[str]:
    name = f"{PROJECT.replace('-', '_')}-{wheel_version(job, checkout)}-*.whl"
    for wheel in sorted((simple_of(index, job.name) / PROJECT).glob(name)):
        try:
            said = read_provenance(provenance_path(wheel)).dependency(SOURCE_TREE).digest.get("sha256")
        except ProvenanceError:
            continue  # nothing is known of its sources; index verify says what is wrong
        if said and said != digest:
            yield f"{wheel.name} is published, of sources with sha256 {said}; those here have {digest}"
