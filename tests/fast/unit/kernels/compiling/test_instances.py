"""The support table and the files generated from it."""

import importlib
import sys
from pathlib import Path

import pytest

from wheel_builder.tables.archs import known_archs
from wheel_builder.tables.kinds import known_kinds

INSTANCES = Path(__file__).parents[5] / "kernels/build/instances"
GOOD_ROW = '[[kernels]]\nop = "fwd"\ndtypes = ["fp16"]\nhead_dims = [64]\n'


@pytest.fixture
def modules(monkeypatch):
    """The instance scripts, imported as they import each other and removed from sys.modules afterwards."""
    monkeypatch.syspath_prepend(str(INSTANCES))
    names = ("generate", "build", "bundle")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    loaded = {name: importlib.import_module(name) for name in names}
    yield loaded
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def generate(modules):
    return modules["generate"]


@pytest.fixture
def problems(generate, tmp_path):
    """Loads a wrong table and returns the message about it."""

    def load(text):
        path = tmp_path / "table.toml"
        path.write_text(text)
        with pytest.raises(generate.TableError) as caught:
            generate.load_table(path)
        assert str(caught.value).startswith("table.toml ")
        return caught.value.problems

    return load


def test_the_table_of_the_project_is_right(generate):
    instances = generate.load_table()
    made = [
        ((op, dtype, head_dim), row.needs)
        for op, kind in known_kinds().items()
        for row in kind.kernels
        for dtype in row.dtypes
        for head_dim in row.head_dims or (generate.ANY_HEAD_DIM,)
    ]
    assert [(i.op, i.dtype, i.head_dim) for i in instances] == [name for name, _ in made]
    with_atomics = {i for i in instances if i.op in {"bwd_fused", "bwd_convert"}}
    assert not any("gfx1030" in i.archs for i in with_atomics)
    tall = {i for i in instances if i.op == "fwd_tall"}
    assert {(i.head_dim, i.archs) for i in tall} == {
        (64, ("gfx942", "gfx1151")),
        (128, ("gfx942", "gfx1151", "gfx1201")),
    }
    assert {i.archs for i in instances if i.head_dim == 80} == {("gfx1100", "gfx1102", "gfx1151", "gfx1201")}
    uneven = {i for i in instances if i.op == "fwd_uneven"}
    of_gradients = {i for i in instances if i.op in {"bwd_dkdv_uneven", "bwd_dq_uneven"}}
    latent = {i for i in instances if i.op == "mla"}
    assert {i.archs for i in of_gradients} == {("gfx90a", "gfx942", "gfx950", "gfx1100")}
    without = {
        "gfx906",
        "gfx908",
        "gfx1010",
        "gfx1012",
        "gfx1030",
    }  # their GPUs lack memory for such models, or matrix instructions
    assert {i.archs for i in uneven | latent} == {
        tuple(a for a in generate.known().archs if a not in without)
    }
    features = {name: arch.features for name, arch in known_archs().items()}
    assert [i.archs for i in instances] == [
        tuple(arch for arch in generate.known().archs if {*needs} <= {*features[arch]}) for _, needs in made
    ]


@pytest.fixture
def spread(generate, monkeypatch):
    """An op whose kernels take any head dim."""
    op = generate.Op("spread.hpp", "FA_SPREAD", "forward/forward.hpp", tile="")
    monkeypatch.setitem(generate.OPS, "spread", op)


ANY_ROW = '[[kernels]]\nop = "spread"\ndtypes = ["bf16"]\nneeds = ["atomic_fadd_f32"]\n'


def test_kernels_for_any_head_dim_are_one_per_dtype(generate, spread, tmp_path):
    path = tmp_path / "table.toml"
    path.write_text(ANY_ROW)
    (instance,) = generate.load_table(path)
    assert (instance.name, instance.head_dim) == ("fa_spread_bf16", generate.ANY_HEAD_DIM)
    assert generate.source(instance).endswith("\n\nFA_SPREAD(fa_spread_bf16, fa::DType::bf16)\n")
    assert 'FA_INSTANCE(spread, bf16, 0, fa_spread_bf16, "gfx942")' in generate.registry_inc(
        [instance], ["gfx942", "gfx1030"], 22
    )


def test_kernels_for_any_head_dim_have_no_list_of_them(problems, spread):
    assert problems(ANY_ROW + "head_dims = [64]\n") == (
        "row 1: head_dims: kernels of 'spread' take any head dim",
    )


def test_the_known_names(generate):
    names = generate.known()
    assert names.archs == tuple(known_archs())
    assert names.dtypes == ("fp16", "bf16")
    assert names.ops == tuple(known_kinds())


def test_a_row_is_for_the_archs_that_have_what_it_needs(generate):
    assert generate.known().with_all([]) == tuple(known_archs())
    with_atomics = [arch.name for arch in known_archs().values() if "atomic_fadd_f32" in arch.features]
    assert generate.known().with_all(["atomic_fadd_f32"]) == tuple(with_atomics)
    assert set(with_atomics) < set(known_archs())


def test_all_problems_are_reported_at_once_with_their_row(problems):
    found = problems(
        "version = 1\n"
        '[[kernels]]\nop = "fwdd"\ndtypes = ["fp16", "fp32"]\nhead_dims = [64, 0, true, 64]\n'
        'archs = ["gfx942"]\n'
        '[[kernels]]\nop = "fwd"\ndtypes = []\nhead_dims = 64\n'
        'needs = ["atomic_add", "atomic_fadd_f32", "atomic_fadd_f32"]\n'
    )
    assert found == (
        "unknown key 'version'",
        "row 1: unknown key 'archs'",
        (f"row 1: unknown op 'fwdd' (did you mean fwd?); known: {', '.join(known_kinds())}"),
        "row 1: unknown dtype 'fp32'; known: fp16, bf16",
        "row 1: head dim 0 is not a positive whole number",
        "row 1: head dim True is not a positive whole number",
        "row 1: head dim 64 stands there twice",
        "row 2: dtypes must be a list with at least one dtype",
        (
            "row 2: unknown feature 'atomic_add' (did you mean atomic_fadd_f32?); known: atomic_fadd_f32, "
            "coded_bf16, fp8_d128, fp8_d64, int8_bf16, int8_d64, int8_fp16, large_bwd, large_head_dims, "
            "latent_codes, latent_d576, latent_rows, steps_of_16, tall_d128, tall_d64, trains, "
            "uneven_bwd_d192, uneven_d192"
        ),
        "row 2: feature atomic_fadd_f32 stands there twice",
        "row 2: head_dims must be a list with at least one head dim",
    )


def test_an_instance_in_two_rows_is_refused(problems):
    assert problems(GOOD_ROW + GOOD_ROW) == ("fa_fwd_fp16_d64 comes from more than one row",)


@pytest.mark.parametrize("text", ["", "kernels = 3\n", "kernels = []\n"])
def test_a_table_without_rows_is_refused(problems, text):
    assert problems(text) == ("no [[kernels]] row: at least one is needed",)


def test_a_row_that_is_no_table_is_refused(problems):
    assert problems('kernels = ["fwd"]\n') == ("row 1: [[kernels]] expected, a table",)


def test_a_table_that_is_not_toml_or_not_there_is_named(generate, problems, tmp_path):
    assert problems("[[kernels]]\nop = fwd\n") == ("Invalid value (at line 2, column 6)",)
    with pytest.raises(generate.TableError, match=r"absent\.toml cannot be read\n  - .*No such file"):
        generate.load_table(tmp_path / "absent.toml")


def test_an_unknown_arch_is_an_error_in_words(generate):
    with pytest.raises(generate.TableError) as caught:
        generate.check_arch("gfx99999")
    assert "there are no kernels for 'gfx99999'" in str(caught.value)
    assert f"known: {', '.join(known_archs())}" in str(caught.value)
    assert "CONTRIBUTING.md" in str(caught.value)
    generate.check_arch("gfx942")


def test_one_translation_unit_per_instance(generate, tmp_path):
    paths = generate.write_sources(generate.load_table(), tmp_path / "new")
    assert sorted(p.name for p in paths) == sorted(f"{i.name}.hip" for i in generate.load_table())
    text = (tmp_path / "new/fa_fwd_bf16_d128.hip").read_text()
    assert text == (
        '#include "device/forward/forward.hpp"\n'
        '#define FA_TILES_forward "generated/device/tiles/fwd/d128.inc"\n'
        '#include "device/call/tiles.hpp"\n\nFA_FORWARD(fa_fwd_bf16_d128, fa::DType::bf16, 128)\n'
    )
    text = (tmp_path / "new/fa_decode_bf16_d128.hip").read_text()
    assert text.endswith(
        '"generated/device/tiles/decode/d128.inc"\n#include "device/call/tiles.hpp"\n\n'
        "FA_DECODE(fa_decode_bf16_d128, fa::DType::bf16, 128)\n"
    )
    text = (tmp_path / "new/fa_combine_bf16.hip").read_text()
    assert text == '#include "device/cache/combine.hpp"\n\nFA_COMBINE(fa_combine_bf16, fa::DType::bf16)\n'


def test_the_registry_has_a_row_per_instance_with_the_archs_of_the_build(generate):
    instances = (
        generate.Instance("fwd", "fp16", 64, ("gfx942", "gfx1100")),
        generate.Instance("fwd", "bf16", 64, ("gfx1030",)),
    )
    rows = generate.registry_inc(instances, ["gfx908", "gfx942", "gfx1100"], 22).splitlines()[1:]
    assert rows == [
        'FA_INSTANCE(fwd, fp16, 64, fa_fwd_fp16_d64, "gfx942,gfx1100")',
        "// FA_CLANG(major version of the compiler of device code)",
        "FA_CLANG(22)",
        "// FA_ARCH(arch with device code in this build)",
        "FA_ARCH(gfx942)",
        "FA_ARCH(gfx1100)",
    ]
    assert generate.served(instances, ["gfx1030"])[0].archs == ("gfx1030",)


def test_each_bundle_is_at_4096_and_a_hidden_function_returns_it(generate):
    text = generate.fatbin_s(["gfx942"])
    lines = text.splitlines()
    assert lines[lines.index("#else") + 1 : lines.index("#endif")] == [
        '#define FATBIN .section .hip_fatbin, "a", @progbits',
        '#define FUNCTIONS .section .fa_bundles, "ax", @progbits',
        "#define HIDDEN_FUNCTION(name) .hidden name; .type name, @function",
        '#define END .section .note.GNU-stack, "", @progbits',
    ]
    code = lines[lines.index("#endif") + 1 :]
    assert code[:3] == [
        "FATBIN",
        ".p2align 12",
        ".Lbundle_gfx942:",
    ]
    assert '.incbin "gfx942.hipfb"' in lines
    functions = code[code.index("FUNCTIONS") :]
    assert functions[1:5] == [
        ".p2align 4, 0xcc",
        ".globl fa_bundle_gfx942",
        "HIDDEN_FUNCTION(fa_bundle_gfx942)",
        "fa_bundle_gfx942:",
    ]
    assert code[-1] == "END"


def test_a_dll_has_sections_of_eight_characters(generate):
    lines = generate.fatbin_s(["gfx942"]).splitlines()
    windows = lines[lines.index("#ifdef _WIN32") + 1 : lines.index("#else")]
    assert windows[:2] == [
        '#define FATBIN .section .hip_fat, "dr"',
        '#define FUNCTIONS .section .fa_bund, "xr"',
    ]


READELF = """
    amdhsa.kernels:
  - .agpr_count:     48
    .args:
      - .offset:         0
        .size:           168
        .value_kind:     by_value
    .group_segment_fixed_size: 8192
    .kernarg_segment_align: 8
    .kernarg_segment_size: 168
    .private_segment_fixed_size: 24
    .sgpr_count:     78
    .sgpr_spill_count: 1
    .symbol:         fa_fwd_fp16_d64.kd
    .vgpr_count:     82
    .vgpr_spill_count: 6
    .wavefront_size: 64
   Num:    Value          Size Type    Bind   Vis       Ndx Name
     1: 0000000000001600  5644 FUNC    GLOBAL PROTECTED   7 fa_fwd_fp16_d64
     2: 0000000000000700    64 OBJECT  GLOBAL PROTECTED   6 fa_fwd_fp16_d64.kd
"""


def test_spills_and_size_are_read_from_the_notes(modules):
    found = modules["build"].spills(READELF)
    assert found == {"vgpr_spill_count": 6, "sgpr_spill_count": 1, "private_segment_fixed_size": 24}
    assert modules["build"].code_bytes("fa_fwd_fp16_d64", READELF) == 5644


def test_a_code_object_without_its_function_is_an_error(modules):
    with pytest.raises(modules["build"].BuildError, match="fa_fwd_fp16_d128: no function of that name"):
        modules["build"].code_bytes("fa_fwd_fp16_d128", READELF)


def test_the_compiler_is_asked_for_reproducible_code(modules, tmp_path):
    command = modules["build"].compile_command(
        Path("/llvm"), "gfx942", tmp_path / "a.hip", tmp_path / "a.hsaco"
    )
    assert command[0] == "/llvm/clang++"
    assert {"--offload-arch=gfx942", "-fuse-cuid=none", f"-ffile-prefix-map={tmp_path}=."} <= set(command)


# Notes every call and writes its command line as output. "refused" stands for a header with an error.
COMPILER = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *-emit-pch*{refused}*) echo "{refused}: error: no such tile" >&2; exit 1 ;; esac
for out; do :; done
echo "$*" > "$out"
"""
READER = """#!/bin/sh
for file; do :; done
name=$(basename "$file" .hsaco)
sed "s/fa_fwd_fp16_d64/$name/; s/spill_count: .*/spill_count: 0/; s/_size: 24/_size: 0/" {readelf}
"""


@pytest.fixture
def compiled(modules, tmp_path):
    """Builds (op, number of kernels) with a stand-in for the compiler.

    Returns command lines by output file.
    """

    def build(*ops, refused="nothing"):
        rows = [
            f'[[kernels]]\nop = "{op}"\ndtypes = ["fp16"]\nhead_dims = {HEAD_DIMS[:n]}\n' for op, n in ops
        ]
        (tmp_path / "table.toml").write_text("".join(rows))
        (tmp_path / "readelf").write_text(READELF)
        log = tmp_path / "log"
        for name, text in ("clang++", COMPILER), ("llvm-readelf", READER):
            (tmp_path / name).write_text(text.format(log=log, refused=refused, readelf=tmp_path / "readelf"))
            (tmp_path / name).chmod(0o755)
        how = modules["build"].How(jobs=1, mib=4096)
        modules["build"].build(
            "gfx942", tmp_path / "out", llvm=tmp_path, table=tmp_path / "table.toml", how=how
        )
        return {Path(line.rpartition(" ")[2]).name: line for line in log.read_text().splitlines()}

    return build


HEAD_DIMS = [32, 64, 96, 128]


def test_a_header_of_enough_kernels_is_compiled_once(compiled, tmp_path):
    lines = compiled(("fwd", 2), ("decode", 1), ("fwd_wide", 1), ("bwd_dq", 2))
    precompiled = tmp_path / "out/.sources/forward.pch"
    [made] = [name for name, line in lines.items() if "-emit-pch" in line]
    assert made == precompiled.name
    assert next(iter(lines)) == made
    given = f"-Xclang -include-pch -Xclang {precompiled}"
    for kernel in ("fwd_fp16_d32", "fwd_fp16_d64", "decode_fp16_d32", "fwd_wide_fp16_d32"):
        assert given in lines[f"fa_{kernel}.hsaco"]
    for kernel in ("bwd_dq_fp16_d32", "bwd_dq_fp16_d64"):
        assert "-include-pch" not in lines[f"fa_{kernel}.hsaco"]


def test_a_header_that_cannot_be_precompiled_is_read_as_text(compiled, capsys):
    """Compiling the kernels reports the error, if they have it."""
    lines = compiled(("fwd", 3), ("bwd_dq", 3), refused="forward")
    assert "-include-pch" not in lines["fa_fwd_fp16_d32.hsaco"]
    assert "-include-pch" in lines["fa_bwd_dq_fp16_d32.hsaco"]
    said = capsys.readouterr().out
    assert "forward.hpp for gfx942 is not precompiled:\n  | forward: error: no such tile\n" in said


def test_every_operation_shares_a_header_that_enough_kernels_have(generate):
    for arch in generate.known().archs:
        shared = [generate.OPS[i.op].shared for i in generate.load_table() if arch in i.archs]
        assert all(shared.count(header) > 10 for header in shared)


@pytest.mark.parametrize("clang", ["21", "22"])
def test_the_registry_has_the_compiler_of_the_code(modules, tmp_path, clang):
    (tmp_path / "table.toml").write_text(GOOD_ROW)
    file = tmp_path / "device/gfx942/fa_fwd_fp16_d64.hsaco"
    file.parent.mkdir(parents=True)
    file.write_bytes(f"\x7fELF\0Debian clang version {clang}.1.8 (3)\0".encode())
    modules["bundle"].bundle(tmp_path / "device", tmp_path / "out", table=tmp_path / "table.toml")
    assert f"\nFA_CLANG({clang})\n" in (tmp_path / "out/registry.inc").read_text()


def test_code_of_an_unknown_compiler_or_of_two_is_an_error(bundling):
    names = [f"{arch}/fa_fwd_fp16_d64.hsaco" for arch in ("gfx942", "gfx1100")]
    words = "expected the code of one version of clang: compile it with build.py"
    said = bundling(names[0])
    assert words in said
    assert "gfx942/fa_fwd_fp16_d64.hsaco: clang unknown" in said
    said = bundling(*names, data={name: f"clang version {n}.1".encode() for n, name in enumerate(names, 21)})
    assert words in said
    assert "gfx1100/fa_fwd_fp16_d64.hsaco: clang 22" in said


@pytest.fixture
def bundling(modules, tmp_path):
    """A table with one instance for two archs, and the error raised by bundling a folder."""
    (tmp_path / "table.toml").write_text(GOOD_ROW)

    def error(*code_objects, data=None):
        for path in code_objects:
            (tmp_path / "device" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "device" / path).write_bytes((data or {}).get(path, b""))
        (tmp_path / "device").mkdir(exist_ok=True)
        bundle = modules["bundle"]
        with pytest.raises((bundle.BuildError, bundle.TableError)) as caught:
            bundle.bundle(
                tmp_path / "device",
                tmp_path / "out",
                table=tmp_path / "table.toml",
            )
        assert not (tmp_path / "out" / "registry.inc").exists()
        return str(caught.value)

    return error


def test_bundling_says_which_code_objects_are_missing_or_foreign(bundling):
    text = bundling("gfx942/fa_fwd_bf16_d64.hsaco", "gfx1100/fa_fwd_fp16_d64.hsaco")
    assert "is not what table.toml says" in text
    assert "gfx942/fa_fwd_fp16_d64.hsaco is missing: run build.py --arch gfx942" in text
    assert "gfx942/fa_fwd_bf16_d64.hsaco is not in the table: remove it" in text


def test_bundling_nothing_or_a_foreign_arch_is_an_error(bundling):
    assert "no subfolder holds code for an arch of the table" in bundling()
    assert "there are no kernels for 'gfx99999'" in bundling("gfx99999/fa_fwd_fp16_d64.hsaco")
