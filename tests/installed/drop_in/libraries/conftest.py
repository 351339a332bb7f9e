"""Released libraries on the installed drop-ins, such as flash-attn: tiny models with random weights.

Tensors are on the CPU.  If FA_FAKE_HIP_ARCH names an arch, its kernels answer supported calls, executed on an
ISA emulator (machine_code/fake_hip). Calls with gradients go to the PyTorch implementation. Without an arch
it answers all calls.
"""

import functools
import os
import warnings
from collections import Counter

import flash_attn
import flash_attn_interface
import flash_attn_rocm
import pytest
import sageattention
import torch
from flash_attn_rocm.transformers import calls as _transformers_calls

ARCH = os.environ.get("FA_FAKE_HIP_ARCH", "")
CALLS = Counter()


def counted(function, name):
    """The function with its signature (read by transformers). Each call counts."""

    @functools.wraps(function)
    def call(*arguments, **options):
        CALLS[name] += 1
        return function(*arguments, **options)

    return call


def pytest_configure():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", flash_attn_rocm.FlashAttnFallbackWarning)
    # Libraries take the functions when they are imported, after this.
    for name in ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"):
        for module, label in ((flash_attn, name), (flash_attn_interface, f"3.{name}")):
            setattr(module, name, counted(getattr(module, name), label))
    for name in sageattention.__all__:
        setattr(sageattention, name, counted(getattr(sageattention, name), f"sage.{name}"))
    # Both libraries look for a GPU before they import flash_attn. transformers also reads its name.
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda _=None: (11, 0)  # of gfx1100


@pytest.fixture(scope="session", autouse=True)
def kernels():
    """On an emulated arch: the fake HIP runtime. Its reports list launches. Otherwise None."""
    if not ARCH:
        yield None
        return
    from wheel_builder.machine_code.fake_hip.control import FakeHip, kernels_on_host_memory

    runtime = FakeHip()
    with kernels_on_host_memory(runtime):
        yield runtime


@pytest.fixture
def calls():
    """Calls in this test: flash_attn's functions by name, those of flash_attn_interface as 3.NAME, of
    sageattention as sage.NAME."""
    CALLS.clear()
    return CALLS


@pytest.fixture
def used(monkeypatch):
    """Calls of the package's functions by ``rocm_fa`` in this test, by name."""
    count = Counter()

    def counting(name):
        function = getattr(_transformers_calls, name)

        def call(*arguments, **options):
            count[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(_transformers_calls, name, call)

    for name in ("flash_attn_func", "flash_attn_varlen_func", "attention"):
        counting(name)
    return count


@pytest.fixture
def ran(kernels):
    """``ran()``: the kernels since the last call, and no finding. None without an arch."""

    def names():
        if kernels is None:
            return None
        launches = kernels.report().launches
        assert [finding for launch in launches for finding in launch.findings] == []
        return [launch.kernel for launch in launches]

    names()
    return names


@pytest.fixture
def launched(ran):
    """``launched()``: the number of kernels since the last call. None without an arch."""
    return lambda: None if (names := ran()) is None else len(names)
