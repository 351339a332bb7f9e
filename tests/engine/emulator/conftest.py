"""Device code of tests/engine/emulator/data, compiled in the builder image and executed on the emulator."""

import functools
from pathlib import Path

import pytest

from wheel_builder.base.store import sha256_file
from wheel_builder.files.device.fatbin import CodeObject
from wheel_builder.images.docker import Mount, caller, run_in
from wheel_builder.machine_code.disassembly.listing import disassemble, list_code, tools_in
from wheel_builder.machine_code.emulator.binding import Core
from wheel_builder.machine_code.emulator.command import Workshop
from wheel_builder.machine_code.emulator.machine import load_machine
from wheel_builder.machine_code.fake_hip.container import LIBRARY
from wheel_builder.tables.archs import known_archs

DATA = Path(__file__).with_name("data")
ARCHS = tuple(known_archs())
COMPILE = """
set -eu
compiler=$1; shift
for arch in "$@"; do
    "$compiler" -x hip --offload-device-only --no-gpu-bundle-output -O3 -fuse-cuid=none \\
        --offload-arch="$arch" /in.hip -o "/out/$arch.co"
done
"""


@pytest.fixture(scope="session")
def core(emulator):
    """The emulator's core, compiled from this checkout."""
    return Core(emulator.path / LIBRARY)


@pytest.fixture(scope="session")
def compiled(builder, job, context):
    """``compiled("planted", arch)``: the code object of data/planted.hip, from the store if it is there.

    One container compiles a file for all archs, and one lists them: starting it costs as much as compiling.
    """

    @functools.cache
    def compile_all(name):
        source = DATA / f"{name}.hip"
        inputs = {
            "image": builder.facts["image_id"],
            "source": sha256_file(source),
            "archs": ARCHS,
            "how": COMPILE,
        }

        def make(out):
            mounts = [Mount(source, "/in.hip"), Mount(out, "/out", writable=True)]
            argv = ["sh", "-c", COMPILE, "sh", f"{job.rocm.llvm}/clang++", *ARCHS]
            run_in(builder.facts["ref"], argv, mounts=mounts, user=caller(), env={"HOME": "/out"})
            return {}

        folder = context.store.get_or_make("emulator-test-code", inputs, make).path
        codes = [CodeObject(arch, (folder / f"{arch}.co").read_bytes()) for arch in ARCHS]
        list_code(codes, tools=tools_in(builder), store=context.store, log=context.log("disassembly"))
        return folder

    return lambda name, arch: compile_all(name) / f"{arch}.co"


@pytest.fixture(scope="session")
def machines(core, disassembled, compiled):
    """``machines("planted", arch)``: that code object, loaded once."""
    loaded = {}

    def load(name, arch):
        if (name, arch) not in loaded:
            code = compiled(name, arch)
            loaded[name, arch] = load_machine(core, code, disassembled(code))
        return loaded[name, arch]

    return load


@pytest.fixture(scope="session")
def workshop(builder, core, context):
    return Workshop(core, context.store, tools_in(builder), context.log("").parent)


@pytest.fixture(scope="session")
def disassembled(builder, context):
    """``disassembled(code)``: the text of a code object's file."""
    kept = {"store": context.store, "log": context.log("disassembly")}
    return lambda code: disassemble(code.read_bytes(), tools=tools_in(builder), **kept)


@pytest.fixture
def machine_of(core, device_code, disassembled):
    """``machine_of(arch)(kernel)``: a backward kernel, loaded."""

    def of(arch):
        folder, loaded = device_code(arch), {}

        def load(kernel):
            if kernel not in loaded:
                code = folder / f"{kernel}.hsaco"
                loaded[kernel] = load_machine(core, code, disassembled(code))
            return loaded[kernel]

        return load

    return of
