"""Where the arguments of AMD's assembly kernels are, by their public launchers' structs and comments."""

import struct

import pytest

from tests.engine.emulator.amd_assembly import Forward
from tests.engine.emulator.amd_backward import Backward, Shuffle, backwards

POINTERS = range(0x1000, 0xA000, 0x1000)


def u32(packed, offset):
    return struct.unpack_from("<I", packed, offset)[0]


def u64(packed, offset):
    return struct.unpack_from("<Q", packed, offset)[0]


@pytest.mark.parametrize(("arch", "size"), [("gfx942", 0x150), ("gfx950", 0x2C0)])
def test_a_backward_has_its_tensors_scale_and_rows_first(arch, size):
    backward = Backward(arch, "a32", causal=False, seqlen=768, heads=3)
    packed = backward.packed(POINTERS)
    assert len(packed) == size
    assert [u64(packed, 16 * place) for place in range(9)] == [*POINTERS]
    assert struct.unpack_from("<f", packed, 0x90)[0] == pytest.approx(128**-0.5)
    assert struct.unpack_from("<f", packed, 0xA0)[0] == pytest.approx(1.442695)
    assert [u32(packed, at) for at in (0xB0, 0xC0, 0xF0)] == [768, backward.keys * 256, 256]


def test_heads_of_two_sizes_have_strides_of_their_own():
    packed = Backward("gfx950", "a16", causal=False, seqlen=384, heads=2, head_dim=192).packed(POINTERS)
    lengths = {0x150: 384, 0x160: 192, 0x170: 128, 0x180: 2}
    of_q, of_v = 384 * 384, 384 * 256
    heads = {0xD0: of_q, 0x110: of_q, 0x190: of_v, 0x1C0: of_v, 0x1F0: of_q, 0x210: of_v}
    rows = {0x130: 384, 0x140: 384, 0x1B0: 256, 0x1E0: 256, 0x230: 256, 0x240: 4 * 384, 0x290: 384}
    wanted = lengths | heads | rows
    assert {at: u32(packed, at) for at in wanted} == wanted


def test_the_sums_are_put_in_order_64_rows_at_a_time():
    shuffle = Shuffle(Backward("gfx950", "a16", causal=True, seqlen=1000, heads=2))
    packed = shuffle.packed(POINTERS)
    assert shuffle.launch.grid == (16, 2, 1)
    assert len(packed) == 14 * 16
    assert [u32(packed, at) for at in (0x20, 0x30, 0x50, 0x90, 0xA0, 0xD0)] == [
        64 * 256, 1000 * 256, 256, 1000, 128, 1008,
    ]  # fmt: skip


def test_causal_workgroups_have_two_tiles():
    grids = {
        (each.arch, each.head_dim, each.causal): (each.launch.grid[0], each.seqlen)
        for each in backwards(tiles=4, heads=1)
    }
    assert grids == {
        ("gfx942", 128, False): (4, 768), ("gfx942", 128, True): (2, 768),
        ("gfx950", 128, False): (4, 1024), ("gfx950", 128, True): (2, 1024),
        ("gfx950", 192, False): (4, 768), ("gfx950", 192, True): (2, 768),
    }  # fmt: skip


def test_kernels_are_named_as_in_the_wheel():
    files = {each.file for each in backwards(tiles=1, heads=1)}
    assert "gfx942/fmha_v3_bwd/bwd_hd128_bf16_causal_a16_rtz.co" in files
    assert "gfx950/fmha_v3_bwd/bwd_hd128_bf16_a32_psskddv.co" in files
    assert "gfx950/fmha_v3_bwd/bwd_hd192_hd128_bf16_causal_a16_pssk.co" in files
    wanted = "_ZN5aiter34fmha_bwd_hd192_hd128_bf16_a32_psskE"
    assert Backward("gfx950", "a32", causal=False, seqlen=1, heads=1, head_dim=192).kernel == wanted
    forward = Forward("gfx942", "rtz", causal=True, seqlen=512, heads=8, heads_k=2)
    assert forward.file == "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtz.co"


def test_a_forward_with_two_head_dims_has_half_of_the_rows():
    forward = Forward("gfx950", "", causal=True, seqlen=1024, heads=8, heads_k=2, head_dim=192)
    assert (forward.name, forward.launch.grid) == ("fwd_hd192_hd128_bf16_causal", (4, 8, 1))
    assert forward.launch.block == (256, 1, 1)
    packed = forward.packed(POINTERS)
    assert len(packed) == 16 * 32
    numbers = [u32(packed, 16 * (6 + place)) for place in range(21)]
    of_q = [1024, 384, 128 * 384, 1024 * 384, 8 * 1024 * 384, 4]
    of_k = [384, 1024 * 384, 2 * 1024 * 384, 5, 1, 1024, 192, 128, 8]
    assert numbers == [
        *of_q, *of_k, 256, 1024 * 256, 2 * 1024 * 256, 256, 1024 * 256, 8 * 1024 * 256
    ]  # fmt: skip
