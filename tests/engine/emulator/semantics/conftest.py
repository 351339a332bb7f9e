"""All snippets of an arch as one code object, assembled in the builder image and loaded into the emulator."""

import functools

import pytest

from tests.engine.emulator.semantics import cases
from tests.engine.emulator.semantics.machine import FEATURES, SnippetMachine
from wheel_builder.images.docker import Mount, caller, run_in
from wheel_builder.machine_code.emulator.machine import load_machine
from wheel_builder.machine_code.static_checks.stage import disassemble_wheel

ASSEMBLE = """set -e
{llvm}/llvm-mc -triple=amdgcn-amd-amdhsa -mcpu={arch} {features} -filetype=obj /in.s -o /tmp/code.o
{llvm}/ld.lld -shared /tmp/code.o -o /out/code.co
{llvm}/llvm-objdump -d --mcpu={arch} /out/code.co > /out/code.s
"""


@pytest.fixture(scope="session")
def assembled(builder, job, context, core, tmp_path_factory):
    """``assembled(text, arch)``: the code object of assembly text, loaded and kept in the store."""

    def load(text, arch):
        inputs = {"image": builder.facts["image_id"], "text": text, "arch": arch, "how": ASSEMBLE}
        source = tmp_path_factory.mktemp(arch) / "in.s"
        source.write_text(text)
        script = ASSEMBLE.format(llvm=job.rocm.llvm, arch=arch, features=FEATURES[arch])

        def make(out):
            mounts = [Mount(source, "/in.s"), Mount(out, "/out", writable=True)]
            run_in(builder.facts["ref"], ["sh", "-c", script], mounts=mounts, user=caller())
            return {}

        made = context.store.get_or_make("emulator-snippets", inputs, make).path
        return load_machine(core, made / "code.co", (made / "code.s").read_text())

    return load


@pytest.fixture(scope="session")
def snippet_machine(assembled):
    """``snippet_machine(arch)``: loaded once."""

    @functools.cache
    def load(arch):
        return SnippetMachine(
            arch, [case.snippet for some in cases.of(arch).values() for case in some], assembled
        )

    return load


@pytest.fixture(scope="session")
def shipped(builder, core, device_code, as_text, context):
    """``shipped(arch)``: loaded code objects by name, from the wheels in dist/ and from this checkout.

    The first of equal ones is kept, such as a wheel's made by this checkout.
    """
    kept = {"store": context.store, "log": context.log("disassembly")}
    # Excludes the shims', made by concurrent tests, and wheels for Windows.
    wheels = context.dist.glob("flash_attn_rocm-*-manylinux*.whl")
    finished = [disassemble_wheel(file, builder, **kept) for file in wheels]

    def files(arch):
        for number, wheel in enumerate(finished):
            for code in wheel.path.glob(f"{arch}-*.co"):
                yield f"wheel {number}: {code.stem}", code, code.with_suffix(".s").read_text()
        own = sorted(device_code(arch).glob("*.hsaco"))
        yield from zip((code.stem for code in own), own, as_text(arch, own), strict=True)

    @functools.cache
    def load(arch):
        codes = {}
        for name, code, text in sorted(files(arch)):
            codes.setdefault(code.read_bytes(), (name, code, text))
        assert codes, f"no code objects for {arch}"
        return {name: load_machine(core, code, text) for name, code, text in codes.values()}

    return load
