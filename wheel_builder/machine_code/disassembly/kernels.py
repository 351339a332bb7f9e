"""Parses the text of ``llvm-objdump -d`` into kernels, their instructions, and the paths through them."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.machine_code.disassembly.operations import (
    ENCODING,
    TRANSCENDENTAL,
    Operation,
    Registers,
    operation,
)

HEADER = re.compile(r"^([0-9a-f]+) <([^>]+)>:$")
# The text with its trailing spaces: a pattern excluding them takes twice as long.
LINE = re.compile(
    r"\t(?P<text>\S[^/]*(?:/(?!/)[^/]*)*)// (?P<address>[0-9A-F]+):(?P<words>(?: [0-9A-F]{8})+)(?: <.*>)?$"
)
IGNORED = re.compile(r"^$|.*file format |^Disassembly of section |^\s*\.\.\.$")
ENDS = re.compile(r"s_(endpgm|branch$|setpc|swappc|code_end|trap)")
JUMPS = re.compile(r"s_(branch|cbranch_\w+|call_b64)$")
INDIRECT = re.compile(r"s_(setpc|swappc|call)_b64$|s_cbranch_(join|[gi]_fork)$")
NESTED = re.compile(r"[\[(][^\])]*,")  # a comma within brackets
COMMA = re.compile(r",(?![^(\[]*[)\]])")  # outside brackets
DWORD = 4


class Instruction(NamedTuple):
    """One instruction at ``address``. ``target`` is its possible jump target. The rest follows from its text.

    ``touches`` are registers on which a later instruction may depend: written ones, and those read by memory
    and matrix instructions after issue. ``is_late``: its result may come later than usual for its kind.
    ``wait_states``: one, plus those requested by ``s_nop``. ``uses``: registers read and written.
    ``is_straight``: the next instruction always follows it.
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
    uses: Registers
    is_straight: bool

    def __str__(self) -> str:
        return f"{self.address:#x} `{self.text}`"


@dataclass(frozen=True)
class Kernel:
    """A function's instructions in order of address, including the padding after them."""

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction, the numbers of its possible predecessors.

        Unreachable code has no predecessors, and is a predecessor of nothing.

        Raises ``DeviceCodeError`` for jumps with a target outside of the text: paths would be missing.
        """
        before: list[tuple[int, ...]] = [()] * len(self.instructions)
        seen, todo = {0}, [0]
        while todo:
            number = todo.pop()
            for successor in self._successors(number):
                before[successor] += (number,)
                if successor not in seen:
                    seen.add(successor)
                    todo.append(successor)
        return tuple(before)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction, the numbers of its possible successors.

        Unreachable code has none.
        """
        after: list[tuple[int, ...]] = [()] * len(self.instructions)
        for number, before in enumerate(self.predecessors):
            for each in before:
                after[each] += (number,)
        return tuple(after)

    @cached_property
    def reached(self) -> tuple[int, ...]:
        """The numbers of the reachable instructions."""
        return tuple(n for n in range(len(self.instructions)) if n == 0 or self.predecessors[n])

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {instruction.address: n for n, instruction in enumerate(self.instructions)}

    def _successors(self, number: int) -> Iterator[int]:
        instruction = self.instructions[number]
        if instruction.is_straight and number + 1 < len(self.instructions):
            yield number + 1
            return
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


def parse_disassembly(text: str, names: Collection[str] = ()) -> tuple[Kernel, ...]:
    """The functions in the output of ``llvm-objdump -d``.

    ``names`` of functions, if given: other headings are labels inside them, as assembled files may have them.
    Raises ``DeviceCodeError`` with every unparsable line.
    """
    functions: dict[str, list[Instruction]] = {}
    problems: list[str] = []
    current: list[Instruction] | None = None
    lines = text.splitlines()
    labels = _headings(lines, names) if names else {}
    for number, line in enumerate(lines, start=1):
        if (match := LINE.match(line)) and current is not None:
            address = int(match[2], 16)
            current.append(parse_instruction(address, _unlabelled(match[1].rstrip(), address, labels)))
        elif header := HEADER.match(line):
            if header.group(2) not in labels:
                current = functions.setdefault(header.group(2), [])
        elif not IGNORED.match(line):
            problems.append(f"line {number}: {line.strip()[:120]!r}")
    if problems or not functions:
        title = "the disassembly cannot be read"
        raise DeviceCodeError(title, problems or ["it has no function"], advice="is this llvm-objdump -d?")
    return tuple(Kernel(name, tuple(instructions)) for name, instructions in functions.items())


def _headings(lines: Iterable[str], but: Collection[str]) -> dict[str, int]:
    """The addresses of all headings with other names."""
    found = (header for line in lines if (header := HEADER.match(line)))
    return {header[2]: int(header[1], 16) for header in found if header[2] not in but}


def _unlabelled(text: str, address: int, labels: Mapping[str, int]) -> str:
    """The text with the encoded distance of a jump in place of a label."""
    mnemonic, _, label = text.partition(" ")
    if label not in labels:
        return text
    return f"{mnemonic} {(labels[label] - address) // DWORD - 1 & 0xFFFF}"


@cache
def parse_operation(text: str) -> Operation:
    """Parse one operation: a mnemonic, operands separated by commas, and modifiers after the last one."""
    mnemonic, _, rest = text.strip().partition(" ")
    operands: list[str] = []
    modifiers: list[str] = []
    for part in COMMA.split(rest) if NESTED.search(rest) else rest.split(","):
        word, _, more = part.strip().partition(" ")
        if word:
            operands.append(word)
        if more:
            modifiers.append(more.strip())
    return operation(without_encoding(mnemonic), tuple(operands), " ".join(modifiers))


def parse_instruction(address: int, text: str) -> Instruction:
    """The instruction at ``address``, from its text without the comment."""
    jumps, known = _known(text)
    target = None
    if jumps is not None:
        target = address + DWORD * (1 + jumps - (jumps >= 1 << 15) * (1 << 16))
    return Instruction._make((address, target, text, *known))


@cache
def _known(text: str) -> tuple[int | None, tuple[Any, ...]]:
    """The encoded distance of a jump in words, and the fields of ``Instruction`` from ``operations`` on.

    Cached: kernels repeat most of their texts.
    """
    operations = tuple(parse_operation(half) for half in text.split("::"))
    first, mnemonic, kind = operations[0], operations[0].mnemonic, operations[0].kind
    writes, reads = first.writes, first.reads
    for other in operations[1:]:
        writes, reads = writes | other.writes, reads | other.reads
    transcendental, jumps, is_straight = _facts(mnemonic)
    touches = writes | (reads - {"exec"}) if first.is_matrix or kind in ("lds", "vmem") else writes
    return int(first.operands[-1]) if jumps else None, (
        operations, first, mnemonic, writes, reads, touches,
        kind == "valu", kind in ("lds", "vmem"), transcendental, first.is_matrix or transcendental,
        int(first.operands[0], 0) + 1 if mnemonic == "s_nop" else 1, reads | writes, is_straight,
    )  # fmt: skip


@cache
def _facts(mnemonic: str) -> tuple[bool, bool, bool]:
    """Whether it is transcendental, whether it jumps, and whether the next instruction follows it."""
    jumps = JUMPS.match(mnemonic) is not None
    leaves = jumps or ENDS.match(mnemonic) or INDIRECT.match(mnemonic)
    return TRANSCENDENTAL.match(mnemonic) is not None, jumps, not leaves


@cache
def without_encoding(mnemonic: str) -> str:
    """``mnemonic`` without the suffix for its encoding."""
    return ENCODING.sub("", mnemonic)
