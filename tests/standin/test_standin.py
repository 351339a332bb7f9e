"""The stand-in itself: it lets nothing through that a GPU would not, and sees what it promises to see."""

import pytest


def test_memory_that_is_not_a_tensors_is_out_of_bounds(scenario):
    shown = scenario(
        """
q, k, v = qkv(rows=33)
out, lse = torch.empty_like(q), torch.empty(1, 4, 33)
short = {"q": (q, True), "k": (k[:, :32], True), "v": (v, True), "out": (out, False), "lse": (lse, False)}
try:
    with standin.memory(short):
        dense_fwd(q, k, v, out, lse)
except RuntimeError as error:
    shown["words"] = str(error)
[launch] = standin.report().launches
shown["findings"] = len(launch.findings)
"""
    )
    assert "unspecified launch failure [stand-in: global-out-of-bounds: load of" in shown["words"]
    assert "past the end of buffer 'k'" in shown["words"]
    assert "kernel fa_fwd_fp16_d64 at fa_fwd_fp16_d64+0x" in shown["words"]
    assert shown["findings"] > 0


def test_a_store_to_what_the_kernel_only_reads_is_seen(scenario):
    shown = scenario(
        """
q, k, v = qkv()
out, lse = torch.empty_like(q), torch.empty(1, 4, 17)
all_readonly = {name: (x, True) for name, x in zip(["q", "k", "v", "out", "lse"], [q, k, v, out, lse])}
try:
    with standin.memory(all_readonly):
        dense_fwd(q, k, v, out, lse)
except RuntimeError as error:
    shown["words"] = str(error)
"""
    )
    assert "[stand-in: " in shown["words"]
    assert "'out'" in shown["words"]


def test_another_code_object_than_the_disassembled_ones_is_refused(scenario, tmp_path):
    shown = scenario('shown["words"] = words_of_failure()', disassembly=str(tmp_path))
    assert (
        "failed: device kernel image is invalid [stand-in: no disassembly of this code object"
        in shown["words"]
    )
    assert "disassemble the code objects of this very wheel" in shown["words"]


WRONG_SETTINGS = {
    "checks": ("races", "FA_STANDIN_CHECKS: 'races' is no check"),
    "fail": ("hipModuleLoadData", "expected call=error or call=error@time"),
    "seed": ("one", "FA_STANDIN_SEED: expected a whole number, found 'one'"),
    "launch": ("no", "FA_STANDIN_LAUNCH: expected execute or skip, found 'no'"),
}


@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_wrong_settings_are_refused_at_the_first_call(scenario, name):
    value, words = WRONG_SETTINGS[name]
    shown = scenario('shown["words"] = words_of_failure()', **{name: value})
    assert words in shown["words"]


def test_without_the_preload_the_control_says_so(scenario):
    shown = scenario(
        """
import ctypes
import wheel_builder.standin.control as control
control.FUNCTIONS = ("fa_standin_not_there",)
try:
    control.StandIn()
except RuntimeError as error:
    shown["words"] = str(error)
"""
    )
    assert "name it in LD_PRELOAD" in shown["words"]


def test_a_run_of_one_seed_is_repeatable_and_seeds_do_not_change_the_result(scenario):
    text = """
import hashlib
out = attend(*qkv(rows=113))
[launch] = standin.report().launches
shown["out"] = hashlib.sha256(out.numpy().tobytes()).hexdigest()
shown["executed"] = launch.executed
"""
    runs = [
        scenario(text, seed=seed, threads=threads) for seed, threads in (("1", "1"), ("1", "2"), ("7", "1"))
    ]
    assert runs[0] == runs[1] == runs[2]
