"""How many waves of a kernel fit on a SIMD, per arch.

Numbers: LLVM's AMDGPU target (register files and how they are handed out) and the instruction set
manuals (LDS).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from wheel_builder.errors import DeviceCodeError
from wheel_builder.static_checks.resources import Resources


@dataclass(frozen=True)
class Pool:
    """What is shared, and the step in which it is handed out."""

    size: int
    step: int

    def shares(self, wanted: int) -> int:
        """How many can have ``wanted`` each; as many as like when nothing is wanted."""
        return self.size // (-(-wanted // self.step) * self.step) if wanted else self.size


@dataclass(frozen=True)
class Hardware:
    """One arch: registers of a SIMD (``vgprs``: of each lane) and waves it holds, and LDS bytes and SIMDs of
    what a workgroup runs on: a compute unit, on RDNA the two of a workgroup processor."""

    vgprs: Pool
    sgprs: Pool | None
    waves: int
    lds: Pool
    simds: int


HARDWARE: Mapping[str, Hardware] = {
    "gfx908": Hardware(Pool(256, 4), Pool(800, 16), 10, Pool(65536, 512), 4),
    "gfx942": Hardware(Pool(512, 8), Pool(800, 16), 8, Pool(65536, 512), 4),
    "gfx1030": Hardware(Pool(1024, 16), None, 16, Pool(131072, 512), 4),
    "gfx1100": Hardware(Pool(1536, 24), None, 16, Pool(131072, 1024), 4),
}


def occupancy(arch: str, resources: Resources) -> int:
    """Waves of the kernel on each SIMD at most, by registers, LDS and its largest workgroup.

    Raises ``DeviceCodeError`` for an arch that is not in the table, and for RDNA code compiled for one
    compute unit instead of a workgroup processor.
    """
    if arch not in HARDWARE:
        title = f"no numbers for the hardware of {arch}"
        raise DeviceCodeError(title, [f"known: {', '.join(HARDWARE)}"], advice="add them to hardware.py")
    if arch.startswith("gfx1") and not resources.workgroup_processor:
        title = f"a kernel for {arch} is compiled for one compute unit (-mcumode)"
        raise DeviceCodeError(title, ["its occupancy is not known here"], advice="compile without -mcumode")
    hardware = HARDWARE[arch]
    waves = min(hardware.waves, hardware.vgprs.shares(resources.vgpr))
    if hardware.sgprs:
        waves = min(waves, hardware.sgprs.shares(resources.sgpr))
    group = -(-resources.workgroup // resources.wave)
    groups = min(waves * hardware.simds // group, hardware.lds.shares(resources.lds_bytes))
    return groups * group // hardware.simds
