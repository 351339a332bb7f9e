"""Shared by all folders of tests.

Tests get a container engine through ``engine``. As root on Debian or Ubuntu it is installed and started.
Otherwise an error says what is missing. Every test runs.
"""

import gc
import os
import shutil
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from kernels.build.machine import default_jobs, usable_cores, usable_memory
from tests.tools import costs
from wheel_builder.base.store import locked
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.machine_code.disassembly.listing import list_code, tools_in
from wheel_builder.matrix.model import Selection
from wheel_builder.matrix.plan import plan
from wheel_builder.matrix.reading import load_matrix
from wheel_builder.pipeline.context import RunContext

CHECKOUT = Path(__file__).parents[1]
# One process makes the release and images, in this order, so the longest chain of work begins at once. These
# tests also check which containers and files exist.
CHAIN = ("tests/release/first/", "tests/engine/container/")
# Files that need no image run before files that need the chain's images and results. The longest is not last.
TURNS = (
    *CHAIN, "tests/fast/", "tests/channel/", "tests/engine/", "tests/release/windows/",
    "tests/release/upstream/", "tests/release/",
)  # fmt: skip

# Temporary files are in memory: tests make and remove tens of thousands of small ones while images are
# written to the disk. Pytest makes its folders there.
MEMORY, ROOM = "/dev/shm", 4 << 30


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="write wheel_builder/extras/perf/figures")
    parser.addoption("--full", action="store_true", help="also run what takes long (mark: full)")


def pytest_configure(config):
    costs.register(config, CHECKOUT)
    if "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY
    # A shell's background processes ignore Ctrl-C, and processes interrupted by tests would inherit this.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def has_room(folder):
    """Whether programs can be written to a folder and run there, and ROOM bytes are free."""
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(folder).free >= ROOM


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--full"):
        slow = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    items.sort(key=lambda item: turn(item.nodeid))


def pytest_collection_finish():
    # Sixteen thousand test items stay until the end. Freezing them spares the collector from rescanning them.
    gc.freeze()


def turn(nodeid):
    """The place of a test's folder in TURNS."""
    return next((place for place, folder in enumerate(TURNS) if nodeid.startswith(folder)), len(TURNS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With ``--numprocesses 2`` one process takes the chain. Each free process takes the next file."""

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return "chain" if nodeid.startswith(CHAIN) else nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # otherwise files with more tests come first
    return Files(config, log)


@pytest.fixture(scope="session")
def context():
    """The checkout's own run context, which reuses earlier results like ``scripts/release``."""
    return RunContext(
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


@contextmanager
def alone(what):
    """A lock: only one test process at a time is inside ``alone("release")``."""
    lock = CHECKOUT / "build" / "logs" / f"{what}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock):
        yield


@pytest.fixture(scope="session")
def engine(context):
    """A responding container engine."""
    from wheel_builder.images.engine import ensure_engine

    with alone("apt"):  # apt fails at once if another apt runs
        return ensure_engine(install=True, log=context.log("engine"))


@pytest.fixture(scope="session")
def builder(engine, job, package, context):
    """The default job's builder image, as a stage's result."""
    from wheel_builder.images.stages import build_image

    return build_image(job, package, context.store, logs=context.log("").parent)


@pytest.fixture(scope="session")
def builder_image(builder):
    """The default job's builder image, by its name in the engine."""
    return builder.facts["ref"]


@pytest.fixture(scope="session")
def zstd(builder_image, context, tmp_path_factory):
    """The arguments to compile and link with zstd, as the wheel's library has it."""
    from tests.tools.programs import compile_zstd
    from wheel_builder.build.zstd import fetch_zstd

    source = fetch_zstd(context.checkout, context.store, log=context.log("zstd")).path
    return compile_zstd(builder_image, source, tmp_path_factory.mktemp("zstd"))


@pytest.fixture(scope="session")
def unpacker(builder_image, zstd, tmp_path_factory):
    """A program with the host library's unpack: tests/engine/host/programs/unpacks.cpp."""
    from tests.tools.programs import compile_program

    host = [CHECKOUT / "kernels/host/registry" / name for name in ("bundle.cpp", "unpack.cpp")]
    program = CHECKOUT / "tests/engine/host/programs/unpacks.cpp"
    to = tmp_path_factory.mktemp("unpacks") / "unpacks"
    return compile_program(builder_image, to, program, *host, *zstd)


@pytest.fixture(scope="session")
def device_code(builder, context):
    """``device_code(arch)``: the folder with this checkout's kernels for an arch."""
    from wheel_builder.build.device_code import compile_arch

    def make(arch):
        log = context.log(f"device-code-{arch}")
        kept = {"checkout": context.checkout, "store": context.store, "jobs": context.jobs}
        return compile_arch(arch, image=builder, log=log, **kept).path

    return make


@pytest.fixture(scope="session")
def as_text(builder, context):
    """``as_text(arch, files)``: the disassembly of code objects, from the store if it is there."""

    def texts(arch, files):
        objects = [CodeObject(arch, file.read_bytes()) for file in files]
        kept = {"store": context.store, "log": context.log("disassembly")}
        return [each.disassembly for each in list_code(objects, tools=tools_in(builder), **kept)]

    return texts


@pytest.fixture(scope="session")
def emulator(builder, context):
    """The emulator with its fake HIP runtime, as a stage's result."""
    from wheel_builder.machine_code.fake_hip.stage import build_fake_hip

    return build_fake_hip(builder, checkout=CHECKOUT, store=context.store, log=context.log("emulator"))


@pytest.fixture(scope="session")
def verifier(engine, package, context):
    """The verify image, as a stage's result."""
    from wheel_builder.images.stages import build_verify_image

    return build_verify_image(package, context.store, logs=context.log("").parent)
