"""How many workgroups of a kernel a compute unit (on RDNA: a workgroup processor) holds at once."""

from wheel_builder.base.errors import PerfError
from wheel_builder.machine_code.disassembly.occupancy import workgroups
from wheel_builder.machine_code.disassembly.resources import Resources
from wheel_builder.tables.archs import arch_named


def resident_workgroups(arch: str, taken: Resources, *, threads: int, dynamic_lds: int = 0) -> int:
    """Resident workgroups of ``threads`` threads, limited by registers, LDS and waves.

    Raises ``PerfError`` if a single one exceeds the limits.
    """
    waves, lds = -(-threads // taken.wave), taken.lds_bytes + dynamic_lds
    found = workgroups(arch_named(arch), taken, waves=waves, lds_bytes=lds)
    if found < 1:
        title = f"a workgroup does not fit on {arch}"
        raise PerfError(title, [f"{waves} waves with {taken.vgpr} VGPRs each, {lds} bytes of LDS"])
    return found
