"""Text as the LLVM tools print it, made from lines of assembler, for tests of the parsers."""

from wheel_builder.machine_code.disassembly.kernels import parse_disassembly

START = 0x1600
METADATA = """\
Symbol table '.symtab' contains 2 entries:
   Num:    Value          Size Type    Bind   Vis       Ndx Name
    10: 0000000000001600  {code_bytes} FUNC    GLOBAL PROTECTED   7 {name}
    11: 0000000000000500    64 OBJECT  GLOBAL PROTECTED   6 {name}.kd
Displaying notes found in: .note
  Owner                Data size 	Description
  AMDGPU               0x000001c1	NT_AMDGPU_METADATA (AMDGPU Metadata)
    AMDGPU Metadata:
        ---
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           168
        .value_kind:     by_value
    .group_segment_fixed_size: {lds_bytes}
    .kernarg_segment_size: 168
    .max_flat_workgroup_size: {workgroup}
    .name:           {name}
    .private_segment_fixed_size: {scratch_bytes}
    .sgpr_count:     {sgpr}
    .sgpr_spill_count: {sgpr_spills}
    .symbol:         {name}.kd
    .uses_dynamic_stack: {dynamic_stack}
    .vgpr_count:     {vgpr}
    .vgpr_spill_count: {vgpr_spills}
    .wavefront_size: {wave}
{more}amdhsa.target:   amdgcn-amd-amdhsa--{arch}
amdhsa.version:
  - 1
  - 2
...
"""
TAKEN = {
    "code_bytes": 4876, "lds_bytes": 16384, "workgroup": 256, "scratch_bytes": 0, "sgpr": 65,
    "sgpr_spills": 0, "vgpr": 138, "vgpr_spills": 0, "wave": 64, "more": "", "arch": "gfx942",
    "dynamic_stack": "false",
}  # fmt: skip


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


def notes(name="fa_fwd_fp16_d64", **changed):
    """The output of ``llvm-readelf --notes --symbols --wide`` for a code object with that kernel."""
    return METADATA.format(name=name, **{**TAKEN, **changed})
