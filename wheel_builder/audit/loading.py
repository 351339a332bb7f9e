"""What a loader would do with the library, and the HIP runtime with its code objects; pure.

The other rules read both as people do; these make sure that it means the same to those who run them.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from wheel_builder.audit.contents import some
from wheel_builder.files.binaries.elflayout import EM_AMDGPU, EM_X86_64, elf_layout_problems
from wheel_builder.files.device.codeobject import code_object_problems
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.files.device.library import LIBRARY


def layout_problems(library: bytes | None, codes: Sequence[CodeObject]) -> tuple[str, ...]:
    """Why the library or a code object is no shared object that loads as it reads; each problem once."""
    files = [(LIBRARY, library, EM_X86_64)] if library is not None else []
    files += [(_name(code), code.data, EM_AMDGPU) for code in codes]
    problems = (
        f"{name}: {problem}"
        for name, data, machine in files
        for problem in elf_layout_problems(data, machine)
    )
    return tuple(dict.fromkeys(problems))


def content_problems(codes: Sequence[CodeObject]) -> tuple[str, ...]:
    """What code objects say of themselves that is not so; each problem once."""
    problems = (f"{_name(code)}: {problem}" for code in codes for problem in code_object_problems(code))
    return tuple(dict.fromkeys(problems))


def bundle_problems(unused: Sequence[int]) -> Iterator[str]:
    """Bundles that are read but not used, by their addresses."""
    if unused:
        yield f"no code of the library takes the address of {some([hex(start) for start in unused])}"


def soname_problems(soname: str) -> Iterator[str]:
    """With another library's name, the loader would take this one for that."""
    if soname not in ("", PurePosixPath(LIBRARY).name):
        yield f"SONAME {soname}"


def _name(code: CodeObject) -> str:
    return f"a code object for {code.arch}"
