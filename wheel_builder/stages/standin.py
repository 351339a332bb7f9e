"""The emulator with its stand-in HIP runtime, compiled in the builder image.

In: the builder image (its compiler and HIP headers) and the sources.  Out: ``libamdhip64.so.7``, which tests
preload and ``emulator.binding.Core`` opens.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_builder.docker import NOBODY, Mount, open_to_all, run_in
from wheel_builder.errors import CommandFailedError, EmulatorBuildError
from wheel_builder.process import Runner, run
from wheel_builder.standin.container import LIBRARY
from wheel_builder.store import Artifact, Store, sha256_tree

# The core uses AVX2, FMA and F16C by name.  Told to the compiler proper, because zig would make a C++ library
# for this processor instead of taking the image's warm one (kernels/zig_flags.txt): two minutes more.
FEATURES = (
    "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt",
    "sse3", "ssse3", "sse4.1", "sse4.2",
)  # fmt: skip
FLAGS = (
    *("-target", "x86_64-linux-gnu.2.28", "-std=c++17", "-O3", "-g0"),
    *("-fPIC", "-shared", "-fvisibility=hidden"),
    # A fused operation only where an instruction is one.
    "-ffp-contract=off",
    *("-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing", "-pthread", "-Wl,-s"),
    *("-Wall", "-Wextra", "-Werror"),
    *(word for feature in FEATURES for word in ("-Xclang", "-target-feature", "-Xclang", f"+{feature}")),
)
SOURCES = ("wheel_builder/standin", "wheel_builder/emulator/core")
# Of /usr/include only the HIP headers: the rest is another C library's than zig's.
COMPILE = f"""
set -eu
mkdir /tmp/include
for place in /opt/rocm/include /usr/include; do
    [ ! -d $place/hip ] || ln -sfn $place/hip /tmp/include/hip
done
/opt/python/cp39-cp39/bin/python -m ziglang c++ "$@" \\
    -isystem /tmp/include -I/src/wheel_builder/standin -I/src/wheel_builder/emulator/core \\
    -Wl,-soname,{LIBRARY} -Wl,--version-script=/src/wheel_builder/standin/exports.map \\
    -o /out/{LIBRARY} /src/wheel_builder/standin/*.cpp /src/wheel_builder/emulator/core/*.cpp
"""


def build_standin(
    builder: Artifact, *, checkout: Path, store: Store, log: Path, run: Runner = run
) -> Artifact:
    """Compile them into ``LIBRARY``.  Raises ``EmulatorBuildError`` with the compiler's last lines."""
    inputs = {
        "image": builder.facts["image_id"],
        "flags": list(FLAGS),
        "recipe": COMPILE,
        "sources": sha256_tree(checkout, _sources(checkout)),
    }

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

    return store.get_or_make("standin", inputs, make)


def _sources(checkout: Path) -> list[Path]:
    return [
        file for s in SOURCES for kind in ("*.cpp", "*.hpp", "*.map") for file in (checkout / s).glob(kind)
    ]
