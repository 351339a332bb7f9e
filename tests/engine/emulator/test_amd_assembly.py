"""AMD's assembly forwards compute attention: executed as released, compared with float64."""

import functools
import random

import pytest

from tests.engine.emulator import amd_assembly
from tests.engine.perf.gradients import columns
from wheel_builder.machine_code.emulator.formats import decode, encode, rounded
from wheel_builder.machine_code.emulator.machine import Machine, Options
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.reference import attend, visible
from wheel_builder.machine_code.emulator.rule import tolerances

pytestmark = pytest.mark.full
SEQLEN, HEADS, HEADS_K = 512, 8, 2
# gfx950's loads to LDS overwrite rows without a barrier behind other waves' last reads. On hardware they take
# longer than those reads. Here a load arrives at once, and in step no wave is late.
# - A causal workgroup has two tiles of queries, and the second one's first loads do so.
# - With two head dims the third and fourth 64 rows of K do so.
# There the scalar offset leads out of K, in loads whose rows are not used.
UNORDERED, OUTSIDE = "lds-race", "scalar-offset"
FINDINGS = {
    ("gfx950", 128, True): (UNORDERED,),
    ("gfx950", amd_assembly.UNEVEN, False): (UNORDERED, OUTSIDE),
    ("gfx950", amd_assembly.UNEVEN, True): (UNORDERED, OUTSIDE),
}
IN_STEP, IN_ANY_ORDER = 1, 256  # quantum
CHECKED = {0: range(SEQLEN), 5: range(3, SEQLEN, 31)}  # rows of the heads compared: all of the first


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return functools.cache(lambda: amd_assembly.fetched(tmp_path_factory.mktemp("aiter")))


@functools.cache
def tensors(head_dim):
    """q, k and v by head, as rows of bf16 numbers."""
    draw = random.Random(11)

    def heads(count, head_dim):
        rows = range(SEQLEN)
        return [[rounded([draw.gauss(0, 1) for _ in range(head_dim)], "bf16") for _ in rows]
                for _ in range(count)]  # fmt: skip

    return heads(HEADS, head_dim), heads(HEADS_K, head_dim), heads(HEADS_K, amd_assembly.OF_V)


@functools.cache
def reference(head, row, causal, head_dim, low):
    q, k, v = tensors(head_dim)
    shared = head * HEADS_K // HEADS
    seen = visible(row, SEQLEN, SEQLEN, causal=causal)
    keys, values = k[shared][:seen], v[shared][:seen]
    return attend(q[head][row], keys, columns(values), head_dim**-0.5, "bf16" if low else "")


def memory(heads, name):
    return Memory.of(encode([x for rows in heads for row in rows for x in row], "bf16"), name, readonly=True)


@pytest.fixture
def compared(core, disassembled, tmp_path):
    """``compared(forward, code, findings, order)``: runs the code object, compares out and log-sum-exp."""

    def compare(forward, code, findings, order):
        file = tmp_path / "code.co"
        file.write_bytes(code)
        machine = Machine(core, code, disassembled(file))
        assert not machine.missing, "\n".join(machine.missing)
        q, k, v = (memory(heads, name) for heads, name in zip(tensors(forward.head_dim), "qkv", strict=True))
        out = Memory.output(2 * HEADS * SEQLEN * amd_assembly.OF_V, "out")
        lse = Memory.output(4 * HEADS * SEQLEN, "lse")
        packed = forward.packed(each.address for each in (out, q, k, v, lse))
        options = Options(seed=3, quantum=order)
        result = machine.run(forward.kernel, forward.launch, packed, (out, q, k, v, lse), options)
        assert not result.error, result.error
        assert result.kinds() == findings, "\n".join(map(str, result.findings))
        compare_rows(forward, decode(out.read(), "bf16"), lse.values("f"))

    return compare


def compare_rows(forward, found, sums):
    largest = max(abs(x) for rows in tensors(forward.head_dim)[2] for row in rows for x in row)
    worst, plain, off = 0.0, 0.0, 0.0
    for head, rows in CHECKED.items():
        for row in rows:
            exact, low = (
                reference(head, row, forward.causal, forward.head_dim, which) for which in (False, True)
            )
            at = head * SEQLEN + row
            got = found[at * amd_assembly.OF_V : (at + 1) * amd_assembly.OF_V]
            worst = max(worst, *(abs(x - y) for x, y in zip(exact.out, got, strict=True)))
            plain = max(plain, *(abs(x - y) for x, y in zip(exact.out, low.out, strict=True)))
            off = max(off, abs(sums[at] - exact.lse))
    print(f"{forward.arch} {forward.name}: {worst:.4f} (plain {plain:.4f}), log-sum-exp {off:.1e}")  # noqa: T201
    allowed = tolerances.allowed(plain, terms=SEQLEN, largest=largest, factor=tolerances.OUT_FACTOR)
    assert worst <= allowed
    assert off < 1e-4


@pytest.mark.parametrize(
    "forward", [*amd_assembly.forwards(SEQLEN, HEADS, HEADS_K)], ids=lambda f: f"{f.arch}-{f.name}"
)
def test_forward(forward, wheel, compared):
    findings = FINDINGS.get((forward.arch, forward.head_dim, forward.causal), ())
    order = IN_STEP if UNORDERED in findings else IN_ANY_ORDER
    compared(forward, amd_assembly.code_object(wheel(), forward), findings, order)


def test_with_two_barriers_more_the_forward_of_two_head_dims_is_right_in_any_order(wheel, compared):
    forward = amd_assembly.Forward("gfx950", "", False, SEQLEN, HEADS, HEADS_K, amd_assembly.UNEVEN)
    code = amd_assembly.with_barriers(amd_assembly.code_object(wheel(), forward))
    compared(forward, code, (OUTSIDE,), IN_ANY_ORDER)
