"""The table of tiles: reading, refusals, and the code generated for C++."""

import re

import pytest

from wheel_builder.base.errors import TileError
from wheel_builder.matrix.support_table import kernels_of
from wheel_builder.tables.archs import CHECKOUT, arch_named, known_archs
from wheel_builder.tables.kinds import known_kinds
from wheel_builder.tables.tiles import (
    HOST,
    SETS,
    Workgroup,
    cpp_tiles,
    known_tiles,
    parse_tiles,
    tile_of,
    workgroup_of,
)

ISAS = {arch.isa.name for arch in known_archs().values()}
ROW = "{ head_dim = 64, waves = 4, keys = 32, waves_per_simd = 2"
WHOLE = ROW + ', schedule = "pipelined"'
FIXED = """[workgroups]
bwd_delta = { rows = 128, threads = 64 }
"""


def problems(text):
    with pytest.raises(TileError) as caught:
        parse_tiles(text, ISAS)
    assert str(caught.value).startswith("the table of tiles cannot be read\n")
    return caught.value.problems


def one(more="", *, kernel="fwd", isa="rdna3", row=WHOLE):
    return f"[{kernel}]\n{isa} = [\n{row}{more} }},\n]\n"


def test_every_kernel_of_the_support_table_that_needs_a_tile_has_one():
    kernels = [kernel for kernel in kernels_of(CHECKOUT) if kernel.head_dim]
    assert len(kernels) > 50
    for kernel in kernels:
        for arch in kernel.archs:
            for loop in ("plain", "featured")[: 1 if known_kinds()[kernel.op].plain else 2]:
                tile_of(arch_named(arch), kernel.op, kernel.dtype, kernel.head_dim, loop)


def test_every_row_is_some_kernels():
    served = {
        (kernel.op, arch_named(arch).isa.name, kernel.head_dim)
        for kernel in kernels_of(CHECKOUT)
        for arch in kernel.archs
    }
    for kernel, isas in known_tiles().rows.items():
        for isa, rows in isas.items():
            assert {(kernel, isa, row.head_dim) for row in rows} <= served


@pytest.mark.parametrize(
    ("arch", "kernel", "head_dim", "rows", "threads"),
    [
        ("gfx942", "fwd", 128, 128, 256),
        ("gfx942", "fwd", 256, 256, 512),
        ("gfx942", "fwd_uneven", 192, 128, 256),
        ("gfx942", "fwd_wide", 512, 64, 512),
        ("gfx1030", "fwd_wide", 512, 16, 128),
        ("gfx942", "decode", 64, 32, 128),
        ("gfx942", "decode_8bit", 64, 16, 128),
        ("gfx942", "decode_8bit", 128, 32, 128),
        ("gfx942", "mla", 576, 64, 256),
        ("gfx1201", "mla", 576, 16, 128),
        ("gfx1100", "fwd", 64, 128, 256),
        ("gfx1100", "bwd_dkdv", 64, 64, 256),
        ("gfx1102", "bwd_dkdv", 64, 64, 256),
        ("gfx1201", "bwd_dkdv", 64, 128, 256),
        ("gfx1201", "bwd_fused", 64, 128, 256),
        ("gfx1201", "bwd_fused", 128, 64, 256),
        ("gfx1100", "bwd_dq", 64, 128, 256),
        ("gfx1030", "bwd_dq", 256, 32, 64),
        ("gfx908", "bwd_delta", 96, 128, 128),
    ],
)
def test_workgroups(arch, kernel, head_dim, rows, threads):
    assert workgroup_of(arch_named(arch), kernel, "bf16", head_dim) == Workgroup(rows, threads)


@pytest.mark.parametrize(("arch", "waves"), [("gfx1100", 10), ("gfx1102", 6), ("gfx1151", 10)])
def test_gpus_with_fewer_registers_have_rows_of_their_own(arch, waves):
    """With gfx1100's, 30 kernels would spill."""
    assert tile_of(arch_named(arch), "fwd", "fp16", 64).waves_per_simd == waves


def test_a_tile_that_is_not_there_is_an_error():
    with pytest.raises(TileError, match="no tile for fwd of gfx942, fp16, head dim 80, plain loop\n"):
        tile_of(arch_named("gfx942"), "fwd", "fp16", 80)


def test_a_row_can_be_for_one_register_file():
    tiles = parse_tiles(one(", vgprs = 1024"), ISAS)
    first = tiles.rows["fwd"]["rdna3"][0]
    assert (first.vgprs, first.waves) == (1024, 4)
    text = cpp_tiles(tiles)["fwd/d64.inc"]
    assert "FA_TILE(rdna3, any_dtype, 64, any_loop, 1024, .waves = 4, .keys = 32," in text


def test_an_isa_can_have_the_rows_of_another():
    found = parse_tiles(f'{one()}cdna1 = "rdna3"\n', ISAS).rows["fwd"]
    assert found["cdna1"] == found["rdna3"]


def test_rows_of_its_own_come_before_those_of_the_other_isa():
    own = WHOLE.replace("waves = 4", "waves = 2")
    text = one(f" }},\n{WHOLE.replace('64', '96')}") + f'cdna1 = {{ like = "rdna3", rows = [{own} }}] }}\n'
    found = parse_tiles(text, ISAS).rows["fwd"]
    assert [(row.head_dim, row.waves) for row in found["cdna1"]] == [(64, 2), (96, 4)]
    assert [(row.head_dim, row.waves) for row in found["rdna3"]] == [(64, 4), (96, 4)]


def test_an_isa_can_have_the_rows_of_another_up_to_a_head_dim():
    text = one(f" }},\n{WHOLE.replace('64', '96')}") + 'cdna1 = { like = "rdna3", up_to = 64, rows = [] }\n'
    assert [row.head_dim for row in parse_tiles(text, ISAS).rows["fwd"]["cdna1"]] == [64]


@pytest.mark.parametrize(
    "rows",
    [
        'cdna1 = "rdna2"',
        'cdna1 = { like = "rdna3" }',
        'cdna1 = { like = ["rdna3"], rows = [] }',
        'cdna1 = { like = "cdna3", rows = [] }\ncdna3 = "rdna3"',
        'cdna1 = { like = "rdna3", rows = [], also = 1 }',
    ],
)
def test_rows_of_an_isa_without_rows_are_an_error(rows):
    words = "fwd.cdna1: expected a list, or the ISA of a list to take: like, rows"
    assert problems(one() + rows + "\n") == (f"tiles.toml: {words}",)


def test_cpp_gets_each_row_with_its_dtype_and_loop_and_what_differs_from_the_default():
    text = FIXED + one(', before_clang = 22, value_lanes = 2, switches = ["half_stores"]')
    files = {name: text.splitlines() for name, text in cpp_tiles(parse_tiles(text, ISAS)).items()}
    sets = ".waves = 4, .keys = 32, .waves_per_simd = 2, .schedule = Schedule::pipelined, .value_lanes = 2"
    assert list(files) == ["workgroups.inc", "host/forward.inc", "fwd/d64.inc"]
    rows = files["fwd/d64.inc"]
    assert rows[rows.index("if (op == Op::fwd) {") :] == [
        "if (op == Op::fwd) {",
        "#ifdef FA_SEES_rdna3",
        "#if defined(__clang_major__) && __clang_major__ < 22",
        f"FA_TILE(rdna3, any_dtype, 64, any_loop, 0, {sets}, .half_stores = true)",
        "#endif",
        "#endif",
        "}",
    ]
    host = files["host/forward.inc"]
    sets = ".waves = 4, .keys = 32, .waves_per_simd = 2, .schedule = Schedule::pipelined"
    found = [row for row in host if row.startswith("FA_TILE")]
    assert found == [f"FA_TILE(rdna3, any_dtype, 64, plain, 0, {sets})"]


def test_the_host_reads_the_fields_of_its_rows():
    """Another field would be C++'s default there, without an error."""
    sources = [*(CHECKOUT / "kernels/host").rglob("*.[ch]pp")]
    sources += [CHECKOUT / "kernels/device/call" / name for name in ("config.hpp", "backward_config.hpp")]
    assert len(sources) > 30
    text = "\n".join(file.read_text() for file in sources)
    of_kernels = re.compile(r"#define FA_KERNEL.*?[^\\]$", re.DOTALL | re.MULTILINE)
    fields = {name for names in SETS.values() for name in names}
    read = {*re.findall(r"(?:\bconfig|_config\([^;]*?\))\.(\w+)", of_kernels.sub("", text))} & fields
    assert read == {*HOST}


def test_cpp_gets_each_head_dim_in_a_file_of_its_own_and_all_in_one():
    files = cpp_tiles(parse_tiles(one(f" }},\n{WHOLE.replace('64', '96')}"), ISAS))
    counts = {
        name: (text.count(" 64, "), text.count(" 96, "))
        for name, text in files.items()
        if name != "workgroups.inc"
    }
    assert counts == {"host/forward.inc": (1, 1), "fwd/d64.inc": (1, 0), "fwd/d96.inc": (0, 1)}


def test_cpp_gets_what_kernels_without_rows_need():
    text = FIXED + one(kernel="bwd_fused", row=f"{BY_KEYS} }},\n{BY_KEYS.replace('64', '96')}")
    lines = cpp_tiles(parse_tiles(text, ISAS))["workgroups.inc"].splitlines()
    assert lines[lines.index("#ifdef FA_WORKGROUP") :] == [
        "#ifdef FA_WORKGROUP",
        "FA_WORKGROUP(Delta, 128, 64)",
        "#endif",
        "#ifdef FA_FUSED_HEAD_DIM",
        "#ifdef FA_SEES_rdna3",
        "FA_FUSED_HEAD_DIM(64)",
        "FA_FUSED_HEAD_DIM(96)",
        "#endif",
        "#endif",
        "#ifdef FA_SEPARATE_HEAD_DIM",
        "#endif",
    ]


def test_rows_of_dq_are_the_head_dims_of_the_separate_kernels():
    """gfx906 has none above 128: delta's code for these would never run."""
    lines = cpp_tiles(known_tiles())["workgroups.inc"].splitlines()
    of_separate = lines[lines.index("#ifdef FA_SEPARATE_HEAD_DIM") :]
    for isa, most in (("cdna0", 128), ("cdna1", 256)):
        first = of_separate.index(f"#ifdef FA_SEES_{isa}") + 1
        end = of_separate.index("#endif", first)
        assert of_separate[end - 1] == f"FA_SEPARATE_HEAD_DIM({most})"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            one(kernel="fwdd"),
            f"no kernel fwdd; known: {', '.join(SETS)}",
        ),
        (one(isa="rdna9"), "fwd.rdna9: no such ISA; known: cdna0,"),
        (one(", wave = 4"), "fwd.rdna3: row 1: not a field: wave"),
        (one(", pairs = 4"), "fwd.rdna3: row 1: fwd has no pairs"),
        (one(', switches = ["ping_pong"]'), "fwd.rdna3: row 1: fwd has no ping_pong"),
        (one(', switches = ["fast"]'), "fwd.rdna3: row 1: switches is 'fast', expected one of"),
        (one(row=ROW), "fwd.rdna3: row 1: no schedule"),
        (one(", prefetch = true"), "fwd.rdna3: row 1: prefetch is True, expected int"),
        (one(', dtype = "fp8"'), "fwd.rdna3: row 1: dtype is 'fp8', expected one of fp16, bf16"),
        (FIXED.replace("rows = 128,", ""), "workgroups.bwd_delta: no rows"),
        ("[fwd]\nrdna3 = 4\n", "fwd.rdna3: expected a list of rows"),
    ],
)
def test_a_wrong_table_is_an_error(text, words):
    assert any(problem.startswith(f"tiles.toml: {words}") for problem in problems(text))


BY_KEYS = "{ head_dim = 64, pairs = 4, queries = 32, waves_per_simd = 2"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('prefetch = 3, switches = ["early_operands"]', "early_operands without ping_pong"),
        ('switches = ["early_operands", "ping_pong"]', "early_operands without prefetch"),
        ('switches = ["early_numbers"]', "early_numbers without ping_pong"),
        ('switches = ["kept_zeros"]', "kept_zeros without ping_pong"),
        ('switches = ["tight_registers"]', "tight_registers without ping_pong"),
        ('prefetch = 3, switches = ["ping_pong", "staggered"]', "staggered without row_major"),
        ('switches = ["early_rows", "ping_pong"]', "ping_pong and early_rows: choose one loop"),
    ],
)
def test_a_switch_that_would_do_nothing_is_an_error(more, words):
    text = one(f", {more}", kernel="bwd_fused", row=BY_KEYS)
    assert problems(text) == (f"tiles.toml: bwd_fused.rdna3: row 1: {words}",)


def test_interleaving_needs_operands_that_are_read_ahead():
    row = "{ head_dim = 64, waves = 4, keys = 32, waves_per_simd = 2"
    text = one(', switches = ["interleaved"]', kernel="bwd_dq", row=row)
    assert problems(text) == ("tiles.toml: bwd_dq.rdna3: row 1: interleaved without prefetch",)


@pytest.mark.parametrize(
    "more", ["", ', dtype = "bf16"', ', loop = "plain"', ", vgprs = 1024", ", before_clang = 22"]
)
def test_a_row_that_never_counts_is_an_error(more):
    text = one(row=f"{WHOLE} }},\n{WHOLE}{more}")
    assert problems(text) == ("tiles.toml: fwd.rdna3: row 2: another row before it is for the same",)
