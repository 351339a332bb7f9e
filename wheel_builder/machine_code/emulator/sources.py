"""Code objects from a user's file: a wheel, a host library, an offload bundle, or a code object."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from wheel_builder.base.errors import EmulatorError
from wheel_builder.files.binaries.elf import MAGIC, read_elf, section_bytes
from wheel_builder.files.device.compressed import expand
from wheel_builder.files.device.fatbin import COMPRESSED_MAGIC, SECTION, kernels, machine_arch, read_fatbin
from wheel_builder.files.device.fatbin import MAGIC as BUNDLE_MAGIC
from wheel_builder.files.wheels.wheelfile import read_wheel

# A generous limit: the audit judges the size of a wheel.
MAX_WHEEL_MIB = 1024.0
AMDGPU = "EM_AMDGPU"
ADVICE = "name a .whl, a library that kernels were linked into, a .hipfb or a .hsaco file"


def code_object(source: Path, kernel: str, arch: str) -> bytes:
    """The code object for ``arch`` with ``kernel``. Raises ``EmulatorError`` listing the available ones."""
    what, data = contents(source)
    found = list(_candidates(data))
    matches = [data for name, names, data in found if name == arch and kernel in names]
    if matches:
        return matches[0]
    here = {name for have, names, _ in found if have == arch for name in names}
    archs = {have for have, _, _ in found}
    offers = f"for {arch} it has {_listed(here)}" if here else f"it has kernels for {_listed(archs)}"
    message = f"{what}: no kernel {kernel} for {arch}; {offers}"
    raise EmulatorError(message, advice="choose one of these")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _candidates(code_objects: Iterable[bytes]) -> Iterator[tuple[str, frozenset[str], bytes]]:
    for data in code_objects:
        elf = read_elf(data)
        yield machine_arch(elf), kernels(elf), data


def contents(source: Path) -> tuple[str, Iterable[bytes]]:
    """The kind of file, by its name, and its code objects. Raises ``EmulatorError`` for other files."""
    if source.suffix == ".whl":
        return source.name, _of_wheel(source)
    data = source.read_bytes()
    if data.startswith((BUNDLE_MAGIC, COMPRESSED_MAGIC)):
        return source.name, _of_bundles(data)
    if not data.startswith(MAGIC):
        message = f"{source.name} is neither a wheel, nor an offload bundle, nor a code object"
        raise EmulatorError(message, advice=ADVICE)
    machine = read_elf(data).machine
    return (source.name, [data]) if machine == AMDGPU else _of_host_file(source.name, machine, data)


def _of_wheel(source: Path) -> Iterator[bytes]:
    for name, data in read_wheel(source, max_mib=MAX_WHEEL_MIB).files.items():
        if name.endswith(".so"):
            yield from _of_bundles(section_bytes(data, SECTION) or b"")


def _of_bundles(data: bytes) -> tuple[bytes, ...]:
    return tuple(code.data for code in read_fatbin(expand(data)))


def _of_host_file(name: str, machine: str, data: bytes) -> tuple[str, Iterable[bytes]]:
    what = f"{name} is an ELF file for the host ({machine.removeprefix('EM_').lower()})"
    section = section_bytes(data, SECTION)
    if section is None:
        message = f"{what} without device code: it has no section {SECTION}"
        raise EmulatorError(message, advice=ADVICE)
    return f"{what} with device code in {SECTION}", _of_bundles(section)
