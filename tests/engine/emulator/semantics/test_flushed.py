"""Kernels that flush fp32 denormals: in sources and results. What is not implemented is refused."""

import functools
from dataclasses import replace

import pytest

from tests.engine.emulator.semantics import cases
from tests.engine.emulator.semantics.machine import ARCHS, SnippetMachine
from tests.engine.emulator.semantics.numbers.operands import PAIR_F32, F
from tests.engine.emulator.semantics.table import Op, arguments, spread
from tests.engine.emulator.semantics.vectors import vector_case

EVERY = 4  # computes one wave of this many: the operands are those of test_semantics.py
# They have to run: kernels of others use them.
NEEDED = {f"v_{name}_f32" for name in ("add", "mul", "fma", "max", "max3", "exp", "rcp", "rcp_iflag")}
PACKED = {"v_pk_add_f32", "v_pk_mul_f32", "v_pk_fma_f32"}


def flushed(kind, value):
    """An operand without denormals, if its kind is fp32."""
    if kind is F:
        return F.format.flush(value)
    if kind and kind.name == PAIR_F32.name:
        return F.format.flush(value & 0xFFFFFFFF) | F.format.flush(value >> 32) << 32
    return value


def in_flushing_mode(op):
    names = arguments(op.reference, len(op.sources))

    @functools.wraps(op.reference)
    def reference(*values):
        given = (flushed(op.kinds.get(name), value) for name, value in zip(names, values, strict=True))
        got = op.reference(*given)
        if isinstance(got, tuple):
            return flushed(op.result, got[0]), got[1]
        return flushed(op.result, got) if op.result else got

    return replace(op, reference=reference)


def flushing_cases(arch):
    """Cases of the vector instructions of fp32, by mnemonic."""
    for line in cases.lines(arch):
        name = spread(line.names)[arch]
        if isinstance(line, Op) and "_f32" in name:
            case = vector_case(in_flushing_mode(line), arch, EVERY)
            yield cases.plain(line, arch), replace(case, snippet=replace(case.snippet, denormals=0))


@pytest.mark.parametrize("arch", ARCHS)
def test_denormals_are_flushed_or_the_kernel_is_refused(arch, assembled):
    found = list(flushing_cases(arch))
    machine = SnippetMachine(arch, [case.snippet for _, case in found], assembled)
    ran, problems = set(), []
    for name, case in found:
        data, check = case.make()
        result, outputs, _ = machine.launch(case.snippet, data)
        if "float mode 192, which flushes denormals" in result.error:
            continue
        assert not result.error, f"{case.snippet.name}: {result.error}"
        ran.add(name)
        problems += [f"{case.snippet.name}: {problem}" for problem in check(outputs)[:3]]
    assert not problems, "\n".join(problems)
    needed = NEEDED | (PACKED & cases.tested(arch))
    assert needed & {name for name, _ in found} <= ran
