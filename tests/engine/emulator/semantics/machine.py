"""Snippets of machine code, assembled into one code object per arch and run on the emulator.

A snippet's kernel loads registers from memory, runs the snippet's text and stores registers to memory. Each
workgroup is one wave with separate data.  s[4:7] (input and output) and v0 (lane * 4) belong to the frame.
"""

import re
import struct
from dataclasses import dataclass, field, replace

from wheel_builder.machine_code.emulator.machine import Launch, Options
from wheel_builder.machine_code.emulator.memory import Memory, pack_arguments
from wheel_builder.tables.archs import arch_named, known_archs

# The first arch of each ISA: the tables in this folder run for it.
ISAS = {arch.isa.name: arch.isa for arch in known_archs().values()}
ARCHS = tuple(next(arch.name for arch in known_archs().values() if arch.isa.name == isa) for isa in ISAS)
# Archs whose ISA the emulator reads like that of an earlier arch. The earlier arch's vectors cover them,
# except for additional instructions.
EXTENDS = {
    arch: base
    for number, arch in enumerate(ARCHS)
    for base in ARCHS[:number]
    if replace(arch_named(arch).isa, name="", hazards=None)
    == replace(arch_named(base).isa, name="", hazards=None)
}
LANES = {arch: arch_named(arch).isa.wave for arch in ARCHS}
HALVES = "real-true16"  # 16-bit operands are halves of registers (v1.l, v1.h), as the compiler uses them
FEATURES = {
    arch: " ".join(f"-mattr=+{name}" for name in arch_named(arch).isa.assembler_features) for arch in ARCHS
}
SLOT = 256  # bytes of one register of a wave, for wave32 and wave64
STEP = SLOT // 4


@dataclass(frozen=True)
class Snippet:
    """``text`` after loads of ``vectors`` and ``scalars``, before stores of ``outputs``: 32-bit registers.

    ``denormals`` of fp32: 3 are kept, as in HIP kernels; 0 are flushed.
    """

    name: str
    text: str
    vectors: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    lds: int = 0
    scratch: int = 0
    denormals: int = 3


@dataclass(frozen=True)
class Data:
    """One workgroup's inputs: ``vectors[register][lane]`` and ``scalars[register]``."""

    vectors: dict[str, list[int]] = field(default_factory=dict)
    scalars: dict[str, int] = field(default_factory=dict)


def label(index):
    return f"k{index}"


def expand(text, arch):
    """Mask registers by name: ``<40>`` is s[40:41] on wave64 and s40 on wave32. <vcc> and <exec> follow it.

    ``<buffer_word3>`` is the format word of a raw buffer resource.  Waits for memory have their names from
    before RDNA 4.
    """
    wide = LANES[arch] == 64
    text = text.replace("<buffer_word3>", hex(arch_named(arch).isa.buffer_word3))
    if arch_named(arch).isa.counters.scalars_apart:
        text = re.sub("s_waitcnt .*", "s_wait_loadcnt 0x0\ns_wait_dscnt 0x0\ns_wait_kmcnt 0x0", text)

    def one(match):
        name = match[1]
        if name.isdigit():
            return f"s[{name}:{int(name) + 1}]" if wide else f"s{name}"
        return name if wide else name + "_lo"

    return re.sub(r"<(\w+)>", one, text)


def body(snippet, arch):
    next_slot = ["s_add_u32 s4, s4, 256", "s_addc_u32 s5, s5, 0"]
    next_out = ["s_add_u32 s6, s6, 256", "s_addc_u32 s7, s7, 0"]
    slots = len(snippet.vectors) + 1
    lines = [
        *(["s_mov_b32 s2, ttmp9"] if arch_named(arch).isa.workgroup_ids_in_ttmps else []),
        "s_load_dwordx4 s[4:7], s[0:1], 0x0",
        "s_load_dwordx2 s[8:9], s[0:1], 0x10",
        "s_waitcnt lgkmcnt(0)",
        f"s_mul_i32 s3, s2, {slots * SLOT}",
        "s_add_u32 s4, s4, s3",
        "s_addc_u32 s5, s5, 0",
        f"s_mul_i32 s3, s2, {len(snippet.outputs) * SLOT}",
        "s_add_u32 s6, s6, s3",
        "s_addc_u32 s7, s7, 0",
        "v_lshlrev_b32 v0, 2, v0",
    ]
    for register in snippet.vectors:
        to = register if register[0] == "v" else "v1"
        lines += [f"global_load_dword {to}, v0, s[4:5]", "s_waitcnt vmcnt(0)", *next_slot]
        if to != register:
            lines += [f"v_accvgpr_write_b32 {register}, v1"]
    for i, register in enumerate(snippet.scalars):
        lines += [f"s_load_dword {register}, s[4:5], {4 * i}"]
    lines += ["s_waitcnt lgkmcnt(0)", *snippet.text.strip().splitlines()]
    special = [r for r in snippet.outputs if r.startswith(("exec", "scc"))]
    # The text may leave EXEC and SCC in any state. They are saved before the stores set them.
    saved = {"scc": "s92", "exec_lo": "s93", "exec_hi": "s94"}
    lines += ["s_cselect_b32 s92, 1, 0"] if "scc" in special else []
    lines += [f"s_mov_b32 {saved[r]}, {r}" for r in special if r != "scc"]
    lines += ["s_mov_b64 exec, -1" if LANES[arch] == 64 else "s_mov_b32 exec_lo, -1"]
    for register in snippet.outputs:
        source = register
        if register[0] == "a":
            lines += [f"v_accvgpr_read_b32 v1, {register}"]
            source = "v1"
        elif register[0] != "v" or register.startswith("vcc"):
            lines += [f"v_mov_b32 v1, {saved.get(register, register)}"]
            source = "v1"
        lines += [f"global_store_dword v0, {source}, s[6:7]", *next_out]
    return [*lines, "s_endpgm"]


def shares_accumulators(arch):
    """Whether AccVGPRs are the upper part of a wave's VGPRs."""
    isa = arch_named(arch).isa
    return isa.unit == "mfma" and not isa.separate_acc_vgprs


def descriptor(name, snippet, arch):
    accum = [".amdhsa_accum_offset 128"] if shares_accumulators(arch) else []
    wave32 = [".amdhsa_wavefront_size32 1"] if LANES[arch] == 32 else []
    vgprs = 192 if shares_accumulators(arch) else 128
    return [
        f".amdhsa_kernel {name}",
        f".amdhsa_float_denorm_mode_32 {snippet.denormals}",
        ".amdhsa_user_sgpr_kernarg_segment_ptr 1",
        ".amdhsa_system_sgpr_workgroup_id_x 1",
        f".amdhsa_group_segment_fixed_size {snippet.lds}",
        f".amdhsa_private_segment_fixed_size {snippet.scratch}",
        ".amdhsa_kernarg_size 24",
        f".amdhsa_next_free_vgpr {vgprs}",
        ".amdhsa_next_free_sgpr 96",
        *accum,
        *wave32,
        ".end_amdhsa_kernel",
    ]


def metadata(name, snippet, arch):
    size = LANES[arch]
    return [
        f"  - .name: {name}",
        f"    .symbol: {name}.kd",
        "    .kernarg_segment_size: 24",
        "    .kernarg_segment_align: 8",
        f"    .group_segment_fixed_size: {snippet.lds}",
        f"    .private_segment_fixed_size: {snippet.scratch}",
        f"    .wavefront_size: {size}",
        "    .sgpr_count: 96",
        "    .vgpr_count: 128",
        f"    .max_flat_workgroup_size: {size}",
    ]


def assembly(snippets, arch):
    """One source file with a kernel for each snippet."""
    lines = [f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"', ".amdhsa_code_object_version 5", ".text"]
    for i, snippet in enumerate(snippets):
        name = label(i)
        lines += [f".globl {name}", ".p2align 8", f".type {name},@function", f"{name}: ; {snippet.name}"]
        lines += body(snippet, arch)
        lines += [f".size {name}, . - {name}", '.section .rodata,"a"', ".p2align 6"]
        lines += [*descriptor(name, snippet, arch), ".text"]
    lines += [".amdgpu_metadata", "amdhsa.version: [1, 2]", "amdhsa.kernels:"]
    for i, snippet in enumerate(snippets):
        lines += metadata(label(i), snippet, arch)
    return expand("\n".join([*lines, ".end_amdgpu_metadata"]), arch) + "\n"


class SnippetMachine:
    """One arch's emulator with the code of all snippets. ``load`` makes a machine from assembly text."""

    def __init__(self, arch, snippets, load):
        self.arch, self.lanes = arch, LANES[arch]
        self.index = {snippet.name: i for i, snippet in enumerate(snippets)}
        assert len(self.index) == len(snippets), "two snippets of one name"
        self.machine = load(assembly(snippets, arch), arch)

    def run(self, snippet, data, memory=b""):
        """``outputs[group][register][lane]`` of one launch. ``memory`` is at s[8:9]."""
        result, outputs, _ = self.launch(snippet, data, memory)
        assert not result.error, result.error
        result.raise_on_findings()
        return outputs

    def launch(self, snippet, data, memory=b""):
        """The launch's result, the outputs as ``run`` gives them, and the memory after it."""
        words = []
        for group in data:
            for register in snippet.vectors:
                words += group.vectors[register] + [0] * (STEP - self.lanes)
            scalars = [group.scalars[register] for register in snippet.scalars]
            words += scalars + [0] * (STEP - len(scalars))
        source = Memory.of(struct.pack(f"<{len(words)}I", *words), "input", readonly=True)
        target = Memory.output(max(1, len(data) * len(snippet.outputs)) * SLOT, "output")
        more = Memory.of(memory or bytes(16), "memory")
        everything = (source, target, more)
        launch = Launch((len(data), 1, 1), (self.lanes, 1, 1))
        kernel = label(self.index[snippet.name])
        # Bounds checks only: snippets may read undefined values, and all workgroups share one memory.
        result = self.machine.run(kernel, launch, pack_arguments(everything), everything, Options(checks=()))
        flat = struct.unpack(f"<{target.size // 4}I", target.read())
        slots = [list(flat[i : i + self.lanes]) for i in range(0, len(flat), STEP)]
        count = len(snippet.outputs)
        outputs = [dict(zip(snippet.outputs, slots[g * count :], strict=False)) for g in range(len(data))]
        return result, outputs, more.read()
