"""Code objects out of what users have: a wheel, an offload bundle, or a code object itself."""

from collections.abc import Iterator
from pathlib import Path

from wheel_builder.elf import MAGIC, read_elf, section_bytes
from wheel_builder.errors import EmulatorError
from wheel_builder.fatbin import MAGIC as BUNDLE_MAGIC
from wheel_builder.fatbin import SECTION, kernels, machine_arch, read_fatbin
from wheel_builder.wheelfile import read_wheel

# A wheel to be executed is not judged by its size here: that is the audit's business.
MAX_WHEEL_MIB = 1024.0


def code_object(source: Path, kernel: str, arch: str) -> bytes:
    """The code object for ``arch`` that has ``kernel``; raises ``EmulatorError`` naming what there is."""
    found = list(_candidates(source))
    matches = [data for name, names, data in found if name == arch and kernel in names]
    if matches:
        return matches[0]
    here = {name for have, names, _ in found if have == arch for name in names}
    archs = {have for have, _, _ in found}
    offers = f"for {arch} it has {_listed(here)}" if here else f"it has kernels for {_listed(archs)}"
    message = f"{source.name}: no kernel {kernel} for {arch}; {offers}"
    raise EmulatorError(message, advice="choose one of these")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _candidates(source: Path) -> Iterator[tuple[str, frozenset[str], bytes]]:
    for data in _code_objects(source):
        elf = read_elf(data)
        yield machine_arch(elf), kernels(elf), data


def _code_objects(source: Path) -> Iterator[bytes]:
    if source.suffix != ".whl":
        data = source.read_bytes()
        if not data.startswith((MAGIC, BUNDLE_MAGIC)):
            message = f"{source.name} is neither a wheel, nor an offload bundle, nor a code object"
            raise EmulatorError(message, advice="name a .whl, a .hipfb or a .hsaco file")
        yield from [data] if data.startswith(MAGIC) else (code.data for code in read_fatbin(data))
        return
    for name, data in read_wheel(source, max_mib=MAX_WHEEL_MIB).files.items():
        if name.endswith(".so") and (section := section_bytes(data, SECTION)) is not None:
            yield from (code.data for code in read_fatbin(section))
