"""How many workgroups of a kernel a compute unit (on RDNA: a workgroup processor) holds at once."""

from wheel_builder.errors import PerfError
from wheel_builder.static_checks.hardware import HARDWARE
from wheel_builder.static_checks.resources import Resources


def resident_workgroups(arch: str, taken: Resources, *, threads: int, dynamic_lds: int = 0) -> int:
    """Workgroups of ``threads`` threads that fit at once, by registers, LDS and waves.

    Raises ``PerfError`` when not even one does.
    """
    hardware = HARDWARE[arch]
    waves = min(hardware.waves, hardware.vgprs.shares(taken.vgpr))
    if hardware.sgprs:
        waves = min(waves, hardware.sgprs.shares(taken.sgpr))
    group = -(-threads // taken.wave)
    found = min(waves * hardware.simds // group, hardware.lds.shares(taken.lds_bytes + dynamic_lds))
    if found < 1:
        lds = taken.lds_bytes + dynamic_lds
        title = f"a workgroup does not fit on {arch}"
        raise PerfError(title, [f"{group} waves with {taken.vgpr} VGPRs each, {lds} bytes of LDS"])
    return found
