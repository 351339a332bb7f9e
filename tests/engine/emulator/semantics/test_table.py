"""The tables' names of mnemonics: by family, or from an ISA on."""

from dataclasses import replace

import pytest

from tests.engine.emulator.semantics import table
from tests.engine.emulator.semantics.machine import ARCHS, ISAS
from tests.engine.emulator.semantics.table import spread


@pytest.fixture
def named(monkeypatch):
    """``named(names, isa)``: the mnemonic, among the tables' ISAs and two successors."""
    isas = {
        **ISAS,
        "cdna2": replace(ISAS["cdna1"], name="cdna2"),
        "rdna3_5": replace(ISAS["rdna3"], name="rdna3_5"),
    }
    monkeypatch.setattr(table, "ISAS", isas)
    return lambda names, isa: table.mnemonic(table.by_isa(names), isas[isa])


@pytest.mark.parametrize(
    ("names", "by_isa"),
    [
        ("v_mov_b32", dict.fromkeys(("cdna1", "cdna2", "cdna3", "rdna2", "rdna3", "rdna3_5"), "v_mov_b32")),
        ("cdna:a rdna:b", {"cdna1": "a", "cdna3": "a", "rdna2": "b", "rdna3_5": "b"}),
        ("a rdna3:b", {"cdna3": "a", "rdna2": "a", "rdna3": "b", "rdna3_5": "b"}),
        ("rdna3:b a", {"cdna3": "a", "rdna2": "a", "rdna3": "b"}),
        ("cdna1:a cdna3:-", {"cdna1": "a", "cdna2": "a", "cdna3": "-", "rdna2": "-"}),
        ("cdna2:a", {"cdna1": "-", "cdna2": "a", "cdna3": "a"}),
        ("rdna3_5:a", {"rdna3": "-", "rdna3_5": "a"}),
    ],
)
def test_a_name_holds_until_a_later_isa_has_another(named, names, by_isa):
    assert {isa: named(names, isa) for isa in by_isa} == by_isa


def test_an_isa_that_is_not_there_is_an_error():
    with pytest.raises(
        ValueError, match=r"\['cdna9', 'gfx908'\]: no family or ISA of kernels/tables/isas.toml"
    ):
        spread("cdna9:a gfx908:b v_mov_b32")


def test_an_isa_without_dot_products_has_none_of_their_names():
    given = table.by_isa("v_dot2_f32_f16")
    assert table.mnemonic(given, ISAS["rdna1_0"]) == "-"
    assert table.mnemonic(given, ISAS["rdna1"]) == "v_dot2_f32_f16"


def test_every_isa_has_its_arch():
    assert set(spread("v_mov_b32")) == set(ARCHS)
    assert len(ARCHS) == len(ISAS)
