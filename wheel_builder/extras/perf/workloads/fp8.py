"""Calls of kernels with products of 8 bits, from calls of 16 bits: codes as q, k and v."""

import struct
from collections.abc import Mapping
from dataclasses import replace

from wheel_builder.machine_code.emulator.attention import Call, Descales, Tensor, with_fp8
from wheel_builder.machine_code.emulator.formats import nearest
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.tables.kinds import INT8, answering, known_kinds

PARAMS = "Fp8Params"
FORMAT = "e4m3fn"  # of FlashAttention 3
KEYS_OF_SCALE = 32  # of params.hpp
SCALE = 1 / 32  # of numbers in int8


def multiplies_fp8(op: str) -> bool:
    return known_kinds()[op].params == PARAMS


def has_scales(op: str) -> bool:
    """Whether q and k are int8, with scales of rows and of keys."""
    return op in answering(known_kinds(), INT8).values()


def coded(call: Call, op: str, *, values: bool) -> Call:
    """The call with the nearest codes. Kernels place rows as those of half as many elements of 16 bits.

    ``values``: also of v.
    """
    case = replace(call.case, head_dim=call.case.head_dim // 2, v_head_dim=0)
    find = {"e4m3fn": nearest(FORMAT), "int8": nearest("int8")}

    def coded_as(given: Tensor, rows: int, heads: int) -> Tensor:
        counts = has_scales(op) and given.name != "v"
        name, scale = given.name, SCALE if counts else 1.0
        codes = bytes(find["int8" if counts else FORMAT](value / scale) for value in given.values())
        return Tensor(name, case, rows, heads, Memory.of(codes, name, readonly=True))

    return replace(
        call,
        q=coded_as(call.q, case.seqlen_q, case.nheads),
        k=coded_as(call.k, case.seqlen_k, case.nheads_k),
        v=coded_as(call.v, case.seqlen_k, case.nheads_k) if values else call.v,
    )


def scales(call: Call, op: str) -> Mapping[str, Descales]:
    """Those of ``coded``, of a call with one sequence."""
    if not has_scales(op):
        return {}
    case = call.case
    counts = {
        "q_descale": (case.nheads, case.seqlen_q, SCALE),
        "k_descale": (case.nheads_k, -(-case.seqlen_k // (2 * KEYS_OF_SCALE)) * 2, SCALE),
        "v_descale": (case.nheads_k, 1, 1.0),
    }
    return {
        name: Descales(Memory.of(struct.pack("<f", scale) * heads * each, name, readonly=True), (0, 0, each))
        for name, (heads, each, scale) in counts.items()
    }


def argument(kernarg: bytes, descales: Mapping[str, Descales]) -> bytes:
    return with_fp8(kernarg, FORMAT, descales)
