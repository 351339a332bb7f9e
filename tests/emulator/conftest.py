"""Device code of tests/emulator/data, compiled in the builder image and executed on the emulator."""

import shlex
from pathlib import Path

import pytest

from wheel_builder.base.archs import known_archs
from wheel_builder.base.store import sha256_file
from wheel_builder.emulator.binding import Core
from wheel_builder.emulator.command import Workshop
from wheel_builder.emulator.machine import load_machine
from wheel_builder.fake_hip.container import LIBRARY
from wheel_builder.images.docker import Mount, caller, run_in
from wheel_builder.images.listing import disassemble, tools_in

DATA = Path(__file__).with_name("data")
ARCHS = tuple(known_archs())
FLAGS = "-x hip --offload-device-only --no-gpu-bundle-output -O3 -fuse-cuid=none"


@pytest.fixture(scope="session")
def core(emulator):
    """The emulator's core, compiled from this checkout."""
    return Core(emulator.path / LIBRARY)


@pytest.fixture(scope="session")
def compiled(builder, job, context):
    """``compiled("planted", arch)``: the code object of data/planted.hip, from the store if it is there."""

    def compile_(name, arch):
        source = DATA / f"{name}.hip"
        inputs = {
            "image": builder.facts["image_id"],
            "source": sha256_file(source),
            "arch": arch,
            "flags": FLAGS,
        }

        def make(out):
            clang = [f"{job.rocm.llvm}/clang++", *shlex.split(FLAGS), f"--offload-arch={arch}"]
            mounts = [Mount(source, "/in.hip"), Mount(out, "/out", writable=True)]
            argv = [*clang, "/in.hip", "-o", "/out/code.co"]
            run_in(builder.facts["ref"], argv, mounts=mounts, user=caller(), env={"HOME": "/out"})
            return {}

        return context.store.get_or_make("emulator-test-code", inputs, make).path / "code.co"

    return compile_


@pytest.fixture(scope="session")
def machines(core, disassembled, compiled):
    """``machines("planted", arch)``: that code object, loaded.  Loaded once."""
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
