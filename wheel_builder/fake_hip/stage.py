"""The emulator with its fake HIP runtime, compiled in the builder image.

In: the builder image (its compiler and HIP headers) and the sources.  Out: ``libamdhip64.so.7``, which tests
preload and ``emulator.binding.Core`` opens.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.base.errors import CommandFailedError, EmulatorBuildError
from wheel_builder.base.process import Runner, run
from wheel_builder.base.store import Artifact, Store, sha256_tree
from wheel_builder.fake_hip.container import LIBRARY
from wheel_builder.images.docker import NOBODY, Mount, open_to_all, run_in

# The core uses AVX2, FMA and F16C explicitly.  Passed to the compiler proper: given to zig, they would make
# it build a C++ library for this processor instead of using the image's cached one (kernels/zig_flags.txt),
# which takes two more minutes.
FEATURES = (
    "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt",
    "sse3", "ssse3", "sse4.1", "sse4.2",
)  # fmt: skip
FLAGS = (
    *("-target", "x86_64-linux-gnu.2.28", "-std=c++17", "-O3", "-g0"),
    *("-fPIC", "-shared", "-fvisibility=hidden"),
    # Multiply-adds are fused only where the emulated instruction's are.
    "-ffp-contract=off",
    *("-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-pthread", "-Wl,-s"),
    *("-Wall", "-Wextra", "-Werror"),
    *(word for feature in FEATURES for word in ("-Xclang", "-target-feature", "-Xclang", f"+{feature}")),
)
SOURCES = ("wheel_builder/fake_hip", "wheel_builder/emulator/core", "kernels/include/fa/arch")
STAGE = "fake_hip"
# From /usr/include only the HIP headers: the rest belongs to another C library than zig's.
COMPILE = f"""
set -eu
mkdir /tmp/include
for place in /opt/rocm/include /usr/include; do
    [ ! -d $place/hip ] || ln -sfn $place/hip /tmp/include/hip
done
# As one file: half the time, as each by itself reads the same headers again.
for file in /src/wheel_builder/fake_hip/*.cpp /src/wheel_builder/emulator/core/*.cpp; do
    echo "#include \\"$file\\""
done > /tmp/all.cpp
/opt/python/cp39-cp39/bin/python -m ziglang c++ "$@" \\
    -isystem /tmp/include -I/src/wheel_builder/fake_hip -I/src/wheel_builder/emulator/core \\
    -I/src/kernels/include \\
    -Wl,-soname,{LIBRARY} -Wl,--version-script=/src/wheel_builder/fake_hip/exports.map \\
    -o /out/{LIBRARY} /tmp/all.cpp
"""


def build_fake_hip(
    builder: Artifact, *, checkout: Path, store: Store, log: Path, run: Runner = run
) -> Artifact:
    """Compile both into ``LIBRARY``.  Raises ``EmulatorBuildError`` with the compiler's last lines."""

    def make(out: Path) -> Mapping[str, Any]:
        argv = ["sh", "-c", COMPILE, "compile", *FLAGS]
        mounts = [Mount(checkout / s, f"/src/{s}") for s in SOURCES] + [Mount(out, "/out", writable=True)]
        try:
            with open_to_all(out):
                run_in(builder.facts["ref"], argv, mounts=mounts, user=NOBODY, log=log, run=run)
        except CommandFailedError as error:
            message = f"the emulator does not compile\n{error.message}"
            raise EmulatorBuildError(message, advice=f"correct the first error in {log}") from error
        return {"bytes": (out / LIBRARY).stat().st_size}

    return store.get_or_make(STAGE, _inputs(builder, checkout), make)


def is_built(builder: Artifact, checkout: Path, store: Store) -> bool:
    """Whether ``build_fake_hip`` has nothing to compile."""
    return store.find(STAGE, _inputs(builder, checkout)) is not None


def _inputs(builder: Artifact, checkout: Path) -> Mapping[str, Any]:
    return {
        "image": builder.facts["image_id"],
        "flags": list(FLAGS),
        "recipe": COMPILE,
        "sources": sha256_tree(checkout, _sources(checkout)),
    }


def _sources(checkout: Path) -> list[Path]:
    return [
        file
        for s in SOURCES
        for kind in ("*.cpp", "*.hpp", "*.inc", "*.map")
        for file in (checkout / s).glob(kind)
    ]
