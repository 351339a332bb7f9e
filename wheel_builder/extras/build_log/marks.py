"""Finds the lines of a long text with one of a few short words.

Each word costs one more search through the whole text. Each matching line costs far more.
"""

from collections.abc import Iterable, Sequence


class Marks:
    """Words, and a bit for each. The matches of a line are one number."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self._bits = {word: 1 << place for place, word in enumerate(dict.fromkeys(words))}
        self.unused = 1 << len(self._bits)  # a bit free of any word

    def of(self, words: Iterable[bytes]) -> int:
        """The bits of some of the words."""
        return sum(self._bits[word] for word in set(words))

    def in_lines(self, data: bytes) -> dict[int, int]:
        """The whole lines with a word: where each begins, and the bits of its words."""
        found: dict[int, int] = {}
        for word, bit in self._bits.items():
            at = data.find(word)
            while at >= 0:
                start = data.rfind(b"\n", 0, at) + 1
                found[start] = found.get(start, 0) | bit
                at = data.find(word, data.index(b"\n", at))
        return found
