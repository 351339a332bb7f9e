"""Older releases of PyTorch, as folders for import by the verify image's Python.

The registry has only their CUDA builds.  They import without CUDA's libraries: stand-in libraries with their
symbols report that there is no device.
"""

import re
import subprocess
import sys
import zipfile
from collections import defaultdict

from wheel_builder.files.binaries.elfdynamic import DT_SONAME, STB_WEAK, read_dynamic
from wheel_builder.files.binaries.elfimage import read_image

STAND_INS = "stand_ins"
LEFT_OUT = "torch/include/", "torch/test/", "torch/share/"
OF_THE_SYSTEM = ("libc.", "libm.", "libdl.", "librt.", "libpthread.", "libgcc_s.", "libstdc++.", "ld-linux")
# CUDA's libraries. Others without a version are PyTorch's, Python's or C++'s, and present.
WITHOUT_VERSION, ABSENT = "libnccl.so.2", re.compile(r"(cu|nv|nccl|CU)\w+")
NO_DEVICE = 100  # cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE
ZIG = (sys.executable, "-m", "ziglang", "cc", "-shared", "-nostdlib", "-target", "x86_64-linux-gnu")


def unpack(wheel, into):
    """The release in a folder, with stand-ins in a subfolder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into, [each for each in archive.namelist() if not each.startswith(LEFT_OUT)])
    (into / STAND_INS).mkdir()
    for name, symbols in missing((into / "torch").rglob("*.so*")).items():
        link(into / STAND_INS / name, symbols)


def missing(libraries):
    """Each missing library, with its required symbols: versions by name."""
    found = [read_dynamic(read_image(file.read_bytes())) for file in libraries]
    there = {dynamic.text(DT_SONAME) for dynamic in found}
    needed = dict.fromkeys(name for dynamic in found for name in dynamic.needed)
    absent = {name: {} for name in needed if name not in there and not name.startswith(OF_THE_SYSTEM)}
    exported = {symbol.name for dynamic in found for symbol in dynamic.symbols if symbol.section}
    for dynamic in found:
        of_version = {version.number: version for version in dynamic.versions}
        indices = dynamic.symbol_versions or (0,) * len(dynamic.symbols)
        for symbol, index in zip(dynamic.symbols, indices, strict=True):
            if symbol.section or symbol.bind == STB_WEAK or symbol.name in exported:
                continue
            if version := of_version.get(index):
                absent.get(version.file, {})[symbol.name] = version.name
            elif ABSENT.fullmatch(symbol.name):
                absent[WITHOUT_VERSION][symbol.name] = ""
    return absent


def link(file, symbols):
    """A shared library with these."""
    versions = defaultdict(list)
    for name, version in symbols.items():
        versions[version].append(name)
    source, script = file.with_suffix(".c"), file.with_suffix(".map")
    source.write_text("".join(f"long {name}(void) {{ return {NO_DEVICE}; }}\n" for name in symbols))
    script.write_text(
        "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in versions.items())
    )
    argv = [*ZIG, f"-Wl,-soname,{file.name}", "-o", file, source]
    argv += [f"-Wl,--version-script={script}"] if any(versions) else []
    subprocess.run(argv, check=True)
    source.unlink()
    script.unlink()
