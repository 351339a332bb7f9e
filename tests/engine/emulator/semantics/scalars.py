"""Scalar instructions as snippets: each workgroup computes one row of operand values."""

import random

from tests.engine.emulator.semantics.machine import Data, Snippet
from tests.engine.emulator.semantics.numbers.operands import U32
from tests.engine.emulator.semantics.table import (
    Case,
    ScalarOp,
    call,
    combinations,
    same_number,
    shown,
    spread,
)

REGISTER = {"a": 16, "b": 20, "c": 24, "d": 32}
FLAG = "s60"  # nonzero: SCC is set before
ROWS = 200


def text_of(number, kind):
    return f"s{number}" if kind.words == 1 else f"s[{number}:{number + kind.words - 1}]"


def words_of(key, kind):
    return [f"s{REGISTER[key] + i}" for i in range(kind.words)]


def snippet_of(op, arch):
    names = {key: text_of(REGISTER[key], kind) for key, kind in op.kinds.items()}
    instruction = f"{spread(op.names)[arch]} " + op.operands.format(**names)
    inputs = [word for key, kind in op.kinds.items() for word in words_of(key, kind)]
    outputs = words_of("d", op.result) if op.result else []
    text = f"s_cmp_lg_u32 {FLAG}, 0\n{instruction}"
    return Snippet(instruction, text, (), (FLAG, *inputs), (*outputs, "scc"))


def data_of(op, row):
    words = {
        word: row[key] >> 32 * i & 0xFFFFFFFF
        for key, kind in op.kinds.items()
        for i, word in enumerate(words_of(key, kind))
    }
    return Data({}, words | {FLAG: row["scc"]})


def check_row(op, row, out):
    result, scc = call(op, row)
    flag = row["scc"] if scc is None else int(bool(scc))
    if out["scc"][0] != flag:
        yield f"{shown(op, row)}: SCC {out['scc'][0]}, expected {flag}"
    if op.result:
        got = sum(out[word][0] << 32 * i for i, word in enumerate(words_of("d", op.result)))
        if not same_number(op, got, result):
            yield f"{shown(op, row)}: {got:#x}, expected {op.result.canonical(result):#x}"


def scalar_case(op: ScalarOp, arch):
    def make():
        rows = rows_of(op, spread(op.names)[arch])

        def check(outputs):
            both = zip(rows, outputs, strict=True)
            return [problem for row, out in both for problem in check_row(op, row, out)]

        return [data_of(op, row) for row in rows], check

    return Case(snippet_of(op, arch), make)


def rows_of(op, name):
    rng = random.Random(name + op.operands)
    rows = list(combinations(op, name))
    rng.shuffle(rows)
    return [
        dict(zip("abc", row, strict=False)) | {"scc": rng.getrandbits(1), "d": (op.result or U32).value(rng)}
        for row in rows[:ROWS]
    ]
