import pytest

from tests.tools.made.assembly import kernel
from wheel_builder.machine_code.static_checks.scratch import check_scratch


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["scratch_store_dword off, v0, s0"], "reads or writes scratch memory"),
        (["scratch_load_b32 v0, off, s0"], "reads or writes scratch memory"),
        (["s_mov_b64 s[0:1], src_private_base"], "makes an address in scratch memory"),
        # The prologue adds the wave's offset to a buffer set up before the kernel began.
        (
            [
                "s_add_u32 s0, s0, s9",
                "s_addc_u32 s1, s1, 0",
                "buffer_store_dword v0, off, s[0:3], 0 offset:4",
            ],
            "its buffer is one that the kernel was started with",
        ),
    ],
)
def test_scratch_is_found(lines, words):
    (finding,) = check_scratch("gfx908", kernel(*lines))
    assert words in finding.text


def test_a_buffer_of_the_kernels_own_is_not_scratch():
    lines = ["s_load_dwordx2 s[0:1], s[4:5], 0x0", "s_mov_b64 s[2:3], s[8:9]"]
    lines += [
        "buffer_load_dword v0, v1, s[0:3], 0 offen",
        "ds_write_b32 v0, v1",
        "global_store_dword v[0:1], v2, off",
    ]
    assert check_scratch("gfx908", kernel(*lines)) == ()
