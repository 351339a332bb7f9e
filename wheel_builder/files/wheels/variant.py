"""Variants of a wheel: the wheel plus a file that names its hardware.

PEP 825 defines file names, ``*.dist-info/variant.json`` and labels. PEP 850 defines ``providers``: they tell
an installer the properties of a machine. For AMD GPUs the provider is AMD's package rocm-bootstrap, whose
only feature is ``amd :: gfx_arch``. Both PEPs are drafts. ``SCHEMA`` is the version written here.
"""

import copy
import io
import json
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from wheel_builder.base.errors import WheelFileError
from wheel_builder.files.wheels.wheelfile import (
    MAX_READ_MIB,
    WheelFile,
    open_wheel,
    record_hash,
    record_problems,
)

# An index with variants of another version is refused. Code for a newer draft must also read this one.
SCHEMA = "https://variants-schema.wheelnext.dev/peps/850/v0.2.0.json"
NAMESPACE, FEATURE = "amd", "gfx_arch"
PROVIDERS = {
    NAMESPACE: {
        "requires": ["rocm-bootstrap>=0.3"],
        "plugin-api": "rocm_bootstrap.variant_provider:AMDVariantPlugin",
    }
}
# The variant without properties, for all other machines.
NULL = "null"
FILE = "variant.json"
INDEX_FILE = "variants.json"
_VALUE = re.compile(r"[a-z0-9_.]+")
_NAME = re.compile(r"(?P<wheel>.+)-[a-z0-9_.]+\.whl")


def variant_name(filename: str, label: str) -> str:
    """The file name of a wheel's variant."""
    return f"{filename.removesuffix('.whl')}-{label}.whl"


def hardware_label(platform: str) -> str:
    """The label of the variant for the GPUs of a platform's wheel."""
    return f"{NAMESPACE}_{platform}"


def index_name(filename: str) -> str:
    """The name of the index's file about the variants of a wheel's version."""
    return "-".join([*filename.split("-")[:2], INDEX_FILE])


def wheel_of(filename: str) -> str | None:
    """The name of a variant's wheel, None for any other name."""
    match = _NAME.fullmatch(filename)
    wheel = f"{match['wheel']}.whl" if match else ""
    try:
        parse_wheel_filename(wheel)
    except InvalidWheelFilename:
        return None
    return wheel


def value_problems(gpus: Collection[str]) -> Iterator[str]:
    """Problems of a variant's list of GPUs."""
    if not gpus:
        yield "no record says which GPUs it serves"
    strange = (gpu for gpu in gpus if not _VALUE.fullmatch(gpu))
    yield from (f"{gpu!r} cannot be a value of {NAMESPACE} :: {FEATURE}: {_VALUE.pattern}" for gpu in strange)


def variants_text(variants: Mapping[str, Collection[str]]) -> bytes:
    """The variants' JSON for a wheel or an index: each label with its GPUs. ``NULL`` has none."""
    document = {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": [NAMESPACE]},
        "providers": PROVIDERS,
        "variants": {
            label: {NAMESPACE: {FEATURE: sorted(gpus)}} if gpus else {}
            for label, gpus in sorted(variants.items())
        },
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def make_variant(wheel: WheelFile, text: bytes) -> bytes:
    """``wheel`` with ``text`` as its variant.json, listed in RECORD.

    The other files keep their packed bytes, so the result is independent of the version of zlib.
    """
    record, inside = f"{wheel.dist_info}/RECORD", f"{wheel.dist_info}/{FILE}"
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(wheel.data)) as old, zipfile.ZipFile(out, "w") as new:
        entries = sorted(old.infolist(), key=lambda entry: entry.header_offset)
        ends = [*(entry.header_offset for entry in entries[1:]), old.start_dir]
        for entry, end in zip(entries, ends, strict=True):
            if entry.filename != record:
                new.filelist.append(_moved(entry, out.tell()))
                out.write(wheel.data[entry.header_offset : end])
        new.start_dir = out.tell()
        for name, data in ((inside, text), (record, _record(wheel.files[record], inside, text))):
            new.writestr(_like(old.getinfo(record), name), data)
    return out.getvalue()


def variant_problems(wheel: WheelFile, variant: bytes, text: bytes) -> Iterator[str]:
    """Differences of ``variant``, an untrusted file, from ``wheel`` with ``text`` as its variant.json."""
    try:
        found = replace(wheel, files=open_wheel(wheel.path, variant, max_mib=MAX_READ_MIB).files)
    except WheelFileError as error:
        yield from error.problems
        return
    record, inside = f"{wheel.dist_info}/RECORD", f"{wheel.dist_info}/{FILE}"
    expected = {**wheel.files, inside: text, record: found.files.get(record, b"")}
    yield from (f"{name} is missing" for name in sorted(expected.keys() - found.files.keys()))
    yield from (f"{name} is not in the wheel" for name in sorted(found.files.keys() - expected.keys()))
    for name in sorted(expected.keys() & found.files.keys()):
        if found.files[name] != expected[name]:
            yield f"{name} differs from the wheel's" if name != inside else f"{name} says something else"
    problems = list(record_problems(found))
    yield from problems
    if not problems and variant != make_variant(wheel, text):
        yield "the archive is another one than is made of the wheel"


def _moved(entry: zipfile.ZipInfo, offset: int) -> zipfile.ZipInfo:
    moved = copy.copy(entry)
    moved.header_offset = offset
    return moved


def _like(entry: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    """A new entry, stored, with the time and the mode of ``entry``."""
    made = zipfile.ZipInfo(name, entry.date_time)
    made.create_system, made.external_attr = entry.create_system, entry.external_attr
    return made


def _record(record: bytes, name: str, data: bytes) -> bytes:
    return record.rstrip(b"\r\n") + f"\n{name},{record_hash(data)},{len(data)}\n".encode()
