"""Upstream's CK kernels: from its source distribution to gated, linked device code, executed on the emulator.

One of 2,775 kernels, enough for a forward call: fp16, head dim 128.  It takes about 100 CPU-seconds of
compilers. So all of this runs with --full: in a separate job in CI, and every night.
"""

import fnmatch
import math
import random
import struct

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import GateError
from wheel_builder.extras.upstream.costs import kinds, load_costs
from wheel_builder.extras.upstream.recipe import ONE_CALL
from wheel_builder.extras.upstream.sdist import fetch_sdist
from wheel_builder.extras.upstream.stages import LIBRARY, Workshop, link, make_object, make_sources
from wheel_builder.files.device.library import code_objects
from wheel_builder.machine_code.disassembly.listing import disassemble, tools_in
from wheel_builder.machine_code.emulator.formats import rounded
from wheel_builder.machine_code.emulator.machine import Launch, Machine
from wheel_builder.machine_code.emulator.memory import Memory
from wheel_builder.machine_code.emulator.reference import attend
from wheel_builder.machine_code.emulator.rule import tolerances
from wheel_builder.matrix.reading import load_matrix

pytestmark = pytest.mark.full
DIM, ROWS = 128, 128  # ROWS: of a workgroup
SCALE = 1 / math.sqrt(DIM)
# CPU-seconds for a compiler. There are three, and the whole must take less than ten minutes.
LIMIT = 180
# The one difference to the recipe: the emulator has no mode for flushing fp32 denormals to zero.
KEEPING_DENORMALS = ("-fno-gpu-flush-denormals-to-zero",)


@pytest.fixture(scope="module")
def upstream():
    return load_matrix(CHECKOUT / "matrix.yaml").upstream


@pytest.fixture(scope="module")
def shop(builder, job, context):
    return Workshop(builder, job.rocm.llvm, context.store, context.log("upstream"))


@pytest.fixture(scope="module")
def sources(upstream, shop):
    return make_sources(fetch_sdist(upstream, shop.store, log=shop.log), shop)


@pytest.fixture(scope="module")
def forward(sources):
    """The name of the kernel."""
    [name] = fnmatch.filter(sources.facts["kernels"], ONE_CALL)
    return name


@pytest.fixture(scope="module")
def made(forward, sources, shop):
    """Its object for gfx942."""
    return make_object(forward, "gfx942", sources, shop, added=KEEPING_DENORMALS, limit=LIMIT)


@pytest.fixture(scope="module")
def other(sources, shop):
    """A second object, the smallest: a library has to be linked from several."""
    name = "fmha_bwd_convert_dq_d64_fp16_b64x128_group_o2_psd_ndeterministic"
    return make_object(name, "gfx942", sources, shop, limit=LIMIT)


@pytest.fixture(scope="module")
def machine(made, other, core, shop):
    """The kernel's device code in the linked library of both objects."""
    library = link("gfx942", [made, other], shop)
    codes = code_objects((library.path / LIBRARY).read_bytes())
    assert len(codes) == 2
    [code] = [code for code in codes if b"FmhaFwdKernel" in code.data]
    text = disassemble(code.data, tools=tools_in(shop.image), store=shop.store, log=shop.log)
    return Machine(core, code.data, text)


def test_the_generator_makes_what_the_plan_counts(sources, upstream):
    found = load_costs(CHECKOUT)
    assert (found.version, found.objects) == (upstream.version, kinds(sources.facts["kernels"]))


def test_the_object_says_what_it_cost_and_has(made, forward):
    assert (made.facts["name"], made.facts["arch"]) == (forward, "gfx942")
    assert 1 < made.facts["cpu_seconds"] < LIMIT
    assert made.facts["peak_mib"] > 100
    assert list(made.facts["kernels"].values()) == [128]


def test_a_kernel_without_products_passes_the_gate(other):
    assert list(other.facts["kernels"].values()) == [0]


def test_the_gate_refuses_the_same_kernel_for_gfx1030(forward, sources, shop):
    with pytest.raises(GateError) as failure:
        make_object(forward, "gfx1030", sources, shop, limit=LIMIT)
    [problem] = failure.value.problems
    assert "FmhaFwdKernel for gfx1030: 0 of at least 2 dot product instructions" in problem
    assert "CK has no kernels for it" in failure.value.advice


@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_k", "heads", "heads_k"), [(1, 1, 1, 1), (130, 97, 2, 1), (64, 256, 1, 1)]
)
def test_a_forward_call_agrees_with_float64(machine, seqlen_q, seqlen_k, heads, heads_k):
    rng = random.Random(seqlen_q)
    q = numbers(rng, seqlen_q, heads)
    k, v = numbers(rng, seqlen_k, heads_k), numbers(rng, seqlen_k, heads_k)
    found = run(machine, q, k, v)
    for head in range(heads):
        keys, values = ([row[head * heads_k // heads] for row in each] for each in (k, v))
        check([row[head] for row in q], keys, values, [row[head] for row in found])


def numbers(rng, rows, heads):
    """``[row][head][dim]``, rounded to fp16."""
    return [
        [rounded([rng.gauss(0, 1) for _ in range(DIM)], "fp16") for _ in range(heads)] for _ in range(rows)
    ]


def memory(rows, name):
    flat = [x for row in rows for head in row for x in head]
    return Memory.of(struct.pack(f"<{len(flat)}e", *flat), name, readonly=True)


def run(machine, q, k, v):
    """``out[row][head][dim]``, of tensors (1, seqlen, nheads, headdim)."""
    [kernel] = machine.kernels.values()
    heads, heads_k = len(q[0]), len(k[0])
    given = [memory(rows, name) for rows, name in ((q, "q"), (k, "k"), (v, "v"))]
    out = Memory.output(given[0].size, "out")
    strides = [n * DIM for n in (heads, heads_k, heads_k, heads)]
    batch = [
        length * stride for length, stride in zip((len(q), len(k), len(k), len(q)), strides, strict=True)
    ]
    shape = (len(q), len(k), DIM, DIM, heads, heads // heads_k)
    arguments = struct.pack(
        "<4Q6if12i", *(each.address for each in (*given, out)), *shape, SCALE * math.log2(math.e),
        *strides, *[DIM] * 4, *batch,
    )  # fmt: skip
    launch = Launch((heads, -(-len(q) // ROWS), 1), (kernel.max_threads, 1, 1))
    result = machine.run(kernel.name, launch, arguments.ljust(kernel.kernarg, b"\0"), [*given, out])
    assert not result.error, result.error
    result.raise_on_findings()
    flat = out.values("e")
    rows = [flat[i : i + DIM] for i in range(0, len(flat), DIM)]
    return [rows[i : i + heads] for i in range(0, len(rows), heads)]


def check(queries, keys, values, found):
    """One head, by the numerics rule."""
    columns = list(zip(*values, strict=True))
    exact = [attend(query, keys, columns, SCALE).out for query in queries]
    plain = [attend(query, keys, columns, SCALE, "fp16").out for query in queries]
    largest = max(abs(x) for row in exact for x in row)
    credited = tolerances.least_error(error(plain, exact), "fp16", largest)
    limit = tolerances.allowed(credited, terms=len(keys), largest=max(abs(x) for row in values for x in row))
    assert error(found, exact) <= limit


def error(found, exact):
    return max(
        abs(x - y) for one, other in zip(found, exact, strict=True) for x, y in zip(one, other, strict=True)
    )
