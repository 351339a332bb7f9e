"""What all rungs share.

A rung that needs a container engine gets one through ``engine``: installed and started when this is root on
Debian or Ubuntu, otherwise an error that says what is missing.  Nothing is skipped.
"""

import signal
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from wheel_builder.machine import default_jobs, usable_cores, usable_memory
from wheel_builder.matrix import load_matrix
from wheel_builder.model import Selection
from wheel_builder.plan import plan
from wheel_builder.workplace import Workplace

CHECKOUT = Path(__file__).parents[1]
# One after the other: they look at which containers and files there are.
ENGINE_RUNGS = ("container", "device", "release")


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also run what takes long (mark: full)")


def pytest_configure():
    # What a shell starts in the background ignores Ctrl-C, and so would the processes that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--full"):
        slow = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With ``--numprocesses 2`` one process takes ``ENGINE_RUNGS`` and the other all else."""

    class TwoParts(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "engine" if Path(nodeid).parts[1] in ENGINE_RUNGS else "rest"

    return TwoParts(config, log)


@pytest.fixture(scope="session")
def place():
    """The checkout's own workplace: results of earlier runs are used, as ``scripts/release`` does."""
    return Workplace(
        checkout=CHECKOUT,
        build=CHECKOUT / "build",
        dist=CHECKOUT / "dist",
        index=CHECKOUT / "dist" / "index",
        jobs=default_jobs(usable_cores(), usable_memory()),
        install_engine=True,
    )


@pytest.fixture(scope="session")
def job():
    """The default job of matrix.yaml."""
    return plan(load_matrix(CHECKOUT / "matrix.yaml"), Selection()).jobs[0]


@pytest.fixture(scope="session")
def package():
    return load_matrix(CHECKOUT / "matrix.yaml").package


@pytest.fixture(scope="session")
def engine(place):
    """A container engine that answers; of several processes one installs it."""
    from wheel_builder.engine import ensure_engine
    from wheel_builder.store import locked

    log = place.log("engine")
    log.parent.mkdir(parents=True, exist_ok=True)
    with locked(log.with_suffix(".lock")):
        return ensure_engine(install=True, log=log)


@pytest.fixture(scope="session")
def builder(engine, job, package, place):
    """The default ROCm version's builder image, as a stage's result."""
    from wheel_builder.stages.image import build_image

    return build_image(job, package, place.store, logs=place.log("").parent)


@pytest.fixture(scope="session")
def builder_image(builder):
    """The default ROCm version's builder image, by its name in the engine."""
    return builder.facts["ref"]


@pytest.fixture(scope="session")
def device_code(builder, place):
    """``device_code(arch)``: the folder with this checkout's kernels for an arch."""
    from wheel_builder.stages.device_code import compile_arch

    def make(arch):
        log = place.log(f"device-code-{arch}")
        kept = {"checkout": place.checkout, "store": place.store, "jobs": place.jobs}
        return compile_arch(arch, image=builder, log=log, **kept).path

    return make


@pytest.fixture(scope="session")
def emulator(builder, place):
    """The emulator with its stand-in HIP runtime, as a stage's result."""
    from wheel_builder.stages.standin import build_standin

    return build_standin(builder, checkout=CHECKOUT, store=place.store, log=place.log("emulator"))


@pytest.fixture(scope="session")
def verifier(engine, package, place):
    """The image that wheels are verified in, as a stage's result."""
    from wheel_builder.stages.image import build_verify_image

    return build_verify_image(package, place.store, logs=place.log("").parent)
