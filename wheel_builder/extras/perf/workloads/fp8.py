"""Calls of kernels with products of fp8, from calls of 16 bits: codes as q, k and v, without descales."""

from dataclasses import replace

from wheel_builder.machine_code.emulator.attention import Call, Tensor, with_fp8
from wheel_builder.machine_code.emulator.formats import nearest
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.tables.kinds import known_kinds

PARAMS = "Fp8Params"
FORMAT = "e4m3fn"  # of FlashAttention 3


def multiplies_fp8(op: str) -> bool:
    return known_kinds()[op].params == PARAMS


def coded(call: Call) -> Call:
    """The call with the nearest codes. Kernels place rows as those of half as many elements of 16 bits."""
    case = replace(call.case, head_dim=call.case.head_dim // 2, v_head_dim=0)
    find = nearest(FORMAT)

    def coded_as(given: Tensor, rows: int, heads: int) -> Tensor:
        name, codes = given.name, bytes(find(value) for value in given.values())
        return Tensor(name, case, rows, heads, Memory.of(codes, name, readonly=True))

    return replace(
        call,
        q=coded_as(call.q, case.seqlen_q, case.nheads),
        k=coded_as(call.k, case.seqlen_k, case.nheads_k),
        v=coded_as(call.v, case.seqlen_k, case.nheads_k),
    )


def argument(kernarg: bytes) -> bytes:
    return with_fp8(kernarg, FORMAT)
