"""Each error of the HIP runtime becomes a RuntimeError in words. No call hangs or leaks memory."""

import re

import pytest

FAILURES = {  # FA_FAKE_HIP_FAIL and the words shown to the user
    "hipGetDevice=999": "asking the HIP runtime for the current device failed: unknown error",
    "hipGetDevicePropertiesR0600=101": "properties of device 0 failed: invalid device ordinal",
    "hipModuleLoadData=2": "the code object of fa_fwd_fp16_d64 on device 0 (gfx942) failed: out of memory",
    "hipModuleLoadData=209": "(gfx942) failed: no kernel image is available for execution on the device",
    "hipModuleGetFunction=500": "fa_fwd_fp16_d64 on device 0 (gfx942) failed: named symbol not found",
    "hipModuleLaunchKernel=1": "launching fa_fwd_fp16_d64 on device 0 (gfx942) failed: invalid argument",
    "hipModuleLaunchKernel=2": "launching fa_fwd_fp16_d64 on device 0 (gfx942) failed: out of memory",
    "hipModuleLaunchKernel=719": "fa_fwd_fp16_d64 on device 0 (gfx942) failed: unspecified launch failure",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_call_is_told_in_words_and_then_the_wheel_works_again(scenario, failure):
    shown = scenario(
        """
shown["words"] = words_of_failure()
fake_hip.fail("")
shown["finite"] = bool(torch.isfinite(attend()).all())
""",
        fail=failure,
    )
    assert FAILURES[failure] in shown["words"]
    assert f"(HIP error {failure.partition('=')[2]})" in shown["words"]
    assert "\n  next: " in shown["words"]
    assert shown["finite"]


def test_no_device(scenario):
    words = scenario('shown["words"] = words_of_failure()', arch="")["words"]
    assert "failed: no ROCm-capable device is detected" in words
    assert "python -m flash_attn_rocm doctor" in words


def test_an_arch_that_the_wheel_does_not_have_is_told_before_anything_is_loaded(scenario):
    shown = scenario(
        """
shown["words"] = words_of_failure()
shown["modules"] = fake_hip.report().modules
""",
        arch="gfx900",
    )
    assert "this wheel has no kernels for gfx900: it was built for gfx" in shown["words"]
    assert shown["modules"] == 0


PARTS = "partial_out=torch.empty(2, 1, 4, 17, 64), partial_lse=torch.empty(2, 1, 4, 17)"
NOT_SERVED = {
    PARTS: "partial_lse: expected none, as plan says of this call (17 query rows, keys not split)",
    f"{PARTS}, dropout_p=0.5, rng_state=torch.zeros(2, dtype=torch.int64)": (
        "expected none, as plan says of this call (dropout: keys are not split), got 2 parts"
    ),
}


@pytest.mark.parametrize("more", NOT_SERVED)
def test_what_no_kernel_has_is_refused_and_nothing_is_launched(scenario, more):
    shown = scenario(
        f"""
q, k, v = qkv()
try:
    dense_fwd(q, k, v, torch.empty_like(q), torch.empty(1, 4, 17), {more})
except RuntimeError as error:
    shown["words"] = str(error)
shown["launches"] = len(fake_hip.report().launches)
"""
    )
    assert NOT_SERVED[more] in shown["words"]
    assert shown["launches"] == 0


def test_an_asynchronous_failure_is_reported_by_the_next_call(scenario):
    shown = scenario(
        """
attend()
fake_hip.fail("async=700")
attend()  # a queue tells nothing
shown["words"] = words_of_failure()
shown["again"] = words_of_failure()
"""
    )
    earlier = "[fake HIP runtime: an earlier launch failed]"
    expected = f"an illegal memory access was encountered {earlier} (HIP error 700)"
    assert expected in shown["words"]
    assert expected in shown["again"]


@pytest.mark.parametrize(
    "failure",
    ["hipModuleLoadData=2", "hipModuleGetFunction=500", "hipModuleLaunchKernel=719", "hipGetDevice=999"],
)
def test_failing_calls_leave_nothing_behind(scenario, failure):
    shown = scenario(
        f"""
fake_hip.fail({failure!r})
tensors = qkv()
watched = watch(tensors)
for _ in range(20):
    words_of_failure(*tensors)
before, modules = resident_bytes(), fake_hip.report().modules
for _ in range(300):
    words_of_failure(*tensors)
shown["grown"] = resident_bytes() - before
shown["modules_grown"] = fake_hip.report().modules - modules
del tensors
shown["alive"] = alive(watched)
"""
    )
    # If each of the 300 calls kept q, k, v or out (4.3 kB or more), the growth would be over a megabyte.
    assert shown["grown"] < 1 << 20
    assert shown["modules_grown"] == 0
    assert shown["alive"] == 0


def test_a_module_is_loaded_once_whatever_follows(scenario):
    shown = scenario(
        """
for _ in range(3):
    attend()
shown["modules"] = fake_hip.report().modules
attend(*qkv(dtype=torch.bfloat16))
shown["both"] = fake_hip.report().modules
"""
    )
    assert (shown["modules"], shown["both"]) == (1, 2)


def test_threads_share_what_is_loaded(scenario):
    shown = scenario(
        """
from concurrent.futures import ThreadPoolExecutor
with kernels_on_host_memory(fake_hip), ThreadPoolExecutor(4) as pool:
    tensors = qkv()
    calls = [pool.submit(torch.ops.flash_attn_rocm.device_arch, -1) for _ in range(8)]
    shown["archs"] = sorted({call.result() for call in calls})
attend()
shown["modules"] = fake_hip.report().modules
"""
    )
    assert shown == {"archs": ["gfx942:sramecc+:xnack-"], "modules": 1}


@pytest.mark.needs_archs("gfx908", "gfx942", "gfx1030", "gfx1100")
def test_each_device_runs_the_code_of_its_own_arch(scenario):
    shown = scenario(
        """
outs = []
for device in range(4):
    fake_hip.select(device)
    outs.append(attend())
shown["archs"] = [launch.arch for launch in fake_hip.report().launches]
shown["apart"] = max((out - outs[0]).abs().max().item() for out in outs)
""",
        arch="gfx908:sramecc+:xnack-,gfx942:sramecc+:xnack-,gfx1030,gfx1100",
    )
    assert [re.sub(":.*", "", arch) for arch in shown["archs"]] == ["gfx908", "gfx942", "gfx1030", "gfx1100"]
    # The archs round P differently and sum in different orders: a few fp16 steps at 1.
    assert shown["apart"] <= 2**-9
