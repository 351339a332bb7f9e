"""Memory operations in flight, and the counters that report their arrival.

Facts: "data dependency resolution" of the CDNA and RDNA instruction set manuals, and LLVM's SIInsertWaitcnts
for open questions.

- vmcnt: vector memory, in order. gfx9 counts loads and stores together. Later archs count stores in vscnt,
  unused here: visibility of stores to other waves is not checked.
- lgkmcnt: LDS in order. Scalar loads in any order, so only 0 reports their arrival. Messages.
- FLAT operations count in both vmcnt and lgkmcnt. Only 0 in both reports their arrival.
- loadcnt, storecnt, dscnt, kmcnt (RDNA 4): each of these queues has its own counter. A wait instruction
  exists for each of them and for some pairs (bits 13:8 and 5:0 of its number).
- Loads straight into LDS are for the whole workgroup: they must be done before the next barrier. LDS
  accesses before this barrier are assumed to use other places. The emulator reports the opposite as a race.
- expcnt: exports and GDS, unused in compute kernels. Only the first GCN generation needed it before a
  store's sources were overwritten. The clocks needed by gfx9 after large stores are hazards (cdna.py).
- Loads to the same register need no wait between them if both are in order. RDNA 4 counts loads from memory
  in order, and writes their results in any (LLVM's pull request 105549).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.machine_code.disassembly.operations import Operation, Registers, kind_of, registers
from wheel_builder.tables.archs import Counters, arch_named

# Tracked like a register.
LDS_BYTES = "LDS"
# The LDS bytes of loads straight into LDS.
LOADED_LDS_BYTES = "LDS by loads"
# Suffixes of a register's name for one half, as in assembler.
LOW, HIGH = ".l", ".h"

ACCESS = re.compile(r"(?P<space>t?buffer|global|scratch|flat)_(?P<what>load|store|\w*atomic)_")
CACHE = re.compile(r"buffer_(wbinvl1\w*|inv|wbl2|gl[01]_inv)$|global_wb(inv)?$|s_(dcache_\w+|gl1_inv)$")
INVALIDATES = re.compile(r"global_inv$")  # counted as a load
SCALAR_RESULT = re.compile(r"s_(buffer_|scratch_)?load_|s_mem(real)?time$|s_sendmsg_rtn_")
HALF_LOAD = re.compile(r"(?!.*_format)\w+_(load|read)_\w*d16(?P<high>_hi)?(_|$)")
HALF_STORE = re.compile(r"\w+_(store|write)_(short|byte|b16|b8|d16)(?P<high>(_d16)?_hi)?(_|$)")
LANES_ONLY = re.compile(r"ds_(b?permute|swizzle|nop)")
COUNT = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")
# Registers missing from the operands, other counters, and operations counted by expcnt.
UNKNOWN = re.compile(r"[sv]_movrel|s_set_gpr_idx|image_|ds_(gws|ordered)|lds_|s_(store|atomic)_|v_interp")
# Vector and scalar instructions without these names have finished before the next one.
LASTS = re.compile(rf"{SCALAR_RESULT.pattern}|{UNKNOWN.pattern}|s_wait|s_barrier|s_cbranch_vcc")
# Waits for separate counters, and the counters. With two, the first is in the upper bits.
APART = {
    "s_wait_loadcnt": ("loadcnt",),
    "s_wait_storecnt": ("storecnt",),
    "s_wait_samplecnt": ("samplecnt",),
    "s_wait_bvhcnt": ("bvhcnt",),
    "s_wait_expcnt": ("expcnt",),
    "s_wait_dscnt": ("dscnt",),
    "s_wait_kmcnt": ("kmcnt",),
    "s_wait_loadcnt_dscnt": ("loadcnt", "dscnt"),
    "s_wait_storecnt_dscnt": ("storecnt", "dscnt"),
}
ALL_APART = ("loadcnt", "storecnt", "samplecnt", "bvhcnt", "expcnt", "dscnt", "kmcnt")  # s_wait_idle
FIELD_BITS, FIELD = 8, 0x3F
# Waits for results of the vector and scalar units.
NO_COUNTERS = ("s_waitcnt_depctr", "s_wait_alu")


@dataclass(frozen=True)
class Queue:
    """Operations counted by ``counter``. ``in_order``: they finish in the order of issue.

    ``writes_in_order``: they also write registers in this order.
    """

    name: str
    counter: str
    in_order: bool
    writes_in_order: bool


class Queues:
    """The queues of an ISA, by the names of its counters."""

    def __init__(self, vector: str, lds: str, scalar: str, *, loads_in_order: bool) -> None:
        self.vector = Queue("vector memory", vector, in_order=True, writes_in_order=loads_in_order)
        self.lds = Queue("LDS", lds, in_order=True, writes_in_order=True)
        self.scalar = Queue("scalar memory", scalar, in_order=False, writes_in_order=False)
        self.flat_vector = Queue("flat in memory", vector, in_order=False, writes_in_order=False)
        self.flat_lds = Queue("flat in LDS", lds, in_order=False, writes_in_order=False)


@cache
def queues_of(counters: Counters) -> Queues:
    """The queues of an ISA with these counters."""
    names = ("loadcnt", "dscnt", "kmcnt") if counters.scalars_apart else ("vmcnt", "lgkmcnt", "lgkmcnt")
    return Queues(*names, loads_in_order=counters.loads_in_order)


@dataclass(frozen=True)
class Flight:
    """The registers (or LDS) written or read by an operation after its issue."""

    queue: Queue
    results: Registers


def flights(arch: str, operation: Operation) -> tuple[Flight, ...]:
    """The accesses of ``operation`` still in flight after it on ``arch``. Empty for non-memory operations.

    Raises ``DeviceCodeError`` for unknown operations, ``ArchError`` for unknown archs.
    """
    counters = arch_named(arch).isa.counters
    if _is_unknown(operation.mnemonic) or "gds" in operation.modifiers:
        raise _unknown(operation, "what it reads and writes is not known to the check of waits")
    if operation.kind == "valu":
        return ()
    return tuple(_flights(operation, counters))


@cache
def is_inert(mnemonic: str) -> bool:
    """Whether such instructions are plain: no wait, nothing in flight, only named registers."""
    return kind_of(mnemonic) in ("valu", "salu") and LASTS.match(mnemonic) is None


def half_used(operations: Iterable[Operation], register: str) -> str:
    """The half of ``register`` used by all these operations. Empty for the whole register."""
    halves = {
        _half(operation, operand)
        for operation in operations
        for operand in operation.operands
        if register in registers(operand)
    }
    return halves.pop() if len(halves) == 1 else ""


def waited_for(operation: Operation) -> Mapping[str, int]:
    """For each counter, the operations still allowed in flight after it. Empty for other operations.

    Raises ``DeviceCodeError`` for an unknown form of wait.
    """
    if not operation.mnemonic.startswith("s_wait") or operation.mnemonic in NO_COUNTERS:
        return {}
    text = " ".join((*operation.operands, operation.modifiers)).strip()
    if operation.mnemonic == "s_wait_idle":
        return dict.fromkeys(ALL_APART, 0)
    if operation.mnemonic in APART:
        return _apart(APART[operation.mnemonic], int(operation.operands[0], 0))
    if operation.mnemonic == "s_waitcnt":
        if counts := dict(COUNT.findall(text)) if not COUNT.sub("", text).strip(" &") else {}:
            return {counter: int(count) for counter, count in counts.items()}
    elif operation.operands[:1] == ("null",) and len(operation.operands) == 2:
        return {operation.mnemonic.removeprefix("s_waitcnt_"): int(operation.operands[1], 0)}
    raise _unknown(operation, f"for what {text!r} waits is not known")


def _apart(counters: Sequence[str], number: int) -> Mapping[str, int]:
    if len(counters) == 1:
        return {counters[0]: number}
    return {counters[0]: number >> FIELD_BITS & FIELD, counters[1]: number & FIELD}


@cache
def _is_unknown(mnemonic: str) -> bool:
    return UNKNOWN.match(mnemonic) is not None


def _flights(operation: Operation, counters: Counters) -> Iterator[Flight]:
    kind, results, queues = operation.kind, operation.writes, queues_of(counters)
    if counters.keeps_half and (half := HALF_LOAD.match(operation.mnemonic)):
        results = frozenset(register + (HIGH if half["high"] else LOW) for register in results)
    if kind == "lds":
        yield Flight(queues.lds, results if LANES_ONLY.match(operation.mnemonic) else results | {LDS_BYTES})
    elif SCALAR_RESULT.match(operation.mnemonic):
        yield Flight(queues.scalar, results)
    elif INVALIDATES.match(operation.mnemonic):
        yield Flight(queues.vector, frozenset())
    elif kind == "vmem" and (access := ACCESS.match(operation.mnemonic)):
        if operation.loads_into_lds:
            results |= {LOADED_LDS_BYTES}
        if access["space"] == "flat":
            yield Flight(queues.flat_vector, results)
            yield Flight(queues.flat_lds, results | {LDS_BYTES})
        elif results or access["what"] == "load" or not counters.stores_apart:
            yield Flight(queues.vector, results)
    elif kind in ("vmem", "smem") and not CACHE.match(operation.mnemonic):
        raise _unknown(operation, "which counter it raises is not known")


def _half(operation: Operation, operand: str) -> str:
    if operand.endswith((LOW, HIGH)):
        return operand[-2:]
    load, store = HALF_LOAD.match(operation.mnemonic), HALF_STORE.match(operation.mnemonic)
    data = 0 if load or "buffer_" in operation.mnemonic else 1
    if (half := load or store) and operand == operation.operands[data]:
        return HIGH if half["high"] else LOW
    return ""


def _unknown(operation: Operation, what: str) -> DeviceCodeError:
    text = " ".join((operation.mnemonic, ", ".join(operation.operands), operation.modifiers)).strip()
    return DeviceCodeError(f"unknown instruction `{text}`", [what], advice="add it to counters.py")
