import pytest

from tests.tools.made.assembly import notes
from wheel_builder.base.errors import ArchError, DeviceCodeError
from wheel_builder.machine_code.disassembly.occupancy import occupancy
from wheel_builder.machine_code.disassembly.resources import parse_notes


def taken(**changed):
    return parse_notes(notes(**changed))["fa_fwd_fp16_d64"]


def rdna(**changed):
    return taken(wave=32, more="    .workgroup_processor_mode: 1\n", **changed)


def test_notes_as_the_tool_prints_them():
    found = taken(vgpr_spills=3, scratch_bytes=16, more="    .agpr_count:     48\n")
    assert (found.vgpr, found.agpr, found.sgpr) == (138, 48, 65)
    assert (found.vgpr_spills, found.sgpr_spills, found.scratch_bytes) == (3, 0, 16)
    assert (found.lds_bytes, found.kernarg_bytes, found.code_bytes) == (16384, 168, 4876)
    assert (found.workgroup, found.wave, found.workgroup_processor) == (256, 64, False)
    assert rdna().workgroup_processor


def test_all_that_is_missing_is_named():
    text = notes().replace(".vgpr_count:", ".vgprs:").replace(".sgpr_count:", ".sgprs:")
    with pytest.raises(DeviceCodeError, match=r"(?s)no \.vgpr_count.*no \.sgpr_count"):
        parse_notes(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no amdhsa.kernels"),
        (notes().replace("FUNC", "OBJECT"), "no function of that name"),
        (notes(dynamic_stack="true"), "its stack has no fixed size"),
        ("---\na: [\n...\n", "cannot be read"),
    ],
)
def test_incomplete_notes_are_refused_in_words(text, words):
    with pytest.raises(DeviceCodeError, match=words):
        parse_notes(text)


@pytest.mark.parametrize(
    ("arch", "resources", "waves"),
    [
        # Registers and steps: 256 by 4, 512 by 8, 1024 by 16, 1536 by 24.
        ("gfx908", taken(vgpr=84, lds_bytes=8192), 3),
        ("gfx908", taken(vgpr=85, lds_bytes=8192), 2),
        ("gfx908", taken(vgpr=24, lds_bytes=0, sgpr=80), 10),
        ("gfx908", taken(vgpr=24, lds_bytes=0, sgpr=102), 7),
        ("gfx942", taken(vgpr=168), 3),
        ("gfx942", taken(vgpr=169), 2),
        ("gfx942", taken(vgpr=16, lds_bytes=0), 8),
        ("gfx1030", rdna(vgpr=128, lds_bytes=0), 8),
        ("gfx1030", rdna(vgpr=129, lds_bytes=0), 6),
        ("gfx1100", rdna(vgpr=192), 8),
        ("gfx1100", rdna(vgpr=193), 6),
        # 64 KiB of LDS for four SIMDs, on RDNA 128 KiB.
        ("gfx942", taken(vgpr=16, lds_bytes=32768), 2),
        ("gfx942", taken(vgpr=16, lds_bytes=32769), 1),
        # 160 KiB in granules of 1280 bytes: 64 of them are half.
        ("gfx950", taken(vgpr=16, lds_bytes=81920), 2),
        ("gfx950", taken(vgpr=16, lds_bytes=81921), 1),
        ("gfx950", taken(vgpr=16, lds_bytes=163840), 1),
        ("gfx950", taken(vgpr=16, lds_bytes=40 * 1024), 4),
        ("gfx1030", rdna(vgpr=16, lds_bytes=57344), 4),
        # A workgroup must fit as a whole.
        ("gfx942", taken(vgpr=168, workgroup=512, lds_bytes=0), 2),
    ],
)
def test_occupancy(arch, resources, waves):
    assert occupancy(arch, resources) == waves


def test_an_unknown_arch_has_no_occupancy():
    with pytest.raises(ArchError, match="nothing is known of gfx900"):
        occupancy("gfx900", taken())


def test_code_for_one_compute_unit_is_refused_in_words():
    with pytest.raises(DeviceCodeError, match=r"compile without -mcumode"):
        occupancy("gfx1100", taken(wave=32))
