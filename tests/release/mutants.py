"""Well-formed mutants of a built wheel: the audit's rules accept their library."""

import re
import shutil
import struct
from contextlib import suppress
from dataclasses import replace

from tests.tools.made.device import of_archs, repacked
from tests.tools.made.elves import Edit, gnu_hash_table
from tests.tools.made.wheels import write_wheel
from wheel_builder.base.store import sha256_file
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.binaries.pe import MAGIC as MZ
from wheel_builder.files.binaries.pe import read_pe
from wheel_builder.files.device.fatbin import kernels
from wheel_builder.files.device.hostpart import FUNCTIONS
from wheel_builder.files.device.library import (
    LIBRARY,
    WINDOWS_LIBRARY,
    code_objects,
    dll_code_objects,
    for_windows,
)
from wheel_builder.files.wheels.wheelfile import read_wheel
from wheel_builder.tables.archs import known_archs

INT3 = b"\xcc"
CALL = re.compile(rb"[\xe8\xe9](?=(.{4}))", re.DOTALL)  # or a jump at the end of a function
SLOT = 4096  # compressed bundles are padded to this


class NoPlaceError(Exception):
    """A changed bundle is larger than the old one's place: bytes of both."""


def ends_at_once(library, arch, name="fa_fwd_fp16_d64"):
    """The kernel's first instruction is s_endpgm: it computes nothing."""
    code = found(library, arch, name)
    edit = Edit(code)
    place = edit.of_section(".text")
    entry = symbol(edit, name)["value"] - place["address"]
    end = bytes.fromhex("0000b0bf" if known_archs()[arch].isa.unit.startswith("wmma") else "000081bf")
    return with_codes(library, arch, {name: edit.content(".text", entry, end).data})


def under_each_others_names(library, arch, one="fa_fwd_bf16_d64", other="fa_fwd_fp16_d64"):
    """Two kernels swap places and names: each computes the other's function."""
    codes = found(library, arch, one), found(library, arch, other)
    named = renamed(codes[1], other, one), renamed(codes[0], one, other)
    return with_codes(library, arch, {one: named[0], other: named[1]})


def in_each_others_bundles(library, arch):
    """Two kernels swap places and keep their names: the first two whose bundle fits afterwards."""
    for head_dim in (64, 128, 96, 32):
        one, other = (f"fa_fwd_{dtype}_d{head_dim}" for dtype in ("bf16", "fp16"))
        swapped = {one: found(library, arch, other), other: found(library, arch, one)}
        with suppress(NoPlaceError):
            return with_codes(library, arch, swapped)
    raise NoPlaceError(arch)


def traps(library, _arch):
    """The library's function for collecting its bundles begins with int3."""
    edit = Edit(library)
    text, first = edit.of_section(".text"), edit.of_section(FUNCTIONS)["address"]
    code = library[text["offset"] :][: text["size"]]
    taken = next(match.start() for match in CALL.finditer(code) if _target(text, match) == first)
    start = max(each for each in functions(edit) if each <= text["address"] + taken)
    return edit.content(".text", start - text["address"], INT3).data


def _target(text, match):
    return text["address"] + match.end() + 4 + struct.unpack("<i", match[1])[0]


def functions(edit):
    """The addresses of all functions, from the table for unwinding."""
    place = edit.of_section(".eh_frame_hdr")
    table = edit.data[place["offset"] :][: place["size"]]
    assert table[:4] == bytes.fromhex("011b033b")
    return [place["address"] + distance for distance, _ in struct.iter_unpack("<ii", table[12:])]


def found(library, arch, name):
    """The code object for ``arch`` with the kernel."""
    return next(
        code.data for code in codes_of(library) if code.arch == arch and name in kernels(read_elf(code.data))
    )


def codes_of(library):
    """The code objects of a library for either platform."""
    return dll_code_objects(read_pe(library)) if library.startswith(MZ) else code_objects(library)


def symbol(edit, name):
    """The row of a code object's symbol."""
    place = edit.of_section(".dynstr")
    names = edit.data[place["offset"] :][: place["size"]]
    rows = (edit.read(at, Edit.SYMBOL) for at in edit.rows(".dynsym", Edit.SYMBOL))
    return next(row for row in rows if names[row["name_at"] :].startswith(name.encode() + b"\0"))


def renamed(code, name, wanted):
    """A code object with a renamed kernel: a name of equal length, found through its hash table."""
    edit = Edit(code.replace(name.encode(), wanted.encode()))
    place = edit.of_section(".dynstr")
    names = edit.data[place["offset"] :][: place["size"]]
    rows = [edit.read(at, Edit.SYMBOL) for at in edit.rows(".dynsym", Edit.SYMBOL)]
    ends = [names[row["name_at"] :].split(b"\0")[0].decode() for row in rows[1:]]
    return edit.content(".gnu.hash", 0, gnu_hash_table(ends, 1)).data


def with_codes(library, arch, changed):
    """The library with other code objects in the places of these kernels, in a bundle that fits its place."""
    originals = {found(library, arch, name): code for name, code in changed.items()}
    before = of_archs(codes_of(library))
    after = {**before, arch: tuple(originals.get(code, code) for code in before[arch])}
    for old, new in zip(repacked({**after, arch: ()}, before), repacked(before, after), strict=True):
        library = in_place_of(old, new, library) if new else library
    return library


def in_place_of(old, new, library):
    """The library with another bundle, which fits the old one's place. Behind the last one is no padding."""
    assert library.count(old) == 1
    size = max(len(old), len(new))
    place = old.ljust(size, b"\0")
    if len(new) > -(-len(old) // SLOT) * SLOT or place not in library:
        raise NoPlaceError(len(new), len(old))
    data = library.replace(place, new.ljust(size, b"\0"))
    return data.replace(returned(old), returned(new))


def returned(bundle):
    """The end of the function that returns a bundle: mov edx, size; ret."""
    return b"\xba" + len(bundle).to_bytes(4, "little") + b"\xc3"


def mutant_wheel(wheel, library, sound, folder, as_text):
    """A copy of ``wheel`` with another library, and its disassembly.

    ``sound`` is the disassembly of ``wheel``.
    """
    content = read_wheel(wheel, max_mib=64)
    files = {**content.files, WINDOWS_LIBRARY if for_windows(content) else LIBRARY: library}
    del files[f"{content.dist_info}/RECORD"]
    made = write_wheel(folder, files, name=wheel.name)
    listings = shutil.copytree(sound.path, folder / "disassembly")
    for number, code in enumerate(codes_of(library)):
        file = listings / f"{code.arch}-{number}.co"
        if file.read_bytes() != code.data:
            file.write_bytes(code.data)
            [text] = as_text(code.arch, [file])
            file.with_suffix(".s").write_text(text)
    return made, replace(sound, path=listings, manifest={**sound.manifest, "key": sha256_file(made)})
