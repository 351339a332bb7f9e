"""Launch descriptions, and this project's kernels as workloads."""

import ctypes
import json
import struct

import pytest

from wheel_builder.base.errors import PerfError
from wheel_builder.emulator.machine import Kernel
from wheel_builder.emulator.memory import pack_arguments
from wheel_builder.perf import ours
from wheel_builder.perf.workload import SUFFIX, Tensor, encoded, filled, read_workloads

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


def test_seeds_tell_tensors_apart():
    tensor = Tensor(name="q", dtype="fp32", shape=(8,), fill="normal")
    assert filled(tensor, 0).read() != filled(tensor, 1).read()


def kernel(name):
    return Kernel(
        name, lds=0, scratch=0, kernarg=168, wave_size=64, vgprs=64, agprs=0, max_threads=256, arguments=()
    )


def write_rows(workload, rows):
    """What a kernel does to lse, as far as a workload's FLOP can tell."""
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


def test_a_kernel_without_a_workload_is_refused():
    with pytest.raises(PerfError, match="no workload for kernel other") as refusal:
        ours.forward(kernel("other"))
    assert f"needs FILE{SUFFIX} beside it" in str(refusal.value)


def test_kernels_that_memory_bounds_have_no_workload_and_foreign_ones_are_to_be_refused():
    names = ("fa_decode_fp16_d64", "fa_append_bf16", "fa_reference_fp16", "fa_combine_bf16")
    assert not any(map(ours.has_workload, names))
    assert ours.has_workload("fa_fwd_fp16_d64")
    assert ours.has_workload("fa_decode_fp32_d64")
    assert ours.has_workload("other")
