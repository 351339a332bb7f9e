"""Third-party wheels for ROCm, and their kernels."""

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import PurePath

from wheel_builder.files.binaries.elf import section_bytes
from wheel_builder.files.device.compressed import expand
from wheel_builder.files.device.fatbin import SECTION, read_fatbin


@dataclass(frozen=True)
class Wheel:
    """A pinned file of the registry. ``kernels`` counts the kernels of each of its libraries for one arch."""

    requirement: str
    sha256: str
    kernels: dict[str, int]
    tags: tuple[str, ...] = ()  # of pip download, for a wheel limited to some Pythons


ROCM_VERSIONS = ("64", "70", "71", "72", "714", "715")
WHEELS = {
    "bitsandbytes": Wheel(
        "bitsandbytes==0.50.2",
        "55348a9a4a21bfd99cf8c7b32fe67b4030ae5c2a05738e03c1747f65fa6ec283",
        {f"bitsandbytes/libbitsandbytes_rocm{version}.so": 175 for version in ROCM_VERSIONS},
    ),
    "jax-rocm7": Wheel(
        "jax-rocm7-plugin==0.12.0",
        "56ea9cb8b20b2155307da1c7f81941d6811954d8ce3431ffe8d56aa251b725de",
        {"jax_rocm7_plugin/_linalg.so": 7, "jax_rocm7_plugin/_prng.so": 1, "jax_rocm7_plugin/_solver.so": 13},
        ("--python-version=3.12",),
    ),
    "jax-rocm60": Wheel(
        "jax-rocm60-plugin==0.5.0",
        "c2bc3c6f78a63d1c04d10ed3279807fd83e19e2ed495cc6717d5e443fefa551f",
        {
            "jax_rocm60_plugin/_blas.so": 1,
            "jax_rocm60_plugin/_linalg.so": 3,
            "jax_rocm60_plugin/_prng.so": 1,
            "jax_rocm60_plugin/_solver.so": 1,
        },
        ("--python-version=3.12",),
    ),
}
LIBRARIES = {library: name for name, wheel in WHEELS.items() for library in wheel.kernels}


def fetch(wheel, folder):
    """The wheel's file, from the registry. Its hash is checked."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}")
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    subprocess.run([*pip, *wheel.tags, "--dest", str(folder), "-r", str(wanted)], check=True)
    (file,) = folder.glob("*.whl")
    return file


def with_device_code(file):
    """Names of the wheel's libraries with kernels."""
    with zipfile.ZipFile(file) as archive:
        libraries = [name for name in archive.namelist() if PurePath(name).suffix == ".so"]
        return {name for name in libraries if section_bytes(archive.read(name), SECTION)}


def code_objects(file, library, arch):
    """A library's code objects for an arch."""
    with zipfile.ZipFile(file) as archive:
        section = section_bytes(archive.read(library), SECTION)
    return [code.data for code in read_fatbin(expand(section)) if code.arch.split(":")[0] == arch]
