"""The pseudocode's statements and expressions, one by one, and the refused ones."""

import pytest

from tests.engine.emulator.semantics.pseudocode.syntax import PseudocodeError
from tests.engine.emulator.semantics.pseudocode.translate import instruction

NAN, ONE, MINUS_ZERO = 0x7FC00000, 0x3F800000, 0x80000000


def d0(text, **given):
    return instruction(text, {}.__getitem__).run(given)["D0"]


@pytest.mark.parametrize(
    ("text", "given", "want"),
    [
        ("D0.u32 = S0.u32 + S1.u32", {"S0": 0xFFFFFFFF, "S1": 2}, 1),
        ("D0.i32 = S0.i32 >> 4U", {"S0": 0x80000000}, 0xF8000000),
        ("D0.u32 = 1U + 2U * 3U << 1U", {}, 14),
        ("D0.u32 = S0.u32 == 1U && S1.u32 != 1U ? 5U : 6U", {"S0": 1, "S1": 1}, 6),
        ("D0.u32[31 : 0] = S0.u32[0 : 31]", {"S0": 1}, 0x80000000),
        ("D0[15 : 8] = S0[7 : 0]", {"D0": 0xFFFFFFFF, "S0": 0x12}, 0xFFFF12FF),
        ("D0.u32[S0.u32[4 : 0]] = 1'1U", {"S0": 0x25, "D0": 1}, 0x21),
        ("D0.u32 = S0[4U +: 8U]", {"S0": 0xABCD}, 0xBC),
        ("D0 = { 16'7, S0[31 : 16].u16 }", {"S0": 0x12345678}, 0x71234),
        ("{ D1.u1, D0.u64 } = 65'B(65'U(S0.u64) + 65'U(S1.u64))", {"S0": 2**64 - 1, "S1": 2}, 1),
        ("for i in 0 : 31 do if S0[i] == 1'1U then D0.i32 = i; break endif endfor", {"S0": 0x50}, 4),
        ("if S0.u32 > 2U then D0 = 1 elsif S0.u32 == 2U then D0 = 2 else D0 = 3 endif", {"S0": 2}, 2),
        ("F = lambda(a, b) (a > b ? a - b : b - a); D0.u32 = F(S0.u32, S1.u32)", {"S0": 3, "S1": 8}, 5),
        ("declare x : 8'B[2]; x[1] = S0[15 : 8].b8; D0.u32 = x[1] + x[0]", {"S0": 0x1200}, 0x12),
        ("tmp = S0.u32; tmp += 1U; // comment\nD0.u32 = tmp", {"S0": 1}, 2),
        ("VCC.u64[laneId] = D0.u64[laneId] = S0.f32 <> S1.f32", {"S0": NAN, "S1": ONE}, 0),
        ("D0.u32 = S0.f32 != S1.f32 ? 1U : 0U", {"S0": NAN, "S1": ONE}, 1),
        ("D0.u32 = S0.f32 == +0.0F ? 1U : S0.f32 == 0.0F ? 2U : 3U", {"S0": MINUS_ZERO}, 2),
        ("D0.f32 = S0.f32 * 2.0F ** S1.i32", {"S0": 1, "S1": 149}, ONE),
        ("D0.f32 = 1.0F / S0.f32", {"S0": MINUS_ZERO}, 0xFF800000),
        ("D0.u16 = f32_to_f16(S0.f32)", {"S0": 0x3F801FFF}, 0x3C01),
        ("ROUND_MODE = ROUND_TOWARD_ZERO; D0.u16 = f32_to_f16(S0.f32)", {"S0": 0x3F801FFF}, 0x3C00),
        ("D0.u32 = isSignalNAN(64'F(S0.f32)) ? 1U : 0U", {"S0": 0x7F800001}, 1),
        ("D0.f32 = S0.f32", {"S0": 0x7F800001}, 0x7F800001),
    ],
)
def test_text_means(text, given, want):
    assert d0(text, **given) == want


def test_what_is_stored_is_known():
    assert instruction("tmp = S0.u32; SCC = tmp == 0U", {}.__getitem__).stored == {"tmp", "SCC"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("D0.u32 = S0.u32 @ 2", "no token at ' @ 2'"),
        ("D0.u32 = (S0.u32", "'' where ')' is expected"),
        ("D0.u32 = S0.u32; endif", "'endif' does not belong here"),
        ("D0.u32 = ;", "';' where a value is expected"),
        ("D = A (16x16) * B (16x16) + C (16x16)", "'x16' where ')' is expected"),
        ("D0.f32 = cosh(S0.f32)", "cosh() is not defined"),
        ("D0 = { S0, S1 }", "the width of ('name', 'S0') is not known"),
        ("(S0 + 1) = 2", "a store to ('binary', '+', ('name', 'S0'), ('number', 1, None))"),
    ],
)
def test_other_text_is_refused(text, words):
    with pytest.raises(PseudocodeError) as raised:
        instruction(text, {}.__getitem__)
    assert str(raised.value) == words


def test_operands_of_two_formats_are_no_number():
    with pytest.raises(TypeError, match="operands of different formats"):
        d0("D0.f32 = S0.f32 + S1.f16")
