"""Parses the text of ``llvm-objdump -d`` into kernels, their instructions, and the paths through them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.static_checks.operations import ENCODING, TRANSCENDENTAL, Operation

HEADER = re.compile(r"^([0-9a-f]+) <([^>]+)>:$")
LINE = re.compile(r"^\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]+):(?P<words>(?: [0-9A-F]{8})+)(?: <.*>)?$")
IGNORED = re.compile(r"^$|.*file format |^Disassembly of section |^\s*\.\.\.$")
ENDS = re.compile(r"s_(endpgm|branch$|setpc|swappc|code_end|trap)")
JUMPS = re.compile(r"s_(branch|cbranch_\w+|call_b64)$")
INDIRECT = re.compile(r"s_(setpc|swappc|call)_b64$|s_cbranch_(join|[gi]_fork)$")
DWORD = 4


@dataclass(frozen=True)
class Instruction:
    """One instruction at ``address``; ``target`` is where it may jump to."""

    address: int
    text: str
    operations: tuple[Operation, ...]
    target: int | None = None

    @property
    def first(self) -> Operation:
        return self.operations[0]

    @property
    def mnemonic(self) -> str:
        return self.first.mnemonic

    @cached_property
    def is_valu(self) -> bool:
        return self.first.kind == "valu"

    @cached_property
    def is_memory(self) -> bool:
        return self.first.kind in ("lds", "vmem")

    @cached_property
    def is_transcendental(self) -> bool:
        return TRANSCENDENTAL.match(self.mnemonic) is not None

    @cached_property
    def is_late(self) -> bool:
        """Whether its result may come later than that of other instructions of its kind."""
        return self.first.is_matrix or self.is_transcendental

    @cached_property
    def writes(self) -> frozenset[str]:
        return self.first.writes.union(*(operation.writes for operation in self.operations[1:]))

    @cached_property
    def reads(self) -> frozenset[str]:
        return self.first.reads.union(*(operation.reads for operation in self.operations[1:]))

    @cached_property
    def touches(self) -> frozenset[str]:
        """Registers on which a later instruction may depend; EXEC only when written."""
        return self.writes | (self.reads - {"exec"})

    @cached_property
    def wait_states(self) -> int:
        """Wait states that the instruction provides: one, plus those that ``s_nop`` asks for."""
        return int(self.first.operands[0], 0) + 1 if self.mnemonic == "s_nop" else 1

    def __str__(self) -> str:
        return f"{self.address:#x} `{self.text}`"


@dataclass(frozen=True)
class Kernel:
    """A function's instructions in order of address, including the padding after them."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction, the numbers of those that can run right before it.

        Unreachable code has none and is no instruction's predecessor.

        Raises ``DeviceCodeError`` for jumps whose target is not in the text: paths would be missing.
        """
        before: list[list[int]] = [[] for _ in self.instructions]
        seen, todo = {0}, [0]
        while todo:
            number = todo.pop()
            for successor in self._successors(number):
                before[successor].append(number)
                if successor not in seen:
                    seen.add(successor)
                    todo.append(successor)
        return tuple(tuple(numbers) for numbers in before)

    @cached_property
    def reached(self) -> tuple[int, ...]:
        """The numbers of the reachable instructions."""
        return tuple(n for n in range(len(self.instructions)) if n == 0 or self.predecessors[n])

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {instruction.address: n for n, instruction in enumerate(self.instructions)}

    def _successors(self, number: int) -> Iterator[int]:
        instruction = self.instructions[number]
        if INDIRECT.match(instruction.mnemonic):
            raise self._lost(instruction, "jumps to an address in a register")
        if not ENDS.match(instruction.mnemonic):
            if number + 1 == len(self.instructions):
                raise self._lost(instruction, "runs past the end of the function")
            yield number + 1
        if instruction.target is not None:
            if instruction.target not in self._numbers:
                raise self._lost(instruction, f"jumps out of the function, to {instruction.target:#x}")
            yield self._numbers[instruction.target]

    def _lost(self, instruction: Instruction, what: str) -> DeviceCodeError:
        title = f"the paths through {self.name} cannot be followed"
        return DeviceCodeError(title, [f"{instruction} {what}"], advice="inline what it calls")


def parse_disassembly(text: str) -> tuple[Kernel, ...]:
    """The functions in the output of ``llvm-objdump -d``.

    Raises ``DeviceCodeError`` with every line that cannot be parsed.
    """
    functions: dict[str, list[Instruction]] = {}
    problems: list[str] = []
    current: list[Instruction] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if header := HEADER.match(line):
            current = functions.setdefault(header.group(2), [])
        elif (match := LINE.match(line)) and current is not None:
            current.append(_instruction(match))
        elif not IGNORED.match(line):
            problems.append(f"line {number}: {line.strip()[:120]!r}")
    if problems or not functions:
        title = "the disassembly cannot be read"
        raise DeviceCodeError(title, problems or ["it has no function"], advice="is this llvm-objdump -d?")
    return tuple(Kernel(name, tuple(instructions)) for name, instructions in functions.items())


@cache
def parse_operation(text: str) -> Operation:
    """Parse one operation: a mnemonic, operands separated by commas, and modifiers after the last one."""
    mnemonic, _, rest = text.strip().partition(" ")
    operands: list[str] = []
    modifiers: list[str] = []
    for part in _split(rest):
        word, _, more = part.strip().partition(" ")
        operands += [word] if word else []
        modifiers += [more.strip()] if more.strip() else []
    return Operation(ENCODING.sub("", mnemonic), tuple(operands), " ".join(modifiers))


def _instruction(match: re.Match[str]) -> Instruction:
    text, address = match["text"], int(match["address"], 16)
    operations = tuple(parse_operation(half) for half in text.split("::"))
    target = None
    if JUMPS.match(operations[0].mnemonic):
        words = int(operations[0].operands[-1])
        target = address + DWORD * (1 + words - (words >= 1 << 15) * (1 << 16))
    return Instruction(address, text, operations, target)


def _split(text: str) -> Iterator[str]:
    """Split at commas outside brackets."""
    depth, begin = 0, 0
    for position, character in enumerate(text):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            yield text[begin:position]
            begin = position + 1
    yield text[begin:]
