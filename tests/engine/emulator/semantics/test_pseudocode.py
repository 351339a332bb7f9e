"""The emulator against the ISA documents: AMD's pseudocode is executed in place of our references.

Emulator and references have the same authors, who may have misread a sentence twice.  Archs: gfx942, gfx950,
gfx1100, gfx1151, gfx1201, and gfx1010's mixed precision. The package lacks the documents of the others.

    python -m pytest tests/engine/emulator/semantics/test_pseudocode.py -s

prints the number of compared instructions.
"""

import re
from contextlib import suppress

import pytest

from tests.engine.emulator.semantics import cases
from tests.engine.emulator.semantics.pseudocode.isa import DOCUMENTS, EXCUSES, ONLY, Document, texts
from tests.engine.emulator.semantics.pseudocode.syntax import PseudocodeError
from tests.engine.emulator.semantics.table import Op, ScalarOp, call, combinations, spread
from tests.engine.emulator.semantics.test_semantics import SHOWN

ARCHS = tuple(DOCUMENTS)
WHOLE = tuple(arch for arch in ARCHS if arch not in ONLY)
THINNED = 16  # one wave of this many runs, unless --full
# Instructions of the tables left out of the comparison, and the reason.
ROUNDING = "the text names a rounding function that the document does not define"
RANDOM = "the text names a stochastic rounding function that the document does not define"
REVOLUTIONS = "the text multiplies with a rounded 2 pi; the instruction takes revolutions"
LEFT_OUT = {
    "v_sin_f16": REVOLUTIONS,
    "v_sin_f32": REVOLUTIONS,
    "v_cos_f16": REVOLUTIONS,
    "v_cos_f32": REVOLUTIONS,
    **{f"v_cvt_{kind}_{s}_f32": RANDOM for kind in ("sr", "scalef32_sr") for s in ("fp8", "bf8")},
    **{f"v_cvt_scalef32_sr_{s}_{f}": RANDOM for s in ("fp8", "bf8") for f in ("f16", "bf16")},
    **{f"v_cvt_scalef32_pk_{s}_{f}": ROUNDING for s in ("fp8", "bf8") for f in ("f32", "f16", "bf16")},
    "v_sat_pk_u8_i16": "RDNA 3's text joins numbers of unknown width",
    "v_cvt_pk_u8_f32": ROUNDING,
    "v_cvt_pk_norm_i16_f32": ROUNDING,
    "v_cvt_pk_norm_u16_f32": ROUNDING,
    "v_cvt_pknorm_i16_f32": ROUNDING,
    "v_cvt_pknorm_u16_f32": ROUNDING,
    "v_fma_mix_f32": "gfx942's document has v_mad_mix_f32, which the chip does not have",
    "v_fma_mixlo_f16": "as v_fma_mix_f32",
    "v_fma_mixhi_f16": "as v_fma_mix_f32",
    "v_div_scale_f32": "only in whole divisions, which are compared with exact quotients",
    "v_div_scale_f64": "as v_div_scale_f32",
    "v_pk_mov_b32": "its operands are halves that a modifier names",
}


def lines(document, ops):
    """Lines of ``ops`` in the document, with its text as reference."""
    for op in ops:
        with suppress(PseudocodeError):
            yield document.line(op)


def element_wise(arch):
    return [op for op in cases.lines(arch) if isinstance(op, (Op, ScalarOp))]


def problems(line, arch, machine, every):
    case = cases.make(line, arch, every)
    data, check = case.make()
    return [f"{case.snippet.name}: {wrong}" for wrong in check(machine.run(case.snippet, data))[:SHOWN]]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("every", [THINNED, pytest.param(1, marks=pytest.mark.full)])
def test_the_emulator_does_what_the_document_says(arch, every, snippet_machine):
    found = list(lines(Document(arch), element_wise(arch)))
    machine = snippet_machine(arch)
    wrong = [text for line in found for text in problems(line, arch, machine, every)]
    names = {cases.plain(line, arch) for line in found}
    assert found
    print(f"\n{arch}: {len(found)} forms of {len(names)} instructions")  # noqa: T201
    assert not wrong, "\n".join(wrong[:50])


def left_out(arch):
    ops = element_wise(arch)
    compared = {cases.plain(op, arch) for op in lines(Document(arch), ops)}
    return {cases.plain(op, arch) for op in ops} - compared


def test_exactly_the_listed_instructions_are_left_out():
    assert set().union(*map(left_out, WHOLE)) == set(LEFT_OUT)


@pytest.mark.parametrize("excuse", EXCUSES, ids=lambda excuse: excuse.names)
def test_every_excuse_is_needed(excuse):
    """Somewhere in the excused rows the text and the table differ."""
    differs = []
    for document in map(Document, WHOLE):
        for op in element_wise(document.arch):
            if re.fullmatch(excuse.names, cases.plain(op, document.arch)):
                line = document.line(op, differs.append)
                for row in combinations(op, spread(op.names)[document.arch]):
                    call(line, dict(zip("abc", row, strict=False)) | {"n": 1, "d": 0})
    assert any(differs), f"{excuse.names}: {excuse.reason}"


# One small change of meaning each: (instruction, in the text, changed).
MUTANTS = (
    ("v_add_f32", "S0.f32 + S1.f32", "S0.f32 - S1.f32"),
    ("v_fma_f32", "fma(S0.f32, S1.f32, S2.f32)", "S0.f32 * S1.f32 + S2.f32"),
    ("v_max_f32", "isQuietNAN(64'F(S1.f32))", "isQuietNAN(64'F(S0.f32))"),
    ("v_bfe_i32", "signext_from_bit(tmp.i32, S2[4 : 0].u32)", "tmp.i32"),
    ("v_perm_b32", "in[7][7]", "in[6][7]"),
    ("v_cndmask_b32", "? S1.u32 : S0.u32", "? S0.u32 : S1.u32"),
    ("v_cvt_pk_rtz_f16_f32", "ROUND_MODE = ROUND_TOWARD_ZERO;", ""),
    ("v_cvt_f16_f32", "f32_to_f16(S0.f32)", "S0.f16"),
    ("v_cvt_pk_f16_f32", "tmp[31 : 16].f16 = f32_to_f16(S1.f32)", "tmp[31 : 16].f16 = f32_to_f16(S0.f32)"),
    ("v_cvt_pk_bf16_f32", "f32_to_bf16(S0.f32)", "f32_to_bf16(S1.f32)"),
    ("v_cvt_f32_fp8", "[7 : 0].fp8", "[15 : 8].fp8"),
    ("v_cvt_pk_f32_bf8", "bf8_to_f32(tmp[15 : 8]", "fp8_to_f32(tmp[15 : 8]"),
    ("v_cvt_pk_fp8_f32", "f32_to_fp8(S1.f32), f32_to_fp8(S0.f32)", "f32_to_fp8(S0.f32), f32_to_fp8(S1.f32)"),
    ("v_cvt_scalef32_pk_f16_fp8", "exponent(S1.f32)", "exponent(S0.f32)"),
    ("v_dot4_i32_iu8", "B[i] = NEG[1]", "B[i] = NEG[0]"),
    ("v_dot4_f32_fp8_bf8", "S1[7 : 0].bf8", "S1[7 : 0].fp8"),
    ("v_bitop3_b32", "~S0.b32 & ~S1.b32 & S2.b32", "~S0.b32 & S1.b32 & ~S2.b32"),
    ("v_bitop3_b16", "~S0.b16 & ~S1.b16 & S2.b16", "S0.b16 & ~S1.b16 & ~S2.b16"),
    ("v_mul_hi_u32", "64'U(S0.u32)", "64'I(S0.i32)"),
    ("v_mad_u32_u24", "S0.u24", "S0.u32"),
    ("v_exp_f32", "pow(2.0F, S0.f32)", "pow(2.0F, S0.f32 + 0.001F)"),
    ("v_cmp_lt_f32", "S0.f32 < S1.f32", "S0.f32 <= S1.f32"),
    ("v_lshl_add_u32", "S1.u32[4 : 0]", "S1.u32[5 : 0]"),
    ("s_max_i32", "S0.i32 >= S1.i32", "S0.i32 > S1.i32"),
    ("s_absdiff_i32", "D0.i32 < 0", "S0.i32 < S1.i32"),
    ("s_lshl_b32", "SCC = D0.u32 != 0U", "SCC = D0.u32 == 0U"),
    ("s_mul_f32", "S0.f32 * S1.f32", "S0.f32 + S1.f32"),
    ("s_cvt_u32_f32", "f32_to_u32(S0.f32)", "f32_to_i32(S0.f32)"),
    ("s_cvt_f32_u32", "u32_to_f32(S0.u32)", "i32_to_f32(S0.i32)"),
    ("s_cmp_nlt_f32", "!(S0.f32 < S1.f32)", "S0.f32 >= S1.f32"),
    (
        "v_max_num_f32",
        "isNAN(64'F(S0.f32)) then\nD0.f32 = S1.f32",
        "isNAN(64'F(S0.f32)) then\nD0.f32 = S0.f32",
    ),
    ("v_mad_co_u64_u32", "65'U(S2.u64)", "65'U(S2.u32)"),
    ("v_fma_mix_f32", "!OPSEL_HI.u3[i]", "OPSEL_HI.u3[i]"),
    ("v_fma_mix_f32", "S[i][31 : 16]", "S[i][15 : 0]"),
    ("v_fma_mix_f32", "fma(in[0], in[1], in[2])", "in[0] * in[1] + in[2]"),
    ("v_s_rcp_f32", "1.0F / S0.f32", "2.0F / S0.f32"),
    ("s_mul_u64", "S0.u64 * S1.u64", "S0.u64 + S1.u64"),
    ("s_add_nc_u64", "S0.u64 + S1.u64", "S0.u64 - S1.u64"),
    ("s_addk_co_i32", "signext(S0.i16)", "S0.u16"),
    ("s_min_num_f32", "S0.f32 < S1.f32", "S0.f32 > S1.f32"),
    ("s_cmp_neq_f32", "!(S0.f32 == S1.f32)", "S0.f32 < S1.f32 || S0.f32 > S1.f32"),
)


@pytest.mark.parametrize(("name", "old", "new"), MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_an_instruction_that_means_something_else_is_seen(name, old, new, snippet_machine):
    arch = next(arch for arch in reversed(ARCHS) if name in texts(arch) and name in cases.of(arch))
    document = Document(arch, {name: changed(texts(arch)[name], old, new)})
    machine = snippet_machine(arch)
    forms = lines(document, [op for op in element_wise(arch) if cases.plain(op, arch) == name])
    assert any(problems(line, arch, machine, every=1) for line in forms)


def changed(text, old, new):
    assert old in text, text
    return text.replace(old, new)
