"""Every instance compiles for each arch alone and for all together, and the registry names every one."""

import hashlib
import json
import re

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.build.budget import COSTS, load_budgets, measured, without_budget
from wheel_builder.files.binaries.elf import read_elf
from wheel_builder.files.device.fatbin import kernels, machine_arch, read_fatbin
from wheel_builder.machine_code.disassembly.resources import read_resources
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.kinds import known_kinds

ARCHS = list(known_archs())
KINDS = known_kinds()
TILES = "generated/device/tiles/{}/d{}.inc"
ADDS = "atomic_fadd_f32"
FEATURES = {arch: known_archs()[arch].features for arch in ARCHS}
ADDING = [arch for arch in ARCHS if ADDS in FEATURES[arch]]
LACKING = [arch for arch in ARCHS if arch not in ADDING]


def names_of(*archs):
    """The kernels of any of the archs, in the table's order."""
    return [
        f"fa_{op}_{dtype}{end}"
        for op, kind in KINDS.items()
        for row in kind.kernels
        if any({*row.needs} <= {*FEATURES[arch]} for arch in archs)
        for dtype in row.dtypes
        for end in ([f"_d{head_dim}" for head_dim in row.head_dims] or [""])
    ]


# One kernel of each kind is enough for checks independent of dtype and head dim.
SOME = [
    f"fa_{op}_fp16{'_d64' if kind.tile else ''}"
    for op, kind in KINDS.items()
    if not kind.tile or any(64 in row.head_dims and row.needs in ((), (ADDS,)) for row in kind.kernels)
]
ROW = re.compile(r'^FA_INSTANCE\((\w+), (\w+), (\d+), (\w+), "([\w,-]+)"\)$', re.MULTILINE)


def registry(folder):
    """The (kernel, arch) pairs of a registry, as a set."""
    rows = ROW.findall((folder / "registry.inc").read_text())
    for op, dtype, head_dim, name, _ in rows:
        assert name == f"fa_{op}_{dtype}" + (f"_d{head_dim}" if head_dim != "0" else "")
    return {(name, arch) for *_, name, archs in rows for arch in archs.split(",")}


def held(folder):
    """{(kernel, arch)} of the code objects in a folder for each arch, from their ELF headers."""
    found = set()
    for path in folder.glob("*/*.hsaco"):
        elf = read_elf(path.read_bytes())
        assert machine_arch(elf) == path.parent.name
        found |= {(kernel, path.parent.name) for kernel in kernels(elf)}
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_each_arch_alone_has_exactly_the_tables_instances(device, arch):
    assert sorted(p.stem for p in (device / "device" / arch).glob("*.hsaco")) == sorted(names_of(arch))
    for path in (device / "device" / arch).glob("*.hsaco"):
        elf = read_elf(path.read_bytes())
        assert machine_arch(elf) == arch
        assert kernels(elf) == {path.stem}


@pytest.mark.parametrize("arch", ARCHS)
def test_every_kernel_has_a_budget(device, arch):
    """The limits of a kernel's cost. `scripts/wheel-builder cost --update` accepts new ones."""
    costs = measured(json.loads((device / "device" / arch / "resources.json").read_text()))
    budget = load_budgets(CHECKOUT / COSTS)[arch]
    assert without_budget(costs, budget) == ()
    assert budget.keys() <= costs.keys()


@pytest.mark.parametrize("arch", ARCHS)
def test_resources_are_reported_for_every_kernel(device, arch):
    """Their limits are in the golden file: test_static_checks.py."""
    report = json.loads((device / "device" / arch / "resources.json").read_text())
    assert report["arch"] == arch
    assert report["cpu_seconds"] > 0
    assert set(report["kernels"]) == set(names_of(arch))
    for name, made in report["kernels"].items():
        op, head_dim = re.fullmatch(r"fa_(\w+?)_(?:fp16|bf16)(?:_d(\d+))?", name).groups()
        taken = read_resources((device / "device" / arch / f"{name}.hsaco").read_bytes())[name]
        if int(head_dim or 0) <= 128 or not op.startswith(("bwd_", "fwd_wide")):
            assert taken.vgpr_spills == taken.sgpr_spills == taken.scratch_bytes == 0
        assert taken.kernarg_bytes == layout(KINDS[op].params).size, "a struct, and no hidden argument"
        assert taken.wave == known_archs()[arch].isa.wave
        assert taken.code_bytes == made["code_bytes"]
        assert 0 < taken.code_bytes < most_kib(name, arch) * 1024


def most_kib(name, arch):
    """Of code: two loops of the 32 KiB of an instruction cache. A launch runs one of them.

    gfx1030 unpacks bf16: dq of head dim 256 takes 268 bytes more. gfx906 has four columns a lane. Decode over
    8 bits unpacks two formats, on RDNA 1 and 2 beside products on the VALU, of which gfx1010 takes twice as
    many. Every loop fits its cache: `check_loops` of the static checks.
    """
    if arch == "gfx906":
        return 69
    if name in ("fa_decode_8bit_fp16_d128", "fa_decode_8bit_bf16_d128"):
        return 78 if arch == "gfx1010" else 67
    return 65 if name == "fa_bwd_dq_bf16_d256" else 64


def test_the_registry_names_exactly_the_kernels_that_the_code_objects_hold(device):
    folder = device / "bundles"
    every = {(name, arch) for arch in ARCHS for name in names_of(arch)}
    assert registry(folder) == held(device / "device") == every
    assembler = (folder / "fatbin.S").read_text()
    assert re.findall(r'\.incbin "(\w+)\.hipfb"', assembler) == sorted(ARCHS)
    archs = re.findall(r"^FA_ARCH\((\w+)\)$", (folder / "registry.inc").read_text(), re.MULTILINE)
    assert archs == sorted(ARCHS)


def compile_directly(toolchain, name, archs):
    """One translation unit through the compiler's own driver, for all ``archs`` in one call."""
    write = f"""
import runpy
generate = runpy.run_path("/src/kernels/build/instances/generate.py")
print(*(generate["source"](each) for each in generate["load_table"]() if each.name == "{name}"))
"""
    flags = ["-x hip -std=c++17 -O3 -nogpuinc -nogpulib --offload-device-only -I/src/kernels"]
    flags += [f"--offload-arch={arch}" for arch in archs]
    compiler = '"${FA_LLVM:-/usr/lib/llvm-22/bin}"/clang++'
    source = f"/out/{name}.hip"
    compile_ = f"{compiler} {' '.join(flags)} {source} -o /out/all.hipfb"
    toolchain("sh", "-ec", f'python3 -c "$1" > {source}; {compile_}', "sh", write)


# Even in one call the compiler takes each arch by itself, and a release compiles all kernels for each.
TOGETHER = ("fa_fwd_fp16_d64", "fa_bwd_convert_fp16")  # of all archs, and of some
QUICKLY = [pytest.param(name, marks=() if name in TOGETHER else pytest.mark.full) for name in SOME]


@pytest.mark.parametrize("name", QUICKLY)
def test_all_archs_compile_in_one_device_pass(toolchain, name):
    archs = [arch for arch in ARCHS if name in names_of(arch)]
    compile_directly(toolchain, name, archs)
    found = read_fatbin((toolchain.scratch / "all.hipfb").read_bytes())
    assert {(kernel, each.arch) for each in found for kernel in kernels(read_elf(each.data))} == {
        (name, arch) for arch in archs
    }


ATOMICS = 'needs = ["atomic_fadd_f32"]\n'


def table_of(toolchain, *rows):
    """The option for a support table of (op, dtype, head dim) with the given rows."""
    text = '[[kernels]]\nop = "{}"\ndtypes = ["{}"]\nhead_dims = [{}]\n'
    rows = [text.format(*row) + (ATOMICS if row[0] == "bwd_fused" else "") for row in rows]
    (toolchain.scratch / "table.toml").write_text("".join(rows))
    return ("--table", "/out/table.toml")


def test_an_instance_that_needs_what_some_archs_lack_leaves_them_as_they_are(toolchain):
    table = table_of(toolchain, ("fwd", "bf16", 64), ("bwd_fused", "fp16", 64))
    has, lacks = ADDING[0], LACKING[0]
    for arch in (has, lacks):
        toolchain.build(arch, *table)
    folder = toolchain.bundle(*table)
    expected = {("fa_fwd_bf16_d64", has), ("fa_fwd_bf16_d64", lacks), ("fa_bwd_fused_fp16_d64", has)}
    assert registry(folder) == held(toolchain.scratch / "device") == expected


def test_an_arch_without_a_row_is_said_to_have_none(toolchain):
    table = table_of(toolchain, ("bwd_fused", "fp16", 64))
    words = toolchain.fails(toolchain.build, LACKING[0], *table)
    assert f"table.toml has no instance for {LACKING[0]}: nothing to compile" in words


def test_a_bundle_for_some_archs_names_only_them(toolchain):
    table = table_of(toolchain, ("fwd", "bf16", 64), ("decode", "fp16", 32))
    toolchain.build("gfx1030", *table)
    folder = toolchain.bundle(*table)
    expected = {("fa_fwd_bf16_d64", "gfx1030"), ("fa_decode_fp16_d32", "gfx1030")}
    assert registry(folder) == held(toolchain.scratch / "device") == expected


def test_an_unknown_arch_is_refused_in_words(toolchain):
    words = toolchain.fails(toolchain.build, "gfx99999")
    assert "there are no kernels for 'gfx99999'" in words
    assert f"known: {', '.join(ARCHS)}" in words


def test_an_arch_that_only_the_compiler_knows_is_refused_in_words(toolchain):
    words = toolchain.fails(compile_directly, toolchain, "fa_fwd_fp16_d64", ["gfx900"])
    assert "flash-attn-rocm has no kernels for this arch; kernels/tables/gpus.toml lists" in words


CONFIG = "constexpr FwdConfig forward_config(FA_TILE_OF) {\n"


def with_config(changed, arch, config):
    """A toolchain with this FwdConfig for head dim 128 of an arch, and a table of one instance of it."""
    chosen = f"  if (arch == Gfx::{arch} && head_dim == 128) return {config};\n"
    toolchain = changed("device/call/tiles.hpp", CONFIG, CONFIG + chosen)
    return toolchain, table_of(toolchain, ("fwd", "fp16", 128))


def test_a_kernel_that_spills_is_refused(changed):
    config = "{.waves = 8, .keys = 32, .waves_per_simd = 8, .query_steps = 8}"
    toolchain, table = with_config(changed, "gfx1100", config)
    words = toolchain.fails(toolchain.build, "gfx1100", *table)
    assert "fa_fwd_fp16_d128 for gfx1100 may not spill, but has vgpr_spill_count = " in words
    assert "lower its tile or waves_per_simd in kernels/tables/tiles.toml" in words
    assert not list((toolchain.scratch / "device/gfx1100").glob("*.hsaco"))


def test_a_kernel_that_misses_its_occupancy_is_refused(changed):
    config = "{.waves = 4, .keys = 64, .waves_per_simd = 4, .query_steps = 8}"
    toolchain, table = with_config(changed, "gfx942", config)
    words = toolchain.fails(toolchain.build, "gfx942", *table)
    assert "fa_fwd_fp16_d128 for gfx942 does not compile:" in words
    assert "desired occupancy was 4" in words


def row_of(op, arch, loop="plain"):
    """The line of the generated table of tiles for today's compiler and fp16."""
    begin = rf"FA_TILE\({known_archs()[arch].isa.name}, (fp16|any_dtype), 64, ({loop}|any_loop), "
    lines = (CHECKOUT / "kernels" / TILES.format(op, 64)).read_text().splitlines()
    return next(line for line in reversed(lines) if re.match(begin, line))


def before(row, loop, old, new):
    """The row, and before it a changed one for fp16 and a loop, which is used instead."""
    assert old in row
    own = re.sub(r"\w+, 64, \w+", f"fp16, 64, {loop}", row, count=1)
    return f"{own.replace(old, new)}\n{row}"


def words_without(changed, op, arch, row, other):
    """The build's output after a row of the table of tiles is replaced."""
    toolchain = changed(TILES.format(op, 64), row, other)
    return toolchain.fails(toolchain.build, arch, *table_of(toolchain, (op, "fp16", 64)))


@pytest.mark.parametrize("loop", ["plain", "featured"])
@pytest.mark.parametrize(
    ("op", "arch"),
    [
        ("fwd", "gfx1100"), ("decode", "gfx1030"), ("bwd_dkdv", "gfx908"), ("bwd_fused", "gfx1100"),
        ("bwd_dq", "gfx1030"),
    ],
)  # fmt: skip
def test_a_kernel_without_a_tile_says_which_row_is_missing(changed, op, arch, loop):
    row = row_of(op, arch, loop=loop)
    words = words_without(changed, op, arch, row, row.replace(" 64,", " 65,", 1))
    assert f"fa_{op}_fp16_d64 for {arch} does not compile:" in words
    place = "kernels/tables/tiles.toml"
    assert f"{place}: [{op}] has no row for this ISA, head dim, dtype and loop" in words


WAVES, PAIRS = "both loops need the same waves", "both loops need the same pairs"
FP32, EARLY = "ping_pong needs fp32 matrix instructions", "bwd_fused needs ping_pong or early_rows"
COLUMN = "bit_masks and by_element need a matrix step with one column a lane"
READ_AHEAD = "column_blocks needs early_rows, prefetch, and one piece of a tile for a thread at most"
IN_REGISTERS = "column_blocks needs operands that stay in registers"


@pytest.mark.parametrize(
    ("op", "arch", "old", "new", "words"),
    [
        ("fwd", "gfx1100", ".waves = 8", ".waves = 4", WAVES),
        ("bwd_dq", "gfx1030", ".waves = 8", ".waves = 4", WAVES),
        ("bwd_dkdv", "gfx942", ".pairs = 4", ".pairs = 2", PAIRS),
        ("bwd_dkdv", "gfx1100", ".early_rows", ".ping_pong", FP32),
        ("bwd_fused", "gfx1100", "early_rows = true", "early_rows = false", EARLY),
        ("bwd_dkdv", "gfx1030", ".early_rows = true", ".early_rows = true, .bit_masks = true", COLUMN),
        ("bwd_dkdv", "gfx1030", ".early_rows = true", ".early_rows = true, .by_element = true", COLUMN),
        ("bwd_dkdv", "gfx1201", ".early_rows = true", ".early_rows = false", READ_AHEAD),
        ("bwd_dkdv", "gfx1201", ".own_steps = 4", ".own_steps = 2", IN_REGISTERS),
        ("bwd_dkdv", "gfx1100", ".own_steps", ".column_blocks = 2, .own_steps", IN_REGISTERS),
    ],
)
def test_a_row_that_the_kernel_cannot_serve_says_why(changed, op, arch, old, new, words):
    row = row_of(op, arch, loop="featured")
    found = words_without(changed, op, arch, row, before(row, "featured", old, new))
    assert f"tiles.toml: {words}" in found


@pytest.mark.parametrize(
    ("arch", "old", "new"),
    [
        ("gfx942", ".early_mask = true", ".early_mask = false"),
        ("gfx1030", ".early_rows = true", ".early_rows = true, .early_mask = true"),
    ],
)
def test_a_masked_row_has_both_of_two_switches_or_none(changed, arch, old, new):
    row = row_of("bwd_dkdv_masked", arch)
    words = words_without(changed, "bwd_dkdv_masked", arch, row, before(row, "plain", old, new))
    assert "tiles.toml: with a mask, ping_pong and early_mask need each other" in words


@pytest.mark.parametrize("op", ["fwd", "bwd_dkdv", "bwd_dq"])
def test_columns_that_are_not_the_matrix_units_are_refused(changed, op):
    toolchain = changed("generated/device/archs.inc", ".step_columns = 16", ".step_columns = 32")
    words = toolchain.fails(toolchain.build, "gfx1100", *table_of(toolchain, (op, "fp16", 64)))
    assert "tables/isas.toml has another number of columns" in words


def test_a_head_dim_that_is_no_whole_matrix_steps_is_refused(changed):
    row = row_of("fwd", "gfx942").replace(" 64,", " 80,", 1)
    others = "#ifdef FA_SEES_rdna3\n"  # this head dim has rows of RDNA only
    toolchain = changed(TILES.format("fwd", 80), others, f"{row}\n{others}")
    words = toolchain.fails(toolchain.build, "gfx942", *table_of(toolchain, ("fwd", "fp16", 80)))
    assert "head dims are whole matrix steps" in words


def test_a_compile_error_names_instance_and_arch_and_shows_the_compilers_words(changed):
    toolchain = changed("device/forward/parts/epilogue.hpp", "softmax.join_sums(", "softmax.join_sumz(")
    table = table_of(toolchain, ("fwd", "fp16", 64), ("decode", "bf16", 128))
    words = toolchain.fails(toolchain.build, "gfx1100", *table)
    for name in ("fa_fwd_fp16_d64", "fa_decode_bf16_d128"):
        assert f"{name} for gfx1100 does not compile:" in words
    assert "no member named 'join_sumz'" in words


# At most two share a header: too few to precompile it (KERNELS_OF_A_HEADER in build.py).
FROM_TEXT = ("fwd", "decode", "bwd_dkdv", "bwd_dkdv_masked", "bwd_dq", "bwd_dq_masked")


@pytest.mark.parametrize(("arch", "dtype"), [("gfx1100", "fp16"), ("gfx942", "bf16")])
def test_the_same_sources_give_the_same_bytes(device, toolchain, arch, dtype):
    """Compiled in another folder, alone and among others, and without precompiled headers.

    tests/release repeats this for whole archs.
    """
    table = table_of(toolchain, *((op, dtype, 64) for op in FROM_TEXT))
    again = toolchain.build(arch, *table, "--jobs", "1", out="elsewhere/and/deeper")
    built = sorted(again.glob("*.hsaco"))
    assert len(built) == len(FROM_TEXT)
    for second in built:
        first = device / "device" / arch / second.name
        assert hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()
