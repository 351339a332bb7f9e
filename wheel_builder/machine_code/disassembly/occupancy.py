"""The waves of a kernel on a SIMD, and its workgroups on a compute unit or workgroup processor."""

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.machine_code.disassembly.resources import Resources
from wheel_builder.tables.archs import Arch, arch_named


def occupancy(arch: str, resources: Resources) -> int:
    """The most waves of the kernel on each SIMD, limited by registers, LDS and its largest workgroup.

    Raises ``ArchError`` for an arch missing from the table, and ``DeviceCodeError`` for RDNA code compiled
    for one compute unit instead of a workgroup processor.
    """
    hardware = arch_named(arch)
    if hardware.isa.cus_of_workgroup > 1 and not resources.workgroup_processor:
        title = f"a kernel for {arch} is compiled for one compute unit (-mcumode)"
        raise DeviceCodeError(title, ["its occupancy is not known here"], advice="compile without -mcumode")
    group = -(-resources.workgroup // resources.wave)
    groups = workgroups(hardware, resources, waves=group, lds_bytes=resources.lds_bytes)
    each = groups * group // (hardware.isa.simds * hardware.isa.cus_of_workgroup)
    return max(each, min(groups, 1))  # three waves on four SIMDs: one on each but the last


def workgroups(hardware: Arch, taken: Resources, *, waves: int, lds_bytes: int) -> int:
    """How many workgroups with this many waves and bytes of LDS a compute unit (on RDNA a workgroup
    processor) holds at once.
    """
    cus = hardware.isa.cus_of_workgroup
    per_simd = hardware.isa.waves_per_simd
    if taken.vgpr:
        per_simd = min(per_simd, hardware.vgprs // _granules(taken.vgpr, hardware.vgpr_granule))
    if hardware.isa.sgprs and taken.sgpr:
        per_simd = min(per_simd, hardware.isa.sgprs // _granules(taken.sgpr, hardware.isa.sgpr_granule))
    groups = per_simd * hardware.isa.simds * cus // waves
    if lds_bytes:
        groups = min(groups, hardware.lds_bytes * cus // _granules(lds_bytes, hardware.lds_granule))
    return groups


def _granules(wanted: int, granule: int) -> int:
    """``wanted``, rounded up to the allocation granule."""
    return -(-wanted // granule) * granule
