"""The clock of tests/installed/fake_hip/test_tune_times.py is the launch model's."""

import json

from tests.conftest import CHECKOUT
from wheel_builder.extras.perf.launch.calls import forward, taller
from wheel_builder.extras.perf.launch.kernels import SPEEDS, parse_speeds
from wheel_builder.extras.perf.launch.shapes import Shape

ARCH, HEADS, TOKENS = "gfx942", 16, 16384
CLOCK = CHECKOUT / "tests/installed/fake_hip/modelled.json"


def rows():
    """Three rows of one forward: the wheel's two, and the first with twice the rows of a workgroup."""
    kernels = parse_speeds(SPEEDS.name, (CHECKOUT / SPEEDS).read_text())[ARCH]
    plain = kernels["fwd fp16 d64"]
    return {"plain": plain, "tall": kernels["fwd_tall fp16 d64"], "twice": taller(plain, 2)}


def modelled():
    """Milliseconds of each row, by length and causal."""
    shapes = {
        f"{length} {causal}": Shape(length, length, HEADS, HEADS, TOKENS // length, causal=causal)
        for length in (512, 2048)
        for causal in (False, True)
    }
    return {
        row: {
            name: round(1e3 * forward(ARCH, kernel, shape, together=True).seconds, 5)
            for name, shape in shapes.items()
        }
        for row, kernel in rows().items()
    }


def test_the_clock_of_tune_is_the_launch_models(request):
    found = json.dumps(modelled(), indent=1) + "\n"
    if request.config.getoption("--update"):
        CLOCK.write_text(found)
    assert CLOCK.read_text() == found, "run this test with --update"
