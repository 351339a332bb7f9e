"""Calls of kernels with products of fp8, from calls of 16 bits: codes as q, k and v, without descales."""

import math
import random
from dataclasses import replace

from wheel_builder.machine_code.emulator.attention import Call, Tensor, with_fp8
from wheel_builder.machine_code.emulator.formats import values_of_codes
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.tables.kinds import known_kinds

PARAMS = "Fp8Params"
FORMAT = "e4m3fn"  # of FlashAttention 3


def multiplies_fp8(op: str) -> bool:
    return known_kinds()[op].params == PARAMS


def coded(call: Call) -> Call:
    """The call with random codes. Kernels place rows as those of half as many elements of 16 bits."""
    case = replace(call.case, head_dim=call.case.head_dim // 2, v_head_dim=0)
    draw = random.Random(0)  # noqa: S311  (test data, repeatable)
    finite = [code for code, value in enumerate(values_of_codes(FORMAT)) if math.isfinite(value)]

    def drawn(name: str, rows: int, heads: int) -> Tensor:
        codes = bytes(draw.choices(finite, k=case.batch * rows * heads * call.case.head_dim))
        return Tensor(name, case, rows, heads, Memory.of(codes, name, readonly=True))

    return replace(
        call,
        q=drawn("q", case.seqlen_q, case.nheads),
        k=drawn("k", case.seqlen_k, case.nheads_k),
        v=drawn("v", case.seqlen_k, case.nheads_k),
    )


def argument(kernarg: bytes) -> bytes:
    return with_fp8(kernarg, FORMAT)
