"""A kernel's hardware resources, from ``llvm-readelf --notes --symbols --wide``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from wheel_builder.base.errors import DeviceCodeError

METADATA = re.compile(r"^\s*---\n(.*?)^\.\.\.$", re.DOTALL | re.MULTILINE)
FUNCTION = re.compile(r"^\s*\d+:\s+[0-9a-f]+\s+(\d+)\s+FUNC\s.*\s(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """Registers per lane (``sgpr``: per wave), bytes of memory, threads of a workgroup and of a wave.

    ``vgpr`` is a lane's allocation: VGPRs plus AccVGPRs if both share a register file, else the larger
    number.
    """

    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    kernarg_bytes: int
    workgroup: int
    wave: int
    workgroup_processor: bool
    code_bytes: int


KEYS = {
    "vgpr": ".vgpr_count",
    "sgpr": ".sgpr_count",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
    "scratch_bytes": ".private_segment_fixed_size",
    "lds_bytes": ".group_segment_fixed_size",
    "kernarg_bytes": ".kernarg_segment_size",
    "workgroup": ".max_flat_workgroup_size",
    "wave": ".wavefront_size",
}


def parse_notes(text: str) -> Mapping[str, Resources]:
    """The resources of each kernel of a code object. Raises ``DeviceCodeError`` with all missing ones."""
    match = METADATA.search(text)
    try:
        metadata = yaml.safe_load(match.group(1)) if match else {}
    except yaml.YAMLError as error:
        title = "the metadata of a code object cannot be read"
        raise DeviceCodeError(title, [str(error)], advice="is this llvm-readelf --notes?") from error
    kernels = metadata.get("amdhsa.kernels", [])
    sizes = {name: int(size) for size, name in FUNCTION.findall(text)}
    problems = [problem for kernel in kernels for problem in _missing(kernel, sizes)]
    if problems or not kernels:
        title = "the notes of a code object are not complete"
        raise DeviceCodeError(title, problems or ["no amdhsa.kernels"], advice="see llvm-readelf --notes")
    return {kernel[".name"]: _resources(kernel, sizes) for kernel in kernels}


def _missing(kernel: Mapping[str, Any], sizes: Mapping[str, int]) -> list[str]:
    name = kernel.get(".name", "a kernel without a name")
    problems = [f"{name}: no {key}" for key in KEYS.values() if key not in kernel]
    if kernel.get(".uses_dynamic_stack"):
        problems.append(f"{name}: its stack has no fixed size")
    return problems + ([] if name in sizes else [f"{name}: no function of that name"])


def _resources(kernel: Mapping[str, Any], sizes: Mapping[str, int]) -> Resources:
    return Resources(
        **{field: int(kernel[key]) for field, key in KEYS.items()},
        agpr=int(kernel.get(".agpr_count", 0)),  # only there on archs with AccVGPRs
        workgroup_processor=bool(kernel.get(".workgroup_processor_mode", 0)),  # only there on RDNA
        code_bytes=sizes[kernel[".name"]],
    )
