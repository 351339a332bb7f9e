"""A relabelled code object equals the compiler's output for the other GPU."""

import subprocess
from pathlib import Path

import pytest

from tests.tools.made.elves import code_object
from tests.tools.programs import CHECKOUT, compile_program
from wheel_builder.tables.archs import known_gpus

BORROWERS = [gpu for gpu in known_gpus().values() if gpu.borrows]
KERNELS = ["fa_fwd_fp16_d64"]
TARGET = b"\xadamdhsa.target\xbaamdgcn-amd-amdhsa--gfx1030"


@pytest.fixture(scope="session")
def program(builder_image, tmp_path_factory):
    host = [CHECKOUT / "kernels/host/registry" / name for name in ("bundle.cpp", "relabel.cpp")]
    folder = tmp_path_factory.mktemp("relabels")
    return compile_program(
        builder_image, folder / "relabels", Path(__file__).with_name("programs") / "relabels.cpp", *host
    )


@pytest.fixture
def relabel(program, tmp_path):
    """The code object under another name, or the words of the error."""

    def run(data, gpu):
        file, out = tmp_path / "code", tmp_path / "out"
        file.write_bytes(data)
        out.unlink(missing_ok=True)
        done = subprocess.run([program, file, gpu, out], capture_output=True, text=True, check=True)
        assert out.exists() != bool(done.stdout)
        return done.stdout or out.read_bytes()

    return run


@pytest.mark.parametrize("gpu", BORROWERS, ids=lambda gpu: gpu.name)
def test_it_is_what_a_compiler_writes_for_that_gpu(relabel, gpu):
    """tests/engine/device/test_same_code.py asks the real compiler."""
    own = code_object(gpu.code_object, KERNELS)
    assert relabel(own, gpu.name) == code_object(gpu.name, KERNELS) != own


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (code_object("gfx1031", KERNELS), "the header of a code object does not say that it is for gfx1030"),
        (code_object("gfx1030", KERNELS)[:63], "the header of a code object does not say"),
        (b"", "the header of a code object does not say"),
        (
            code_object("gfx1030", KERNELS).replace(b"--gfx1030", b"--gfx1100"),
            "the metadata of a code object does not say once that it is for gfx1030",
        ),
        (code_object("gfx1030", KERNELS) + TARGET, "does not say once"),
        (code_object("gfx1030", KERNELS).replace(b"amdhsa.target", b"amdhsa.tarzet"), "does not say once"),
    ],
)
def test_a_damaged_code_object_is_an_error(relabel, data, words):
    found = relabel(data, "gfx1032")
    assert words in found
    assert "next: install the wheel again" in found
