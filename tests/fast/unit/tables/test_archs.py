"""The tables of archs: as read by Python, and the code generated for C++."""

import json
import re
import tomllib
from dataclasses import replace

import pytest

from wheel_builder.base.errors import ArchError
from wheel_builder.machine_code.static_checks.hazards import RULES
from wheel_builder.tables.archs import (
    CHECKOUT,
    GPUS,
    ISAS,
    TRAITS,
    Arch,
    Gpu,
    arch_named,
    archs_of,
    code_of,
    cpp_table,
    kernels_archs,
    known_archs,
    known_gpus,
    parse_gpus,
    served_by,
)

ISA_TEXT, GPU_TEXT = (CHECKOUT / ISAS).read_text(), (CHECKOUT / GPUS).read_text()
# A GPU that runs another one's machine code: one table and nothing else.
IMAGINARY = """
[gfx9420]
devices = "Radeon RX 6123"
code_object = "gfx1030"
elf_machine = 0x7f
compute_units = 12
"""

GCN = """
[gfx9]
devices = "Radeon RX 123"
isa = "gcn"
code_object = "gfx9"
elf_machine = 0x7f
device_name = "gfx9"
compute_units = 12
die_units = 0
vgprs = 1024
vgpr_granule = 16
lds_bytes = 65536
lds_granule = 512
model.name = "RX 123"
model.clock = 1e9
model.memory = 1e11
model.l2 = 1e12
model.instruction_cache = 32768
model.l2_bytes = 4194304
model.last_cache = 0
"""


def problems(isas=ISA_TEXT, gpus=GPU_TEXT):
    with pytest.raises(ArchError) as caught:
        parse_gpus(isas, gpus)
    assert str(caught.value).startswith("the tables of archs cannot be read\n")
    assert "the head of each file" in caught.value.advice
    return caught.value.problems


def test_the_tables_are_read_with_their_types():
    arch = arch_named("gfx942")
    assert (arch.name, arch.elf_machine, arch.device_name) == ("gfx942", 0x4C, "gfx942:sramecc+:xnack-")
    assert (arch.isa.family, arch.isa.unit, arch.isa.bf16_k, arch.isa.wave) == ("cdna", "mfma", 8, 64)
    assert (arch.isa.packed_fp32, arch.isa.separate_acc_vgprs) == (True, False)
    assert (arch.isa.transposed_reads, arch_named("gfx950").isa.transposed_reads) == (False, True)
    assert (arch.isa.direct_loads, arch_named("gfx950").isa.direct_loads) == (False, True)
    assert (arch.isa.bf16_pairs, arch_named("gfx950").isa.bf16_pairs) == (False, True)
    assert (arch.isa.matrix_interlock, arch_named("gfx1100").isa.matrix_interlock) == (False, True)
    assert (arch.isa.bf16_products, arch_named("gfx1030").isa.bf16_products) == (True, False)
    assert (arch.isa.packed_dots, arch_named("gfx1010").isa.packed_dots) == (True, False)
    assert (arch_named("gfx1010").isa.peak_flop, arch_named("gfx1012").isa.peak_flop) == (128, 256)
    assert (arch.isa.lds_counter, arch_named("gfx1201").isa.lds_counter) == (False, True)
    assert (arch.isa.short_code, arch_named("gfx1201").isa.short_code) == (False, True)
    assert (arch.isa.counters.depth, arch.isa.lds.phases) == ((63, 15, 63, 15), ("measured",))
    assert (arch.isa.matrix_clocks["32x32x8"], arch.model.name) == (32, "MI300X")
    assert arch_named("gfx1100").device_name == "gfx1100"


def test_a_step_of_gfx950_is_one_instruction_of_as_many_clocks():
    old, new = (arch_named(name).isa for name in ("gfx942", "gfx950"))
    assert (old.fp16_k, old.bf16_k, old.step_clocks) == (8, 8, 32)
    assert (new.fp16_k, new.bf16_k, new.step_clocks) == (16, 16, 32)
    assert (arch_named("gfx908").isa.step_clocks, arch_named("gfx90a").isa.step_clocks) == (64, 64)


def test_the_generated_rows_have_the_fields_of_the_header():
    header = (CHECKOUT / "kernels/device/arch/traits.hpp").read_text()
    struct = re.sub(r"//.*", "", header[header.index("struct ArchTraits {") :].split("};")[0])
    assert re.findall(r"^\s+[\w ]+\*? (\w+);", struct, re.MULTILINE) == list(TRAITS)


def test_every_hazard_set_has_its_rules():
    named = (row.get("hazards", {}).get("rules") for row in tomllib.loads(ISA_TEXT).values())
    assert set(named) - {None} == set(RULES)


def test_an_isa_says_only_what_differs_from_another():
    found = parse_gpus(f'{ISA_TEXT}[gcn]\nlike = "cdna3"\nbf16_k = 4\ntiming = {{ lds = 69 }}\n', GCN)[
        "gfx9"
    ].isa
    like = arch_named("gfx942").isa
    assert found == replace(like, name="gcn", bf16_k=4, timing=replace(like.timing, lds=69))


def test_an_isa_may_not_be_like_one_that_is_like_another():
    chained = '[gcn]\nlike = "cdna1"\n[older]\nlike = "gcn"\n'
    whole = (name for name, isa in tomllib.loads(ISA_TEXT).items() if "like" not in isa)
    words = f"isas.toml: older is like 'gcn', expected one of {', '.join(whole)}"
    assert problems(isas=ISA_TEXT + chained)[0] == words


def test_a_gpu_that_runs_the_code_of_another_is_one_table():
    found = parse_gpus(ISA_TEXT, GPU_TEXT + IMAGINARY)
    assert found["gfx9420"] == Gpu("gfx9420", "gfx1030", 0x7F, 12, "gfx9420")
    before, after = cpp_table(known_gpus()).splitlines(), cpp_table(found).splitlines()
    seen, row = (line for line in after if line not in before)
    assert seen.endswith(" || defined(__gfx9420__)")
    assert row == 'FA_GPU("gfx9420", gfx1030, 0x7f, 12)'


def test_archs_are_the_gpus_with_code_of_their_own():
    assert all(gpu.code_object == name for name, gpu in known_archs().items())
    assert [code_of(gpu) for gpu in ("gfx1031", "gfx1030", "gfx90c")] == ["gfx1030", "gfx1030", "gfx90c"]
    assert served_by("gfx1030")[:2] == ("gfx1030", "gfx1031")
    assert {name for arch in known_archs() for name in served_by(arch)} == set(known_gpus())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("wave = 64\n", "", "isas.toml: cdna1: no wave"),
        ("wave = 64", "waves = 64", "isas.toml: cdna1: not a field: waves"),
        ("wave = 64", "wave = true", "isas.toml: cdna1: wave is True, expected int"),
        ("packed_fp32 = false", "packed_fp32 = 0", "isas.toml: cdna1: packed_fp32 is 0, expected bool"),
        ('family = "cdna"', 'family = "gcn"', "cdna1: family is 'gcn', expected one of cdna, rdna"),
        ('phases = ["measured", "contiguous"]', 'phases = ["any"]', "lds: phases is 'any', expected one of"),
        ("depth = [63, 15, 63, 15]", "depth = [63, 15]", "counters: depth is [63, 15], expected tuple[int, "),
        ('"4x4" = 8', '"4x4" = 8.5', "isas.toml: cdna1: matrix_clocks.4x4 is 8.5, expected int"),
        ("[cdna1.timing]", "[cdna1.times]", "isas.toml: cdna1: no timing"),
        ("[cdna3]", "[cdna1]", "isas.toml: Cannot declare ('cdna1',) twice"),
        ("[cdna1]\n", '[gcn]\nlike = "cdna9"\n[cdna1]\n', "gcn is like 'cdna9', expected one of cdna1, "),
        ("[cdna1]\n", "[gcn]\nlike = [1]\n[cdna1]\n", "isas.toml: gcn is like [1], expected one of cdna1, "),
        ("[cdna0]\n", "answer = 42\n[cdna0]\n", "isas.toml: answer is not a table"),
    ],
)  # fmt: skip
def test_a_wrong_isa_is_an_error(old, new, words):
    assert old in ISA_TEXT
    assert any(words in problem for problem in problems(isas=ISA_TEXT.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("elf_machine = 0x30\n", "", "gpus.toml: gfx908: no elf_machine"),
        ("elf_machine = 0x30", "elf_machine = 0x4c", "gpus.toml: gfx942 and gfx908 have one elf_machine"),
        (
            'isa = "cdna1"',
            'isa = "cdna9"',
            f"gpus.toml: gfx908: isa is 'cdna9', expected one of {', '.join(tomllib.loads(ISA_TEXT))}",
        ),
        ('name = "MI100"', "name = 100", "gpus.toml: gfx908.model: name is 100, expected str"),
        ("clock = 1.502e9", 'clock = "fast"', "gpus.toml: gfx908.model: clock is 'fast', expected float"),
        (
            'code_object = "gfx942"',
            'code_object = "gfx908"',
            "gpus.toml: gfx942: not a field: isa",
        ),
        ("elf_machine = 0x37\n", "", "gpus.toml: gfx1031: no elf_machine"),
        (
            "[gfx1031]",
            "[gfx9]",
            "gpus.toml: gfx9 runs the code of gfx1030, a name of another length",
        ),
        (
            'code_object = "gfx908"',
            'code_object = "gfx906"',
            "gpus.toml: gfx908: not a field: isa",
        ),
        (
            'code_object = "gfx1030"\nelf_machine = 0x37',
            'code_object = "gfx1032"\nelf_machine = 0x37',
            "gpus.toml: gfx1031: code_object is 'gfx1032', expected an arch with code of its own",
        ),
        (
            "[gfx900]",
            "[gfx900]\nchip = 1",
            f"gpus.toml: gfx900: isa is None, expected one of {', '.join(tomllib.loads(ISA_TEXT))}",
        ),
        (GPU_TEXT, "# nothing\n", "there is no arch"),
    ],
)
def test_a_wrong_gpu_is_an_error(old, new, words):
    assert old in GPU_TEXT
    assert any(problem.startswith(words) for problem in problems(gpus=GPU_TEXT.replace(old, new, 1)))


def test_a_gpu_may_not_borrow_code_that_is_borrowed():
    chained = IMAGINARY.replace("gfx9420", "gfx9421").replace("RX 6123", "RX 6124")
    chained = chained.replace('"gfx1030"', '"gfx9420"').replace("0x7f", "0x7e")
    assert problems(gpus=GPU_TEXT + IMAGINARY + chained) == (
        "gpus.toml: gfx9421: code_object is 'gfx9420', expected an arch with code of its own",
    )


def test_all_problems_are_reported_at_once():
    isas = ISA_TEXT.replace('unit = "dot2"', 'units = "dot2"')
    found = problems(isas=isas, gpus=GPU_TEXT.replace("elf_machine = 0x36\n", ""))
    assert found == (
        "isas.toml: rdna2: no unit",
        "isas.toml: rdna2: not a field: units",
        "isas.toml: rdna1: no unit",
        "isas.toml: rdna1: not a field: units",
        "isas.toml: rdna1_0: no unit",
        "isas.toml: rdna1_0: not a field: units",
        "gpus.toml: gfx1030: no elf_machine",
    )


def test_gpus_may_be_without_what_their_isa_has():
    """gfx1102 has gfx1100's ISA, but with 8 GB it lacks the kernels for training DeepSeek."""
    more, fewer = arch_named("gfx1100"), arch_named("gfx1102")
    assert more.features == more.isa.features == fewer.isa.features
    assert {*more.features} - {*fewer.features} == {"uneven_bwd_d192"}
    assert json.loads(kernels_archs(known_archs()))["gfx1102"] == [*fewer.features]
    isas = ISA_TEXT.replace('"uneven_d192", "uneven_bwd_d192"', '"uneven_d192"')
    assert problems(isas=isas) == ("gpus.toml: gfx1102 is without uneven_bwd_d192, which rdna3 has not",)
    [unknown] = problems(gpus=GPU_TEXT.replace('without = ["uneven_bwd_d192"]', 'without = ["more"]'))
    assert unknown.startswith("gpus.toml: gfx1102: without is 'more', expected one of trains, ")


def test_a_target_for_several_gpus_is_a_word_in_cpp():
    """clang's macros have underscores where the names of its generic targets have hyphens."""
    own = GCN.replace('"gfx9"', '"gfx10-3-generic"').replace("[gfx9]", "[gfx10-3-generic]")
    text = own.replace('"gcn"', '"rdna2"').replace('devices = "Radeon RX 123"\n', "")
    found = parse_gpus(ISA_TEXT, GPU_TEXT + text)
    assert "FA_ARCH(gfx10_3_generic,\n" in cpp_table(found)
    assert 'FA_NAME(gfx10_3_generic, "gfx10-3-generic")\n' in cpp_table(found)
    for name in ("gfx10-3-generic", "gfx10_3_generic"):
        assert f'FA_GPU("{name}", gfx10_3_generic, 0x7f, 12)\n' in cpp_table(found)
    features = '["trains", "large_head_dims", "large_bwd", "int8_d64", "int8_fp16", "coded_bf16"]'
    assert f'"gfx10-3-generic": {features}' in kernels_archs(archs_of(found))
    assert " || defined(__gfx10_3_generic__)\n#define FA_SEES_rdna2\n" in cpp_table(found)


def test_the_device_pass_of_every_gpu_sees_its_isa():
    """``--offload-arch`` may name any of them."""
    lines = cpp_table(known_gpus()).splitlines()
    for gpu in known_gpus().values():
        isa = arch_named(gpu.code_object).isa.name
        condition = lines[lines.index(f"#define FA_SEES_{isa}") - 1]
        assert condition.startswith("#if !defined(__AMDGCN__) || ")
        assert f"defined(__{gpu.name.replace('-', '_')}__)" in condition


def test_an_arch_that_is_not_there_is_an_error():
    with pytest.raises(ArchError) as caught:
        arch_named("gfx900")
    assert str(caught.value) == (
        "nothing is known of gfx900\n"
        f"  - known: {', '.join(known_archs())}\n"
        "  next: add it to kernels/tables/gpus.toml"
    )
    assert isinstance(arch_named("gfx908"), Arch)
