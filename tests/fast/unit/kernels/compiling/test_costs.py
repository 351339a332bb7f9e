"""Measured compile costs of each kernel: a build reserves memory by them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[5] / "kernels/build/instances"))
from costs import COSTS, load_peaks, operation, peak_mib


def test_the_memory_of_an_operation_is_the_most_that_one_of_its_kernels_took():
    peaks = load_peaks(COSTS)
    assert peak_mib(peaks, "fwd") == peaks["fwd"] > 0
    assert peak_mib(peaks, "never_measured") == max(peaks.values())


@pytest.mark.parametrize(("kernel", "op"), [("fa_bwd_dq_fp16_d64", "bwd_dq"), ("fa_append_bf16", "append")])
def test_operations_of_kernels(kernel, op):
    assert operation(kernel) == op
