"""Text as the LLVM tools print it, made from lines of assembler, and code objects, for tests."""

from tests.tools.made.elves import code_object, metadata_of
from wheel_builder.machine_code.disassembly.kernels import parse_disassembly
from wheel_builder.machine_code.disassembly.resources import KEYS

START = 0x1600


def disassembly(*lines, name="fa_fwd_fp16_d64"):
    """The output of ``llvm-objdump -d`` for a function with the instructions ``lines``, four bytes each."""
    text = [f"\n/in/{name}.hsaco:\tfile format elf64-amdgpu\n", "Disassembly of section .text:\n"]
    text += [f"{START:016x} <{name}>:"]
    text += [f"\t{line:<58} // {START + 4 * n:012X}: BF800000" for n, line in enumerate(lines)]
    return "\n".join(text) + "\n"


def kernel(*lines, name="fa_fwd_fp16_d64"):
    """The parsed function. ``s_endpgm`` follows ``lines``."""
    (found,) = parse_disassembly(disassembly(*lines, "s_endpgm", name=name))
    return found


def code(name="fa_fwd_fp16_d64", arch="gfx942", **taken):
    """A code object with that kernel. ``taken`` are fields of its resources."""
    changes = {KEYS[field]: value for field, value in taken.items()}
    return code_object(arch, [name], metadata=metadata_of(arch, [name], **changes))
