"""Whether a kernel's code accesses scratch memory, independent of its metadata."""

from collections.abc import Iterator

from wheel_builder.machine_code.disassembly.kernels import Instruction, Kernel
from wheel_builder.machine_code.disassembly.operations import Registers, registers
from wheel_builder.machine_code.static_checks.findings import Finding

CHECK = "scratch"


def check_scratch(arch: str, kernel: Kernel) -> tuple[Finding, ...]:
    """One finding for each instruction with access to private memory."""
    code = [kernel.instructions[number] for number in kernel.reached]
    written: Registers = frozenset().union(*(instruction.writes for instruction in code))
    return tuple(
        Finding(CHECK, arch, kernel.name, f"{instruction} {how}")
        for instruction in code
        for how in _touches(instruction, written)
    )


def _touches(instruction: Instruction, written: Registers) -> Iterator[str]:
    mnemonic = instruction.mnemonic
    if mnemonic.startswith("scratch_"):
        yield "reads or writes scratch memory"
    if "src_private_base" in instruction.text:
        yield "makes an address in scratch memory"
    if "buffer_" in mnemonic and instruction.first.kind == "vmem":
        resource = [o for o in instruction.first.operands if len(registers(o)) == 4 and o.startswith("s[")]
        if any(not set(registers(operand)) <= written for operand in resource):
            # A kernel builds its own buffer resources. The only one set up at launch is the private
            # segment's.
            yield "reads or writes scratch memory: its buffer is one that the kernel was started with"
