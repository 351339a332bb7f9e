"""The fake HIP runtime refuses everything that a GPU would refuse, and detects the promised faults."""

import pytest


def test_memory_that_is_not_a_tensors_is_out_of_bounds(scenario):
    shown = scenario(
        """
q, k, v = qkv(rows=33)
out, lse = torch.empty_like(q), torch.empty(1, 4, 33)
short = {"q": (q, True), "k": (k[:, :32], True), "v": (v, True), "out": (out, False), "lse": (lse, False)}
try:
    with fake_hip.memory(short):
        dense_fwd(q, k, v, out, lse)
except RuntimeError as error:
    shown["words"] = str(error)
[launch] = fake_hip.report().launches
shown["findings"] = len(launch.findings)
"""
    )
    assert "unspecified launch failure [fake HIP runtime: global-out-of-bounds: load of" in shown["words"]
    assert "past the end of buffer 'k'" in shown["words"]
    assert "kernel fa_fwd_fp16_d64 at fa_fwd_fp16_d64+0x" in shown["words"]
    assert shown["findings"] > 0


def test_between_the_parts_of_a_result_is_no_memory(scenario):
    """Rows of out are 2 MiB apart, and the kernel gets a stride of 2 MiB and 16 bytes."""
    shown = scenario(
        """
q, k, v = qkv(rows=2)
lse = torch.empty(1, 4, 2)
near, room, apart = torch.empty_like(q), torch.empty(1 << 22, dtype=q.dtype), 1 << 20
out, other = (room.as_strided(q.shape, (1 << 22, step, 64, 1)) for step in (apart, apart + 8))
tensors = {"q": (q, True), "k": (k, True), "v": (v, True), "lse": (lse, False)}
for registered, given in ((near, near), (out, out), (out, other)):
    try:
        with fake_hip.memory({**tensors, "out": (registered, False)}):
            dense_fwd(q, k, v, given, lse)
        shown["same"] = bool((near == given).all())
    except RuntimeError as error:
        shown["words"] = str(error)
"""
    )
    assert shown["same"]
    assert "global-out-of-bounds: store of" in shown["words"]
    assert "buffer 'out'" in shown["words"]


def test_a_store_to_what_the_kernel_only_reads_is_seen(scenario):
    shown = scenario(
        """
q, k, v = qkv()
out, lse = torch.empty_like(q), torch.empty(1, 4, 17)
all_readonly = {name: (x, True) for name, x in zip(["q", "k", "v", "out", "lse"], [q, k, v, out, lse])}
try:
    with fake_hip.memory(all_readonly):
        dense_fwd(q, k, v, out, lse)
except RuntimeError as error:
    shown["words"] = str(error)
"""
    )
    assert "[fake HIP runtime: " in shown["words"]
    assert "'out'" in shown["words"]


def test_another_code_object_than_the_disassembled_ones_is_refused(scenario, tmp_path):
    shown = scenario('shown["words"] = words_of_failure()', disassembly=str(tmp_path))
    assert (
        "failed: device kernel image is invalid [fake HIP runtime: no disassembly of this code object"
        in shown["words"]
    )
    assert "disassemble the code objects of this very wheel" in shown["words"]


WRONG_SETTINGS = {
    "checks": ("races", "FA_FAKE_HIP_CHECKS: 'races' is no check"),
    "fail": ("hipModuleLoadData", "expected call=error or call=error@time"),
    "seed": ("one", "FA_FAKE_HIP_SEED: expected a whole number, found 'one'"),
    "time_limit": ("1s", "FA_FAKE_HIP_TIME_LIMIT: expected a whole number, found '1s'"),
    "launch": ("no", "FA_FAKE_HIP_LAUNCH: expected execute or skip, found 'no'"),
    "units": ("two", "FA_FAKE_HIP_UNITS: expected single or pairs, found 'two'"),
}


@pytest.mark.parametrize("units", ["single", "pairs"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_device_has_its_compute_units_whatever_the_runtime_counts(scenario, arch, units):
    """Windows' runtime and newer ones of ROCm also count this way.

    The fake GPU is the largest of its arch.
    """
    shown = scenario('shown["units"] = torch.ops.flash_attn_rocm.compute_units(-1)', arch=arch, units=units)
    assert shown["units"] == {"gfx942": 304, "gfx1100": 96}[arch]


@pytest.mark.parametrize("name", WRONG_SETTINGS)
def test_wrong_settings_are_refused_at_the_first_call(scenario, name):
    value, words = WRONG_SETTINGS[name]
    shown = scenario('shown["words"] = words_of_failure()', **{name: value})
    assert words in shown["words"]


def test_without_the_preload_the_control_says_so(scenario):
    shown = scenario(
        """
import ctypes
import wheel_builder.machine_code.fake_hip.control as control
control.FUNCTIONS = ("fa_fake_hip_not_there",)
try:
    control.FakeHip()
except RuntimeError as error:
    shown["words"] = str(error)
"""
    )
    assert "name it in LD_PRELOAD" in shown["words"]


def test_a_run_of_one_seed_is_repeatable_and_seeds_do_not_change_the_result(scenario):
    text = """
import hashlib
out = attend(*qkv(rows=113))
[launch] = fake_hip.report().launches
shown["out"] = hashlib.sha256(out.numpy().tobytes()).hexdigest()
shown["executed"] = launch.executed
"""
    runs = [
        scenario(text, seed=seed, threads=threads) for seed, threads in (("1", "1"), ("1", "2"), ("7", "1"))
    ]
    assert runs[0] == runs[1] == runs[2]


def test_a_function_handle_of_somebody_else_is_refused(scenario):
    shown = scenario(
        """
import ctypes
library = ctypes.CDLL(None)
library.hipGetErrorString.restype = ctypes.c_char_p
attend()
sizes = [ctypes.c_uint(1)] * 7
for name, handle in {"wild": 0x1234567890, "own memory": id(shown)}.items():
    error = library.hipModuleLaunchKernel(ctypes.c_void_p(handle), *sizes, None, None, None)
    shown[name] = [error, library.hipGetErrorString(error).decode()]
"""
    )
    for handle in ("wild", "own memory"):
        error, words = shown[handle]
        assert error == 400
        assert "the function is none that hipModuleGetFunction gave" in words


def test_an_image_whose_headers_lead_out_of_memory_is_refused(scenario):
    shown = scenario(
        """
import ctypes, mmap, os, struct
from pathlib import Path
library = ctypes.CDLL(None)
library.hipGetErrorString.restype = ctypes.c_char_p
data = bytearray(next(Path(os.environ["FA_FAKE_HIP_DISASSEMBLY"]).glob("*.co")).read_bytes())
struct.pack_into("<Q", data, 40, 2**64 - 64)  # where the section headers are
place = mmap.mmap(-1, len(data))
place[:] = bytes(data)
image = ctypes.c_char.from_buffer(place)
module = ctypes.c_void_p()
error = library.hipModuleLoadData(ctypes.byref(module), ctypes.byref(image))
shown["error"] = [error, library.hipGetErrorString(error).decode()]
wild = library.hipModuleLoadData(ctypes.byref(module), ctypes.c_void_p(0x1234567890))
shown["wild"] = [wild, library.hipGetErrorString(wild).decode()]
del image
"""
    )
    assert shown["error"][0] == shown["wild"][0] == 200
    assert "the image's headers name" in shown["error"][1]
    assert "the image is not a raw 64-bit ELF" in shown["wild"][1]


def test_a_launch_beyond_the_time_limit_fails_in_words(scenario):
    # 16385 causal rows with all checks take many seconds. 4097 took less than one.
    shown = scenario(
        """
shown["words"] = words_of_failure(*qkv(rows=16385))
[launch] = fake_hip.report().launches
shown["kinds"] = [finding.partition(":")[0] for finding in launch.findings]
""",
        time_limit="1",
        checks="uninit,race,barrier",
    )
    assert "more than 1 s of processor time" in shown["words"]
    assert "time-limit" in shown["kinds"]


def test_blocks_that_the_compiler_placed_behind_the_end_are_counted(scenario):
    shown = scenario(
        """
attend()
[launch] = fake_hip.report().launches
shown["names"] = [each.text.split()[0] for each in fake_hip.listing(launch.kernel)]
"""
    )
    behind = shown["names"][shown["names"].index("s_endpgm") + 1 :]
    assert behind
    assert behind[-1] == "s_branch", "and not the padding after them"


CHANGED, TRUE, FALSE = 1, 2, 4  # emulator/core/run/outcomes.hpp


def test_what_instructions_showed_is_reported_where_it_is_asked_for(scenario):
    text = """
attend()
[launch] = fake_hip.report().launches
shown["instructions"] = [
    [each.text.split()[0], launch.ran >> n & 1, launch.outcomes >> 4 * n & 15]
    for n, each in enumerate(fake_hip.listing(launch.kernel))
]
"""
    seen = scenario(text, outcomes="1")["instructions"]
    assert not any(outcomes for _, ran, outcomes in seen if not ran)
    executed = [(name, outcomes) for name, ran, outcomes in seen if ran]
    assert all(outcomes == TRUE for name, outcomes in executed if name == "s_branch")
    decides = ("s_cbranch", "s_cmp", "v_cmp", "v_cndmask")
    assert all(outcomes & (TRUE | FALSE) for name, outcomes in executed if name.startswith(decides))
    assert {o & (TRUE | FALSE) for name, o in executed if name.startswith("v_cndmask")} >= {TRUE, FALSE, 6}
    # One of them may find its result in the register already.
    exponentials = {outcomes for name, outcomes in executed if name.startswith("v_exp")}
    assert CHANGED in exponentials
    assert exponentials <= {0, CHANGED}
    assert not any(outcomes for name, outcomes in executed if name.startswith(("buffer_store", "s_nop")))
    assert not any(outcomes for _, _, outcomes in scenario(text)["instructions"])
