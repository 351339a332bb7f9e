"""The inputs of an emulated suite, as digests: the key of its result, and the copies for its container.

Of the wheel these are the code objects of one arch, the library without device code, and the Python package.
The container's other inputs follow. Docstrings and comments are left out (``code_digest``).
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import VerifyError
from wheel_builder.base.store import Artifact, key_of, sha256_file, walk_files
from wheel_builder.files.binaries.elf import section_bytes
from wheel_builder.files.binaries.pe import read_pe
from wheel_builder.files.device.compressed import read_packed
from wheel_builder.files.device.fatbin import SECTION, gfx_of
from wheel_builder.files.device.hostpart import host_part
from wheel_builder.files.device.library import (
    LIBRARY,
    WINDOWS_LIBRARY,
    WINDOWS_SECTION,
    for_windows,
    library_of,
)
from wheel_builder.files.pycode import code_digest
from wheel_builder.files.wheels.wheelfile import MAX_READ_MIB, WheelFile, read_wheel
from wheel_builder.images.docker import Mount
from wheel_builder.images.wheel_tests import Suite

WHOLE = 64  # hex digits of a digest
TESTS_INSIDE = "/tests"
PACKAGE = "flash_attn_rocm/"
# Of dist-info: digests of the other files, and words for people and scanners.
NOT_READ = re.compile(r"RECORD|(sboms|licenses)/.*")
METADATA = "METADATA"
# Names of rows in explain and in reports. No result of a kernel depends on them.
NAMES = ("flash_attn_rocm/values/measured.json", "flash_attn_rocm/values/rows.json")

# Files of a folder by their names in it. A single file has the name "".
Files = Mapping[str, Path]


@dataclass(frozen=True)
class Subject:
    """A wheel as the suite of ``arch`` sees it. ``parts`` are digests by the name of the part."""

    wheel: Path
    sha256: str
    arch: str
    parts: Mapping[str, str]


def subjects_of(wheel: Path, archs: Iterable[str]) -> Mapping[str, Subject]:
    """The views of each arch's suite on ``wheel``, from one reading.

    Raises ``WheelFileError``, ``ElfError``, ``PeError`` or ``FatbinError``.
    """
    content = read_wheel(wheel, max_mib=MAX_READ_MIB)
    if for_windows(content):
        host = library_of(content, WINDOWS_LIBRARY)  # all of it: device code is among its other sections
        fatbin = read_pe(host).section_bytes(WINDOWS_SECTION)
    else:
        library = library_of(content)
        host, fatbin = host_part(library), section_bytes(library, SECTION)
    common = {"library": hashlib.sha256(host).hexdigest(), "package": package_part(content)}
    parts = {arch: {"code": code_part(fatbin or b"", arch), **common} for arch in archs}
    return {arch: Subject(wheel, content.sha256, arch, each) for arch, each in parts.items()}


def code_part(fatbin: bytes, arch: str) -> str:
    """A digest of the code objects for ``arch``, all of their bytes, in the order of their kernels' names."""
    codes = (code for code in read_packed(fatbin) if code.gfx == arch)
    rows = [[code.arch, hashlib.sha256(code.data).hexdigest()] for code in codes]
    return key_of({"code": rows}, length=WHOLE)


def package_part(wheel: WheelFile) -> str:
    """A digest of all installed files except the library and row ids.

    Code of the package, all other files whole.
    """
    return key_of(dict(_package_rows(wheel)), length=WHOLE)


def _package_rows(wheel: WheelFile) -> Iterator[tuple[str, str]]:
    for name, data in wheel.files.items():
        own = name.removeprefix(f"{wheel.dist_info}/")
        if name in (LIBRARY, WINDOWS_LIBRARY, *NAMES) or (own != name and NOT_READ.fullmatch(own)):
            continue
        if own != name and own == METADATA:
            # Without the description, a page for people.
            yield name, hashlib.sha256(data.partition(b"\n\n")[0]).hexdigest()
        elif name.startswith(PACKAGE) and name.endswith(".py"):
            yield name, code_digest(data)
        else:
            yield name, hashlib.sha256(data).hexdigest()


def files_at(path: Path) -> Files:
    """A file, or the files of a folder without caches. Raises ``VerifyError`` if there is nothing."""
    if path.is_file():
        return {"": path}
    files = walk_files(path) if path.is_dir() else ()
    if not (found := {file.relative_to(path).as_posix(): file for file in files}):
        message = f"{path}: not there, but a suite needs it"
        raise VerifyError(message, advice="restore it: git status shows what is missing")
    return found


@dataclass(frozen=True)
class SeenSuite:
    """A suite and its container's inputs other than the wheel, by place in it."""

    image: Artifact
    suite: Suite
    files: Mapping[str, Files]

    @cached_property  # once, before anything runs: files may change later
    def key(self) -> Mapping[str, Any]:
        """All of it as digests, for the key of the suite's result."""
        return {
            "image": self.image.facts["image_id"],
            "environment": dict(self.suite.env),
            "preload": self.suite.preload,
            "files": {place: digest_of(files) for place, files in self.files.items()},
        }

    def given(self, folder: Path) -> Suite:
        """The suite with copies of its files in ``folder``. They match the key even if the originals are
        edited."""

        def copy(place: str, name: str) -> Path:
            return copied(self.files[place], folder / name, self.key["files"][place])

        mounted = [place for place in self.files if place != TESTS_INSIDE]
        mounts = tuple(Mount(copy(place, str(number)), place) for number, place in enumerate(mounted))
        # Errors name the tests' folder.
        return replace(self.suite, tests=copy(TESTS_INSIDE, self.suite.tests.name), mounts=mounts)


def seen_suite(suite: Suite, image: Artifact, places: Mapping[str, Files]) -> SeenSuite:
    """A suite with its tests and mounts. ``places`` are the visible files of partly visible mounts."""
    mounted = {mount.target: files_at(mount.source) for mount in suite.mounts if mount.target not in places}
    return SeenSuite(image, suite, {TESTS_INSIDE: files_at(suite.tests), **mounted, **places})


def listings_of(disassembly: Path) -> Files:
    """The code objects of a wheel and their text."""
    files = [file for kind in ("*.co", "*.s") for file in disassembly.glob(kind)]
    return {file.name: file for file in sorted(files)}


def listing_of(disassembly: Path, arch: str) -> Files:
    """The code objects of ``arch`` and their text among those of a wheel, numbered on their own."""
    files = [file for file in disassembly.glob("*.co") if gfx_of(file.stem.rpartition("-")[0]) == arch]
    files.sort(key=lambda file: int(file.stem.rpartition("-")[2]))
    pairs = [(file, file.with_suffix(".s")) for file in files]
    return {f"{number}{file.suffix}": file for number, pair in enumerate(pairs) for file in pair}


def digest_of(files: Files) -> str:
    """A digest of names, run bits and contents: of code, where a file is Python."""
    rows = {name: [_content(file), os.access(file, os.X_OK)] for name, file in files.items()}
    return key_of(rows, length=WHOLE)


def _content(file: Path) -> str:
    return code_digest(file.read_bytes()) if file.suffix == ".py" else sha256_file(file)


def copied(files: Files, to: Path, expected: str) -> Path:
    """Copies of ``files`` at ``to``.

    Raises ``VerifyError`` if their digest differs from ``expected``, because somebody edits them.
    """
    for name, file in files.items():
        target = to / name if name else to / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    copy = to / next(iter(files.values())).name if "" in files else to
    if digest_of(files_at(copy)) != expected:
        message = f"{next(iter(files.values())).parent} changed while the command ran"
        raise VerifyError(message, advice="nothing was stored for it: run the same command again")
    return copy
