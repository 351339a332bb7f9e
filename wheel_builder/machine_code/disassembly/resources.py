"""A kernel's hardware resources, from the metadata and symbols of its code object."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wheel_builder.base.errors import DeviceCodeError
from wheel_builder.files.binaries.elfdynamic import read_dynamic
from wheel_builder.files.binaries.elfimage import read_image
from wheel_builder.files.device.codeobject import read_metadata

STT_FUNC = 2


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
    "agpr": ".agpr_count",
    "sgpr": ".sgpr_count",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
    "scratch_bytes": ".private_segment_fixed_size",
    "lds_bytes": ".group_segment_fixed_size",
    "kernarg_bytes": ".kernarg_segment_size",
    "workgroup": ".max_flat_workgroup_size",
    "wave": ".wavefront_size",
    "workgroup_processor": ".workgroup_processor_mode",
}
# Only on archs with AccVGPRs, only on RDNA.
OPTIONAL = (KEYS["agpr"], KEYS["workgroup_processor"])
# Only in compilers' metadata.
COUNTED = (KEYS["vgpr_spills"], KEYS["sgpr_spills"])


def function_sizes(code_object: bytes) -> Mapping[str, int]:
    """Bytes of each function. Assembled ones may have 0."""
    dynamic = read_dynamic(read_image(code_object))
    return {each.name: each.size for each in dynamic.symbols if each.type == STT_FUNC} if dynamic else {}


def read_resources(code_object: bytes, *, assembled: bool = False) -> Mapping[str, Resources]:
    """The resources of each kernel. ``assembled``: a kernel without counts of spills has none.

    Raises ``DeviceCodeError`` with all missing ones, and ``ElfError`` or ``FatbinError`` for an unreadable
    code object.
    """
    sizes, rows = function_sizes(code_object), read_metadata(read_image(code_object)).get("amdhsa.kernels")
    kernels = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    optional = OPTIONAL + COUNTED * assembled
    problems = [problem for kernel in kernels for problem in _missing(kernel, optional, sizes)]
    if problems or not kernels:
        title = "the metadata of a code object is not complete"
        raise DeviceCodeError(title, problems or ["no amdhsa.kernels"], advice="see llvm-readelf --notes")
    return {kernel[".name"]: _resources(kernel, sizes) for kernel in kernels}


def _missing(kernel: Mapping[str, Any], optional: Iterable[str], sizes: Mapping[str, int]) -> list[str]:
    name = str(kernel.get(".name", "a kernel without a name"))
    found = dict.fromkeys(optional, 0) | dict(kernel)
    problems = [f"{name}: no {key}" for key in KEYS.values() if not isinstance(found.get(key), int)]
    if kernel.get(".uses_dynamic_stack"):
        problems.append(f"{name}: its stack has no fixed size")
    return problems + ([] if name in sizes else [f"{name}: no function of that name"])


def _resources(kernel: Mapping[str, Any], sizes: Mapping[str, int]) -> Resources:
    taken = {field: int(kernel.get(key, 0)) for field, key in KEYS.items()}
    processor = bool(taken.pop("workgroup_processor"))
    return Resources(**taken, workgroup_processor=processor, code_bytes=sizes[kernel[".name"]])
