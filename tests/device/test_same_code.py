"""GPUs that run another one's machine code: the compiler writes the same for both, the name apart.

So they need no emulation, goldens and costs of their own, and the host library may load one's code object
under the other's name (kernels/host/relabel.hpp): what it then hands to the runtime is what is compared here.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import CHECKOUT, compile_program
from wheel_builder.base.archs import known_archs, served_by

pytestmark = pytest.mark.device

BORROWED = [arch for arch in known_archs() if len(served_by(arch)) > 1]
# All layers of device code are in these two.
FEW = ("fa_decode_fp16_d32", "fa_append_bf16")


@pytest.fixture(scope="session")
def relabel(builder_image, tmp_path_factory):
    """The host library's own function, as a program."""
    tests = CHECKOUT / "tests/host/relabels.cpp"
    host = [CHECKOUT / "kernels/host" / name for name in ("bundle.cpp", "relabel.cpp")]
    return compile_program(builder_image, tmp_path_factory.mktemp("relabels") / "relabels", tests, *host)


@pytest.mark.parametrize("names", [FEW, pytest.param((), marks=pytest.mark.full)], ids=["few", "all"])
@pytest.mark.parametrize("arch", BORROWED)
def test_the_compiler_writes_the_same_for_every_name(toolchain, relabel, arch, names):
    shutil.copy2(Path(__file__).with_name("same_code.py"), toolchain.scratch)
    gpus = served_by(arch)
    toolchain("sh", "-c", f"cd /out && python3 same_code.py {','.join(gpus)} {' '.join(names)}")
    folder = toolchain.scratch
    own = sorted((folder / arch).iterdir())
    assert len(own) == len(names) or not names
    for gpu in gpus[1:]:
        for file in own:
            subprocess.run([relabel, file, gpu, folder / "renamed"], check=True)
            assert (folder / "renamed").read_bytes() == (folder / gpu / file.name).read_bytes(), (gpu, file)
