"""The kinds of kernels: refusals, generated code, and their presence in the device code."""

import re
import tomllib

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.base.errors import KindError
from wheel_builder.matrix.support_table import kernels_of
from wheel_builder.tables.calls import known_calls
from wheel_builder.tables.kinds import (
    cpp_kinds,
    cpp_paths,
    forwards,
    known_kinds,
    parse_kinds,
    python_kinds,
    python_paths,
    support_table,
)
from wheel_builder.tables.tiles import known_tiles

COMPILED = """\
params = "P"
header = "h.hpp"
macro = "M"
shared = "h.hpp"
kernels = [{ dtypes = ["bf16"], head_dims = [32, 64], needs = ["speed"] }, { dtypes = ["fp16"] }]
"""
TEXT = f"""
[one]
words = "first"
call = "forward"
paths = ["plain", "other"]
canary = "CALLS"
tile = "forward"
rows = "queries"
{COMPILED}
[few]
words = "second"
call = "latent"
paths = ["few"]
lacks = ["dropout"]
canary = "FEW"
tile = "forward"
rows = "packed"
{COMPILED}
[back]
words = "third"
call = "backward"
paths = ["once", "twice"]
launches = ["sums", "back", "sums"]
canary = "CALLS"
{COMPILED}
[back_masked]
words = "fourth"
call = "backward"
variant = "masked"
tile = "dq"
lacks = ["softcap", "ALiBi", "dropout", "pages"]
value_dim = 16
launches = ["sums", "back", "back_masked"]
canary = "CALLS"
{COMPILED}
[sums]
words = "fifth"
call = "backward"
{COMPILED}
"""
KINDS = parse_kinds(TEXT)


def test_paths_have_the_same_names_in_both_languages():
    assert re.findall(r'case (\w*Path)::(\w+): return "(\w+)"', cpp_paths(KINDS)) == [
        ("Path", "plain", "plain"), ("Path", "other", "other"), ("Path", "few", "few"),
        ("BwdPath", "once", "once"), ("BwdPath", "twice", "twice"),
    ]  # fmt: skip
    found = {}
    exec(python_paths(KINDS), found)
    assert (found["FORWARD"], found["BACKWARD"]) == (("plain", "other", "few"), ("once", "twice"))


def test_the_package_knows_which_kernel_answers():
    found = {}
    exec(python_kinds(KINDS), found)
    assert found["ATTENDING"] == {"plain": "one", "other": "one", "few": "few"}
    assert found["GRADIENTS"] == {"once": "back", "twice": "back", "masked": "back_masked"}
    assert found["MASKED"] == "masked"
    assert found["PLAIN"] == ("back_masked",)
    assert found["CANARY"] == {"one": "CALLS", "few": "FEW", "back": "CALLS", "back_masked": "CALLS"}
    assert found["TILED"] == ("one", "few", "back_masked")
    assert found["LAUNCHES"] == {
        "back": ("sums", "back", "sums"),
        "back_masked": ("sums", "back", "back_masked"),
    }


def test_packed_rows_are_no_forward():
    assert forwards(KINDS) == ("one",)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('words = "first"', 'word = "first"', "one: no words"),
        (
            '"latent"',
            '"latest"',
            "few: call is 'latest', expected one of forward, backward, latent, fp8, int8, append, widen",
        ),
        ('["few"]', '["plain"]', "two kinds answer plain"),
        ('tile = "forward"\nrows = "packed"', 'rows = "packed"', "few: rows without tile"),
        ('launches = ["sums", "back", "sums"]', "", "back: 0 launches, expected 3"),
        ('["sums", "back", "sums"]', '["sums", "sums", "sums"]', "back: launches without back"),
        ('"back_masked"]', '"back_masked", "sums"]', "back_masked: 4 launches, expected 3"),
        ('"back", "sums"]', '"back", "sum"]', "back: launches sum, which is no kind"),
        (
            '["dropout"]',
            '["dropouts"]',
            "few: lacks is 'dropouts', expected one of softcap, ALiBi, dropout, pages",
        ),
        (
            '["dropout"]',
            '["pages"]',
            "few: lacks is pages; expected dropout, or softcap, ALiBi, dropout, pages",
        ),
        ('canary = "FEW"', "", "few: canary is missing, and it answers calls"),
        ("[32, 64]", '["32"]', "one.kernels: head_dims is '32', expected int"),
    ],
)
def test_what_is_wrong_is_said(old, new, problem):
    with pytest.raises(KindError) as caught:
        parse_kinds(TEXT.replace(old, new, 1))
    assert f"kinds.toml: {problem}" in caught.value.problems


def test_every_kind_has_kernels_tiles_and_a_macro():
    assert {kernel.op for kernel in kernels_of(CHECKOUT)} == set(known_kinds())
    assert set(known_tiles().rows) == {op for op, kind in known_kinds().items() if kind.tile}
    for kind in known_kinds().values():
        header = (CHECKOUT / "kernels/device" / kind.header).read_text()
        assert f"#define {kind.macro}(" in header
        assert kind.params in known_calls().structs
        shared = (CHECKOUT / "kernels/device" / kind.shared).read_text()
        assert f"fa::{kind.params}" in header + shared


def test_the_check_at_first_use_has_the_calls_of_each_kind():
    text = "".join(
        (CHECKOUT / f"kernels/python/flash_attn_rocm/canary/{name}.py").read_text()
        for name in ("rows", "latent")
    )
    named = {kind.canary for kind in known_kinds().values() if kind.canary}
    assert named <= set(re.findall(r"^([A-Z_]+) = (?:\(|tuple)", text, re.MULTILINE))


def test_cpp_knows_what_answers_a_path():
    text = cpp_paths(KINDS)
    assert "    case Path::few: return Op::few;\n" in text
    assert "enum class Variant { masked };" in text
    assert "    case Variant::masked: return {Op::sums, Op::back, Op::back_masked};\n" in text
    assert "    case BwdPath::twice: return {Op::sums, Op::back, Op::sums};\n" in text
    assert "inline constexpr Op kForwards[] = {Op::one};" in text
    assert "  return of == Op::back_masked;\n" in text
    assert 'case Op::few: return "its kernels have no dropout";' in text
    assert '"its kernels have neither softcap nor ALiBi, dropout or pages"' in text
    assert "    case Op::back_masked: return 16;\n    default: return 0;\n" in text


def test_a_kernel_for_each_dtype_and_head_dim():
    rows = tomllib.loads(support_table(KINDS))["kernels"]
    assert [row["op"] for row in rows] == [op for op in KINDS for _ in range(2)]
    assert rows[:2] == [
        {"op": "one", "dtypes": ["bf16"], "head_dims": [32, 64], "needs": ["speed"]},
        {"op": "one", "dtypes": ["fp16"]},
    ]


def test_v_has_its_own_head_dim_or_that_of_q():
    assert [KINDS[op].of_v(64) for op in ("one", "back_masked")] == [64, 16]


def test_a_kernel_without_a_row_says_so_in_its_own_words():
    text = cpp_kinds(KINDS)
    assert "enum class Op { one, few, back, back_masked, sums };" in text
    assert "    case Op::few: return Rows::packed;\n" in text
    words = "kernels/tables/tiles.toml: [few] has no row for this ISA, head dim, dtype and loop"
    assert f'  static_assert(op != Op::few || (found), "{words}")' in text
