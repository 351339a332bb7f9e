"""The static checks find mistakes planted in compiler output. A release runs them on all our kernels."""

import itertools
import re
from functools import reduce
from pathlib import Path

import pytest

from tests.tools.missing_waits import less_waits
from tests.tools.queues import FENCE, NEEDED
from wheel_builder.machine_code.disassembly.kernels import Kernel, parse_disassembly, parse_instruction
from wheel_builder.machine_code.static_checks.cdna import ACC_WRITE
from wheel_builder.machine_code.static_checks.hazards import check_hazards
from wheel_builder.tables.archs import known_archs

CHECKOUT = Path(__file__).parents[3]
ARCHS = list(known_archs())
# Kernels of each kind. The quick tests remove each of their waits.
ATTACKED = re.compile(
    r"fa_(fwd_fp16_d64|decode_bf16_d64|append_fp16|reference_bf16|combine_\w+|mask_ranges_fp16|bwd_(delta_fp16|dkdv_bf16_d64|dq_fp16_d64))$"
)
# Excludes the backward kernels. They add waits of their own where the compiler waits too little
# (backward/dq/block.hpp, mma/mfma.hpp): one state more than needed.
BY_THE_COMPILER = re.compile(r"fa_(fwd_fp16|decode_bf16)_d64$")
ALL_BY_THE_COMPILER = re.compile(r"^(?!fa_bwd_(dkdv|dq|fused)).*_d64$")
# In instructions: the longest reach of a dependency.
NEAR = 20
# Inline assembly: the compiler ignores it when it separates dependent instructions.
PLANTED = r"""
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef float float4v __attribute__((ext_vector_type(4)));
typedef float float8 __attribute__((ext_vector_type(8)));
typedef float float16v __attribute__((ext_vector_type(16)));
extern "C" __attribute__((amdgpu_kernel, device)) void
planted(float* out, const half4* in, const half16* wide) {
#if defined(__gfx908__)
  float16v c = {}, d;
  asm volatile("v_mfma_f32_32x32x8f16 %0, %1, %2, %3" : "=a"(d) : "v"(in[0]), "v"(in[1]), "a"(c));
  for (int i = 0; i < 16; ++i) out[i] = d[i];
#elif defined(__gfx942__)
  float4v d;
  asm volatile("v_mfma_f32_16x16x16_f16 %0, %1, %2, 0" : "=v"(d) : "v"(in[0]), "v"(in[1]));
  for (int i = 0; i < 4; ++i) out[i] = d[i] * 2.0f;
#elif defined(__gfx950__)
  float4v d;
  const half8* longer = reinterpret_cast<const half8*>(in);
  asm volatile("v_mfma_f32_16x16x32_f16 %0, %1, %2, 0" : "=v"(d) : "v"(longer[0]), "v"(longer[1]));
  for (int i = 0; i < 4; ++i) out[i] = d[i] * 2.0f;
#else
  float8 c = {}, e;
#if defined(__gfx1201__)
  const half8* narrow = reinterpret_cast<const half8*>(wide);
  half8 a = narrow[0], b = narrow[1];
  asm volatile("v_wmma_f32_16x16x16_f16 v[40:47], %1, %2, %3\n v_wmma_f32_16x16x16_f16 %0, v[40:43], %2, %3"
               : "=&v"(e) : "v"(a), "v"(b), "v"(c)
               : "v40", "v41", "v42", "v43", "v44", "v45", "v46", "v47");
#else
  float8 d;
  asm volatile("v_wmma_f32_16x16x16_f16 %0, %2, %3, %4\n v_wmma_f32_16x16x16_f16 %1, %0, %3, %4"
               : "=&v"(d), "=&v"(e) : "v"(wide[0]), "v"(wide[1]), "v"(c));
#endif
  for (int i = 0; i < 8; ++i) out[i] = e[i];
#endif
}
// The compiler does not keep two conversions into one register apart.
#if defined(__gfx942__) || defined(__gfx950__)
typedef float float4c __attribute__((ext_vector_type(4)));
extern "C" __attribute__((amdgpu_kernel, device)) void pair(int* out, const float4c* in) {
  const unsigned lane = __builtin_amdgcn_workitem_id_x();
  const float4c x = in[lane];
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(x[0], x[1], 0, false);
#if defined(APART)
  int apart = low;
  asm volatile("s_nop 0" : "+v"(apart));
  out[lane] = __builtin_amdgcn_cvt_pk_fp8_f32(x[2], x[3], apart, true);
#else
  out[lane] = __builtin_amdgcn_cvt_pk_fp8_f32(x[2], x[3], low, true);
#endif
}
#endif
"""


@pytest.fixture(scope="session")
def kernels_of(device_code, as_text):
    """``kernels_of(arch, pattern)``: our kernels with such a name."""

    def parsed(arch, pattern):
        files = [file for file in sorted(device_code(arch).glob("*.hsaco")) if pattern.search(file.stem)]
        assert files
        return [parse_disassembly(text)[0] for text in as_text(arch, files)]

    return parsed


def without_a_wait_state(kernel, number):
    """The kernel with one wait state fewer at that instruction (RDNA: one wait fewer for unit results).

    Jumps to a removed instruction lead to the next one.
    """
    old, before, after = (
        kernel.instructions[number],
        kernel.instructions[:number],
        kernel.instructions[number + 1 :],
    )
    if old.wait_states > 1:
        text = f"s_nop {old.wait_states - 2}"
        shorter = parse_instruction(old.address, text)
        return Kernel(kernel.name, (*before, shorter, *after))
    rest = (*before, *after)
    return Kernel(
        kernel.name,
        tuple(i._replace(target=after[0].address) if i.target == old.address else i for i in rest),
    )


def far_apart(numbers):
    """Split into groups whose members are too far apart for a dependency."""
    groups = []
    for number in numbers:
        group = next((g for g in groups if number - g[-1] >= 2 * NEAR), None)
        if group is None:
            groups.append([number])
        else:
            group.append(number)
    return groups


def missed_waits(arch, kernel, numbers):
    """Waits whose absence stays unnoticed. Each is removed by itself."""
    number_at = {instruction.address: n for n, instruction in enumerate(kernel.instructions)}
    hasty = reduce(without_a_wait_state, reversed(numbers), kernel)
    texts = [finding.text for finding in check_hazards(arch, hasty)]
    found = [number_at[int(a, 16)] for text in texts for a in re.findall("(0x[0-9a-f]+) `", text)]
    return [n for n in numbers if not any(abs(n - at) < NEAR for at in found)]


# The compiler's wait instructions, by rule set. On other archs the hardware waits for all dependencies of
# these kernels.
WAITING = {**dict.fromkeys(("cdna0", "cdna1", "cdna2", "cdna3", "cdna4"), ("s_nop",))}
WAITING |= {"rdna1": ("s_waitcnt_depctr", "s_waitcnt_vscnt")}
WAITING |= {"rdna3": ("s_waitcnt_depctr",), "rdna4": ("s_wait_alu",)}
RULES = {name: arch.isa.hazards.rules for name, arch in known_archs().items()}


def one_of_each(kinds):
    """All archs. An arch whose kind came earlier in the list is for --full."""
    first = {kind: arch for arch, kind in reversed(kinds.items())}
    marks = {arch: () if arch == first[kind] else pytest.mark.full for arch, kind in kinds.items()}
    return [pytest.param(arch, marks=each) for arch, each in marks.items()]


WAITED = {arch: rules for arch, rules in RULES.items() if rules in WAITING}


def joins_a_later_block(kernel, number):
    """Whether a jump from behind leads to the instruction's block, shortly before it."""
    near = {each.address for each in kernel.instructions[max(number - NEAR, 0) : number + 1]}
    behind = kernel.instructions[number + 1 :]
    return any(each.target in near for each in behind)


def written_anew(kernel, number):
    """Whether the next one reads an SGPR that a scalar one wrote shortly before, after a vector one."""
    before = kernel.instructions[max(number - NEAR, 0) : number]
    read = kernel.instructions[number + 1].reads
    return any(
        read & vector.writes & scalar.writes
        for at, vector in enumerate(before)
        if vector.is_valu
        for scalar in before[at + 1 :]
        if scalar.first.kind == "salu"
    )


def written_by_no_instruction(kernel, number):
    """Whether two states stand before an AccVGPR is written, and none of the four before writes a source."""
    if kernel.instructions[number].text != "s_nop 1":
        return False
    after = kernel.instructions[number + 1]
    return after.mnemonic == ACC_WRITE and after.reads.isdisjoint(written_before(kernel, number, 4))


def reads_lanes_long_after(kernel, number):
    """Whether a read of other lanes follows, of registers that were written more than two states before."""
    if kernel.instructions[number].text != "s_nop 1":
        return False
    first, second = kernel.instructions[number + 1 : number + 3]
    near, nearer = (written_before(kernel, number, states) for states in (2, 1))
    return "_dpp " in first.text and first.reads.isdisjoint(near) and second.reads.isdisjoint(nearer)


def written_before(kernel, number, count):
    """The registers written by the last ``count`` instructions before one, on all paths."""
    before, registers = {number}, set()
    for _ in range(count):
        before = {each for at in before for each in kernel.predecessors[at]}
        registers.update(*(kernel.instructions[each].writes for each in before))
    return registers


# Of whose kernels the compiler's waits are all of a kind that need not be found.
NONE_NEEDED = {"cdna0"}


def is_needed(kernel, number):
    """Whether a wait of the compiler's must be found missing. See the test for the others."""
    lone = kernel.instructions[number].text == "s_nop 0"
    others = (joins_a_later_block, written_anew, written_by_no_instruction, reads_lanes_long_after)
    return not (lone or any(each(kernel, number) for each in others))


@pytest.mark.parametrize("arch", one_of_each(WAITED))
@pytest.mark.parametrize(
    "pattern",
    [BY_THE_COMPILER, pytest.param(ALL_BY_THE_COMPILER, marks=pytest.mark.full)],
    ids=["some", "all"],
)
def test_every_wait_of_the_compilers_is_needed(kernels_of, arch, pattern):
    """The compiler inserts the minimum of its rules, so one wait fewer anywhere must be found.

    Five kinds need not be found. It inserts a lone ``s_nop 0`` next to inline assembly, even when empty, and
    between loads repeatable under XNACK. It visits blocks in their order: where a later block jumps back to,
    it does not know of that block's waits yet. It waits for an SGPR's writer although another one follows.
    On CDNA 1 it takes inline assembly for a vector instruction, so a VGPR of an empty statement has two
    states before ``v_accvgpr_write`` reads it (checkMAIHazards908 of LLVM's hazard recogniser). Our own
    assembly waits before it reads other lanes (FA_OF_WAVE of arch/device.hpp), whatever stands before.
    """
    needed = 0
    for kernel in kernels_of(arch, pattern):
        places = [n for n in kernel.reached if kernel.instructions[n].mnemonic in WAITING[RULES[arch]]]
        missed = [n for group in far_apart(places) for n in missed_waits(arch, kernel, group)]
        assert [n for n in missed if is_needed(kernel, n)] == []
        needed += sum(is_needed(kernel, n) for n in places)
    assert bool(needed) != (RULES[arch] in NONE_NEEDED)


# Their stores in flight at a barrier are additions to dq, read by later kernels.
ADDING = re.compile("fa_bwd_fused_")
# Archs with equal values are read alike, and their kernels wait in the same places.
COUNTERS = {name: (arch.isa.unit, arch.isa.counters) for name, arch in known_archs().items()}


def is_for_a_hazard(arch, kernel, mutant):
    """Whether the check of hazards finds a kernel without the wait, as RDNA 1's waits for stores."""
    numbers = [n for n, each in enumerate(kernel.instructions) if str(each) == mutant.instruction]
    waits = WAITING.get(RULES[arch], ())
    return kernel.instructions[numbers[0]].mnemonic in waits and not missed_waits(arch, kernel, numbers)


@pytest.mark.parametrize("arch", one_of_each(COUNTERS))
@pytest.mark.parametrize(
    "pattern", [ATTACKED, pytest.param(re.compile("fa_"), marks=pytest.mark.full)], ids=["some", "all"]
)
def test_a_kernel_that_waits_less_is_found(kernels_of, arch, pattern):
    """Exactly where the queues of operations in flight say that the wait is needed (tests/tools/queues.py).

    The compiler waits in excess: for registers of inline assembly, even empty, behind waits of inline
    assembly, between LDS reads of one register, which arrive in order, for paths that it removes later, and
    before barriers. Backward kernels tell it that no load is in flight (no_loads_in_flight).
    """
    kernels = {kernel.name: kernel for kernel in kernels_of(arch, pattern)}
    mutants = [mutant for kernel in kernels.values() for mutant in less_waits(arch, kernel)]
    assert len(mutants) > 100
    assert [str(mutant) for mutant in mutants if mutant.found != (mutant.verdict == NEEDED)] == []
    fences = [mutant for mutant in mutants if mutant.verdict == FENCE and not ADDING.match(mutant.kernel)]
    assert [str(each) for each in fences if not is_for_a_hazard(arch, kernels[each.kernel], each)] == []


# gfx950's kernels with loads straight into LDS and both dtypes.
DIRECT = re.compile(r"fa_((fwd|bwd_dkdv|bwd_dq)_(fp16|bf16)_d(64|128)|bwd_fused_(fp16|bf16)_d128)$")


def loads_into_lds(kernel):
    """The numbers of these instructions."""
    return [n for n in kernel.reached if kernel.instructions[n].first.loads_into_lds]


def some_in_flight(kernel, instruction):
    """Whether a path leads from such a load to ``instruction`` and skips every wait for all loads."""
    number = [str(each) for each in kernel.instructions].index(instruction)
    todo, seen = [*kernel.predecessors[number]], set()
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if kernel.instructions[at].first.loads_into_lds:
            return True
        if "vmcnt(0)" not in kernel.instructions[at].text:
            todo += kernel.predecessors[at]
    return False


def test_no_wait_for_loads_straight_into_lds_is_too_much(kernels_of):
    """Without the wait before a barrier, or with one more load in flight, the next tile is still missing.

    The emulator loads at once, so it would miss this bug.
    """
    for kernel in kernels_of("gfx950", DIRECT):
        assert loads_into_lds(kernel)
        after = {str(i): j.mnemonic for i, j in itertools.pairwise(kernel.instructions)}
        waits = [
            mutant
            for mutant in less_waits("gfx950", kernel)
            if mutant.counter == "vmcnt" and after[mutant.instruction] == "s_barrier"
            if some_in_flight(kernel, mutant.instruction)
        ]
        # Two of each wait: one in each loop. The forward of head dim 128 has one more, before its loops.
        assert len(waits) >= 2 * (1 + bool(re.match("fa_fwd_.*_d128", kernel.name)))
        assert [str(mutant) for mutant in waits if not mutant.found] == []


def test_the_state_between_m0_and_a_load_straight_into_lds_is_needed(kernels_of):
    """It is inline assembly, so the compiler skips the check."""
    for kernel in kernels_of("gfx950", DIRECT):
        states = [n - 1 for n in loads_into_lds(kernel)]
        assert {kernel.instructions[n].text for n in states} == {"s_nop 0"}
        missed = [n for group in far_apart(states) for n in missed_waits("gfx950", kernel, group)]
        assert missed == []


@pytest.fixture(scope="session")
def planted(builder, as_text, tmp_path_factory):
    """The planted kernels for the archs with matrix instructions, by arch and name."""
    from tests.engine.device.conftest import Toolchain

    archs = ["gfx908", "gfx942", "gfx950", "gfx1100", "gfx1201"]
    makes = {arch: ("", arch) for arch in archs} | {f"{a} apart": ("-DAPART", a) for a in archs[1:3]}
    build = Toolchain(builder.facts["ref"], CHECKOUT / "kernels", tmp_path_factory.mktemp("planted"))
    (build.scratch / "planted.hip").write_text(PLANTED)
    for name, (more, arch) in makes.items():
        flags = f"{more} -x hip -O3 -nogpuinc -nogpulib --offload-device-only --no-gpu-bundle-output"
        build(
            "sh",
            "-c",
            f'"$FA_LLVM/clang++" {flags} --offload-arch={arch} /out/planted.hip -o "/out/{name}.hsaco"',
        )
    texts = {name: as_text(arch, [build.scratch / f"{name}.hsaco"]) for name, (_, arch) in makes.items()}
    return {name: {k.name: k for k in parse_disassembly(text)} for name, [text] in texts.items()}


@pytest.mark.parametrize(
    ("arch", "how", "needs"),
    [
        ("gfx908", "reads the result of", "needs 18 wait states between them, has 0"),
        ("gfx942", "reads the result of", "needs 7 wait states between them, has 1"),
        ("gfx950", "reads the result of", "needs 8 wait states between them, has 1"),
        ("gfx1100", "reads as A or B the D of", "needs 1 VALU instructions between them, has 0"),
        ("gfx1201", "reads as A or B the D of", "needs 1 VALU instructions between them, has 0"),
    ],
)
def test_a_matrix_instruction_in_inline_assembly_is_found(planted, arch, how, needs):
    texts = [finding.text for finding in check_hazards(arch, planted[arch]["planted"])]
    assert any(how in text and needs in text for text in texts), texts


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_two_conversions_into_one_register_are_found(planted, arch):
    (text,) = [finding.text for finding in check_hazards(arch, planted[arch]["pair"])]
    assert "converts into another part of the register of" in text
    assert "needs 1 wait states between them, has 0" in text
    assert not check_hazards(arch, planted[f"{arch} apart"]["pair"])
