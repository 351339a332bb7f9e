"""Registers read and written by a machine operation, from its assembler text.

Registers are named one by one: ``v5``, ``a0``, ``s12``, and ``vcc``, ``exec``, ``m0`` as wholes.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

from wheel_builder.base.errors import DeviceCodeError

Registers = frozenset[str]
Kind = Literal["valu", "salu", "smem", "lds", "vmem"]

ENCODING = re.compile(r"(_e32|_e64|_sdwa|_dpp8?)+$")
REGISTER = re.compile(r"(?<![\w.])([vsa])(?:(\d+)|\[(\d+)(?::(\d+))?\])(?!\w)")
SPECIAL = re.compile(r"(?<!\w)(vcc|exec|m0)(?:_lo|_hi)?(?!\w)")

KINDS: tuple[tuple[str, Kind], ...] = (
    (r"v_", "valu"),
    (r"s_(buffer_)?(load|store|atomic|scratch)_|s_(dcache|gl1|mem)", "smem"),
    (r"s_", "salu"),
    (r"ds_", "lds"),
    (r"t?buffer_|global_|flat_|scratch_|image_", "vmem"),
)
MATRIX = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_")
TRANSCENDENTAL = re.compile(r"v_(s_)?(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(f16|f32|f64|bf16)$")

NO_RESULT = re.compile(
    r"v_nop$"
    r"|s_(nop|waitcnt|wait_|branch|cbranch|endpgm|barrier|sendmsg|sleep|setprio|setreg|set_|cmp|bitcmp|clause|"
    r"delay_alu|code_end|inst_prefetch|icache|ttrace|trap|sethalt|decperflevel|incperflevel|version|setpc|"
    r"denorm_mode|round_mode|dcache|gl1|store|buffer_store|scratch_store)"
    r"|(t?buffer|global|flat|scratch|image)_(store|wbinv|inv|wb|gl)"
)
LDS_RESULT = re.compile(
    r"ds_(read|load|bpermute|permute|swizzle|append|consume|ordered|wrxchg|condxchg)|ds_\w+_rtn"
)
TWO_RESULTS = re.compile(
    r"v_(add|sub|subrev|addc|subb|subbrev)(_co(_ci)?)?_u32$|v_mad_(co_)?[ui]64_[ui]32$|v_div_scale|v_swap_"
    r"|v_permlane\d+_swap_"
)
SWAPS = re.compile(r"v_(permlane\d+_)?swap_")
# The destination is added to, or partly kept.
MERGES = re.compile(r"v_(dual_)?(pk_)?(fmac|mac|dot\d+c|dot2acc|fma_mixhi|mad_mixhi|writelane)_")
ATOMIC = re.compile(r"\w+_atomic_")
RETURNS = re.compile(r"(glc|sc0|th:TH_ATOMIC_(\w+_)?RETURN)$")
SAVES_EXEC = re.compile(r"s_\w+_saveexec_|s_\w+_wrexec_")


class Operation(NamedTuple):
    """One operation, or one half of a dual-issue pair. ``mnemonic`` without its encoding suffix.

    ``loads_into_lds``: its loaded data goes straight into LDS, from M0 on. ``writes``: EXEC by
    compare-and-mask included. ``reads``: EXEC included if lanes are masked, and vectors merged into or
    swapped. Scalars merged into are left out.
    """

    mnemonic: str
    operands: tuple[str, ...]
    modifiers: str
    kind: Kind
    is_matrix: bool
    loads_into_lds: bool
    writes: Registers
    reads: Registers


class Form(NamedTuple):
    """The common part of operations with the same mnemonic, number of operands and modifiers.

    The first ``results`` operands are written, the operands from ``sources`` on are read. ``writes`` and
    ``reads`` are implicit registers.
    """

    kind: Kind
    is_matrix: bool
    loads_into_lds: bool
    results: int
    sources: int
    writes: Registers
    reads: Registers


def operation(mnemonic: str, operands: tuple[str, ...], modifiers: str) -> Operation:
    """The operation with this mnemonic. Raises ``DeviceCodeError`` for an unknown one."""
    # Only here do modifiers change the registers read and written. Those of other operations are mostly
    # offsets.
    kind, is_matrix, into_lds, results, sources, writes, reads = form(
        mnemonic, len(operands), modifiers if kind_of(mnemonic) == "vmem" else ""
    )
    named = [_set(operand) for operand in operands]
    return Operation(
        mnemonic, operands, modifiers, kind, is_matrix, into_lds,
        writes.union(*named[:results]), reads.union(*named[sources:]),
    )  # fmt: skip


# Cached, because kernels repeat mnemonics and operands.


@cache
def form(mnemonic: str, operands: int, modifiers: str) -> Form:
    """The form of memory operations with these modifiers, and of other operations with any."""
    kind, results = kind_of(mnemonic), _results(mnemonic, operands, modifiers)
    into_lds = kind == "vmem" and ("_lds_" in mnemonic or "lds" in modifiers.split())
    atomic = kind == "vmem" and ATOMIC.match(mnemonic)
    reads_all = atomic or SWAPS.match(mnemonic) or MERGES.match(mnemonic)
    reads = ["vcc"] if mnemonic.startswith(("v_div_fmas_", "v_dual_cndmask_")) else []
    reads += ["m0"] if into_lds else []
    reads += ["exec"] if kind not in ("salu", "smem") else []
    writes = ["exec"] if mnemonic.startswith("v_cmpx") or SAVES_EXEC.match(mnemonic) else []
    is_matrix = MATRIX.match(mnemonic) is not None
    sources = 0 if reads_all else results
    return Form(kind, is_matrix, into_lds, results, sources, frozenset(writes), frozenset(reads))


@cache
def kind_of(mnemonic: str) -> Kind:
    """The executing unit. Raises ``DeviceCodeError`` for an unknown mnemonic."""
    for pattern, kind in KINDS:
        if re.match(pattern, mnemonic):
            return kind
    message = f"unknown instruction {mnemonic!r}"
    raise DeviceCodeError(
        message, ["no kind of operation begins like this"], advice="add it to operations.py"
    )


@cache
def _results(mnemonic: str, operands: int, modifiers: str) -> int:
    """How many leading operands it writes."""
    if not operands or NO_RESULT.match(mnemonic):
        return 0
    if mnemonic.startswith("v_cmpx"):
        return operands - 2  # gfx9 also writes the mask to an SGPR pair, later archs only EXEC
    if TWO_RESULTS.match(mnemonic):
        return 2 if operands > 3 or "swap" in mnemonic else 1
    if kind_of(mnemonic) == "lds":
        return 1 if LDS_RESULT.match(mnemonic) else 0
    if kind_of(mnemonic) == "vmem":
        return _memory_results(mnemonic, modifiers.split())
    return 1


def _memory_results(mnemonic: str, modifiers: Sequence[str]) -> int:
    if "lds" in modifiers or "_lds_" in mnemonic:
        return 0  # straight to LDS
    if ATOMIC.match(mnemonic):
        return 1 if any(RETURNS.match(modifier) for modifier in modifiers) else 0
    return 1


@cache
def registers(operand: str) -> tuple[str, ...]:
    """The registers of an operand: ``v[2:3]`` is v2 and v3, ``-|v7|`` is v7, a number has none."""
    found = [match.group(1) for match in SPECIAL.finditer(operand)]
    for bank, single, first, last in REGISTER.findall(operand):
        begin = int(single or first)
        found += [f"{bank}{number}" for number in range(begin, int(last or begin) + 1)]
    return tuple(found)


@cache
def _set(operand: str) -> Registers:
    return frozenset(registers(operand))
