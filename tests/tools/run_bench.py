"""Runs bench_overhead.py in the verify container, on a wheel. Builds its requirements.

python -m tests.tools.run_bench [WHEEL], by default the newest in dist
"""

import argparse
from pathlib import Path

from tests.tools.built import BUILD, newest_wheel
from tests.tools.mutation.bench import CHECKOUT, set_up
from wheel_builder.images.docker import Mount, run_in
from wheel_builder.machine_code.fake_hip.container import LIBRARY_INSIDE, fake_hip_suite

RUN = (
    "python -m pip install --no-index --no-deps --quiet /wheel/*.whl && LD_PRELOAD=$PRELOAD python /bench.py"
)
ENVIRONMENT = {
    "FA_FAKE_HIP_ARCH": "gfx942:sramecc+:xnack-", "FA_FAKE_HIP_LAUNCH": "skip", "PRELOAD": LIBRARY_INSIDE,
}  # fmt: skip


def main(wheel=""):
    file = Path(wheel) if wheel else newest_wheel()
    bench, here = set_up(file), CHECKOUT / "tests/installed/fake_hip/bench_overhead.py"
    suite = fake_hip_suite(here, fake_hip=bench.fake_hip, disassembly=bench.disassembly, checkout=CHECKOUT)
    mounts = (Mount(file, f"/wheel/{file.name}"), Mount(here, "/bench.py"), *suite.mounts)
    env, log = {**ENVIRONMENT, **dict(suite.env)}, BUILD / "logs" / "bench-overhead.log"
    print(run_in(bench.tester.facts["ref"], ["sh", "-c", RUN], mounts=mounts, env=env, log=log).stdout)  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.tools.run_bench", description=__doc__)
    parser.add_argument("wheel", nargs="?", default="", metavar="WHEEL")
    main(parser.parse_args().wheel)
