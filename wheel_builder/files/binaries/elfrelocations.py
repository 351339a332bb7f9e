"""Rules for relocations and initializers: the loader's writes and calls."""

from collections.abc import Iterator

from wheel_builder.files.binaries import elfdynamic as d
from wheel_builder.files.binaries.elfdynamic import Dynamic, Relocation
from wheel_builder.files.binaries.elfimage import PF_W, PF_X, PT_DYNAMIC, PT_TLS, Image

# R_X86_64_ types. The others copy data between libraries, call a resolver, or need memory allocated before
# start-up.
R_64, R_GLOB_DAT, R_JUMP_SLOT, R_RELATIVE, R_DTPMOD64, R_DTPOFF64 = 1, 6, 7, 8, 16, 17
OF_DATA = frozenset({R_64, R_GLOB_DAT, R_RELATIVE, R_DTPMOD64, R_DTPOFF64})
OF_CALLS = frozenset({R_JUMP_SLOT})
OF_THREADS = frozenset({R_DTPMOD64, R_DTPOFF64})
WORD = 8


def relocation_problems(image: Image, dynamic: Dynamic) -> tuple[str, ...]:
    """Relocations with a forbidden target, and calls to data."""
    everything = (*dynamic.relocations, *dynamic.plt_relocations)
    allowed = {OF_DATA: dynamic.relocations, OF_CALLS: dynamic.plt_relocations}
    judged = [(each, types) for types, group in allowed.items() for each in group]
    return (
        *_order_problems(dynamic),
        *(problem for each, types in judged for problem in _problems(image, dynamic, each, types)),
        *_call_problems(image, dynamic),
        *(["two relocations write to one address"] if _overlap(everything) else []),
    )  # fmt: skip


def _order_problems(dynamic: Dynamic) -> Iterator[str]:
    count = dynamic.tags.get(d.DT_RELACOUNT, 0)
    relative = [each.type == R_RELATIVE for each in dynamic.relocations]
    if not all(relative[:count]) or any(relative[count:]) or count > len(relative):
        yield f"its first {count} relocations (DT_RELACOUNT) are not those that are relative"


def _problems(image: Image, dynamic: Dynamic, each: Relocation, types: frozenset[int]) -> Iterator[str]:
    where = f"a relocation at {each.address:#x}"
    if each.type not in types:
        yield f"{where} is of type {each.type}, which is not allowed"
    load = image.load_of(each.address, WORD)
    [table] = image.of_kind(PT_DYNAMIC)
    if load is None or not load.flags & PF_W or each.address % WORD:
        yield f"{where} does not write a word of data"
    elif each.address < table.end and table.address < each.address + WORD:
        yield f"{where} writes to the dynamic table"
    if each.type == R_RELATIVE:
        if each.symbol or image.load_of(each.addend, 0) is None:
            yield f"{where} leads to {each.addend:#x}, which is not loaded"
    elif each.type in OF_THREADS:
        [*threads] = image.of_kind(PT_TLS)
        if not threads or each.symbol or not 0 <= each.addend < threads[0].memory_bytes:
            yield f"{where} is about a variable of threads that is not there"
    elif not each.symbol or each.addend:
        name = dynamic.symbols[each.symbol].name
        yield f"{where} leads {each.addend:#x} bytes behind {name or 'nothing'}"


def _call_problems(image: Image, dynamic: Dynamic) -> Iterator[str]:
    """Every initializer and finalizer is a function of this library."""
    tags = dynamic.tags
    targets = {each.address: each.addend for each in dynamic.relocations if each.type == R_RELATIVE}
    for array, size in ((d.DT_INIT_ARRAY, d.DT_INIT_ARRAYSZ), (d.DT_FINI_ARRAY, d.DT_FINI_ARRAYSZ)):
        if tags.get(size, 0) > len(image.data) or tags.get(size, 0) % WORD:
            yield f"its initializers or finalizers have {tags[size]} bytes"
            continue
        start = tags.get(array, 0)
        for at in range(start, start + tags.get(size, 0), WORD):
            load = image.load_of(targets.get(at, -1), 1)
            if load is None or not load.flags & PF_X:
                yield f"the initializer or finalizer at {at:#x} is not code"


def _overlap(relocations: tuple[Relocation, ...]) -> bool:
    return len({each.address for each in relocations}) != len(relocations)
