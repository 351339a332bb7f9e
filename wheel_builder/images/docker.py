"""The container engine behind a few verbs. Callers never see docker's flags.

The classic builder is used everywhere: it works without plugin and syntax image. Containers are removed when
they end and when the caller is interrupted. ``remove_orphans`` removes those of killed processes.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from wheel_builder.base.errors import ImageError
from wheel_builder.base.process import Completed, Runner, run

OWNER_LABEL = "flash-attn-rocm.owner"
PULL_SECONDS = 600
# A user without rights, in every image.
NOBODY = "65534:65534"
PROC = Path("/proc")
# Characters with a meaning in the value of docker's option --mount.
UNMOUNTABLE = {",": "a comma", '"': "a quotation mark", "\n": "a line break", "\r": "a line break"}


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine inside a container, read-only by default."""

    source: Path
    target: str
    writable: bool = False

    @property
    def flag(self) -> str:
        path = f"{self.source}{self.target}"
        if found := next((name for sign, name in UNMOUNTABLE.items() if sign in path), ""):
            message = f"{str(self.source)!r}: {found} in the path; the container engine cannot mount it"
            raise ImageError(message, advice="move the checkout to a path without commas and quotation marks")
        mode = "" if self.writable else ",readonly"
        return f"type=bind,source={self.source.absolute()},target={self.target}{mode}"


@dataclass(frozen=True)
class ImageInfo:
    """The engine's data about an image.

    ``digests`` come from its registry. ``size`` is the bytes of all its layers, unpacked.
    """

    id: str
    digests: tuple[str, ...]
    labels: Mapping[str, str]
    created: str
    size: int


def build(
    context: Path,
    dockerfile: str,
    tag: str,
    *,
    args: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    target: str = "",
    fresh: bool = False,
    log: Path,
    run: Runner = run,
) -> None:
    """Build ``context/dockerfile`` up to stage ``target`` (all of it by default) as ``tag``.

    ``fresh`` ignores cached layers. This machine's proxy settings are used in the build. The engine keeps
    them out of the image. Raises ``CommandFailedError``.
    """
    argv: list[str | Path] = ["docker", "build", "--force-rm", "--tag", tag, "--file", context / dockerfile]
    argv += [part for name, value in args.items() for part in ("--build-arg", f"{name}={value}")]
    argv += [part for name in proxy_names(os.environ) for part in ("--build-arg", name)]
    argv += [part for name, value in (labels or {}).items() for part in ("--label", f"{name}={value}")]
    argv += ["--target", target] if target else []
    argv += ["--no-cache"] if fresh else []
    run([*argv, context], log=log, env={**os.environ, "DOCKER_BUILDKIT": "0"})


def run_in(
    image: str,
    argv: Sequence[str],
    *,
    mounts: Sequence[Mount] = (),
    env: Mapping[str, str] | None = None,
    network: str = "none",
    user: str | None = None,
    workdir: str = "",
    entrypoint: str = "",
    memory_mib: int = 0,
    check: bool = True,
    log: Path | None = None,
    run: Runner = run,
) -> Completed:
    """Run ``argv`` in a container of a local image, without network, capabilities or new rights.

    ``memory_mib`` limits its memory including swap. 0 means unlimited. ``user`` is the image's own when None.
    With ``caller()`` new files belong to the caller. The container is removed before this returns or raises,
    also for KeyboardInterrupt.
    """
    name = f"flash-attn-rocm-{uuid4().hex[:12]}"
    flags = ["--rm", "--init", "--pull=never", "--name", name, "--label", f"{OWNER_LABEL}={_owner()}"]
    flags += ["--network", network, "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    flags += ["--user", user] if user is not None else []
    flags += ["--workdir", workdir] if workdir else []
    flags += ["--memory", f"{memory_mib}m", "--memory-swap", f"{memory_mib}m"] if memory_mib else []
    flags += ["--entrypoint", entrypoint] if entrypoint else []
    flags += [part for mount in mounts for part in ("--mount", mount.flag)]
    flags += [part for key, value in (env or {}).items() for part in ("--env", f"{key}={value}")]
    flags += [part for key in proxy_names(os.environ) if network != "none" for part in ("--env", key)]
    try:
        return run(["docker", "run", *flags, image, *argv], log=log, check=check)
    except BaseException:
        run(["docker", "rm", "--force", "--volumes", name], check=False)
        raise


def caller() -> str:
    """This process's user and group, for ``run_in``: files written to a mount belong to the caller."""
    return f"{os.getuid()}:{os.getgid()}"


@contextmanager
def open_to_all(folder: Path) -> Iterator[None]:
    """Let ``NOBODY`` write to a stage's empty ``folder`` inside the block."""
    folder.chmod(0o777)
    yield
    folder.chmod(0o755)


def inspect_image(ref: str, *, run: Runner = run) -> ImageInfo | None:
    """The engine's image of this name, or None. Raises ``CommandFailedError`` without an engine."""
    ids = run(["docker", "images", "--quiet", "--no-trunc", ref]).stdout.split()
    if not ids:
        return None
    found = json.loads(run(["docker", "image", "inspect", "--format", "{{json .}}", ids[0]]).stdout)
    return ImageInfo(
        id=found["Id"],
        digests=tuple(found["RepoDigests"] or ()),
        labels=found["Config"].get("Labels") or {},
        created=found["Created"],
        size=found["Size"],
    )


def import_tar(tar: Path, ref: str, *, labels: Mapping[str, str], log: Path, run: Runner = run) -> None:
    """Make an image with one layer, the files of ``tar``."""
    changes = [part for key, value in labels.items() for part in ("--change", f"LABEL {key}={value}")]
    run(["docker", "import", *changes, tar, ref], log=log)


def try_pull(ref: str, *, log: Path, seconds: int = PULL_SECONDS, run: Runner = run) -> bool:
    """Whether a registry delivered the image within ``seconds``. No answer gives False."""
    argv = ["timeout", "--kill-after=5", str(seconds), "docker", "pull", "--quiet", ref]
    return run(argv, log=log, check=False).returncode == 0


def save(ref: str, file: Path, *, log: Path, run: Runner = run) -> None:
    """Write an image, with its name, to ``file``."""
    aside = file.with_name(f".{file.name}")
    run(["docker", "save", "--output", aside, ref], log=log)
    aside.replace(file)


def load(file: Path, *, log: Path, run: Runner = run) -> None:
    """Load an image written by ``save`` into the engine."""
    advice = "is the file complete? fetch it again"
    run(["docker", "load", "--quiet", "--input", file], log=log, advice=advice)


def remove(ref: str, *, run: Runner = run) -> None:
    """Remove an image's name, and the image with its last name.  A missing name is fine."""
    if inspect_image(ref, run=run):
        run(["docker", "rmi", "--no-prune", ref])


def remove_orphans(*, run: Runner = run) -> int:
    """Remove the containers of ``run_in`` calls whose process was killed. Returns their number."""
    form = '{{.ID}} {{.Label "' + OWNER_LABEL + '"}}'
    listed = run(["docker", "ps", "--all", "--filter", f"label={OWNER_LABEL}", "--format", form]).stdout
    owners = dict(line.split() for line in listed.splitlines())
    orphans = [container for container, owner in owners.items() if not _alive(owner)]
    if orphans:
        run(["docker", "rm", "--force", "--volumes", *orphans])
    return len(orphans)


def proxy_names(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the proxy settings in ``environ``. The docker client reads the values itself."""
    names = ("http_proxy", "https_proxy", "no_proxy")
    return tuple(n for name in names for n in (name, name.upper()) if environ.get(n))


def owner_flag() -> str:
    """The label for a container that another program creates for this process."""
    return f"--label={OWNER_LABEL}={_owner()}"


@contextmanager
def threads(most: int) -> Iterator[ThreadPoolExecutor]:
    """A pool for calls that run containers, ``most`` at a time.

    When the block raises, waiting calls are cancelled and running ones are waited for. At an interruption
    their containers are removed first.
    """
    with ThreadPoolExecutor(most) as pool:
        try:
            yield pool
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            if not isinstance(error, Exception):
                remove_own()  # or the pool would wait for its containers
            raise


def remove_own(*, run: Runner = run) -> None:
    """Remove this process's containers, including those that other programs created for it."""
    argv = ["docker", "ps", "--all", "--quiet", "--filter", f"label={OWNER_LABEL}={_owner()}"]
    if own := run(argv, check=False).stdout.split():
        run(["docker", "rm", "--force", "--volumes", *own], check=False)


def _owner() -> str:
    return f"{os.getpid()}-{_start_time(os.getpid())}"


def _alive(owner: str) -> bool:
    pid, _, started = owner.partition("-")
    return pid.isdecimal() and _start_time(int(pid)) == started


def _start_time(pid: int) -> str:
    """A process's start, in clock ticks since boot: it distinguishes reused process ids."""
    try:
        return (PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
