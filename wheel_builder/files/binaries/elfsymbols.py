"""Rules for symbols: .dynsym, used by the loader, and .symtab, used by people, agree."""

from collections.abc import Iterator

from wheel_builder.files.binaries.elfdynamic import (
    STB_GLOBAL,
    STB_LOCAL,
    STB_WEAK,
    Dynamic,
    Symbol,
    read_symbols,
)
from wheel_builder.files.binaries.elfimage import (
    EM_AMDGPU,
    SHT_STRTAB,
    SHT_SYMTAB,
    Image,
    Names,
)

STT_NOTYPE, STT_OBJECT, STT_FUNC = 0, 1, 2
SHN_LORESERVE, SHN_ABS = 0xFF00, 0xFFF1
OWN = "_DYNAMIC"  # the linker's name for the dynamic table


def symbol_problems(image: Image, dynamic: Dynamic) -> tuple[str, ...]:
    """Problems of the dynamic symbols, and differences from them in a code object's .symtab."""
    own = _static_problems(image, dynamic) if image.header.machine == EM_AMDGPU else ()
    return (*_dynamic_problems(image, dynamic), *own)


def _dynamic_problems(image: Image, dynamic: Dynamic) -> Iterator[str]:
    if not dynamic.symbols or any(dynamic.symbols[0][1:]) or dynamic.symbols[0].name:
        yield "its first symbol is not empty"
    for symbol in dynamic.symbols[1:]:
        binds, types = (STB_LOCAL, STB_GLOBAL, STB_WEAK), (STT_NOTYPE, STT_OBJECT, STT_FUNC)
        if symbol.bind not in binds or symbol.type not in types or symbol.other > 3:
            yield f"its symbol {symbol.name} is of a kind that needs a resolver: {symbol.info:#x}"
        elif symbol.section == 0:
            # An undefined symbol with an address would be taken as defined by other libraries.
            if symbol.value or symbol.size:
                yield f"its symbol {symbol.name} is undefined and has an address"
        elif symbol.section >= len(image.sections) or not _is_inside(image, symbol):
            yield f"its symbol {symbol.name} is not in the section that it names"


def _is_inside(image: Image, symbol: Symbol) -> bool:
    section = image.sections[symbol.section]
    inside = section.address <= symbol.value and symbol.value + symbol.size <= section.address + section.size
    return section.in_memory and inside


def _static_problems(image: Image, dynamic: Dynamic) -> Iterator[str]:
    """Disassemblers, and so the static checks, read .symtab. It must name the code that the runtime loads."""
    tables = [section for section in image.sections if section.kind == SHT_SYMTAB]
    if not tables:
        return
    if len(tables) > 1 or tables[0].link >= len(image.sections):
        yield f"it has {len(tables)} tables of symbols for people, expected one"
        return
    strings = image.sections[tables[0].link]
    if strings.kind != SHT_STRTAB or strings.in_memory or tables[0].size % 24:
        yield "its symbols for people have no names"
        return
    symbols = tuple(read_symbols(image.content(tables[0]), Names(image.content(strings))))
    if {s for s in symbols if s.bind != STB_LOCAL} != {s for s in dynamic.symbols if s.bind != STB_LOCAL}:
        yield "its symbols for people are not those that are loaded"
    for symbol in symbols[1:]:
        if symbol.bind == STB_LOCAL and symbol.section != SHN_ABS and symbol.name != OWN:
            yield f"its symbols for people have {symbol.name!r}, which would hide code"
