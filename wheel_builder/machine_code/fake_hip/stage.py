"""The emulator with its fake HIP runtime, compiled in the builder image.

In: the builder image (its compiler and HIP headers) and the sources. Out: ``libamdhip64.so.7``, preloaded by
tests and opened by ``emulator.binding.Core``, or ``amdhip64_7.dll``, loaded by tests under wine.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, EmulatorBuildError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_tree
from wheel_builder.build.compiler_cache import CACHE, cache_mount
from wheel_builder.files.binaries.pe import read_pe
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in
from wheel_builder.machine_code.fake_hip.container import LIBRARY, WINDOWS_LIBRARY
from wheel_builder.matrix.model import LINUX, WINDOWS

# The core uses AVX2, FMA and F16C explicitly. The flags are passed to the compiler proper. As flags of zig,
# they would make it build a C++ library for this processor instead of using the image's cached one
# (kernels/build/zig_flags.txt), which takes two more minutes.
FEATURES = (
    "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt",
    "sse3", "ssse3", "sse4.1", "sse4.2",
)  # fmt: skip
FLAGS = (
    # Multiply-adds are fused only where the emulated instruction's are.
    "-ffp-contract=off",
    *("-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-pthread", "-Wl,-s"),
    *("-Wall", "-Wextra", "-Werror"),
    *(word for feature in FEATURES for word in ("-Xclang", "-target-feature", "-Xclang", f"+{feature}")),
)
EXPORTS = Path("wheel_builder/machine_code/fake_hip/runtime/exports.map")


@dataclass(frozen=True)
class Target:
    """Settings of a platform: the file's name, the flags before and the linker's after FLAGS.

    ``elf_header`` is, in zig's own folder, the header missing from the platform's C library.
    """

    library: str
    flags: tuple[str, ...]
    link: tuple[str, ...] = ()
    elf_header: str = ""


_OPTIMISED = ("-std=c++17", "-O3", "-g0")
_HIDDEN = ("-shared", "-fvisibility=hidden")
TARGETS = {
    LINUX: Target(
        LIBRARY,
        ("-target", "x86_64-linux-gnu.2.28", *_OPTIMISED, "-fPIC", *_HIDDEN),
        (f"-Wl,-soname,{LIBRARY}", f"-Wl,--version-script=/src/{EXPORTS}"),
    ),
    WINDOWS: Target(
        WINDOWS_LIBRARY,
        ("-target", "x86_64-windows-gnu", *_OPTIMISED, *_HIDDEN),
        elf_header="lib/libc/include/generic-musl/elf.h",
    ),
}
RUNTIME, CORE = "wheel_builder/machine_code/fake_hip/runtime", "wheel_builder/machine_code/emulator/core"
SOURCES = (RUNTIME, CORE, "kernels/device/arch", "kernels/generated/device/archs.inc")
STAGE = "fake_hip"
# From /usr/include only the HIP headers: the rest belongs to another C library than zig's.
COMPILE = f"""
set -eu
library=$1 elf_header=$2
shift 2
python=/opt/python/cp39-cp39/bin/python
mkdir /tmp/include
for place in /opt/rocm/include /usr/include; do
    [ ! -d $place/hip ] || ln -sfn $place/hip /tmp/include/hip
done
if [ -n "$elf_header" ]; then
    zig=$($python -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent)')
    ln -s "$zig/$elf_header" /tmp/include/elf.h
fi
# As one file: half the time, as each by itself reads the same headers again.
for file in /src/{RUNTIME}/*.cpp /src/{CORE}/*.cpp /src/{CORE}/*/*.cpp; do
    echo "#include \\"$file\\""
done > /tmp/all.cpp
$python -m ziglang c++ -isystem /tmp/include -I/src/{RUNTIME} -I/src/{CORE} -I/src/kernels \\
    "$@" -o "/out/$library" /tmp/all.cpp
"""


def build_fake_hip(
    builder: Artifact,
    *,
    checkout: Path,
    store: Store,
    log: Path,
    platform: str = LINUX,
    cache: Path | None = None,
    run: Runner = run,
) -> Artifact:
    """Compile both into the library of ``platform``.

    ``cache`` keeps zig's C++ library for Windows, missing from the image. Raises ``EmulatorBuildError`` with
    the compiler's last lines, or with the functions missing from a DLL's exports.
    """
    target = TARGETS[platform]

    def make(out: Path) -> Mapping[str, Any]:
        argv = ["sh", "-c", COMPILE, "compile", target.library, target.elf_header, *_flags(target)]
        mounts = [Mount(checkout / s, f"/src/{s}") for s in SOURCES] + [Mount(out, "/out", writable=True)]
        env = {}
        if cache and platform == WINDOWS:
            mounts.append(cache_mount(cache / "zig-windows"))
            env["ZIG_GLOBAL_CACHE_DIR"] = CACHE
        try:
            with open_to_all(out):
                run_in(builder.facts["ref"], argv, mounts=mounts, env=env, user=NOBODY, log=log, run=run)
        except CommandFailedError as error:
            message = f"the emulator does not compile\n{error.message}"
            raise EmulatorBuildError(message, advice=f"correct the first error in {log}") from error
        library = out / target.library
        if platform == WINDOWS:
            refuse_unexported(library.read_bytes(), (checkout / EXPORTS).read_text(encoding="utf-8"))
        return {"bytes": library.stat().st_size}

    return store.get_or_make(STAGE, _inputs(builder, target, checkout), make)


def refuse_unexported(dll: bytes, exports: str) -> None:
    """Raise ``EmulatorBuildError`` unless a DLL exports all names listed in ``exports``, a version script.

    Of a pattern one name is enough. The wheel's library refuses a runtime with a missing function.
    """
    exported = read_pe(dll).exports
    listed = re.findall(r"^ +(\w+)(\*?);$", exports.partition("local:")[0], re.MULTILINE)
    missing = [
        name + star
        for name, star in listed
        if not any(each.startswith(name) if star else each == name for each in exported)
    ]
    if missing:
        message = f"{WINDOWS_LIBRARY} does not export {', '.join(missing)}, which {EXPORTS} lists"
        raise EmulatorBuildError(message, advice="declare it with default visibility, as the others are")


def _flags(target: Target) -> tuple[str, ...]:
    return (*target.flags, *FLAGS, *target.link)


def is_built(builder: Artifact, checkout: Path, store: Store, platform: str = LINUX) -> bool:
    """Whether ``build_fake_hip`` is up to date."""
    return store.find(STAGE, _inputs(builder, TARGETS[platform], checkout)) is not None


def _inputs(builder: Artifact, target: Target, checkout: Path) -> Mapping[str, Any]:
    return {
        "image": builder.facts["image_id"],
        "library": target.library,
        "elf_header": target.elf_header,
        "flags": list(_flags(target)),
        "recipe": COMPILE,
        "sources": sha256_tree(checkout, [checkout / source for source in SOURCES]),
    }
