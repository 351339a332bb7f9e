"""Whether a code object's metadata agrees with its bundle, ELF header and kernel descriptors. Pure.

From the metadata the HIP runtime decides whether a GPU may run it, and how much memory a launch gets. The
hardware reads the descriptors. See "Code Object Metadata" and "Kernel Descriptor" in
https://llvm.org/docs/AMDGPUUsage.html.
"""

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from wheel_builder.base.errors import ElfError, FatbinError
from wheel_builder.files.binaries.elfdynamic import Symbol, read_dynamic
from wheel_builder.files.binaries.elfimage import PF_W, PF_X, PT_NOTE, Image, read_image
from wheel_builder.files.device.fatbin import KERNEL_SUFFIX, CodeObject
from wheel_builder.files.device.msgpack import read_msgpack
from wheel_builder.tables.archs import Gpu, known_gpus, served_by

OWNER, NT_AMDGPU_METADATA = b"AMDGPU\0", 32
TARGET = "amdgcn-amd-amdhsa--"
KEYS = frozenset({"amdhsa.kernels", "amdhsa.target", "amdhsa.version"})
# A kernel's keys. .kind is refused: the HIP runtime would run such kernels at a module's start or end.
KERNEL_KEYS = frozenset({
    ".agpr_count", ".args", ".group_segment_fixed_size", ".kernarg_segment_align", ".kernarg_segment_size",
    ".language", ".language_version", ".max_flat_workgroup_size", ".name", ".private_segment_fixed_size",
    ".sgpr_count", ".sgpr_spill_count", ".symbol", ".uniform_work_group_size", ".uses_dynamic_stack",
    ".vgpr_count", ".vgpr_spill_count", ".wavefront_size", ".workgroup_processor_mode",
})  # fmt: skip
VERSION = [1, 2]  # of code object versions 5 and 6
# Any setting of a feature, the meaning of an arch's name without features.
EF_FEATURES_ANY = {":xnack": 0x100, ":sramecc": 0x400}
DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
WAVE32 = 1 << 10  # of a descriptor's properties


def header_flags(gpu: Gpu) -> int:
    """``e_flags`` of code for any setting of the GPU's features."""
    return gpu.elf_machine | sum(bits for name, bits in EF_FEATURES_ANY.items() if name in gpu.device_name)


def code_object_problems(code: CodeObject) -> tuple[str, ...]:
    """False claims in the metadata of ``code``."""
    try:
        image = read_image(code.data)
        dynamic = read_dynamic(image)
        symbols = {symbol.name: symbol for symbol in dynamic.symbols} if dynamic else {}
        metadata = read_metadata(image)
        if metadata.keys() != KEYS:
            raise _other_keys()
        return (
            *_header_problems(code, image),
            *_metadata_problems(code, metadata),
            *_name_problems(code),
            *_kernel_problems(image, symbols, metadata),
        )
    except (ElfError, FatbinError) as error:
        return (error.message,)


def read_metadata(image: Image) -> Mapping[str, Any]:
    """The metadata in the only note. Raises ``ElfError`` or ``FatbinError``."""
    notes = b"".join(image.at(s.address, s.file_bytes, "the notes") for s in image.of_kind(PT_NOTE))
    size = int.from_bytes(notes[4:8], "little")
    head = struct.pack("<3I8s", len(OWNER), size, NT_AMDGPU_METADATA, OWNER)
    content = notes[len(head) :]
    if not notes.startswith(head) or len(content) != size + -size % 4 or any(content[size:]):
        message = f"its notes ({len(notes)} bytes) are not one note with AMDGPU metadata"
        raise FatbinError(message, advice="compile the code object again")
    metadata = read_msgpack(content[:size])
    if not isinstance(metadata, dict):
        raise _other_keys()
    return metadata


def _other_keys() -> FatbinError:
    message = f"its metadata does not have the keys {', '.join(sorted(KEYS))}, and no others"
    return FatbinError(message, advice="compile the code object again")


def _header_problems(code: CodeObject, image: Image) -> Iterator[str]:
    gpu = known_gpus().get(code.gfx)
    if gpu and code.arch == code.gfx and image.header.flags != header_flags(gpu):
        expected = header_flags(gpu)
        yield f"its header has flags {image.header.flags:#x}, expected {expected:#x} of {gpu.name}"


def _metadata_problems(code: CodeObject, metadata: Mapping[str, Any]) -> Iterator[str]:
    if (target := metadata["amdhsa.target"]) != TARGET + code.arch:
        yield f"its metadata is for {target!r}, expected {TARGET + code.arch}"
    if metadata["amdhsa.version"] != VERSION:
        yield f"its metadata has version {metadata['amdhsa.version']}, expected {VERSION}"


def _name_problems(code: CodeObject) -> Iterator[str]:
    """The host library writes other GPUs' names over its own (kernels/host/registry/relabel.hpp)."""
    texts = ("amdhsa.target", TARGET + code.gfx)
    entry = b"".join(bytes([0xA0 | len(text)]) + text.encode() for text in texts)
    if len(served_by(code.gfx)) > 1 and (count := code.data.count(entry)) != 1:
        yield f"its metadata says {count} times that it is for {code.gfx}, expected once: others run it too"


def _kernel_problems(
    image: Image, symbols: Mapping[str, Symbol], metadata: Mapping[str, Any]
) -> Iterator[str]:
    descriptors = {name.removesuffix(KERNEL_SUFFIX) for name in symbols if name.endswith(KERNEL_SUFFIX)}
    rows = metadata["amdhsa.kernels"]
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    names = Counter(str(row.get(".name")) for row in rows)
    if names != Counter(descriptors):
        named, held = (", ".join(sorted(group)) or "none" for group in (names, descriptors))
        yield f"its metadata names the kernels {named}, and it has {held}"
        return
    for row in rows:
        for key in sorted(row.keys() - KERNEL_KEYS):
            yield f"the metadata of {row['.name']} has {key}, which is not known to be harmless"
        yield from _descriptor_problems(image, symbols, row)


def _descriptor_problems(
    image: Image, symbols: Mapping[str, Symbol], row: Mapping[str, Any]
) -> Iterator[str]:
    name = row[".name"]
    place, entry = symbols[name + KERNEL_SUFFIX], symbols.get(name)
    load = image.load_of(place.value, DESCRIPTOR.size)
    if place.size != DESCRIPTOR.size or load is None or load.flags & (PF_W | PF_X):
        yield f"the descriptor of {name} is not {DESCRIPTOR.size} bytes of constant data"
        return
    found = DESCRIPTOR.unpack(image.at(place.value, DESCRIPTOR.size, "a descriptor"))
    lds, scratch, arguments, offset, *_, properties, _ = found
    code = image.load_of(place.value + offset, 4)
    if entry is None or entry.value != place.value + offset or code is None or not code.flags & PF_X:
        yield f"the descriptor of {name} starts {place.value + offset:#x}, which is not the kernel's code"
    expected = {
        ".symbol": name + KERNEL_SUFFIX,
        ".group_segment_fixed_size": lds,
        ".private_segment_fixed_size": scratch,
        ".kernarg_segment_size": arguments,
        ".wavefront_size": 32 if properties & WAVE32 else 64,
    }
    for key, value in expected.items():
        if row.get(key) != value or isinstance(row.get(key), bool):
            yield f"the metadata of {name} has {row.get(key)!r} for {key}, and its descriptor {value!r}"
