"""Widths of memory instructions from their names."""

import pytest

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.model.cost import lds_bytes, lds_shape


@pytest.mark.parametrize(
    ("mnemonic", "size", "shape"),
    [
        ("ds_read_b128", 16, (4, 1)),
        ("ds_load_b64", 8, (2, 1)),
        ("ds_read_b96", 12, (4, 1)),
        ("ds_read2st64_b64", 16, (2, 2)),
        ("ds_load_2addr_b32", 8, (1, 2)),
        ("ds_store_2addr_stride64_b64", 16, (2, 2)),
        ("ds_write_b16", 2, (1, 1)),
        ("ds_read_u16_d16_hi", 2, (1, 1)),
        ("ds_read_u8", 1, (1, 1)),
        ("ds_swizzle_b32", 4, (1, 1)),
        ("ds_bpermute_b32", 4, (1, 1)),
        ("ds_add_f32", 4, (1, 1)),
        ("ds_add_rtn_u64", 8, (2, 1)),
        ("ds_read_addtid_b32", 4, (1, 1)),
    ],
)
def test_bytes_and_shape_of_a_lane(mnemonic, size, shape):
    assert lds_bytes(mnemonic) == size
    assert lds_shape(mnemonic) == shape


@pytest.mark.parametrize("width", [lds_bytes, lds_shape])
def test_an_unknown_width_is_refused(width):
    with pytest.raises(PerfError, match="the width of a memory instruction is not known") as refusal:
        width("ds_strange")
    assert "ds_strange" in str(refusal.value)
