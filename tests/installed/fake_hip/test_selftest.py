"""selftest on the emulator: the wheel's copy of the suite, without pytest, and a wrong kernel."""

import re

import pytest

PREPARE = """
from flash_attn_rocm.tools import selftest
from wheel_builder.machine_code.fake_hip.control import kernels_on_host_memory
NAMES = ["fa_decode_fp16_d64", "fa_append_bf16"]
"""


def test_the_report_says_what_was_compared_and_where(scenario):
    shown = scenario(
        f"""{PREPARE}
with kernels_on_host_memory(fake_hip):
    report = selftest.run(NAMES, 6, fake_hip)
shown["report"], shown["table"] = report, selftest.table(report)
shown["passed"] = selftest.passed(report)
"""
    )
    report = shown["report"]
    assert shown["passed"], report
    assert report["how"] == "executed on an ISA emulator, not run on hardware"
    assert (report["schema"], report["arch"], report["complete"]) == (1, "gfx942:sramecc+:xnack-", False)
    assert report["library_as_installed"]
    assert len(report["library_sha256"]) == 64
    assert {name: (row["calls"], row["failed"]) for name, row in report["kernels"].items()} == {
        "fa_append_bf16": (6, 0), "fa_decode_fp16_d64": (6, 0),
    }  # fmt: skip
    row = report["kernels"]["fa_decode_fp16_d64"]
    assert 0 < row["worst_error"] <= row["allowed"]
    assert row["median_ms"] > 0
    assert re.fullmatch("[0-9a-f]{8}", row["row"])
    assert report["kernels"]["fa_append_bf16"]["row"] == ""
    assert "fa_decode_fp16_d64      6       0" in shown["table"]
    assert "every kernel passed" in shown["table"]


@pytest.mark.needs_archs("gfx1030")
def test_a_gpu_runs_the_calls_of_the_arch_whose_code_it_runs(scenario):
    shown = scenario(
        f"""{PREPARE}
with kernels_on_host_memory(fake_hip):
    shown["report"] = selftest.run(["fa_append_bf16"], 2, fake_hip)
shown["passed"] = selftest.passed(shown["report"])
""",
        arch="gfx1031",
    )
    assert shown["passed"], shown["report"]
    assert shown["report"]["arch"] == "gfx1031"
    assert shown["report"]["kernels"]["fa_append_bf16"]["calls"] == 2


@pytest.mark.parametrize(
    ("failure", "words"),
    [("hipModuleLaunchKernel=719", "unspecified launch failure"), ("wrong", "out: error ")],
)
def test_a_kernel_that_is_wrong_is_named(scenario, failure, words):
    shown = scenario(
        f"""{PREPARE}
if {failure!r} == "wrong":
    from wheel_builder.machine_code.fake_hip import control
    right = control._on
    def wrong(hip, shipped):
        attend, names = right(hip, shipped), [each.name for each in shipped._schema.arguments]
        def operator(*arguments):
            attend(*arguments)
            arguments[names.index("out")].add_(0.01)
        return operator if shipped._schema.name.endswith("::fwd") else attend
    control._on = wrong
else:
    fake_hip.fail({failure!r})
with kernels_on_host_memory(fake_hip):
    report = selftest.run(NAMES[:1], 1, fake_hip)
shown["report"], shown["table"] = report, selftest.table(report)
shown["passed"] = selftest.passed(report)
"""
    )
    assert not shown["passed"]
    [row] = shown["report"]["kernels"].values()
    assert row["failed"] == 1
    assert words in row["failures"][0]
    assert row["failures"][0] in shown["table"]
    assert "1 of 1 kernels failed" in shown["table"]


def test_a_kernel_that_is_not_there_is_refused(scenario):
    shown = scenario(
        f"""{PREPARE}
try:
    with kernels_on_host_memory(fake_hip):
        selftest.run(["fa_fwd_fp32_d64"], 0, fake_hip)
except selftest.NoGpuError as error:
    shown["words"] = str(error)
"""
    )
    assert shown["words"].startswith("unknown kernel fa_fwd_fp32_d64 for gfx942; there are fa_")
