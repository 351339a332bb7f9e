"""Which waits a kernel needs, told by its text alone.

The second opinion on the wait check: it shares neither registers, counters nor the walk with it. Facts: "data
dependency resolution" of the ISA manuals. Operations of a queue arrive in order, those of scalar and flat
memory in any. After a wait for ``n``, at most ``n`` operations of its counter are left. On gfx12 loads from
memory are counted in order and write registers in any (LLVM's pull request 105549).
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

ARRIVED = "its counter is as low already, on every path"
UNUSED = "nothing reads or overwrites what it waits for, before it arrives anyway"
ORDERED = "a later operation of its queue overwrites what it waits for, and arrives later"
FENCE = "stores are in flight at a barrier: the order of global memory is not checked"
NEEDED = "needed"

NAMED = re.compile(r"\b([vsa])(?:(\d+)\b(\.[lh]\b)?|\[(\d+):(\d+)\])|\b(vcc|exec|m0)")
# Stores of spilled registers, into a thread's own memory: no barrier orders them.
SPILL = re.compile(r"scratch_store|buffer_store_dword(x\d)? \S+, off,")
# On gfx10 and later these loads keep the other half of their register.
HALF_LOAD = re.compile(r"\w+_load_(short_|ubyte_|sbyte_)?d16(_hi)?")
READS_VCC = re.compile(r"v_div_fmas|v_dual_cndmask|s_cbranch_vcc")
# The counters an operation raises: on gfx9, on gfx10 and gfx11, on gfx12.
RAISED = (
    (re.compile(r"ds_|flat_"), ("lgkmcnt", "lgkmcnt", "dscnt")),
    (re.compile(r"s_(buffer_)?load|s_mem(real)?time|s_sendmsg_rtn"), ("lgkmcnt", "lgkmcnt", "kmcnt")),
    (re.compile(r"(global|buffer|scratch|flat)_load|global_inv\b"), ("vmcnt", "vmcnt", "loadcnt")),
    (re.compile(r"(global|buffer|scratch|flat)_store"), ("vmcnt", "vscnt", "storecnt")),
)
ATOMIC, RETURNS = re.compile(r"\w+_atomic_"), re.compile(r"\b(glc|sc0|th:TH_ATOMIC_(\w+_)?RETURN)\b")
LOAD, STORE = RAISED[2][1], RAISED[3][1]
NO_RESULT = re.compile(r"\w+_(write|store)|ds_nop|\w+_inv")
BETWEEN_LANES = re.compile(r"ds_(b?permute|swizzle)")
ARRIVES = re.compile(r"s_barrier(_signal)?\b(?!_)")
COUNTS = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
ONE = re.compile(r"s_wait(?:cnt)?_([a-z]+cnt)(_dscnt)? (?:null, )?(0x[0-9a-f]+)$")
# Above every count: counting stops here, so numbers around a loop repeat.
MOST = 64


class Issued(NamedTuple):
    """An operation in a queue: its counter, its results, and whether it accesses LDS or stores.

    ``overtakes``: it may write a register after a later one of its queue.
    """

    counter: str
    in_order: bool
    overtakes: bool
    results: frozenset[str]
    in_lds: bool
    stores: bool

    @property
    def queue(self):
        return self.counter, self.in_order


class Line(NamedTuple):
    """An instruction: the operations it issues, the registers it names, its waits by counter."""

    issued: tuple[Issued, ...]
    names: frozenset[str]
    sources: frozenset[str]
    waits: dict[str, int]
    arrives: bool


@cache
def line(generation, text):
    """``generation``: 0 for gfx9, 1 for gfx10 and gfx11, 2 for gfx12."""
    first, _, rest = text.partition(" ")[2].partition(",")
    names, sources = registers(text), registers(rest)
    into_lds = "_lds_" in text or text.endswith(" lds")
    has_result = not (NO_RESULT.match(text) or into_lds)
    counters = [raised[generation] for mnemonic, raised in RAISED if mnemonic.match(text)]
    if ATOMIC.match(text):
        has_result = RETURNS.search(text) is not None
        counters.append((LOAD if has_result else STORE)[generation])
    results = registers(first) if has_result else frozenset()
    if generation and (half := HALF_LOAD.match(text)):
        results = frozenset(each for each in results if each.endswith(".h" if half[2] else ".l"))
    issued = tuple(
        Issued(
            counter,
            in_order=not text.startswith(("s_", "flat_")),
            overtakes=text.startswith(("s_", "flat_")) or counter == "loadcnt",
            results=results,
            in_lds=(counter in RAISED[0][1] and text[0] != "s" and not BETWEEN_LANES.match(text)) or into_lds,
            stores=not (has_result or into_lds or text[:2] == "ds" or SPILL.match(text)),
        )
        for counter in counters
    )
    return Line(issued, names, sources, waits_of(text), ARRIVES.match(text) is not None)


@cache
def registers(text):
    found = {"vcc"} if READS_VCC.match(text) else set()
    for bank, single, half, begin, end, special in NAMED.findall(text):
        if special:
            found.add(special)
        else:
            halves = ("", half) if half else ("", ".l", ".h")
            numbers = range(int(single or begin), int(single or end) + 1)
            found |= {f"{bank}{n}{each}" for n in numbers for each in halves}
    return frozenset(found)


def waits_of(text):
    if text.startswith("s_waitcnt "):
        return {counter: int(count) for counter, count in COUNTS.findall(text)}
    if not (match := ONE.match(text)):
        return {}
    number = int(match[3], 16)
    return {match[1]: number >> 8, "dscnt": number & 0x3F} if match[2] else {match[1]: number}


def is_done(issued, later, waits):
    """Whether these waits are for such an operation, with that many later ones in its queue."""
    count = waits.get(issued.counter, MOST + 1)
    return count == 0 or (issued.in_order and later >= count)


class Queues:
    """A kernel's operations in flight: ``before`` has those before each instruction, by its number.

    Each operation, an instruction and its place there, has the fewest later ones in its queue on any path.
    """

    def __init__(self, arch, kernel):
        generation = 0 if arch.startswith("gfx9") else 1 + arch.startswith("gfx12")
        self.kernel, self.lines = kernel, [line(generation, each.text) for each in kernel.instructions]
        self.before = {0: {}}
        todo = [0]
        while todo:
            number = todo.pop()
            left = self._after(number)
            for each in kernel.successors[number]:
                known = self.before.get(each)
                met = left if known is None else {**known, **{
                    key: min(later, known.get(key, MOST)) for key, later in left.items()
                }}  # fmt: skip
                if met != known:
                    self.before[each] = met
                    todo.append(each)

    def _after(self, number):
        here = self.lines[number]
        left = self.before[number]
        if here.waits:
            left = {
                key: later for key, later in left.items() if not is_done(self._at(key), later, here.waits)
            }
        for place, issued in enumerate(here.issued):
            left = {
                key: min(later + (self._at(key).queue == issued.queue), MOST) for key, later in left.items()
            }
            left[number, place] = 0
        return left

    def _at(self, key):
        number, place = key
        return self.lines[number].issued[place]

    def verdict(self, number, waits):
        """The reason why instruction ``number`` may have these waits instead of its own, or NEEDED."""
        here, before = self.lines[number].waits, self.before[number]
        late = [
            (key, later)
            for key, later in before.items()
            if is_done(self._at(key), later, here) and not is_done(self._at(key), later, waits)
        ]
        if not late:
            return ARRIVED
        found = {why for key, later in late for why in self._met(self._at(key), later, number, waits)}
        return next((each for each in (NEEDED, FENCE, ORDERED) if each in found), UNUSED)

    def _met(self, issued, later, changed, waits) -> Iterator[str]:
        """What happens to an operation in flight behind instruction ``changed``, with these waits of it."""
        todo, seen = [(each, later, issued.results) for each in self.kernel.successors[changed]], {}
        while todo:
            number, later, results = todo.pop()
            if seen.get((number, results), MOST + 1) <= later:
                continue
            seen[number, results] = later
            here = self.lines[number]
            if is_done(issued, later, waits if number == changed else here.waits):
                continue
            own = [each for each in here.issued if each.queue == issued.queue]
            if not issued.overtakes and not here.sources & results:
                overwritten = {name for each in own for name in each.results & results}
                results -= overwritten
                if overwritten:
                    yield ORDERED
            if here.names & results or (here.arrives and issued.in_lds):
                yield NEEDED
                return
            if here.arrives and issued.stores:
                yield FENCE
            later = min(later + len(own), MOST)
            todo += [(each, later, results) for each in self.kernel.successors[number]]
