"""A real kernel's listing with more instructions in it: slower, and longer in each loop around them."""

import re

from wheel_builder.machine_code.disassembly.kernels import LINE

JUMP = re.compile(r"^(s_c?branch\w*) (\d+)$")
NOP, NOTHING = "s_nop 0", "BF800000"
DWORD, BACKWARD = 4, 1 << 15


def longer(listing, address, count):
    """``count`` more instructions of a dword before the one at ``address``. Jumps lead where they did."""
    return "".join(_lines(listing.splitlines(keepends=True), address, count))


def _lines(lines, address, count):
    def moved(place):
        return place + DWORD * count * (place >= address)

    for line in lines:
        if not (match := LINE.match(line)):
            yield line
            continue
        place = int(match["address"], 16)
        if place == address:
            yield from (_line(NOP, NOTHING, place + DWORD * n) for n in range(count))
        yield _line(*_jump(match["text"].rstrip(), match["words"].strip(), place, moved))


def _line(text, words, place):
    return f"\t{text} // {place:012X}: {words}\n"


def _jump(text, words, place, moved):
    """An instruction's text, dwords and address, of a jump with its new distance.

    One to ``address`` goes behind the new instructions.
    """
    if not (match := JUMP.match(text)):
        return text, words, moved(place)
    distance = int(match[2]) - 2 * BACKWARD * (int(match[2]) >= BACKWARD)
    target = place + DWORD * (1 + distance)
    new = (moved(target) - moved(place)) // DWORD - 1 & 2 * BACKWARD - 1
    return f"{match[1]} {new}", f"{words[:4]}{new:04X}", moved(place)
