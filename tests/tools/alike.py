"""Executed blocks that a reason in not_executed.toml would explain, had nothing executed them.

Such a reason may hide a block that calls reach.
"""

import re
from fnmatch import fnmatch

from tests.tools.mutation.mutants import name_of
from wheel_builder.machine_code.disassembly.kernels import LINE

BEHIND = 16  # as in tests/installed/numerics/record.py
DWORD = 4
END = re.compile(r"s_(c?branch|endpgm|setpc)")
FORWARD = re.compile(r"s_cbranch_\w+ (\d+)$")
BACKWARD = 1 << 15  # distances from here on are negative


def executed_alike(listing, coverage, reasons):
    """(reason, kernel and offset) of these blocks of a kernel. ``coverage``: of kernels, as in a record."""
    name = name_of(listing)
    found = coverage[name]
    places = [
        (int(match["address"], 16), match["text"].rstrip())
        for match in map(LINE.match, listing.splitlines())
        if match
    ][: found["instructions"]]
    begin, texts = places[0][0], [text for _, text in places]
    missed = missed_in({address - begin: n for n, (address, _) in enumerate(places)}, found["not_executed"])
    for reason in (each for each in reasons if fnmatch(name, each.kernels)):
        for number in (n for n, text in enumerate(texts) if n not in missed and reason.text.search(text)):
            end = end_of(places, number) if reason.every else number + 1
            block = {"code": texts[number:end], "behind": texts[max(0, number - BEHIND) : number]}
            if block["code"] and reason.explains(name, block):
                yield reason, f"{name}+{places[number][0] - begin:#x}"


def missed_in(numbers, blocks):
    """The numbers of all instructions in ``blocks``, by the number at each offset."""
    firsts = [(numbers[block["offset"]], len(block["code"])) for block in blocks]
    return {n for first, count in firsts for n in range(first, first + count)}


def end_of(places, first):
    """The end of the block from ``first`` on: its branch, or where the branch before it goes."""
    end = len(places)
    if first and (match := FORWARD.match(places[first - 1][1])) and int(match[1]) < BACKWARD:
        target = places[first][0] + DWORD * int(match[1])
        end = next((n for n in range(first, end) if places[n][0] >= target), end)
    return next((n + 1 for n in range(first, end) if END.match(places[n][1])), end)
