"""GPUs that run another GPU's machine code: the compiler's output differs in the name only.

So they share emulation, goldens and costs. The host library may load a code object under the other GPU's name
(kernels/host/registry/relabel.hpp). The tests compare the relabelled file, as passed to the runtime.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools.programs import CHECKOUT, compile_program
from wheel_builder.files.binaries.elf import section_bytes
from wheel_builder.tables.archs import known_archs, served_by

# RDNA 3.5: the compiler would use instructions missing from gfx1102. gfx1102 runs gfx11-generic.
GENERIC = ("gfx1150", "gfx1152", "gfx1153")
BORROWED = [arch for arch in known_archs() if len(served_by(arch)) > 1]
# All layers of device code are in these two.
FEW = ("fa_decode_fp16_d32", "fa_append_bf16")


@pytest.fixture(scope="session")
def relabel(builder_image, tmp_path_factory):
    """The host library's own function, as a program."""
    tests = CHECKOUT / "tests/engine/host/programs/relabels.cpp"
    host = [CHECKOUT / "kernels/host/registry" / name for name in ("bundle.cpp", "relabel.cpp")]
    return compile_program(builder_image, tmp_path_factory.mktemp("relabels") / "relabels", tests, *host)


@pytest.mark.parametrize("names", [FEW, pytest.param((), marks=pytest.mark.full)], ids=["few", "all"])
@pytest.mark.parametrize("arch", BORROWED)
def test_the_compiler_writes_the_same_for_every_name(toolchain, relabel, arch, names):
    shutil.copy2(Path(__file__).with_name("same_code.py"), toolchain.scratch)
    gpus = [arch, *(gpu for gpu in served_by(arch) if gpu not in (arch, *GENERIC))]
    toolchain("sh", "-c", f"cd /out && python3 same_code.py {','.join(gpus)} {' '.join(names)}")
    folder = toolchain.scratch
    own = sorted((folder / arch).iterdir())
    assert len(own) == len(names) or not names
    for gpu in gpus[1:]:
        for file in own:
            subprocess.run([relabel, file, gpu, folder / "renamed"], check=True)
            assert (folder / "renamed").read_bytes() == (folder / gpu / file.name).read_bytes(), (gpu, file)


@pytest.mark.parametrize("names", [FEW, pytest.param((), marks=pytest.mark.full)], ids=["few", "all"])
def test_the_code_of_gfx1102_is_that_of_gfx11_generic(toolchain, names):
    """gfx11-generic is for gfx1100 to gfx1103 and gfx1150 to gfx1153. Its SGPRs are padded (same_code.py)."""
    assert set(GENERIC) <= set(served_by("gfx1102"))
    shutil.copy2(Path(__file__).with_name("same_code.py"), toolchain.scratch)
    toolchain("sh", "-c", f"cd /out && python3 same_code.py gfx1102,gfx11-generic {' '.join(names)}")
    for file in sorted((toolchain.scratch / "gfx1102").iterdir()):
        generic = toolchain.scratch / "gfx11-generic" / file.name
        assert code_and_descriptor(file) == code_and_descriptor(generic), file.name


def code_and_descriptor(file):
    """Excludes the offset of the code: a longer name moves it."""
    data = file.read_bytes()
    descriptor = section_bytes(data, ".rodata")
    return section_bytes(data, ".text"), descriptor[:16] + descriptor[24:]
