"""Runs in a container with torch: the errors behind the numerics rule, ours and torch's, as JSON."""

import json
import math
import sys

import torch

from wheel_builder.machine_code.emulator.attention import Case, make_call, reference_rows

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
SHAPES = ((64, 17, 65, True), (128, 33, 65, False), (64, 64, 64, False), (64, 65, 49, True))


def tensor(operand, case, seqlen, heads):
    return (
        torch.tensor(operand.values(), dtype=torch.float64).view(seqlen, heads, case.head_dim).transpose(0, 1)
    )


def attend(q, k, v, case):
    scores = (q @ k.transpose(-1, -2)) * case.scale
    if case.causal:
        rows, columns = torch.arange(case.seqlen_q)[:, None], torch.arange(case.seqlen_k)
        scores = scores.masked_fill(columns > rows + case.seqlen_k - case.seqlen_q, -math.inf)
    return torch.nan_to_num(torch.softmax(scores, -1)) @ v  # rows without visible keys are zero


def errors(case):
    """Worst errors of torch and of attend() against float64, and the largest difference of their float64."""
    call = make_call(case)
    q = tensor(call.q, case, case.seqlen_q, case.nheads)
    k, v = (tensor(operand, case, case.seqlen_k, case.nheads_k) for operand in (call.k, call.v))
    exact = attend(q, k, v, case)
    plain = attend(*(x.to(TYPES[case.dtype]) for x in (q, k, v)), case).double()
    ours, ours_exact = (
        torch.tensor([list(row.out) for _, row in reference_rows(call, dtype)], dtype=torch.float64)
        for dtype in (case.dtype, "")
    )
    exact, plain = exact.flatten(0, 1), plain.flatten(0, 1)
    return [float((x - exact).abs().max()) for x in (plain, ours, ours_exact)]


CASES = [
    Case(dtype, head_dim, *seqlens, nheads=2, nheads_k=2, causal=causal, seed=3)
    for dtype in TYPES
    for head_dim, *seqlens, causal in SHAPES
]
json.dump([[str(case), *errors(case)] for case in CASES], sys.stdout)
