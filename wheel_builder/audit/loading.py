"""Rules for loading the library, and its code objects by the HIP runtime. Pure.

The other rules read both as people do. These ensure that loaders see the same.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from wheel_builder.audit.contents import some
from wheel_builder.files.binaries.elflayout import EM_AMDGPU, EM_X86_64, elf_layout_problems
from wheel_builder.files.device.codeobject import code_object_problems
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.library import LIBRARY


def layout_problems(library: bytes | None, codes: Sequence[CodeObject]) -> tuple[str, ...]:
    """Problems of the library and code objects as shared objects that load as they read, each problem
    once."""
    files = [(LIBRARY, library, EM_X86_64)] if library is not None else []
    files += [(_name(code), code.data, EM_AMDGPU) for code in codes]
    problems = (
        f"{name}: {problem}"
        for name, data, machine in files
        for problem in elf_layout_problems(data, machine)
    )
    return tuple(dict.fromkeys(problems))


def content_problems(codes: Sequence[CodeObject]) -> tuple[str, ...]:
    """False claims in the metadata of code objects, each problem once."""
    problems = (f"{_name(code)}: {problem}" for code in codes for problem in code_object_problems(code))
    return tuple(dict.fromkeys(problems))


def bundle_problems(unused: Sequence[int]) -> Iterator[str]:
    """Unused bundles, by address."""
    if unused:
        yield f"no code of the library takes the address of {some([hex(start) for start in unused])}"


def soname_problems(soname: str) -> Iterator[str]:
    """With another library's SONAME, the loader would take this library for the other."""
    if soname not in ("", PurePosixPath(LIBRARY).name):
        yield f"SONAME {soname}"


def _name(code: CodeObject) -> str:
    return f"a code object for {code.arch}"
