import pytest

from tests.tools.made.assembly import code
from tests.tools.made.elves import code_object, metadata_of
from wheel_builder.base.errors import ArchError, DeviceCodeError, ElfError
from wheel_builder.machine_code.disassembly.occupancy import occupancy
from wheel_builder.machine_code.disassembly.resources import read_resources

NAME = "fa_fwd_fp16_d64"


def taken(**changed):
    return read_resources(code(NAME, **{"lds_bytes": 16384, **changed}))[NAME]


def rdna(**changed):
    return taken(arch="gfx1100", **changed)


def test_what_a_kernel_takes():
    found = taken(vgpr_spills=3, scratch_bytes=16, agpr=48)
    assert (found.vgpr, found.agpr, found.sgpr) == (138, 48, 65)
    assert (found.vgpr_spills, found.sgpr_spills, found.scratch_bytes) == (3, 0, 16)
    assert (found.lds_bytes, found.kernarg_bytes, found.code_bytes) == (16384, 64, 4)
    assert (found.workgroup, found.wave, found.workgroup_processor) == (256, 64, False)
    assert taken().agpr == 0
    assert rdna().workgroup_processor


def test_all_that_is_missing_is_named():
    with pytest.raises(DeviceCodeError, match=r"(?s)no \.vgpr_count.*no \.sgpr_count"):
        taken(vgpr="138", sgpr="65")


def with_metadata(**changed):
    return code_object("gfx942", [NAME], metadata=metadata_of("gfx942", [NAME]) | changed)


def test_assembled_kernels_have_no_counts_of_spills():
    metadata = metadata_of("gfx942", [NAME])
    (kernel,) = metadata["amdhsa.kernels"]
    del kernel[".vgpr_spill_count"], kernel[".sgpr_spill_count"]
    data = with_metadata(**metadata)
    with pytest.raises(DeviceCodeError, match=r"(?s)no \.vgpr_spill_count.*no \.sgpr_spill_count"):
        read_resources(data)
    assert read_resources(data, assembled=True) == read_resources(with_metadata())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (with_metadata(**{"amdhsa.kernels": []}), "no amdhsa.kernels"),
        (with_metadata(**{"amdhsa.kernels": 1}), "no amdhsa.kernels"),
        (with_metadata(**metadata_of("gfx942", ["other"])), "other: no function of that name"),
        (
            with_metadata(**metadata_of("gfx942", [NAME], **{".uses_dynamic_stack": True})),
            "its stack has no fixed size",
        ),
    ],
)
def test_incomplete_metadata_is_refused_in_words(data, words):
    with pytest.raises(DeviceCodeError, match=words):
        read_resources(data)


def test_what_is_no_code_object_is_refused_in_words():
    with pytest.raises(ElfError):
        read_resources(b"text")


@pytest.mark.parametrize(
    ("arch", "resources", "waves"),
    [
        # Registers and steps: 256 by 4, 512 by 8, 1024 by 16, 1536 by 24.
        ("gfx908", taken(vgpr=84, lds_bytes=8192), 3),
        ("gfx908", taken(vgpr=85, lds_bytes=8192), 2),
        ("gfx908", taken(vgpr=24, lds_bytes=0, sgpr=80), 10),
        ("gfx906", taken(vgpr=129, workgroup=192), 1),  # three waves on four SIMDs
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
        occupancy("gfx1100", rdna(workgroup_processor=0))
