"""Inside a builder image: load the wheel's library with the image's real libamdhip64, and call it.

    python3 probe.py LIBRARY ARCH FUNCTIONS CODES     FUNCTIONS is JSON: {"hip": [...], "torch": [...]}

Prints JSON with these results:
- the file of each HIP function, and of the runtime
- the GPUs in the runtime's table
- the number of kernels named by the library
- the runtime's answer through the library
- the code object version of this image's compiler
- the reading of each file in the folder CODES by the runtime's code object manager (comgr)
If the library cannot be loaded, it prints only the reason, as ``refused``. Any other failure ends in a
traceback and counts as no answer. Needs Python and clang.
"""

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
OWN = (HERE / "torch_stub.c").read_text(encoding="ascii")
ABI_VERSION_BYTE = 8  # EI_ABIVERSION in an ELF header
EXECUTABLE = 8  # AMD_COMGR_DATA_KIND_EXECUTABLE
# A string of the table of GPUs in the runtime (Isa::supportedIsas): for others it loads no code.
GPU = re.compile(rb"\0(gfx[1-9][0-9a-f]{2,3})(?=\0)")
KERNEL = 'extern "C" __attribute__((global)) void nothing() {}\n'


class RefusedError(Exception):
    """The library does not work with the image's runtime."""


class Found(ctypes.Structure):
    """Dl_info of dladdr."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def main(library: str, arch: str, functions: dict[str, list[str]], codes: str) -> dict[str, object]:
    """Load and call the library. Raises ``RefusedError`` if the runtime or the library cannot be loaded."""
    with tempfile.TemporaryDirectory() as name:
        torch = ctypes.CDLL(str(build_torch(Path(name), functions["torch"])), mode=ctypes.RTLD_GLOBAL)
        runtime = find_runtime()
        hip = load(runtime, ctypes.RTLD_GLOBAL)
        load(library, os.RTLD_NOW | os.RTLD_GLOBAL)
        failed, instances = call(torch, "instances")
        return {
            "runtime": str(Path(runtime).resolve()),
            "gpus": gpus_in(Path(runtime).read_bytes()),
            "functions": {name: defined_in(hip, name) for name in functions["hip"]},
            "instances": len(json.loads(instances)) if not failed else 0,
            "answer": call(torch, "device_arch", 0)[1],
            "code_object_version": code_object_version(arch, Path(name)),
            "codes": {file.name: read_code(file.read_bytes()) for file in sorted(Path(codes).iterdir())},
        }


def load(file: str, mode: int) -> ctypes.CDLL:
    """Load the library. Raises ``RefusedError`` with the loader's message."""
    try:
        return ctypes.CDLL(file, mode=mode)
    except OSError as error:
        raise RefusedError(str(error)) from error


def build_torch(folder: Path, names: list[str]) -> Path:
    """Compile a libtorch.so with these functions."""
    rest = [name for name in names if f" {name}(" not in OWN]
    (folder / "rest.c").write_text("".join(f"long {name}(void) {{ return 0; }}\n" for name in rest))
    out = folder / "libtorch.so"
    clang = [
        f"{os.environ['FA_LLVM']}/clang",
        "-shared",
        "-fPIC",
        "-O1",
        "-Wl,-soname,libtorch.so",
        "-o",
        str(out),
    ]
    subprocess.run([*clang, str(HERE / "torch_stub.c"), str(folder / "rest.c")], check=True)
    return out


def gpus_in(runtime: bytes) -> list[str]:
    """The gfx names in the runtime's table."""
    return sorted({name.decode() for name in GPU.findall(runtime)})


def find_runtime() -> str:
    """The image's libamdhip64."""
    return find("libamdhip64")


def find(name: str) -> str:
    """A library of the runtime, as named in the linker's cache or in ROCm's folder."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    found = [line.split(" => ")[1] for line in listed.splitlines() if f"{name}.so." in line]
    found += [str(path) for path in Path("/opt/rocm/lib").glob(f"{name}.so.?")]
    if not found:
        message = f"this image has no {name}"
        raise RefusedError(message)
    return found[0]


def read_code(code: bytes) -> str:
    """A code object's ISA and number of kernels from the runtime's comgr, or the part that comgr refused.

    HIP loads a code object by comgr's reading of it.
    """
    comgr = load(find("libamd_comgr"), ctypes.RTLD_LOCAL)
    data, metadata, kernels = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    size, name, count = ctypes.c_size_t(256), ctypes.create_string_buffer(256), ctypes.c_size_t()
    by = ctypes.byref
    steps: tuple[tuple[str, Callable[[], int]], ...] = (
        ("create", lambda: comgr.amd_comgr_create_data(EXECUTABLE, by(data))),
        ("set", lambda: comgr.amd_comgr_set_data(data, ctypes.c_size_t(len(code)), code)),
        ("isa", lambda: comgr.amd_comgr_get_data_isa_name(data, by(size), name)),
        ("metadata", lambda: comgr.amd_comgr_get_data_metadata(data, by(metadata))),
        ("kernels", lambda: comgr.amd_comgr_metadata_lookup(metadata, b"amdhsa.kernels", by(kernels))),
        ("count", lambda: comgr.amd_comgr_get_metadata_list_size(kernels, by(count))),
    )
    for step, result in steps:
        if status := result():
            return f"refused at {step} with status {status}"
    return f"{name.value.decode()} {count.value}"


def defined_in(hip: ctypes.CDLL, name: str) -> str:
    """The file with the function, empty if the runtime lacks it."""
    try:
        function = getattr(hip, name)
    except AttributeError:
        return ""
    found = Found()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(found))
    return Path(found.file.decode()).name


def call(torch: ctypes.CDLL, name: str, *arguments: int) -> tuple[bool, str]:
    """Call an operator of the library. Returns whether it failed, and its text."""
    torch.fake_hip_call.restype = ctypes.c_char_p
    failed = ctypes.c_int()
    argument = ctypes.c_uint64(arguments[0] if arguments else 0)
    said = torch.fake_hip_call(name.encode(), argument, len(arguments), ctypes.byref(failed))
    if said is None:
        message = f"the library did not register {name}"
        raise RefusedError(message)
    return bool(failed.value), said.decode()


def code_object_version(arch: str, folder: Path) -> int:
    """The ABI version in the ELF header of code objects for ``arch`` from this image's compiler."""
    source, out = folder / "nothing.hip", folder / "nothing.hsaco"
    source.write_text(KERNEL)
    flags = [
        "-x",
        "hip",
        "--offload-device-only",
        "--no-gpu-bundle-output",
        f"--offload-arch={arch}",
        "-nogpuinc",
    ]
    clang = [f"{os.environ['FA_LLVM']}/clang++", *flags, "-nogpulib", str(source), "-o", str(out)]
    subprocess.run(clang, check=True)
    return out.read_bytes()[ABI_VERSION_BYTE]


def answer(library: str, arch: str, functions: dict[str, list[str]], codes: str) -> dict[str, object]:
    """The results of ``main``, or why the library cannot be loaded."""
    try:
        return main(library, arch, functions, codes)
    except RefusedError as error:
        return {"refused": str(error)}


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(answer(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4])) + "\n"
    )
