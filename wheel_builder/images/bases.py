"""Base images: from the engine, else from a registry, else made here with mmdebstrap."""

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from wheel_builder.base.errors import ImageError
from wheel_builder.base.machine import os_release
from wheel_builder.base.process import Runner, run
from wheel_builder.images import docker

LABEL = "flash-attn-rocm.base"
APT = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")
PASSWORDS = (
    "let this machine's apt read the password from /etc/apt/auth.conf.d instead (man apt_auth.conf); what "
    "images are made from has to be an archive that asks for none, or load the base image (docker load)"
)


@dataclass(frozen=True)
class Base:
    """An image to build from: its name in the engine, its id, and where it came from."""

    ref: str
    id: str
    origin: str


def ensure_base(base: str, suite: str = "", *, log: Path, run: Runner = run) -> Base:
    """The base image ``base``. If no registry has it, a minimal image of Debian ``suite`` instead.

    Raises ``ImageError`` when both are impossible.
    """
    for ref, origin in ((base, "pulled"), (made_ref(suite), "mmdebstrap")):
        if ref and (found := docker.inspect_image(ref, run=run)):
            return Base(ref, found.id, origin)
    if docker.try_pull(base, log=log, run=run):
        return Base(base, _id(base, run), "pulled")
    if not suite:
        message = f"{base}: no registry has this image, and it cannot be made here"
        raise ImageError(message, advice=f"load it (docker load), or read the registry's answer: {log}")
    make_base(suite, log=log, run=run)
    return Base(made_ref(suite), _id(made_ref(suite), run), "mmdebstrap")


def make_base(suite: str, *, log: Path, run: Runner = run) -> None:
    """Make the minimal image of a Debian suite, ``made_ref(suite)``, from this machine's archive.

    Check-Valid-Until is off, so that snapshots of an archive work. Signatures are still checked.
    """
    mirror = host_mirror()
    with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-base-") as folder:
        tar = Path(folder) / f"{suite}.tar"
        argv: list[str | Path] = ["mmdebstrap", "--variant=minbase", "--include=ca-certificates"]
        argv += ['--aptopt=Acquire::Check-Valid-Until "false"', "--dpkgopt=force-unsafe-io", suite, tar]
        advice = "install mmdebstrap and debian-archive-keyring; apt has to reach a Debian archive"
        run([*argv, *([mirror] if mirror else [])], log=log, advice=advice)
        docker.import_tar(tar, made_ref(suite), labels={LABEL: suite}, log=log, run=run)


def made_ref(suite: str) -> str:
    return f"flash-attn-rocm-base:{suite}" if suite else ""


def host_mirror(apt: Path = APT, release_file: Path = OS_RELEASE) -> str:
    """The Debian archive used by this machine, or empty (mmdebstrap's own default) on other systems.

    It appears in logs and images, so addresses with a user or password are skipped. Raises ``ImageError`` if
    all addresses have one.
    """
    release = os_release(release_file.read_text(encoding="utf-8"))
    codename = release.get("VERSION_CODENAME", "")
    if release.get("ID") != "debian" or not codename:
        return ""
    files = (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*")))
    texts = (file.read_text(encoding="utf-8") for file in files if file.is_file())
    secret = ""
    for uri in (uri for text in texts for uri in archive_uris(text, codename)):
        if "@" not in uri:
            return uri
        secret = secret or uri
    if secret:
        host = secret.rpartition("@")[2]
        message = (
            f"this machine's apt sources have {codename} only from {host} with a user or password in the "
            "address, which logs and images would show; expected an address without"
        )
        raise ImageError(message, advice=PASSWORDS)
    return ""


def archive_uris(sources: str, codename: str) -> Iterator[str]:
    """The HTTP archives of ``codename``'s main component in an apt source file of either format."""
    for stanza in sources.split("\n\n"):
        fields = dict(_field(line) for line in stanza.splitlines() if ":" in line and line[0] not in "# ")
        if codename in fields.get("Suites", "").split() and "main" in fields.get("Components", "").split():
            yield from _http(fields.get("URIs", "").split())
    for line in sources.splitlines():
        words = re.sub(r"\[.*?\]", "", line).split()
        if words[:1] == ["deb"] and words[2:3] == [codename] and "main" in words[3:]:
            yield from _http(words[1:2])


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _http(uris: list[str]) -> list[str]:
    return [uri for uri in uris if urlsplit(uri).scheme in ("http", "https")]


def _id(ref: str, run: Runner) -> str:
    found = docker.inspect_image(ref, run=run)
    if not found:
        message = f"{ref}: the engine does not have the image that was just made"
        raise ImageError(message, advice="is another process removing images? then run again")
    return found.id
