"""A real kernel's listing with more instructions in it: slower, and longer in each loop around them."""

import re

from wheel_builder.machine_code.disassembly.kernels import LINE

JUMP = re.compile(r"^(s_c?branch\w*) (\d+)$")
NOP, DWORD, BACKWARD = "s_nop 0", 4, 1 << 15


def longer(listing, address, count, text=NOP):
    """``count`` more instructions of a dword before the one at ``address``. Jumps lead where they did."""
    return "".join(_lines(listing.splitlines(keepends=True), address, count, text))


def _lines(lines, address, count, text):
    def moved(place):
        return place + DWORD * count * (place >= address)

    for line in lines:
        if not (match := LINE.match(line)):
            yield line
            continue
        place, words = int(match["address"], 16), match["words"].strip()
        if place == address:
            yield from (_line(text, place + DWORD * n, "BF800000") for n in range(count))
        yield _line(_jump(match["text"].rstrip(), place, moved), moved(place), words)


def _line(text, place, words):
    return f"\t{text} // {place:012X}: {words}\n"


def _jump(text, place, moved):
    """A jump with its new distance. One to ``address`` goes behind the new instructions."""
    if not (match := JUMP.match(text)):
        return text
    distance = int(match[2]) - 2 * BACKWARD * (int(match[2]) >= BACKWARD)
    target = place + DWORD * (1 + distance)
    return f"{match[1]} {(moved(target) - moved(place)) // DWORD - 1 & 2 * BACKWARD - 1}"
