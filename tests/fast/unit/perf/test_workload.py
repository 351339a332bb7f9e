"""Launch descriptions, and this project's kernels as workloads."""

import ctypes
import json
import math
import struct
from collections import Counter

import pytest

from wheel_builder.base.errors import PerfError
from wheel_builder.extras.perf.table import WHOLES
from wheel_builder.extras.perf.workloads import coded, gradients, latent, ours
from wheel_builder.extras.perf.workloads.workload import SUFFIX, Tensor, encoded, filled, read_workloads
from wheel_builder.machine_code.emulator.machine import Kernel
from wheel_builder.machine_code.emulator.memory import pack_arguments
from wheel_builder.machine_code.emulator.params import layout
from wheel_builder.tables.archs import arch_named
from wheel_builder.tables.tiles import workgroup_of

MASKED = layout("MaskedParams")
ROW = {
    "label": "triton 3.9.0, 128x64, 4 warps", "kernel": "forward", "op": "fwd", "dtype": "fp16",
    "head_dim": 2, "grid": [4, 1, 1], "block": [256, 1, 1], "dynamic_lds": 512, "workgroup": 3, "flop": 99,
    "arguments": [
        {"name": "q", "dtype": "fp16", "shape": [3, 2], "fill": "normal"},
        {"kind": "i32", "value": 7},
        {"name": "lse", "dtype": "fp32", "shape": [3], "fill": 1.5},
        {"name": "out", "dtype": "bf16", "shape": [3, 2], "fill": "output"},
    ],
}  # fmt: skip


def described(folder, *rows):
    path = folder / "some.hsaco"
    path.with_name(path.name + SUFFIX).write_text(json.dumps(rows))
    return path


def test_a_described_launch(tmp_path):
    (found,) = read_workloads(described(tmp_path, ROW))
    assert (found.kernel, found.workgroup, found.flop(found.memory)) == ("forward", 3, 99)
    assert (found.launch.grid, found.launch.block, found.launch.dynamic_lds) == ((4, 1, 1), (256, 1, 1), 512)
    q, number, lse, out = struct.unpack("<QixxxxQQ", pack_arguments(found.arguments))
    assert number == 7
    assert [q, lse, out] == [found.memory[name].address for name in ("q", "lse", "out")]
    assert found.memory["lse"].values("f") == (1.5, 1.5, 1.5)
    assert found.memory["out"].size == 12


def test_the_same_description_gives_the_same_bytes(tmp_path):
    one, two = (read_workloads(described(tmp_path, ROW))[0].memory["q"].read() for _ in range(2))
    assert one == two
    assert len(set(struct.unpack("<6H", one))) > 1


def test_all_problems_of_a_description_at_once(tmp_path):
    wrong = {**ROW, "flop": 0, "more": 1, "grid": [4, 1]}
    with pytest.raises(PerfError, match="not a description of launches") as refusal:
        read_workloads(described(tmp_path, wrong))
    text = str(refusal.value)
    assert "0.flop: Input should be greater than 0" in text
    assert "0.more: Extra inputs are not permitted" in text
    assert "0.grid.2: Field required" in text


def test_a_code_object_without_a_description(tmp_path):
    with pytest.raises(PerfError, match="its launches are not described"):
        read_workloads(tmp_path / "some.hsaco")


def test_bytes_of_each_type():
    assert encoded([1.0, -2.0], "fp16") == bytes.fromhex("003c00c0")
    assert encoded([1.0, -2.0], "bf16") == bytes.fromhex("803f00c0")
    assert encoded([1.0], "fp32") == bytes.fromhex("0000803f")
    assert encoded([3.0], "i32") == bytes.fromhex("03000000")


@pytest.mark.parametrize(
    ("dtype", "hides", "shows"),
    [("bool", b"\0", b"\1"), ("fp16", struct.pack("<e", -math.inf), struct.pack("<e", 0.0))],
)
def test_a_mask_hides_half_at_random(dtype, hides, shows):
    data = filled(Tensor(name="mask", dtype=dtype, shape=(64, 64), fill="hidden"), 0).read()
    found = Counter(data[at : at + len(hides)] for at in range(0, len(data), len(hides)))
    assert set(found) == {hides, shows}
    assert abs(found[hides] - 2048) < 5 * 32  # five standard deviations


def test_seeds_tell_tensors_apart():
    tensor = Tensor(name="q", dtype="fp32", shape=(8,), fill="normal")
    assert filled(tensor, 0).read() != filled(tensor, 1).read()


def kernel(name):
    return Kernel(
        name, lds=0, scratch=0, kernarg=168, wave_size=64, vgprs=64, agprs=0, max_threads=256, arguments=()
    )


def write_rows(workload, rows):
    """A kernel's writes to lse, as far as a workload's FLOP depend on them."""
    ctypes.memmove(workload.memory["lse"].address, bytes(4 * rows), 4 * rows)


def test_the_rows_of_a_forward_are_seen_from_what_it_wrote():
    workload = ours.forward(kernel("fa_fwd_bf16_d64"))
    assert (workload.dtype, workload.head_dim, workload.launch.block) == ("bf16", 64, (256, 1, 1))
    assert workload.flop(workload.memory) == 0
    write_rows(workload, 3)
    flop = workload.flop(workload.memory)
    assert flop == 4 * 3 * 512 * 64
    assert ours.rows_of(flop, 64) == 3


def test_causal_rows_see_one_key_more_each_and_the_last_all():
    workload = ours.causal_forward(kernel("fa_fwd_fp16_d64"), rows=3)
    write_rows(workload, 3)
    assert workload.op == "fwd causal"
    assert workload.flop(workload.memory) == 4 * (510 + 511 + 512) * 64


def test_decode_over_codes_has_finite_codes_of_half_the_bytes():
    name = "fa_decode_8bit_bf16_d128"
    assert coded.has_coded(name)
    assert not coded.has_coded("fa_decode_bf16_d128")
    assert not ours.has_decode(name)
    workload = coded.decoding(kernel(name))
    assert (workload.op, workload.dtype, workload.head_dim) == ("decode_8bit", "bf16", 128)
    assert coded.bytes_of(workload) * 2 == ours.bytes_of_decode(128)
    for x in ("k", "v"):
        codes = workload.memory[x].read()
        assert len(codes) == ours.PART * 128
        assert not {0x7F, 0xFF}.intersection(codes), "the codes of NaN"
        assert struct.unpack("<f", workload.memory[f"{x}_descale"].read()) == (coded.DESCALE,)
    assert workload.memory["k"].read() != workload.memory["v"].read()


def test_where_there_are_tall_workgroups_both_kernels_have_long_workloads():
    names = [f"fa_{op}_{dtype}_d128" for op in ("fwd", "fwd_tall") for dtype in ("fp16", "bf16")]
    assert [ours.lengths(kernel(name)) for name in names] == [(512, 2048), (512,)] * 2
    assert [ours.causal_lengths("gfx1201", kernel(name)) for name in names] == [(512, 2048), (512,)] * 2
    assert ours.lengths(kernel("fa_fwd_fp16_d96")) == (512,)
    assert ours.causal_lengths("gfx1201", kernel("fa_fwd_fp16_d64")) == (512,)
    assert ours.causal_lengths("gfx1100", kernel("fa_fwd_fp16_d128")) == (512,)
    tall = ours.forward(kernel("fa_fwd_tall_fp16_d128"), keys=2048)
    causal = ours.causal_forward(kernel("fa_fwd_fp16_d128"), rows=3, keys=2048)
    assert (tall.op, causal.op) == ("fwd_tall 2048", "fwd causal 2048")
    assert [ours.has_no_mask(each.op) for each in (tall, causal)] == [True, False]
    write_rows(tall, 3)
    assert ours.rows_of(tall.flop(tall.memory), 128, ours.keys_of(tall.op)) == 3


@pytest.mark.parametrize(
    ("kind", "hidden", "bytes_each"), [("bool", 0, 1), ("bias", 0xFC00, 2), ("fp32 bias", 0xFF800000, 4)]
)
def test_a_masked_forward_reads_a_mask_that_hides_half_of_the_keys(kind, hidden, bytes_each):
    assert ours.reads_mask("fa_fwd_masked_fp16_d64")
    assert not ours.reads_mask("fa_fwd_fp16_d64")
    assert (kind, 512) in ours.masks(kernel("fa_fwd_masked_fp16_d64"))
    assert not ours.masks(kernel("fa_fwd_masked_bf16_d64"))
    workload = ours.masked_forward(kernel("fa_fwd_masked_fp16_d64"), kind)
    assert workload.op == f"fwd_masked {kind}"
    mask = workload.memory["mask"].read()
    numbers = memoryview(mask).cast("BBHHI"[bytes_each])
    assert len(numbers) == 512 * 512
    assert abs(numbers.tolist().count(hidden) / len(numbers) - 0.5) < 0.01
    [packed] = workload.arguments
    found = dict(zip((s.name for s in MASKED.scalars), MASKED.unpack(packed), strict=True))
    assert found["mask"] == workload.memory["mask"].address
    assert (found["mask_batch"], found["mask_head"], found["mask_row"]) == (0, 0, 512)
    assert found["fwd.seqlen_k"] == 512
    write_rows(workload, 3)
    assert workload.flop(workload.memory) == 4 * 3 * 512 * 64


@pytest.mark.parametrize(("kind", "keys", "shown"), [("padding", 2048, 1024), ("all shown", 512, 512)])
def test_a_mask_of_whole_tiles_says_which_these_are(kind, keys, shown):
    """At the place the kernel reads: the first of each 32 rows of a wave."""
    assert (kind, keys) in ours.masks(kernel("fa_fwd_masked_fp16_d64"))
    workload = ours.masked_forward(kernel("fa_fwd_masked_fp16_d64"), kind, keys=keys)
    assert workload.op == f"fwd_masked {kind}" + (" 2048" if keys == 2048 else "")
    mask = workload.memory["mask"].read()
    assert mask == (bytes([1]) * shown + bytes(keys - shown)) * keys
    out = workload.memory["out"]
    assert out.initialised
    data, of_wave = out.read(), 32 * 64 * 2
    assert {data[at : at + 16] for at in range(0, len(data), of_wave)} == {
        struct.pack("<4i", 0, -shown, 0, shown)
    }


def test_what_finds_the_keys_that_a_mask_shows_reads_the_rows_of_a_wave():
    assert [*map(ours.finds_ranges, ("fa_mask_ranges_fp16", "fa_fwd_fp16_d64"))] == [True, False]
    found = kernel("fa_mask_ranges_fp16")
    workload = ours.finding_ranges(found)
    assert workload.memory["mask"].size == ours.bytes_of_ranges(found) == 32 * 4096
    assert workload.launch.grid == (1, 1, 1)
    [packed] = workload.arguments
    assert len(packed) == layout("MaskRangesParams").size


def test_latent_attention_has_a_head_for_each_row_of_a_workgroup():
    assert [*map(latent.has_latent, ("fa_mla_bf16_d576", "fa_decode_fp16_d64"))] == [True, False]
    assert [*map(latent.op_of, ("fa_mla_8bit_bf16_d576", "fa_mla_bf16_d576"))] == ["mla_8bit", "mla"]
    rows = latent.decoding(kernel("fa_mla_rows_bf16_d576"))
    assert rows.memory["kv_cache"].size == latent.bytes_of(rows) == 512 * 656
    assert [len(each) for each in rows.arguments] == [layout("FwdParams").size]
    coded_one = latent.decoding(kernel("fa_mla_8bit_bf16_d576"))
    assert coded_one.memory["kv_cache"].size == latent.bytes_of(coded_one) == 512 * 576
    assert struct.unpack("<f", coded_one.memory["kv_descale"].read()) == (coded.DESCALE,)
    workload = latent.decoding(kernel("fa_mla_bf16_d576"))
    assert workload.memory["kv_cache"].size == latent.bytes_of(workload) == 512 * 576 * 2
    assert workload.memory["lse"].size == 32 * 4
    assert workload.memory["out"].size == 32 * 512 * 2
    assert workload.launch.grid == (1, 1, 1)
    [packed] = workload.arguments
    assert len(packed) == layout("FwdParams").size


def test_a_kernel_without_a_workload_is_refused():
    with pytest.raises(PerfError, match="no workload for kernel other") as refusal:
        ours.forward(kernel("other"))
    assert f"needs FILE{SUFFIX} beside it" in str(refusal.value)


def test_kernels_that_memory_bounds_have_no_workload_and_foreign_ones_are_to_be_refused():
    names = (
        "fa_decode_fp16_d64",
        "fa_mask_ranges_fp16",
        "fa_mla_fp16_d576",
        "fa_append_bf16",
        "fa_reference_fp16",
        "fa_combine_bf16",
    )
    assert not any(map(ours.has_workload, names))
    assert ours.has_workload("fa_fwd_fp16_d64")
    assert ours.has_workload("fa_decode_fp32_d64")
    assert ours.has_workload("other")


def backward(name, arch="gfx942"):
    return list(gradients.backwards(arch, kernel(name)))


def test_a_backward_is_useful_two_and_a_half_times_the_forward():
    """Summed as in the table, over all workgroups of the kernel with the most."""
    split, fused = (whole.products(64) for whole in WHOLES[:2])
    dkdv, _ = backward("fa_bwd_dkdv_fp16_d64")
    assert (dkdv.op, dkdv.dtype, dkdv.head_dim, dkdv.launch.grid) == ("bwd_dkdv", "fp16", 64, (4, 1, 1))
    ctypes.memset(dkdv.memory["dk"].address, 0, 128 * 64 * 2)
    whole = 4 * dkdv.flop(dkdv.memory)
    assert split * whole == 2.5 * (4 * 512 * 512 * 64)
    dq, _ = backward("fa_bwd_dq_fp16_d64")
    ctypes.memset(dq.memory["dq"].address, 0, 128 * 64 * 2)
    assert 4 * dq.flop(dq.memory) == whole * 3 / 4
    one, _ = backward("fa_bwd_fused_fp16_d64")
    ctypes.memset(one.memory["dk"].address, 0, 128 * 64 * 2)
    assert fused * 4 * one.flop(one.memory) == split * whole


def test_another_head_dim_of_v_counts_in_its_own_products():
    pairs, [uneven] = 512 * 512, [whole for whole in WHOLES if whole.name == "uneven"]
    forward = ours.forward(kernel("fa_fwd_uneven_fp16_d192"))
    ctypes.memset(forward.memory["lse"].address, 0, 3 * 4)
    assert forward.flop(forward.memory) == 2 * 3 * 512 * (192 + 128)
    assert ours.rows_of(forward.flop(forward.memory), 192, op=forward.op) == 3
    assert [len(forward.memory[name].read()) for name in ("k", "v", "out")] == [
        512 * 2 * n for n in (192, 128, 128)
    ]
    whole = {}
    for name, written, row in (("dkdv", "dk", 192), ("dq", "dq", 192)):
        workload, _ = backward(f"fa_bwd_{name}_uneven_fp16_d192")
        rows = 512 // workload.launch.grid[0]
        ctypes.memset(workload.memory[written].address, 0, rows * row * 2)
        whole[name] = workload.flop(workload.memory) * workload.launch.grid[0]
    assert whole == {"dkdv": 2 * pairs * 2 * (192 + 128), "dq": 2 * pairs * (2 * 192 + 128)}
    assert uneven.products(192) * whole["dkdv"] == 2 * pairs * (3 * 192 + 2 * 128)


def test_delta_is_modelled_for_every_head_dim_that_the_others_have():
    found = backward("fa_bwd_delta_bf16")
    assert [workload.head_dim for workload in found] == [32, 64, 96, 128, 192, 256]
    ctypes.memset(found[0].memory["delta"].address, 0, 128 * 4)
    assert found[0].flop(found[0].memory) == 2 * 128 * 32


def test_a_backward_with_other_rows_than_its_launch_is_refused():
    dq, _ = backward("fa_bwd_dq_fp16_d64")
    ctypes.memset(dq.memory["dq"].address, 0, 64 * 64 * 2)
    with pytest.raises(
        PerfError, match="expected 128 from 0 on, found 64 from 0 on: see kernels/tables/tiles"
    ):
        dq.flop(dq.memory)


def test_a_causal_backward_is_the_workgroup_with_the_most_work():
    for name, written, begin in (("dkdv", "dk", 0), ("dq", "dq", 384), ("fused", "dk", 0)):
        whole, causal = backward(f"fa_bwd_{name}_fp16_d64")
        assert causal.op == f"bwd_{name} causal"
        rows = workgroup_of(arch_named("gfx942"), f"bwd_{name}", "fp16", 64).rows
        for workload, first in ((whole, 0), (causal, begin)):
            ctypes.memset(workload.memory[written].address + first * 128, 0, rows * 128)
        hidden = 2 * rows * (rows - 1) // 2 * 64 * sum(gradients.OPS[f"bwd_{name}"].products)
        assert causal.flop(causal.memory) == whole.flop(whole.memory) - hidden
    [_] = backward("fa_bwd_convert_fp16_d64")


def test_the_last_queries_are_not_the_first():
    _, causal = backward("fa_bwd_dq_fp16_d64")
    ctypes.memset(causal.memory["dq"].address, 0, 128 * 128)
    with pytest.raises(PerfError, match="expected 128 from 384 on, found 128 from 0 on"):
        causal.flop(causal.memory)


def test_only_backwards_are_backwards():
    names = (
        "fa_bwd_delta_fp16", "fa_bwd_dkdv_bf16_d96", "fa_bwd_dq_fp16_d256", "fa_bwd_fused_fp16_d64",
        "fa_bwd_convert_bf16", "fa_bwd_dkdv_uneven_bf16_d192", "fa_bwd_dq_uneven_fp16_d192",
    )  # fmt: skip
    assert all(map(gradients.has_backward, names))
    assert not any(map(ours.has_workload, names))
    assert not any(map(gradients.has_backward, ("fa_fwd_fp16_d64", "fa_bwd_other_fp16_d64", "bwd_dq")))
