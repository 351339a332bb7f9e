"""Kernels built by others decode, and compute the results of their sources.  Fetched from the registry."""

import functools
import math
import random
import struct

import pytest

from tests.engine.emulator.conftest import ARCHS
from tests.engine.emulator.foreign import LIBRARIES, WHEELS, code_objects, fetch, with_device_code
from wheel_builder.machine_code.emulator.coverage import summary
from wheel_builder.machine_code.emulator.machine import Launch, Options, load_machine
from wheel_builder.machine_code.emulator.memory import Memory, Scalar, i32, pack_arguments

pytestmark = pytest.mark.full


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """``wheel(name)``: the file of one of WHEELS."""
    return functools.cache(lambda name: fetch(WHEELS[name], tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session")
def machines(wheel, core, disassembled, tmp_path_factory):
    """``machines(library, arch)``: its code objects, loaded."""

    @functools.cache
    def load(library, arch):
        folder, loaded = tmp_path_factory.mktemp(arch), []
        for number, data in enumerate(code_objects(wheel(LIBRARIES[library]), library, arch)):
            file = folder / f"{number}.co"
            file.write_bytes(data)
            loaded.append(load_machine(core, file, disassembled(file)))
        return loaded

    return load


def run(machines, kernel, groups, threads, arguments):
    (machine,) = [m for m in machines if kernel in m.kernels]
    memory = [a for a in arguments if isinstance(a, Memory)]
    launch = Launch((groups, 1, 1), (threads, 1, 1))
    result = machine.run(kernel, launch, pack_arguments(arguments), memory, Options(seed=3))
    assert not result.error, result.error
    result.raise_on_findings()


@pytest.mark.parametrize("name", WHEELS)
def test_all_libraries_with_kernels_are_looked_at(wheel, name):
    assert with_device_code(wheel(name)) == set(WHEELS[name].kernels)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("arch", ARCHS)
def test_all_kernels_decode(machines, arch, library):
    found = machines(library, arch)
    assert sum(len(m.kernels) for m in found) == WHEELS[LIBRARIES[library]].kernels[library]
    assert [line for m in found for line in summary(m.missing)] == []


# ---- jax: random numbers, against the published definition (Salmon et al. 2011) and its known answers
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREEFRY = "_ZN3jax3hip12_GLOBAL__N_118ThreeFry2x32KernelEPKjS3_S3_S3_PjS4_lPKl"
KNOWN = {
    (0, 0, 0, 0): (0x6B200159, 0x99BA4EFE),
    (0xFFFFFFFF,) * 4: (0x1CB996FC, 0xBB002BE7),
    (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3): (0xC4923A9C, 0x483DF7A0),
}


def threefry2x32(key0, key1, x, y):
    keys = (key0, key1, key0 ^ key1 ^ 0x1BD11BDA)
    x, y = x + key0, y + key1
    for step in range(5):
        for rotation in ROTATIONS[step % 2]:
            x, y = (x + y) & 0xFFFFFFFF, y & 0xFFFFFFFF
            y = (y << rotation | y >> 32 - rotation) & 0xFFFFFFFF ^ x
        x, y = x + keys[(step + 1) % 3], y + keys[(step + 2) % 3] + step + 1
    return x & 0xFFFFFFFF, y & 0xFFFFFFFF


def test_the_reference_gives_the_known_answers():
    assert {given: threefry2x32(*given) for given in KNOWN} == KNOWN


@pytest.mark.parametrize("count_in_memory", [False, True])
@pytest.mark.parametrize("library", ["jax_rocm7_plugin/_prng.so", "jax_rocm60_plugin/_prng.so"])
@pytest.mark.parametrize("arch", ARCHS)
def test_threefry(machines, arch, library, count_in_memory):
    rng = random.Random(7)
    rows = [*KNOWN, *(tuple(rng.getrandbits(32) for _ in range(4)) for _ in range(700))]
    count, columns = len(rows), zip(*rows, strict=True)
    given = [Memory.of(struct.pack(f"<{count}I", *column), "given", readonly=True) for column in columns]
    out = [Memory.output(4 * count, "out") for _ in range(2)]
    # A negative count means: the true one is in memory. Each thread does several elements.
    told = Memory.of(struct.pack("<q", count), "count", readonly=True)
    size = Scalar("q", -1 if count_in_memory else count)
    run(machines(library, arch), THREEFRY, 2, 128, [*given, *out, size, told])
    assert list(zip(*(o.values("I") for o in out), strict=True)) == [threefry2x32(*row) for row in rows]


# ---- bitsandbytes: quantised blocks, against the distance to the nearest code
ROCM72 = "bitsandbytes/libbitsandbytes_rocm72.so"
BLOCK, COUNT = 256, 700  # the last block is partly empty
# Names of the kernels' template parameters: element types, and 8 bits, FP4, NF4.
TYPES = {"fp32": ("f", "S0_"), "fp16": ("6__half", "S1_"), "bf16": ("14__hip_bfloat16", "S1_")}
FP4 = [x / 12 for x in (0, 0.0625, 8, 12, 4, 6, 2, 3)]
NF4 = """-1.0 -0.6961928009986877 -0.5250730514526367 -0.39491748809814453 -0.28444138169288635
    -0.18477343022823334 -0.09105003625154495 0.0 0.07958029955625534 0.16093020141124725 0.24611230194568634
    0.33791524171829224 0.44070982933044434 0.5626170039176941 0.7229568362236023 1.0"""
CODES = {
    "int8": [i / 127.5 - 1 for i in range(256)],
    "fp4": [*FP4, *(-x for x in FP4)],
    "nf4": [float(x) for x in NF4.split()],
}
ROUNDING = 1e-6  # of a scaled value, up to 1: a reciprocal and a product in f32


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f32(values):
    return struct.pack(f"<{len(values)}f", *values)


def bf16_bits(x):
    """Round to nearest even, of a finite number."""
    (word,) = struct.unpack("<I", struct.pack("<f", x))
    return word + 0x7FFF + (word >> 16 & 1) >> 16


def as_type(values, kind):
    """The bytes of singles, rounded to a type."""
    if kind == "bf16":
        return struct.pack(f"<{len(values)}H", *map(bf16_bits, values))
    return struct.pack(f"<{len(values)}{'e' if kind == 'fp16' else 'f'}", *values)


def from_bytes(data, kind):
    if kind == "bf16":
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    return list(struct.unpack(f"<{COUNT}{'e' if kind == 'fp16' else 'f'}", data))


def nearest(codes, x):
    """The acceptable codes for x: their distances differ by rounding only."""
    best = min(abs(code - x) for code in codes)
    return {q for q, code in enumerate(codes) if abs(code - x) <= best + 2 * ROUNDING}


def unpacked(data, coding):
    """One code a value: of the two in a byte, the first is in the upper half."""
    return list(data) if coding == "int8" else [q for byte in data for q in (byte >> 4, byte & 15)]


@pytest.mark.parametrize("coding", CODES)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("arch", ARCHS)
def test_quantize_and_dequantize(machines, arch, kind, coding):
    (element, again), number = TYPES[kind], list(CODES).index(coding)
    quantize = f"_Z18kQuantizeBlockwiseI{element}Li256ELi2ELi0ELi{number}EEvPfPT_{again}Ph{again}ii"
    dequantize = f"_Z20kDequantizeBlockwiseI{element}Li512ELi64ELi8ELi{number}EEvPfPh{again}PT_ii"
    rng, table = random.Random(5), CODES[coding]
    raw = as_type([single(rng.gauss(0, 3)) for _ in range(COUNT)], kind)
    given, foreign = from_bytes(raw, kind), machines(ROCM72, arch)
    blocks, packed = -(-COUNT // BLOCK), 1 if coding == "int8" else 2
    codes = Memory.of(f32(CODES["int8"]), "codes", readonly=True)
    values = Memory.of(raw, "values", readonly=True)
    largest, quantized = Memory.output(4 * blocks, "absmax"), Memory.output(COUNT // packed, "quantized")
    arguments = [codes, values, largest, quantized, bytes(8), i32(0), i32(COUNT)]
    run(foreign, quantize, blocks, BLOCK // 2, arguments)

    maxima = [max(map(abs, given[i : i + BLOCK])) for i in range(0, COUNT, BLOCK)]
    assert list(largest.values("f")) == maxima
    found = unpacked(quantized.read(), coding)
    wrong = [i for i, x in enumerate(given) if found[i] not in nearest(table, x / maxima[i // BLOCK])]
    assert wrong == []

    result = Memory.output(len(raw), "result")
    quantized.initialised = True
    # Its threads after the last value load a maximum too, an uncomputed one.
    padded = Memory.of(f32([*maxima, *[math.nan] * 2]), "absmax", readonly=True)
    arguments = [codes, quantized, padded, result, i32(BLOCK // packed), i32(COUNT)]
    run(foreign, dequantize, -(-COUNT // (512 * packed)), 64, arguments)
    expected = [single(single(table[q]) * maxima[i // BLOCK]) for i, q in enumerate(found)]
    # Compilers make v_fma_mix of a product rounded to fp16, with +0 added: zeros lose their sign.
    assert from_bytes(result.read(), kind) == from_bytes(as_type(expected, kind), kind)
