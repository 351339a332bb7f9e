"""zstd's source for the host library, from a pinned source distribution: ``kernels/build/zstd.toml``."""

import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import WheelError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_file
from wheel_builder.images.sdist import Sdist, download

PINS = "kernels/build/zstd.toml"
FOLDER = "zstd"


@dataclass(frozen=True)
class Zstd:
    """A release of zstd. ``files`` maps names to sha256."""

    version: str
    sdist: Sdist
    files: Mapping[str, str]


def read_pins(checkout: Path) -> Zstd:
    """The release in a checkout. Raises ``OSError``, ``LookupError``, ``TypeError`` or ``ValueError``."""
    found = tomllib.loads((checkout / PINS).read_text(encoding="utf-8"))
    return Zstd(str(found["version"]), Sdist(**found["sdist"]), found["files"])


def fetch_zstd(checkout: Path, store: Store, *, log: Path, run: Runner = run) -> Artifact:
    """The files of ``zstd.toml``. Raises ``WheelError`` if one of them differs from its sha256."""
    zstd = read_pins(checkout)
    inputs = {"sdist": zstd.sdist.sha256, "files": dict(zstd.files)}

    def make(out: Path) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(prefix="flash-attn-rocm-zstd-") as folder:
            [name] = download(zstd.sdist, Path(folder), log=log, run=run)
            _extract(Path(folder) / name, zstd, out)
        return {"version": zstd.version}

    return store.get_or_make("zstd", inputs, make)


def _extract(archive: Path, zstd: Zstd, out: Path) -> None:
    inside = f"{zstd.sdist.name}-{zstd.sdist.version}/{FOLDER}"
    with tarfile.open(archive) as opened:
        for name, expected in zstd.files.items():
            member = next((each for each in opened if each.name == f"{inside}/{name}"), None)
            stream = opened.extractfile(member) if member else None
            (out / name).write_bytes(stream.read() if stream else b"")
            if (found := sha256_file(out / name)) != expected:
                message = f"{archive.name}: {name} has sha256 {found}, expected {expected}"
                raise WheelError(message, advice=f"compare the release with {PINS}")
