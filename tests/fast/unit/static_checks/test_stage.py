"""The static checks as a stage of the pipeline."""

import json

import pytest

from tests.fast.unit.static_checks.tools import CODE, FakeTools
from tests.tools.made.wheels import ARCHS, KERNELS, LIBRARY, fatbin, good_files, library, write_wheel
from wheel_builder.base.errors import StaticCheckError
from wheel_builder.base.store import Artifact, Store
from wheel_builder.machine_code.static_checks import stage as static
from wheel_builder.machine_code.static_checks.findings import Finding
from wheel_builder.machine_code.static_checks.golden import GOLDEN

IMAGE = Artifact(
    path=None, manifest={"key": "i", "facts": {"ref": "builder:7.2", "image_id": "1"}}, reused=False
)


@pytest.fixture
def wheel(tmp_path):
    return write_wheel(tmp_path, good_files())


@pytest.fixture
def check(wheel, checkout):
    def run(tools=None, **options):
        return static.check_static(
            wheel, IMAGE, rocm="7.2", checkout=checkout, store=Store(checkout / "build"),
            log=checkout / "log", run=tools or FakeTools(), **options,
        )  # fmt: skip

    return run


def test_kernels_that_nobody_reviewed_are_refused_with_the_way_to_review_them(check, wheel):
    with pytest.raises(StaticCheckError) as caught:
        check()
    assert str(caught.value).startswith(f"the static checks refuse {wheel.name}\n")
    assert len(caught.value.problems) == len(ARCHS) * len(KERNELS)
    assert "verify --update" in str(caught.value)


def test_update_writes_the_golden_file_and_then_the_wheel_passes(check, checkout):
    checked = check(update=True)
    assert set(checked.facts["archs"]) == set(ARCHS)
    assert checked.facts["differences"] == []
    assert json.loads((checked.path / static.RECORD).read_text()) == checked.facts
    assert "fa_fwd_fp16.occupancy = {d64 = 3}" in (checkout / GOLDEN).read_text()
    assert check().reused


def test_a_changed_golden_file_has_the_checks_run_again(check, checkout):
    check(update=True)
    golden = checkout / GOLDEN
    golden.write_text(golden.read_text().replace("d64 = 3", "d64 = 2"))
    again = check()
    assert not again.reused
    assert "occupancy 2 -> 3" in " ".join(again.facts["differences"])


def test_a_sentence_in_the_wheel_has_nothing_checked_again(check, checkout, wheel, disassembled):
    """A changed docstring had every code object disassembled and checked again: a minute of two cores."""
    check(update=True)
    write_wheel(wheel.parent, {**good_files(), "flash_attn_rocm/__init__.py": b'"""Words."""\nVALUE = 42\n'})
    assert check().reused
    assert static.disassemble_wheel(
        wheel, IMAGE, store=Store(checkout / "build"), log=checkout / "log", run=FakeTools()
    ).reused


def test_a_changed_kernel_is_checked_again(check, wheel, disassembled, checkout):
    check(update=True)
    changed = {LIBRARY: library(sections={".hip_fatbin": fatbin(kernels=[*KERNELS[1:], *KERNELS[:1]])})}
    write_wheel(wheel.parent, {**good_files(), **changed})
    assert not check().reused


def test_fewer_waves_than_reviewed_are_refused(check, checkout):
    check(update=True)
    golden = checkout / GOLDEN
    golden.write_text(golden.read_text().replace("d64 = 3", "d64 = 4"))
    with pytest.raises(StaticCheckError, match=r"occupancy 4 -> 3"):
        check()


def test_update_does_not_excuse_a_kernel_without_its_matrix_instructions(check, monkeypatch):
    monkeypatch.setitem(CODE, "gfx908", "v_mov_b32_e32 v0, v1")
    with pytest.raises(StaticCheckError, match="gfx908 fa_fwd_fp16_d64") as caught:
        check(update=True)
    assert "--update" not in str(caught.value)


def test_nothing_is_said_of_a_wheel_without_failures():
    static.refuse("a.whl", [])


def test_the_advice_does_not_offer_update_beside_a_real_fault():
    with pytest.raises(StaticCheckError) as caught:
        static.refuse(
            "a.whl", [Finding("golden", "gfx908", "k", "x"), Finding("hazards", "gfx908", "k", "y")]
        )
    assert "--update" not in str(caught.value)


class Core:
    """Lacks some mnemonics. ``asked`` counts the texts it was given."""

    def __init__(self, lacks):
        self.lacks, self.asked = lacks, 0

    def missing(self, arch, text):
        self.asked += 1
        return [f"v_new: k+0x4: v_new v0 ({arch})" for line in text.splitlines() if self.lacks in line]


@pytest.fixture
def disassembled(wheel, checkout):
    return static.disassemble_wheel(
        wheel, IMAGE, store=Store(checkout / "build"), log=checkout / "log", run=FakeTools()
    )


def test_each_code_object_lies_beside_its_text(disassembled):
    names = {file.name for file in disassembled.path.glob("gfx942-*")}
    assert len(names) == 2 * len(KERNELS)
    for code in disassembled.path.glob("*.co"):
        assert code.read_bytes().startswith(b"\x7fELF")
        assert "s_endpgm" in code.with_suffix(".s").read_text()


@pytest.fixture
def refuse(disassembled, checkout):
    def run(core, emulator="emulator"):
        made = Artifact(path=None, manifest={"key": emulator}, reused=True)
        static.refuse_unimplemented(
            "a.whl", core, disassembled, emulator=made, store=Store(checkout / "build")
        )

    return run


def test_what_the_emulator_lacks_is_refused_before_anything_runs(refuse):
    with pytest.raises(StaticCheckError) as caught:
        refuse(Core(lacks="v_mfma"))
    assert str(caught.value).startswith(
        "the emulator does not have instructions that the kernels of a.whl use"
    )
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["gfx908", "gfx942"]
    assert "tests/engine/emulator/semantics" in str(caught.value)


def test_what_the_emulator_lacks_is_asked_once_of_each_emulator(refuse):
    """After a changed docstring this took half a minute."""
    first, second, other = (Core(lacks="v_nothing") for _ in range(3))
    refuse(first)
    refuse(second)
    refuse(other, emulator="another")
    assert (first.asked, second.asked, other.asked) == (len(ARCHS) * len(KERNELS), 0, first.asked)
