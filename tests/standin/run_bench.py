"""Runs bench_overhead.py in the verify container, on a wheel that a release left with its disassembly.

python -m tests.standin.run_bench [WHEEL]
"""

import json
import sys
from pathlib import Path

from wheel_builder.docker import Mount, run_in
from wheel_builder.standin.container import LIBRARY, LIBRARY_INSIDE

CHECKOUT = Path(__file__).parents[2]
BUILD = CHECKOUT / "build"
RUN = (
    "python -m pip install --no-index --no-deps --quiet /wheel/*.whl && LD_PRELOAD=$PRELOAD python /bench.py"
)
ENVIRONMENT = {
    "FA_STANDIN_ARCH": "gfx942:sramecc+:xnack-", "FA_STANDIN_DISASSEMBLY": "/disassembly",
    "FA_STANDIN_LAUNCH": "skip", "PRELOAD": LIBRARY_INSIDE,
}  # fmt: skip


def newest(paths):
    return max(paths, key=lambda path: path.stat().st_mtime)


def main(wheel=""):
    file = Path(wheel) if wheel else newest((CHECKOUT / "dist").glob("*.whl"))
    image = json.loads((newest((BUILD / "verify-image").glob("*/manifest.json"))).read_text())["facts"]["ref"]
    mounts = (
        Mount(file, f"/wheel/{file.name}"),
        Mount(newest((BUILD / "standin").glob(f"*/{LIBRARY}")).parent, "/standin"),
        Mount(
            newest(path for path in (BUILD / "wheel-disassembly").glob("*") if path.is_dir()), "/disassembly"
        ),
        Mount(Path(__file__).with_name("bench_overhead.py"), "/bench.py"),
    )
    log = BUILD / "logs" / "bench-overhead.log"
    print(run_in(image, ["sh", "-c", RUN], mounts=mounts, env=ENVIRONMENT, log=log).stdout)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
