"""Runs bench_overhead.py in the verify container, on a release's wheel with its stored disassembly.

python -m tests.fake_hip.run_bench [WHEEL]
"""

import sys
from pathlib import Path

from tests.built import BUILD, fake_hip_mounts, newest_wheel, verify_image
from wheel_builder.fake_hip.container import LIBRARY_INSIDE
from wheel_builder.images.docker import Mount, run_in

RUN = (
    "python -m pip install --no-index --no-deps --quiet /wheel/*.whl && LD_PRELOAD=$PRELOAD python /bench.py"
)
ENVIRONMENT = {
    "FA_FAKE_HIP_ARCH": "gfx942:sramecc+:xnack-", "FA_FAKE_HIP_DISASSEMBLY": "/disassembly",
    "FA_FAKE_HIP_LAUNCH": "skip", "PRELOAD": LIBRARY_INSIDE,
}  # fmt: skip


def main(wheel=""):
    file = Path(wheel) if wheel else newest_wheel()
    mounts = (*fake_hip_mounts(file), Mount(Path(__file__).with_name("bench_overhead.py"), "/bench.py"))
    log = BUILD / "logs" / "bench-overhead.log"
    print(run_in(verify_image(), ["sh", "-c", RUN], mounts=mounts, env=ENVIRONMENT, log=log).stdout)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
