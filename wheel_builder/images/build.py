"""Shared parts of the stages that make images: build context, stored result, the check inside the image."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, ImageError
from wheel_builder.base.machine import os_release
from wheel_builder.base.process import Runner
from wheel_builder.base.store import Artifact, Store, key_of, sha256_file
from wheel_builder.images import docker, fetch, hostenv
from wheel_builder.images.bases import Base
from wheel_builder.images.fetch import source_of
from wheel_builder.images.hostenv import HostSettings

PYTHON_PACKAGES = ("python3-venv", "ca-certificates")


@dataclass(frozen=True)
class ImageBuild:
    """How one image is built.

    ``python``: the image's Python, for which wheels are fetched. ``torch_index``: an index, or an absolute
    folder of wheels, searched for torch in addition to pip's settings. ``host``: the settings for fetching,
    this machine's own when None. ``fresh``: ignore cached layers.
    """

    dockerfile: str
    ref: str
    args: Mapping[str, str]
    log: Path
    run: Runner
    python: str = "python3"
    torch_index: str = ""
    host: HostSettings | None = None
    fresh: bool = False

    def system(self, context: Path) -> str:
        """Build stage ``system``, the distribution's packages. Its Python then fetches the wheels."""
        ref = f"{self.ref}-system"
        docker.build(
            context,
            self.dockerfile,
            ref,
            args=self.args,
            target="system",
            fresh=self.fresh,
            log=self.log,
            run=self.run,
        )
        return ref

    def finish(self, context: Path, *, labels: Mapping[str, str] | None = None, target: str = "") -> None:
        """Build the rest, on the layers of ``system``, or up to stage ``target``, under the image's name."""
        args, log, run = self.args, self.log, self.run
        docker.build(
            context, self.dockerfile, self.ref, args=args, labels=labels, target=target, log=log, run=run
        )

    def fetch(self, system: str, wanted: Sequence[str], into: Path, *, files: Sequence[Path] = ()) -> None:
        """Add the wheels to ``into`` that ``pip download`` gets for the image's Python and the arguments
        ``wanted``."""
        host = hostenv.read_host_settings(run=self.run) if self.host is None else self.host
        folder = Path(self.torch_index) if self.torch_index.startswith("/") else None
        argv = [self.python, *wanted, *self._index(folder)]
        mounted = [*files, folder] if folder else files
        fetch.fetch_wheels(system, argv, into, files=mounted, host=host, log=self.log, run=self.run)

    def fetch_pinned(
        self, system: str, requirements: str, into: Path, *, options: Sequence[str] = ()
    ) -> None:
        """Fetch the wheels of a requirements list in ``dockerfiles/``, pinned by version and hash.

        ``options`` are pip's, for another Python than the image's.
        """
        wanted = ["--no-deps", "--require-hashes", *options, "--requirement", fetch.inside(requirements)]
        self.fetch(system, wanted, into, files=[source_of(requirements)])

    def fetch_torch(self, system: str, torch: str, into: Path) -> Path:
        """Fetch the torch wheel for a requirement such as ``torch==2.13.0``, alone, and return it.

        Raises ``ImageError`` for a CUDA build.
        """
        self.fetch(system, ["--no-deps", torch], into)
        wheel = next(into.glob("torch-*.whl"))
        fetch.refuse_cuda(wheel)
        return wheel

    def _index(self, folder: Path | None) -> list[str]:
        if folder:
            return ["--find-links", fetch.inside(folder.name)]
        return ["--extra-index-url", self.torch_index] if self.torch_index else []

    def facts(self, base: Base) -> Mapping[str, Any]:
        """The facts in every image's manifest."""
        made = {"ref": base.ref, "image_id": base.id, "origin": base.origin}
        return {**describe(self.ref, log=self.log, run=self.run), "base": made}


def stored_image(
    stage: str,
    inputs: Mapping[str, Any],
    store: Store,
    make: Callable[[Path], Mapping[str, Any]],
    *,
    run: Runner,
) -> Artifact:
    """``store.get_or_make`` for a stage whose result is an image: made again if the engine has lost it.

    ``make`` returns facts with ``ref`` and ``image_id``.
    """
    find_image(stage, inputs, store, run=run)
    return store.get_or_make(stage, inputs, make)


def find_image(stage: str, inputs: Mapping[str, Any], store: Store, *, run: Runner) -> Artifact | None:
    """The stored image for these inputs, None if nothing is stored or the engine has lost it."""
    found = store.find(stage, inputs)
    if found and not _in_engine(found, run):
        shutil.rmtree(found.path)
        return None
    return found


def file_digests(names: Sequence[str]) -> Mapping[str, str]:
    """The sha256 of files in ``dockerfiles/``, for a stage's inputs."""
    return {name: sha256_file(source_of(name)) for name in names}


@contextmanager
def context(names: Sequence[str], what: str, log: Path) -> Iterator[Path]:
    """A folder with copies of files in ``dockerfiles/``, to add files to and build from.

    A command that fails meanwhile becomes an ``ImageError`` that begins with ``what``.
    """
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-context-") as folder:
        for name in names:
            shutil.copy(source_of(name), folder)
        try:
            yield Path(folder)
        except CommandFailedError as error:
            message = f"{what} does not build\n{error.message}"
            raise ImageError(message, advice=error.advice or f"read the log: {log}") from error


def tag_of(inputs: Mapping[str, Any]) -> str:
    """The part of a tag that distinguishes images of different inputs."""
    return key_of(inputs)[:12]


def package_groups(groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Packages per suite in install_packages.sh's form. An empty suite is the image's own."""
    return " ".join(f"{suite}:{','.join(names)}" for suite, names in groups if names)


def run_check(ref: str, argv: Sequence[str], what: str, *, log: Path, run: Runner) -> None:
    """Run an image's own check in it, without network or rights. Raises ``ImageError`` with its output."""
    done = docker.run_in(ref, argv, user=docker.NOBODY, log=log, check=False, run=run)
    if done.returncode == 0:
        return
    found = [line for line in done.stdout.splitlines() if line.startswith(f"{argv[0]}:")]
    message = "\n".join([f"{what} is not fit for use", *(f"  - {line}" for line in found or ["no answer"])])
    raise ImageError(message, advice=f"correct the packages in matrix.yaml or the Dockerfile; log: {log}")


def describe(ref: str, *, log: Path, run: Runner) -> Mapping[str, Any]:
    """``ref``, ``image_id``, ``os`` and ``packages`` (name -> exact version) of a finished image."""
    info = docker.inspect_image(ref, run=run)
    if info is None:
        message = f"{ref}: the engine does not have the image that was just built"
        raise ImageError(message, advice="is another process removing images? then run again")
    query = ["--show", "--showformat", "${Package} ${Version}\\n"]
    listed = docker.run_in(ref, query, entrypoint="dpkg-query", user=docker.NOBODY, log=log, run=run).stdout
    release = docker.run_in(
        ref, ["/etc/os-release"], entrypoint="cat", user=docker.NOBODY, log=log, run=run
    ).stdout
    return {
        "ref": ref,
        "image_id": info.id,
        "os": os_name(release),
        "packages": dict(line.split() for line in listed.splitlines() if line),
    }


def os_name(release: str) -> str:
    """PRETTY_NAME of an os-release file."""
    return os_release(release).get("PRETTY_NAME", "unknown")


def link_tree(source: Path, into: Path) -> None:
    """Copy a folder, by hard links where the file system allows it."""
    shutil.copytree(source, into, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _in_engine(artifact: Artifact, run: Runner) -> bool:
    info = docker.inspect_image(artifact.facts["ref"], run=run)
    return info is not None and info.id == artifact.facts["image_id"]
