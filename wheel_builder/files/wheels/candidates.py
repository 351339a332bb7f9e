"""The wheel of a distribution of candidates, ``flash-attn-rocm-tuning-<arch>``: data, and nothing else.

It has a list, and a bundle of code objects for each kernel. All other files follow from the list. Equal
candidates give equal bytes.
"""

import io
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from wheel_builder.files.wheels.wheelfile import record_hash
from wheel_builder.matrix.tuned.candidates import FILE, PREFIX, Candidates, to_json

MAX_MIB = 4.0  # eight candidates for each kernel of an arch take a MiB or two
TAG = "py3-none-any"
DOC = '"""Candidates for kernels of flash-attn-rocm: data for `python -m flash_attn_rocm tune`."""\n'
SUMMARY = "Candidates for kernels of flash-attn-rocm on {arch}, timed by python -m flash_attn_rocm tune"


def package_of(arch: str) -> str:
    """The folder in the wheel."""
    return f"{PREFIX}{arch}".replace("-", "_")


def has_candidates(wheel: Path) -> bool:
    """Whether the name of a wheel is that of a distribution of candidates, for any arch."""
    return wheel.name.startswith(package_of(""))


def file_name(listed: Candidates) -> str:
    """A version of the kernels' wheel has one set of candidates for an arch."""
    return f"{package_of(listed.arch)}-{listed.wheel.version}-{TAG}.whl"


def files_of(listed: Candidates, bundles: Mapping[str, bytes]) -> dict[str, bytes]:
    """Every file of the wheel. ``bundles`` are by kernel. Raises ``ValueError`` for a list that is none."""
    package = package_of(listed.arch)
    dist_info = f"{package}-{listed.wheel.version}.dist-info"
    files = {
        f"{package}/__init__.py": DOC.encode(),
        f"{package}/{FILE}": to_json(listed),
        **{f"{package}/{listed.kernels[name].code.file}": data for name, data in bundles.items()},
        f"{dist_info}/METADATA": _metadata(listed),
        f"{dist_info}/WHEEL": _wheel(),
    }
    record = f"{dist_info}/RECORD"
    rows = [f"{name},{record_hash(data)},{len(data)}" for name, data in files.items()]
    return {**files, record: "\n".join([*rows, f"{record},,"]).encode() + b"\n"}


def written(listed: Candidates, bundles: Mapping[str, bytes], epoch: int) -> bytes:
    """The file. The code is compressed already, and the rest is small."""
    file = io.BytesIO()
    when = datetime.fromtimestamp(epoch, UTC).timetuple()[:6]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in files_of(listed, bundles).items():
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    return file.getvalue()


def _metadata(listed: Candidates) -> bytes:
    """It requires exactly the wheel that it belongs to."""
    arch, version = listed.arch, listed.wheel.version
    fields = {
        "Metadata-Version": "2.4", "Name": f"{PREFIX}{arch}", "Version": version,
        "Summary": SUMMARY.format(arch=arch), "License-Expression": "MIT", "Requires-Python": ">=3.10",
        "Requires-Dist": f"flash-attn-rocm=={version}",
    }  # fmt: skip
    return "".join(f"{name}: {value}\n" for name, value in fields.items()).encode()


def _wheel() -> bytes:
    return f"Wheel-Version: 1.0\nGenerator: wheel-builder\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()
