"""The shipped forward kernels, broken on purpose: the sanitizers and the numerics rule notice."""

import re

import pytest

from wheel_builder.base.errors import EmulatorError
from wheel_builder.machine_code.emulator.attention import Case, compare, make_call, run_call
from wheel_builder.machine_code.emulator.command import forward_workgroup
from wheel_builder.machine_code.emulator.coverage import unimplemented
from wheel_builder.machine_code.emulator.machine import Machine, Options
from wheel_builder.tables.archs import known_archs

ARCHS = tuple(known_archs())
# More keys than a tile: the loop over tiles runs more than once.
CASE = Case("fp16", 64, 64, 257)


@pytest.fixture(scope="session")
def shipped(device_code, disassembled):
    """``shipped(arch)``: the code object of ``CASE`` and its disassembly."""

    def load(arch):
        code = device_code(arch) / f"{CASE.kernel}.hsaco"
        return code.read_bytes(), disassembled(code)

    return load


def executed(machine, arch, workshop):
    call = make_call(CASE)
    result = run_call(machine, call, forward_workgroup(arch, CASE), Options())
    return call, result


# On RDNA 4 it is in two halves, with other instructions between: a wave signals, and waits for the others.
BARRIER = re.compile(r"(?<=\t)s_barrier(?:\b|_signal \S+(.*?\t)s_barrier_wait \S+)", re.DOTALL)
# Barriers of the loop. gfx950's fills one of two tiles while the other is read (two_tiles in
# forward/parts/schedule.hpp).
BARRIERS = {"gfx950": 1}


def in_place_of(barrier, instruction):
    text, (begin, end), between = barrier.string, barrier.span(), barrier[1]
    rest = "" if between is None else f"{between}s_nop 0"
    return f"{text[:begin]}{instruction}{rest}{text[end:]}"


@pytest.mark.parametrize("arch", ARCHS)
def test_a_missing_barrier_is_a_race(core, shipped, workshop, arch):
    code, text = shipped(arch)
    removed = 0
    for barrier in BARRIER.finditer(text):
        call, ended = executed(Machine(core, code, in_place_of(barrier, "s_endpgm")), arch, workshop)
        if not (ended.error or ended.findings or compare(call).first):
            continue  # of the loop with all features, unused by this call
        _, result = executed(Machine(core, code, in_place_of(barrier, "s_nop 0")), arch, workshop)
        assert "lds-race" in result.kinds(), text[barrier.start() - 200 : barrier.end() + 60]
        removed += 1
    assert removed >= BARRIERS.get(arch, 2)


LEFT_OUT = {
    "exponentials": r"v_exp_f32",
    "stores to LDS": r"(ds_(write|store)|global_load_lds)",
    "products": r"v_(mfma|wmma|dot2|fma_mix)",
}


@pytest.mark.parametrize("what", LEFT_OUT)
@pytest.mark.parametrize("arch", ARCHS)
def test_instructions_left_out_are_noticed(core, shipped, workshop, arch, what):
    code, text = shipped(arch)
    changed, times = re.subn(rf"(?<=\t){LEFT_OUT[what]}.*?(?=//)", "s_nop 0 ", text)
    assert times, f"the kernel has no {what}"
    call, result = executed(Machine(core, code, changed), arch, workshop)
    assert result.error or result.findings or compare(call).first


@pytest.mark.full  # semantics/test_coverage.py asks this of every mnemonic
@pytest.mark.parametrize("arch", ARCHS)
def test_all_shipped_instructions_are_implemented(core, device_code, disassembled, arch):
    texts = [disassembled(code) for code in sorted(device_code(arch).glob("*.hsaco"))]
    assert len(texts) >= 4
    assert unimplemented(core, {arch: texts}) == []


@pytest.mark.parametrize("arch", ARCHS)
def test_made_up_instructions_are_told_at_once_and_where_they_are(core, shipped, workshop, arch):
    code, text = shipped(arch)
    changed = re.sub(r"(?<=\t)v_exp_f32\w*", "v_frobnicate_f32", text)
    changed = re.sub(r"(?<=\t)s_barrier(\b|_wait \S+)", "s_wait_for_godot 3", changed)
    times = len(re.findall(r"\tv_frobnicate_f32", changed))
    found = unimplemented(core, {arch: [changed]})
    assert [line.split(" at ")[0] for line in found] == [
        f"{arch}: s_wait_for_godot",
        f"{arch}: v_frobnicate_f32",
    ]
    assert found[0].startswith(f"{arch}: s_wait_for_godot at {CASE.kernel}+0x")
    assert ", 's_wait_for_godot 3'" in found[0]
    assert found[1].endswith(f", and {times - 1} more")

    machine = Machine(core, code, changed)
    _, result = executed(machine, arch, workshop)
    place = re.escape(CASE.kernel)
    assert re.match(
        rf"kernel '{place}' at {place}\+0x[0-9a-f]+, '(v_frobnicate|s_wait_for).*': "
        r"mnemonic '(v_frobnicate_f32|s_wait_for_godot)' is not implemented$",
        result.error,
    ), result.error


def test_an_operand_that_cannot_be_decoded_is_told_with_the_rest(core):
    text = (
        "0000000000001600 <one>:\n"
        "\tv_add_f32_e32 v1, q7, v2  // 000000001600: BF800000\n"
        "\tv_frobnicate_f32 v1, v2  // 000000001604: BF800000\n"
        "\ts_endpgm  // 000000001608: BF800000\n"
    )
    assert unimplemented(core, {"gfx942": [text]}) == [
        "gfx942: v_add_f32_e32 at one+0x0, 'v_add_f32_e32 v1, q7, v2 (operand 'q7' is not known)'",
        "gfx942: v_frobnicate_f32 at one+0x4, 'v_frobnicate_f32 v1, v2'",
    ]


def test_an_arch_that_the_emulator_does_not_have(core):
    with pytest.raises(EmulatorError, match=f"arch 'gfx900' is not one of {', '.join(ARCHS)}"):
        unimplemented(core, {"gfx900": ["\ts_endpgm  // 000000001608: BF800000\n"]})
