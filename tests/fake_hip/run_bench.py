"""Runs bench_overhead.py in the verify container, on a release's wheel with its stored disassembly.

python -m tests.fake_hip.run_bench [WHEEL]
"""

import json
import sys
from pathlib import Path

from wheel_builder.fake_hip.container import LIBRARY, LIBRARY_INSIDE
from wheel_builder.images.docker import Mount, run_in

CHECKOUT = Path(__file__).parents[2]
BUILD = CHECKOUT / "build"
RUN = (
    "python -m pip install --no-index --no-deps --quiet /wheel/*.whl && LD_PRELOAD=$PRELOAD python /bench.py"
)
ENVIRONMENT = {
    "FA_FAKE_HIP_ARCH": "gfx942:sramecc+:xnack-", "FA_FAKE_HIP_DISASSEMBLY": "/disassembly",
    "FA_FAKE_HIP_LAUNCH": "skip", "PRELOAD": LIBRARY_INSIDE,
}  # fmt: skip


def newest(paths):
    return max(paths, key=lambda path: path.stat().st_mtime)


def main(wheel=""):
    file = Path(wheel) if wheel else newest((CHECKOUT / "dist").glob("*.whl"))
    image = json.loads((newest((BUILD / "verify-image").glob("*/manifest.json"))).read_text())["facts"]["ref"]
    mounts = (
        Mount(file, f"/wheel/{file.name}"),
        Mount(newest((BUILD / "fake_hip").glob(f"*/{LIBRARY}")).parent, "/fake_hip"),
        Mount(
            newest(path for path in (BUILD / "wheel-disassembly").glob("*") if path.is_dir()), "/disassembly"
        ),
        Mount(Path(__file__).with_name("bench_overhead.py"), "/bench.py"),
    )
    log = BUILD / "logs" / "bench-overhead.log"
    print(run_in(image, ["sh", "-c", RUN], mounts=mounts, env=ENVIRONMENT, log=log).stdout)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
