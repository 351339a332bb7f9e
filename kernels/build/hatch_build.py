"""Compiles the host library into the wheel, and gives the wheel its version and its SBOM.

Hatchling calls both hooks. Their input comes from the environment:

    FA_DEVICE_CODE    folder with fatbin.S, registry.inc and the *.hipfb bundles they name
    FA_ZSTD           folder with zstd's source, the files in zstd.toml
    FA_ROCM_VERSION   the ROCm version of that device code, for example 7.2: the local label of the wheel's
                      version. Or public: a wheel for every ROCm version, without a label
    FA_TORCH_INCLUDE  PyTorch's header folder; PyTorch itself is unnecessary
    FA_SBOM           the wheel's bill of materials, a CycloneDX file (*.cdx.json)
    FA_CACHE          ccache's folder, shared with other builds; optional
    FA_HIP_INCLUDE    the folder with hip/hip_runtime_api.h; optional if it is in a usual place
    FA_PLATFORM       linux (default) or windows

The compiler is ``zig c++`` of the ziglang package. It targets the oldest supported glibc, or Windows, and
links its own C++ runtime, so all builder images give one and the same library. Equal inputs give equal bytes.
"""

import hashlib
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LINUX, WINDOWS = "linux", "windows"
LIBRARIES = {
    LINUX: "flash_attn_rocm/_C/libflash_attn_rocm.so",
    WINDOWS: "flash_attn_rocm/_C/flash_attn_rocm.dll",
}
# Of Linux it is the tag before the repair.
WHEEL_TAGS = {LINUX: "py3-none-linux_x86_64", WINDOWS: "py3-none-win_amd64"}
# Also checked at import of the package.
FLOORS = runpy.run_path(str(Path(__file__).parents[1] / "python/flash_attn_rocm/values/floors.py"))
TORCH_TARGET_VERSION = "0x{:02x}{:02x}000000000000".format(*FLOORS["TORCH_FLOOR"])
HIP_HEADER = Path("hip/hip_runtime_api.h")
HIP_FOLDERS = (Path("/opt/rocm/include"), Path("/usr/include"))
TORCH_HEADER = Path("torch/csrc/stable/library.h")
# The headers with the C functions of torch's stable ABI, and the pattern of the functions' names.
TORCH_FUNCTIONS = tuple(
    Path("torch/csrc") / header
    for header in (
        "inductor/aoti_torch/c/shim.h",
        "inductor/aoti_torch/generated/c_shim_aten.h",
        "stable/c/shim.h",
    )
)
TORCH_FUNCTION = re.compile(r"\b(?:aoti_)?torch_\w+(?=\()")
TORCH_DLL = "torch_cpu.dll"
GLIBC = ".".join(map(str, FLOORS["GLIBC_FLOOR"]))
# In separate files: the builder image compiles zig's C++ library for Linux with these in advance.
ZIG_FLAGS = {
    platform: tuple(Path(__file__).with_name(file).read_text(encoding="ascii").format(glibc=GLIBC).split())
    for platform, file in ((LINUX, "zig_flags.txt"), (WINDOWS, "zig_flags_windows.txt"))
}
# sha256 by file.
ZSTD = tomllib.loads(Path(__file__).with_name("zstd.toml").read_text(encoding="utf-8"))["files"]
ZSTD_SOURCE, ZSTD_OBJECT = "zstd.c", "zstd.o"
SCRATCH = ".build"
PUBLIC = "public"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
# Keeps this library's symbols apart from other libraries': PyTorch loads it with RTLD_GLOBAL.
VERSION_SCRIPT = "{ local: *; };\n"
# A Windows DLL without named exports exports everything.
EXPORTS = "LIBRARY flash_attn_rocm.dll\nEXPORTS\nfa_gpus\n"
# Device code comes last, and the places of its bundles just before it. So other kernels change no other bytes
# in memory.
LAYOUT = """SECTIONS {
  .fa_bundles : ALIGN(4096) { *(.fa_bundles) }
  .hip_fatbin : ALIGN(4096) { *(.hip_fatbin) }
} INSERT AFTER .bss;
"""


class BuildError(Exception):
    """The library cannot be built. The message has the failure and the next steps."""


@dataclass(frozen=True)
class Inputs:
    """The library's inputs outside of this checkout."""

    device_code: Path
    rocm: str
    torch_include: Path
    hip_include: Path
    sbom: Path
    zstd: Path
    cache: Path | None = None
    platform: str = LINUX


def read_inputs(environ: Mapping[str, str], hip_folders: tuple[Path, ...] = HIP_FOLDERS) -> Inputs:
    """The checked environment. Raises BuildError with all problems at once."""
    device_code, torch_include = environ.get("FA_DEVICE_CODE", ""), environ.get("FA_TORCH_INCLUDE", "")
    rocm, sbom = environ.get("FA_ROCM_VERSION", ""), environ.get("FA_SBOM", "")
    chosen, platform = environ.get("FA_HIP_INCLUDE", ""), environ.get("FA_PLATFORM", LINUX)
    zstd = environ.get("FA_ZSTD", "")
    candidates = (Path(chosen),) if chosen else hip_folders
    hip_include = next((folder for folder in candidates if (folder / HIP_HEADER).is_file()), None)
    problems = [
        *_folder_problems("FA_DEVICE_CODE", device_code, "the device code", ("fatbin.S", "registry.inc")),
        *_rocm_problems(rocm),
        *_folder_problems("FA_TORCH_INCLUDE", torch_include, "PyTorch's headers", (str(TORCH_HEADER),)),
        *_sbom_problems(sbom),
        *_zstd_problems(zstd),
        *_platform_problems(platform, rocm),
    ]
    if hip_include is None:
        places = ", ".join(map(str, candidates))
        problems.append(f"FA_HIP_INCLUDE: expected a folder with {HIP_HEADER}, found none at {places}")
    if problems or hip_include is None:
        lines = [
            "the wheel cannot be built:",
            *(f"  - {each}" for each in problems),
            "  next: build through the pipeline (scripts/wheel-builder wheel), which sets all of these",
        ]
        raise BuildError("\n".join(lines))
    return Inputs(
        Path(device_code).resolve(),
        rocm,
        Path(torch_include).resolve(),
        hip_include.resolve(),
        Path(sbom).resolve(),
        Path(zstd).resolve(),
        Path(cache).resolve() if (cache := environ.get("FA_CACHE", "")) else None,
        platform,
    )


def _folder_problems(variable: str, value: str, what: str, files: tuple[str, ...]) -> list[str]:
    if not value:
        return [f"{variable}: expected the folder of {what}, found nothing"]
    missing = [name for name in files if not (Path(value) / name).is_file()]
    return [f"{variable}: expected {', '.join(missing)} in {value}, found none"] if missing else []


def _rocm_problems(version: str) -> list[str]:
    if version == PUBLIC or re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
        return []
    return [f"FA_ROCM_VERSION: expected a version such as 7.2, or {PUBLIC}, found {version!r}"]


def _sbom_problems(value: str) -> list[str]:
    if value.endswith(".cdx.json") and Path(value).is_file():
        return []
    return [f"FA_SBOM: expected a file *.cdx.json, found {value or 'nothing'}"]


def _zstd_problems(folder: str) -> list[str]:
    if problems := _folder_problems("FA_ZSTD", folder, "zstd's source", tuple(ZSTD)):
        return problems
    found = {name: hashlib.sha256((Path(folder) / name).read_bytes()).hexdigest() for name in ZSTD}
    return [
        f"FA_ZSTD: expected {name} with sha256 {ZSTD[name]}, found {digest}"
        for name, digest in found.items()
        if digest != ZSTD[name]
    ]


def _platform_problems(platform: str, rocm: str) -> list[str]:
    if platform not in LIBRARIES:
        return [f"FA_PLATFORM: expected {' or '.join(LIBRARIES)}, found {platform!r}"]
    if platform == WINDOWS and rocm != PUBLIC:
        return [f"FA_ROCM_VERSION: expected {PUBLIC} for Windows, found {rocm!r}"]
    return []


def compile_library(root: Path, inputs: Inputs, output: Path) -> None:
    """Compile the checkout's host library at ``root`` to ``output``. Raises BuildError."""
    platform = inputs.platform
    with _scratch(root, inputs) as scratch:
        _run(_link_stub(scratch) if platform == LINUX else _import_library(inputs, scratch), root)
        _run([*zig("cc", platform), *_assemble(inputs, scratch)], root)
        compiler, env = _compiler(inputs, scratch)
        sources = _sources(root, platform)
        objects = [scratch / f"{source.stem}.o" for source in sources]
        commands = [
            [*compiler, *_compile(inputs, scratch), str(source.relative_to(root)), "-o", str(made)]
            for source, made in zip(sources, objects, strict=True)
        ]
        commands.append([*zig("cc", platform), *_compile_zstd(inputs), "-o", str(scratch / ZSTD_OBJECT)])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda command: _run(command, root, env), commands))
        _run([*zig("c++", platform), *_link(objects, scratch, platform), "-o", str(output)], root)


def _sources(root: Path, platform: str) -> list[Path]:
    """The host library's sources. Folders named after a platform hold its own sources."""
    folders = ("kernels/bindings", "kernels/host")
    by_name = (sorted(root.glob(f"{each}/**/*.cpp"), key=lambda source: source.name) for each in folders)
    sources = [source for folder in by_name for source in folder]
    shared = [source for source in sources if source.parent.name not in LIBRARIES]
    return [*shared, *(source for source in sources if source.parent.name == platform)]


def _compiler(inputs: Inputs, scratch: Path) -> tuple[list[str], dict[str, str]]:
    """The compiler's command line and environment. With a cache, ccache runs zig."""
    if inputs.cache is None:
        return zig("c++", inputs.platform), {}
    # ccache needs one program. CCACHE_COMPILERCHECK tells compilers apart.
    program = scratch / "clang++"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(zig("c++", inputs.platform))} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    env = {
        "CCACHE_DIR": str(scratch / "ccache"),
        "CCACHE_REMOTE_STORAGE": f"file:{inputs.cache}",
        "CCACHE_REMOTE_ONLY": "true",
        "CCACHE_COMPILERTYPE": "clang",
    }
    return ["ccache", str(program)], env


def zig(tool: str, platform: str) -> list[str]:
    """The command line that starts zig's ``cc`` or ``c++`` for the wheel's platform."""
    return [sys.executable, "-m", "ziglang", tool, *ZIG_FLAGS[platform][:2]]


@contextmanager
def _scratch(root: Path, inputs: Inputs) -> Iterator[Path]:
    """A folder with the linker's scripts, an empty source for the stub, and HIP's headers.

    Of the HIP headers' folder it has only ``hip``: the rest of /usr/include belongs to another C library. The
    folder's name is constant, because a compiler cache counts paths in arguments as input.
    """
    scratch = root / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "include").mkdir(parents=True)
    try:
        (scratch / "exports.map").write_text(VERSION_SCRIPT, encoding="utf-8")
        (scratch / "exports.def").write_text(EXPORTS, encoding="utf-8")
        (scratch / "layout.ld").write_text(LAYOUT, encoding="utf-8")
        (scratch / "stub.c").touch()
        (scratch / "include/hip").symlink_to(inputs.hip_include / "hip")
        yield scratch
    finally:
        shutil.rmtree(scratch)


def _link_stub(scratch: Path) -> list[str]:
    """An empty libtorch.so to link with. The library records only its name."""
    # The library's own flags: zig's cache holds only the runtime built with these.
    flags = [flag for flag in ZIG_FLAGS[LINUX][2:] if not flag.startswith("-std=")]
    stub = ["-Wl,-soname,libtorch.so", str(scratch / "stub.c")]
    return [*zig("cc", LINUX), *flags, *stub, "-o", str(scratch / "libtorch.so")]


def _import_library(inputs: Inputs, scratch: Path) -> list[str]:
    """The import library for a DLL, in place of torch: the names of its stable ABI, and their DLL."""
    headers = "".join((inputs.torch_include / file).read_text(encoding="utf-8") for file in TORCH_FUNCTIONS)
    names = sorted(set(TORCH_FUNCTION.findall(headers)))
    definition = scratch / "torch.def"
    definition.write_text("\n".join([f"LIBRARY {TORCH_DLL}", "EXPORTS", *names, ""]), encoding="ascii")
    tool = [sys.executable, "-m", "ziglang", "dlltool", "-m", "i386:x86-64"]
    return [*tool, "-d", str(definition), "-l", str(scratch / "torch.lib")]


def _assemble(inputs: Inputs, scratch: Path) -> list[str]:
    # zig's cache ignores files read by .incbin. The digest in the command makes it notice changes.
    digest = device_code_digest(inputs.device_code)
    source = inputs.device_code / "fatbin.S"
    return [
        "-c",
        f"-DFA_DEVICE_CODE_SHA256={digest}",
        f"-I{inputs.device_code}",
        str(source),
        "-o",
        str(scratch / "fatbin.o"),
    ]


def device_code_digest(folder: Path) -> str:
    """One digest of the assembly file and of all bundles."""
    digest = hashlib.sha256()
    for file in sorted([folder / "fatbin.S", *folder.glob("*.hipfb")]):
        digest.update(f"{file.name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _compile(inputs: Inputs, scratch: Path) -> list[str]:
    # Paths end up in error messages (__FILE__). This machine's must be replaced.
    prefixes = {
        inputs.torch_include: "torch-include",
        inputs.device_code: "device-code",
        inputs.zstd: "zstd",
        scratch: "scratch",
    }
    return [
        *_compiler_flags(inputs.platform),
        *WARNINGS,
        f"-DTORCH_TARGET_VERSION={TORCH_TARGET_VERSION}",
        *(f"-ffile-prefix-map={path}={name}" for path, name in prefixes.items()),
        "-Ikernels",
        f"-I{inputs.device_code}",
        *("-isystem", str(scratch / "include"), "-isystem", str(inputs.torch_include)),
        *("-isystem", str(inputs.zstd)),
        "-c",
    ]


def _compile_zstd(inputs: Inputs) -> list[str]:
    """Each function has a section of its own, so the linker keeps the decoder only. Nothing is exported."""
    flags = (flag for flag in _compiler_flags(inputs.platform) if not flag.startswith("-std="))
    hidden = [f"-D{name}_VISIBLE=" for name in ("ZSTDLIB", "ZSTDERRORLIB")]
    return [*flags, "-ffunction-sections", "-fdata-sections", *hidden, "-c", str(inputs.zstd / ZSTD_SOURCE)]


def _compiler_flags(platform: str) -> list[str]:
    return [flag for flag in ZIG_FLAGS[platform] if flag != "-shared" and not flag.startswith("-Wl,")]


def _link(objects: list[Path], scratch: Path, platform: str) -> list[str]:
    if platform == WINDOWS:
        added = (scratch / name for name in (ZSTD_OBJECT, "fatbin.o", "torch.lib", "exports.def"))
        return [*ZIG_FLAGS[WINDOWS], "-Wl,--gc-sections", *map(str, (*objects, *added))]
    return [
        *ZIG_FLAGS[LINUX],
        *map(str, objects),
        str(scratch / ZSTD_OBJECT),
        str(scratch / "fatbin.o"),
        "-Wl,--gc-sections",
        f"-Wl,--version-script={scratch / 'exports.map'}",
        f"-Wl,-T,{scratch / 'layout.ld'}",
        f"-L{scratch}",
        "-ltorch",
    ]


def _run(command: list[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
    environ = {**os.environ, **(env or {})}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(f"  | {line}" for line in done.stderr.rstrip().splitlines()[-25:])
        message = (
            f"{' '.join(command)} ended with status {done.returncode}\n{tail}\n"
            "  next: correct the first error above; if zig is missing, install the ziglang package into "
            f"{sys.executable}"
        )
        raise BuildError(message)


class WheelHook(BuildHookInterface[Any]):
    """Adds the compiled library to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile the library and tell hatchling where it belongs."""
        inputs = read_inputs(os.environ)
        self._output_folder = tempfile.TemporaryDirectory(prefix="flash-attn-rocm-")
        library = LIBRARIES[inputs.platform]
        output = Path(self._output_folder.name) / Path(library).name
        compile_library(Path(self.root), inputs, output)
        build_data["pure_python"] = False
        build_data["tag"] = WHEEL_TAGS[inputs.platform]
        build_data["force_include"][str(output)] = library
        build_data["sbom_files"].append(str(inputs.sbom))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the library, now part of the wheel."""
        self._output_folder.cleanup()


class VersionHook(MetadataHookInterface):
    """Gives the wheel the base version of pyproject.toml and, unless it is public, a local label."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the version, after checking all inputs of the build."""
        label = "" if (rocm := read_inputs(os.environ).rocm) == PUBLIC else f"+rocm{rocm}"
        metadata["version"] = base_version(Path(self.root) / "pyproject.toml") + label


def base_version(pyproject: Path) -> str:
    """``[tool.flash-attn-rocm] version``, the one place of the version."""
    with pyproject.open("rb") as stream:
        return str(tomllib.load(stream)["tool"]["flash-attn-rocm"]["version"])
