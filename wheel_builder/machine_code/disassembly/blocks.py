"""Basic blocks of a kernel, and its loops.

A loop has the instructions that can reach each other, wherever the compiler puts them: also those of rare
branches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wheel_builder.machine_code.disassembly.kernels import Kernel


@dataclass(frozen=True)
class Blocks:
    """Basic blocks: runs of instructions entered only at the first and left only after the last.

    ``by_first`` has the blocks, ``after`` the possible successors of each instruction, all as numbers.
    """

    by_first: Mapping[int, Sequence[int]]
    after: Sequence[Sequence[int]]

    @classmethod
    def of(cls, kernel: Kernel) -> "Blocks":
        return cls({block[0]: block for block in _runs(kernel)}, kernel.successors)


def _runs(kernel: Kernel) -> Iterator[Sequence[int]]:
    run: list[int] = []
    for number in kernel.reached:
        if run and (kernel.predecessors[number] != (run[-1],) or len(kernel.successors[run[-1]]) > 1):
            yield run
            run = []
        run.append(number)
    yield run


def longest_loop(kernel: Kernel) -> int:
    """Bytes of the longest loop, with the loops inside of it. 0: no loop."""
    blocks = Blocks.of(kernel)
    sizes = {first: _bytes(kernel, block) for first, block in blocks.by_first.items()}
    return max((sum(sizes[first] for first in loop) for loop in _loops(blocks)), default=0)


def _bytes(kernel: Kernel, block: Sequence[int]) -> int:
    last, code = block[-1], kernel.instructions
    end = code[last + 1].address if last + 1 < len(code) else code[last].address
    return end - code[block[0]].address


def _loops(blocks: Blocks) -> Iterator[set[int]]:
    """Strongly connected blocks, by their first instructions (Kosaraju's algorithm)."""
    after = {first: blocks.after[block[-1]] for first, block in blocks.by_first.items()}
    before: dict[int, list[int]] = {first: [] for first in after}
    for first, successors in after.items():
        for each in successors:
            before[each].append(first)
    left = set(after)
    for root in reversed([*_finished(after)]):
        if root in left:
            loop = set(_reached(root, before, left))
            if len(loop) > 1 or root in after[root]:
                yield loop


def _finished(after: dict[int, Sequence[int]]) -> Iterator[int]:
    """Blocks after all that they reach."""
    seen = {0}
    todo = [(0, iter(after[0]))]
    while todo:
        block, successors = todo[-1]
        following = next((each for each in successors if each not in seen), None)
        if following is None:
            todo.pop()
            yield block
        else:
            seen.add(following)
            todo.append((following, iter(after[following])))


def _reached(root: int, before: dict[int, list[int]], left: set[int]) -> Iterator[int]:
    """Takes them out of ``left``."""
    left.remove(root)
    todo = [root]
    while todo:
        block = todo.pop()
        yield block
        fresh = [each for each in dict.fromkeys(before[block]) if each in left]
        left.difference_update(fresh)
        todo += fresh
