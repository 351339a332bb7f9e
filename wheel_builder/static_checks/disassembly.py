"""Parses the text of ``llvm-objdump -d`` into kernels, their instructions, and the paths through them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.static_checks.operations import ENCODING, TRANSCENDENTAL, Operation, Registers

HEADER = re.compile(r"^([0-9a-f]+) <([^>]+)>:$")
LINE = re.compile(r"^\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]+):(?P<words>(?: [0-9A-F]{8})+)(?: <.*>)?$")
IGNORED = re.compile(r"^$|.*file format |^Disassembly of section |^\s*\.\.\.$")
ENDS = re.compile(r"s_(endpgm|branch$|setpc|swappc|code_end|trap)")
JUMPS = re.compile(r"s_(branch|cbranch_\w+|call_b64)$")
INDIRECT = re.compile(r"s_(setpc|swappc|call)_b64$|s_cbranch_(join|[gi]_fork)$")
COMMA = re.compile(r",(?![^(\[]*[)\]])")  # outside brackets
DWORD = 4


class Instruction(NamedTuple):
    """One instruction at ``address``; ``target`` is where it may jump to.  All else follows from its text.

    ``touches`` are registers on which a later instruction may depend: EXEC only when written.  ``is_late``:
    its result may come later than that of other instructions of its kind.  ``wait_states`` are those that it
    provides: one, plus those that ``s_nop`` asks for.
    """

    address: int
    target: int | None
    text: str
    operations: tuple[Operation, ...]
    first: Operation
    mnemonic: str
    writes: Registers
    reads: Registers
    touches: Registers
    is_valu: bool
    is_memory: bool
    is_transcendental: bool
    is_late: bool
    wait_states: int

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
            current.append(parse_instruction(int(match["address"], 16), match["text"]))
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
    for part in COMMA.split(rest):
        word, _, more = part.strip().partition(" ")
        operands += [word] if word else []
        modifiers += [more.strip()] if more.strip() else []
    return Operation(ENCODING.sub("", mnemonic), tuple(operands), " ".join(modifiers))


def parse_instruction(address: int, text: str) -> Instruction:
    """The instruction at ``address``, from its text without comment."""
    (first, *_), *_ = known = _known(text)
    target = None
    if JUMPS.match(first.mnemonic):
        words = int(first.operands[-1])
        target = address + DWORD * (1 + words - (words >= 1 << 15) * (1 << 16))
    return Instruction(address, target, text, *known)


@cache
def _known(text: str) -> tuple[Any, ...]:
    """The fields of ``Instruction`` from ``operations`` on: kernels repeat most of their texts."""
    operations = tuple(parse_operation(half) for half in text.split("::"))
    first, mnemonic, kind = operations[0], operations[0].mnemonic, operations[0].kind
    writes = first.writes.union(*(operation.writes for operation in operations[1:]))
    reads = first.reads.union(*(operation.reads for operation in operations[1:]))
    transcendental = TRANSCENDENTAL.match(mnemonic) is not None
    return (
        operations, first, mnemonic, writes, reads, writes | (reads - {"exec"}),
        kind == "valu", kind in ("lds", "vmem"), transcendental, first.is_matrix or transcendental,
        int(first.operands[0], 0) + 1 if mnemonic == "s_nop" else 1,
    )  # fmt: skip
