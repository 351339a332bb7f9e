"""The kernels' table of archs, as Python reads it."""

import re

import pytest

from wheel_builder.base.archs import CHECKOUT, TABLE, TYPES, Arch, arch_named, known_archs, parse_archs
from wheel_builder.base.errors import ArchError

TEXT = (CHECKOUT / TABLE).read_text()


def test_the_table_is_read_with_its_types():
    arch = arch_named("gfx942")
    assert (arch.name, arch.elf_machine, arch.device_name) == ("gfx942", 0x4C, "gfx942:sramecc+:xnack-")
    assert (arch.family, arch.unit, arch.bf16_k, arch.wave) == ("cdna", "mfma", 8, 64)
    assert (arch.packed_fp32, arch.separate_accumulators) == (True, False)
    assert arch_named("gfx1100").device_name == "gfx1100"


def test_python_has_the_fields_of_the_header():
    header = (CHECKOUT / TABLE).with_name("traits.hpp").read_text()
    struct = re.sub(r"//.*", "", header[header.index("struct ArchTraits {") :].split("};")[0])
    found = dict(reversed(field) for field in re.findall(r"^\s+([\w ]+\*?) (\w+);", struct, re.MULTILINE))
    types = {"int": int, "uint32_t": int, "bool": bool, "const char*": str, "Family": str, "MatrixUnit": str}
    assert {name: types[written] for name, written in found.items()} == TYPES
    assert list(found) == list(TYPES)


def test_no_two_archs_have_one_elf_number():
    numbers = [arch.elf_machine for arch in known_archs().values()]
    assert len(set(numbers)) == len(numbers) > 3


def test_comments_and_order_do_not_matter():
    (first, *_) = re.findall(r"FA_ARCH\([^)]*\)", TEXT)
    lines = first.removesuffix(")").split(",\n")
    turned = ",\n".join([lines[0], *reversed(lines[1:])]) + ")  // of 2020"
    assert parse_archs(turned) == parse_archs(first) == {"gfx908": arch_named("gfx908")}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("        .wave = 64,\n", "", "gfx908: no .wave"),
        (".wave = 64", ".wave = 64,\n        .wave = 32", "gfx908: .wave is there twice"),
        (".wave = 64", ".waves = 64", "gfx908: not a field: waves"),
        (".wave = 64", ".wave = true", "gfx908: .wave is true, expected int"),
        (".wave = 64", ".wave = 2 * 32", "gfx908: not a field: .wave = 2 * 32"),
        (".packed_fp32 = false", ".packed_fp32 = 0", "gfx908: .packed_fp32 is 0, expected bool"),
        (".family = Family::cdna", ".family = 9", "gfx908: .family is 9, expected str"),
        (".wave = 64", ".wave = waves(64)", "not understood: FA_ARCH(gfx908,"),
        ("FA_ARCH(gfx942", "FA_ARCH(gfx908", "gfx908 is there twice"),
        ("FA_ARCH(gfx942", "int answer;\nFA_ARCH(gfx942", "not understood: int answer;"),
        (TEXT, "// nothing\n", "it has no FA_ARCH"),
    ],
)
def test_a_wrong_table_is_refused_in_words(old, new, words):
    assert old in TEXT
    with pytest.raises(ArchError) as caught:
        parse_archs(TEXT.replace(old, new, 1))
    assert str(caught.value).startswith("archs.inc cannot be read\n")
    assert words in caught.value.problems
    assert "wheel_builder/base/archs.py" in caught.value.advice


def test_all_problems_are_reported_at_once():
    cdna = TEXT[: TEXT.index("FA_ARCH(gfx1030")]
    text = cdna.replace("        .wave = 64,\n", "").replace(".bf16_k = 8", ".bf16_k = none")
    with pytest.raises(ArchError) as caught:
        parse_archs(text)
    assert caught.value.problems == (
        "gfx908: no .wave",
        "gfx942: no .wave",
        "gfx942: .bf16_k is none, expected int",
    )


def test_an_arch_that_is_not_there_is_an_error_in_words():
    with pytest.raises(ArchError) as caught:
        arch_named("gfx1201")
    assert str(caught.value) == (
        "nothing is known of gfx1201\n"
        f"  - known: {', '.join(known_archs())}\n"
        "  next: add it to kernels/include/fa/arch/archs.inc"
    )
    assert isinstance(arch_named("gfx908"), Arch)
