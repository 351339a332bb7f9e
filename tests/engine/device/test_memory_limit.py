"""A build under a memory limit. One compiler per core exceeds it. Memory-aware jobs stay below it."""

import json

import pytest

# Eight compilers take about 30 MiB of unshared memory each. One needs less than half of the limit.
LIMIT_MIB = 150
JOBS = "8"
TABLE = """\
[[kernels]]
op = "fwd"
dtypes = ["fp16", "bf16"]
head_dims = [64, 128]
[[kernels]]
op = "decode"
dtypes = ["fp16", "bf16"]
head_dims = [64, 128]
"""


@pytest.fixture
def limited(toolchain):
    toolchain.memory_mib = LIMIT_MIB
    (toolchain.scratch / "table.toml").write_text(TABLE)
    return toolchain


def test_the_naive_setting_is_killed_and_ours_finishes(limited):
    options = ("--table", "/out/table.toml", "--jobs", JOBS)
    said = limited.fails(limited.build, "gfx942", *options, "--memory", "999999", out="naive")
    assert "does not compile" in said
    folder = limited.build("gfx942", *options)
    found = json.loads((folder / "resources.json").read_text())
    assert len(found["kernels"]) == 8
    assert all(cost["peak_mib"] > 0 and cost["cpu_seconds"] > 0 for cost in found["costs"].values())
