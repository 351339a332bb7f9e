"""Common names of GPUs: the names in gpus.toml."""

import pytest

from wheel_builder.base.errors import ArchError
from wheel_builder.tables.archs import CHECKOUT, GPUS, ISAS, known_archs, known_products, parse_gpus
from wheel_builder.tables.products import Product, device_names, parse_products

ISA_TEXT, GPU_TEXT = (CHECKOUT / ISAS).read_text(), (CHECKOUT / GPUS).read_text()


def problems(gpus):
    with pytest.raises(ArchError) as caught:
        parse_products(gpus, GPUS.name)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Instinct MI100", ("Instinct MI100",)),
        ("Radeon RX 6800, PRO W6800", ("Radeon RX 6800", "Radeon PRO W6800")),
        (
            "Radeon RX 580, R9 Fury, Instinct MI6, MI8",
            ("Radeon RX 580", "Radeon R9 Fury", "Instinct MI6", "Instinct MI8"),
        ),
        ("Steam Deck", ("Steam Deck",)),
        ("Ryzen 7840U, Z1 Extreme", ("Ryzen 7840U", "Ryzen Z1 Extreme")),
    ],
)
def test_the_family_holds_until_another_is_named(text, names):
    assert device_names(text) == names


def test_gpus_with_and_without_kernels_have_names():
    products = known_products()
    assert products["gfx908"] == Product(
        "gfx908", "Instinct MI100", "Arcturus", "", "7388, 738c, 738e", "torch package", (120,)
    )
    assert products["gfx900"].devices.endswith("PRO V340, Instinct MI25")
    assert "gfx900" not in known_archs()
    assert set(known_archs()) < set(products)


def test_a_target_for_several_gpus_has_no_names():
    generic = GPU_TEXT.replace("[gfx908", "[gfx9-4-generic").replace(
        'code_object = "gfx908"', 'code_object = "gfx9-4-generic"'
    )
    named = 'devices = "Instinct MI100"\ncode_names = "Arcturus"\n'
    text = generic.replace(named, "")
    assert "gfx9-4-generic" in parse_gpus(ISA_TEXT, text)
    assert "gfx9-4-generic" not in parse_products(text, GPUS.name)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('devices = "Instinct MI100"\n', "", "gpus.toml: gfx908: no devices"),
        ('devices = "Instinct MI100"', "devices = 100", "gpus.toml: gfx908: devices is 100, expected str"),
        ('"Instinct MI100"', '" "', "gpus.toml: gfx908: devices: it is empty"),
        ('"Instinct MI100"', '"MI\\u001b[2J"', "gpus.toml: gfx908: devices: it has U+001B (a control"),
        # If two rows had one name, their order decided the page's answer.
        (
            'devices = "Instinct MI100"',
            'devices = "Instinct mi60"',
            "gpus.toml: gfx908: devices: 'Instinct mi60' stands twice; the first is in gfx906: devices",
        ),
        (
            'code_names = "Arcturus"',
            'code_names = "Vega 20"',
            "gpus.toml: gfx908: code_names: 'Vega 20' stands twice; the first is in gfx906: code_names",
        ),
        (
            '"Arcturus"',
            '"Arcturus, gfx1201"',
            "gpus.toml: gfx908: code_names: 'gfx1201' is a gfx name and no name of a GPU; give",
        ),
        (
            "units = [120]",
            "units = [120, 1]",
            "gpus.toml: gfx908: units has 2 numbers for 1 devices",
        ),
        (
            '"7388, 738c, 738e"',
            '"738c, 0x738e"',
            "gpus.toml: gfx908: pci_ids: '0x738e' is not four digits such as 744c",
        ),
        (
            '"Instinct MI450 series, MI455X"',
            '"Instinct MI450 series, MI455X"\nelsewhere = "WSL"',
            "gpus.toml: gfx1250: elsewhere: 'WSL', expected of torch package, WSL2, not Windows,",
        ),
        ("[gfx906]", "[MI50]", "gpus.toml: 'MI50' is not a gfx name such as gfx1100"),
    ],
)
def test_wrong_names_are_errors(old, new, words):
    assert GPU_TEXT.count(old) == 1
    assert any(problem.startswith(words) for problem in problems(GPU_TEXT.replace(old, new)))
