"""The archs of the wheel under test, by its table.

A wheel may be for one arch. So tests take their archs from here, and mark the needs of some archs
(``pytest.mark.needs_kernels``): ``tests/fast/unit/verify/test_archs.py``.
"""

from collections import Counter

from flash_attn_rocm.library.host import instances
from flash_attn_rocm.serving.layouts import Device
from flash_attn_rocm.serving.machine import Machine

UNKNOWN = "gfx900"  # no wheel is built for it


def archs_with(op, dtype=""):
    """The archs with kernels of an op, and of a dtype, ordered from most kernels to fewest."""
    kernels = Counter(arch for each in instances() for arch in each.archs)
    there = {arch for each in instances() if each.op == op and dtype in each.dtype for arch in each.archs}
    return sorted(there, key=lambda arch: (kernels[arch], arch), reverse=True)


class HostMemory(Machine):
    """Host memory is read by kernels of an arch."""

    kind = "cpu"
    checks_kernels = False
    units = 0

    def __init__(self, arch):
        super().__init__()
        self.arch = arch

    def unserved(self, device):
        return ""

    def count(self):
        return 1

    def device(self, device):
        return Device(self.arch, self.units)


ARCH = (archs_with("bwd_dq") or archs_with("fwd"))[0]
