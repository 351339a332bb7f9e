"""A real code object with one fault, for each former bug of a reader or a launch."""

import re
import struct
from dataclasses import dataclass, replace

from tests.engine.emulator.fuzz.inputs import Call

LOAD, NOTE, SYMTAB, DYNSYM = 1, 4, 2, 11
FIRST_SEGMENT, FIRST_SECTION, HEADER = 32, 40, 64
FILE_BYTES, MEMORY_BYTES = 32, 40  # fields of a program header
U32_END, U64_END = 1 << 32, 1 << 64
# The names of cases(), in its order, because tests need them before anything is compiled.
NAMES = (
    "as_it_is", "dynamic_lds_overflows", "block_of_1e8", "block_product_is_2_to_64", "grid_of_2_to_96",
    "grid_product_is_2_to_64", "grid_of_2_to_31", "no_offset", "offset_is_text", "hidden_offset_outside",
    "hidden_axis", "nested_arrays", "nested_maps", "note_text_overflows", "note_size_overflows",
    "wave_of_0", "filesz_exceeds_memsz", "segment_outside_file", "segment_address_overflows",
    "segment_of_2_to_40", "program_headers_outside_file", "section_headers_outside_file",
    "symbols_outside_file", "symbol_names_outside_file", "symbol_names_without_end",
    "descriptor_outside_image", "lds_of_the_descriptor_overflows", "scratch_of_2_to_32",
    "kernarg_of_2_to_32", "preload_outside_arguments", "cut_off", "code_without_end",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An input of the fuzz target, and the words of the emulator's refusal."""

    words: str
    call: Call
    elf: bytes
    text: str


def put(data, at, value, form="Q"):
    """``data`` with the number ``value`` at a byte offset."""
    packed = struct.pack(f"<{form}", value)
    return data[:at] + packed + data[at + len(packed) :]


def get(data, at, form="Q"):
    return struct.unpack_from(f"<{form}", data, at)[0]


def segment(elf, kind):
    """The offset of the first program header of a kind."""
    first, count = get(elf, FIRST_SEGMENT), get(elf, 56, "H")
    return next(first + 56 * i for i in range(count) if get(elf, first + 56 * i, "I") == kind)


def section(elf, kind):
    """The offset of the first section header of a kind."""
    first, count = get(elf, FIRST_SECTION), get(elf, 60, "H")
    return next(first + 64 * i for i in range(count) if get(elf, first + 64 * i + 4, "I") == kind)


def descriptor(elf):
    """File offsets of the only kernel's descriptor symbol, and of its descriptor (also its address)."""
    table = section(elf, DYNSYM)
    begin, size, names = get(elf, table + 24), get(elf, table + 32), get(elf, table + 40, "I")
    text = get(elf, get(elf, FIRST_SECTION) + 64 * names + 24)
    for symbol in range(begin, begin + size, 24):
        name = text + get(elf, symbol, "I")
        if elf[name : elf.index(0, name)].endswith(b".kd"):
            return symbol, get(elf, symbol + 8)
    message = "no kernel descriptor"
    raise ValueError(message)


def metadata(elf):
    """The content of the note."""
    begin = get(elf, segment(elf, NOTE) + 8)
    content = begin + 12 + (get(elf, begin, "I") + 3) // 4 * 4
    return elf[content : content + get(elf, begin + 4, "I")]


def with_metadata(elf, content):
    """``elf`` with this content in a note after its end."""
    header = segment(elf, NOTE)
    note = struct.pack("<3I", 7, len(content), 32) + b"AMDGPU\0\0" + content
    return put(put(elf, header + 8, len(elf)), header + 32, len(note)) + note


def edited(elf, pattern, replacement):
    """``elf`` with its metadata changed at the first match."""
    content, times = re.subn(pattern, lambda _: replacement, metadata(elf), count=1, flags=re.DOTALL)
    assert times, f"the metadata has no {pattern!r}"
    return with_metadata(elf, content)


def names_that_share_their_ends(elf):
    """``elf`` with 3000 global functions as symbols. Their names are suffixes of one text of 64 KiB."""
    table = section(elf, SYMTAB)
    names = get(elf, FIRST_SECTION) + 64 * get(elf, table + 40, "I")
    text = b"a" * 65535 + b"\0"
    symbols = b"".join(struct.pack("<IBBHQQ", i, 0x12, 0, 1, 0, 0) for i in range(3000))
    elf = put(put(elf, names + 24, len(elf)), names + 32, len(text)) + text
    return put(put(elf, table + 24, len(elf)), table + 32, len(symbols)) + symbols


def without_padding(text):
    """The disassembly up to the kernel's s_endpgm."""
    before, end, rest = text.partition("\ts_endpgm")
    return before + end + rest.partition("\n")[0] + "\n"


def without_its_end(text):
    """The text with another instruction in place of s_endpgm."""
    return text.replace("\ts_endpgm", "\ts_nop 0")


def cases(elf, text, lds):
    """Hostile inputs by name.

    ``elf`` and ``text`` are the code object of data/hostile.hip and its disassembly. ``lds`` is the arch's
    LDS in bytes.
    """
    call = Call()
    load, note, symtab = segment(elf, LOAD), segment(elf, NOTE), section(elf, SYMTAB)
    symbol, kd = descriptor(elf)
    hidden = rb"\xa7\.offset[\x00-\x7f\xcc-\xcf][^.]*?(?=\xa5\.size.\xab\.value_kind\xb4hidden_block_count_x)"
    many = U32_END - 1
    calls = {
        "dynamic_lds_overflows": ({"dynamic_lds": U32_END - 16}, f" bytes of LDS ({lds} are possible)"),
        "block_of_1e8": ({"block": (10**8,) * 3}, "block of 100000000 x 100000000 x 100000000 threads (1 to"),
        "block_product_is_2_to_64": ({"block": (1 << 22, 1 << 21, 1 << 21)}, "block of 4194304 x 2097152"),
        "grid_of_2_to_96": ({"grid": (many,) * 3}, "an axis has less than 2^32 threads"),
        "grid_product_is_2_to_64": (
            {"grid": (1 << 22, 1 << 21, 1 << 21), "block": (1, 1, 1)}, "(less than 2^32 are possible)",
        ),
        "grid_of_2_to_31": ({"grid": (1 << 31, 1, 1), "block": (1, 1, 1)}, "the emulator runs up to 1048576"),
    }  # fmt: skip
    objects = {
        "no_offset": (
            edited(elf, rb"\xa7\.offset", b"\xa7.offsex"), "kernel 'hostile', argument 0: has no .offset",
        ),
        "offset_is_text": (
            edited(elf, rb"\xa7\.offset[\x00-\x7f]", b"\xa7.offset\xa1x"),
            "argument 0: .offset: expected a number, found text",
        ),
        "hidden_offset_outside": (
            edited(elf, hidden, b"\xa7.offset\xce\x7f\xff\xff\xf0"),
            " bytes at 2147483632 are outside the argument segment of ",
        ),
        "hidden_axis": (edited(elf, rb"hidden_block_count_x", b"hidden_block_count_!"), ""),
        "nested_arrays": (with_metadata(elf, b"\x91" * 100_000), "nested deeper than 32 levels"),
        "nested_maps": (with_metadata(elf, b"\x81\xa1x" * 100_000), "nested deeper than 32 levels"),
        "note_text_overflows": (
            with_metadata(elf, b"\xdb\xff\xff\xff\xff"), "4294967295 more bytes expected, found 0",
        ),
        "note_size_overflows": (
            put(elf, get(elf, note + 8) + 4, many, "I"), "ELF: a note takes 4294967295 bytes from ",
        ),
        "wave_of_0": (
            edited(elf, rb"\xaf\.wavefront_size.", b"\xaf.wavefront_size\x00"),
            ".wavefront_size: expected ",
        ),
        "filesz_exceeds_memsz": (
            put(elf, load + MEMORY_BYTES, 1), "bytes in the file, expected at most its 1 in memory",
        ),
        "segment_outside_file": (put(elf, load + 8, U64_END - 16), "ELF: a segment takes "),
        "segment_address_overflows": (
            put(elf, load + 16, U64_END - 16), "the emulator loads up to 268435456 bytes",
        ),
        "segment_of_2_to_40": (
            put(elf, load + MEMORY_BYTES, 1 << 40), "a segment of 1099511627776 bytes at address ",
        ),
        "program_headers_outside_file": (
            put(elf, FIRST_SEGMENT, U64_END - 56), "ELF: the table of program headers takes ",
        ),
        "section_headers_outside_file": (
            put(elf, FIRST_SECTION, U64_END - 64), "ELF: the table of section headers takes ",
        ),
        "symbols_outside_file": (put(elf, symtab + 32, U64_END - 1), "ELF: a symbol table takes "),
        "symbol_names_outside_file": (
            put(elf, symtab + 40, 60000, "I"), "takes its names from section 60000; the file has ",
        ),
        "symbol_names_without_end": (names_that_share_their_ends(elf), "names of symbols with over 67108864"),
        "descriptor_outside_image": (put(elf, symbol + 8, U64_END - 8), "ELF: a kernel descriptor takes 64"),
        "lds_of_the_descriptor_overflows": (put(elf, kd, many, "I"), f"4294967551 bytes of LDS ({lds} "),
        "scratch_of_2_to_32": (put(elf, kd + 4, many, "I"), " bytes of scratch in a wave (8388608 are "),
        "kernarg_of_2_to_32": (
            put(elf, kd + 8, many, "I"), "4294967295 bytes of arguments (65536 are possible)",
        ),
        "preload_outside_arguments": (
            put(elf, kd + 58, 0xFFFF, "H"), "arguments preloaded up to byte 2552, there are ",
        ),
        "cut_off": (elf[:100], "ELF: the table of program headers takes "),
    }  # fmt: skip
    found = {
        "as_it_is": Case("", call, elf, text),
        **{
            name: Case(words, replace(call, **changes), elf, text) for name, (changes, words) in calls.items()
        },
        **{name: Case(words, call, changed, text) for name, (changed, words) in objects.items()},
        "code_without_end": Case(
            "the code ends behind it, without s_endpgm", call, elf, without_its_end(text)
        ),
    }
    assert tuple(found) == NAMES
    return found
