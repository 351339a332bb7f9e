"""A fake of the LLVM tools, for tests of their readers."""

from pathlib import Path

from tests.tools.made.assembly import disassembly
from tests.tools.made.wheels import ARCHS, KERNELS
from wheel_builder.base.process import Completed

CODE = {
    "gfx908": "v_mfma_f32_32x32x{k}{type} a[0:15], v[0:1], v[2:3], a[0:15]",
    "gfx942": "v_mfma_f32_32x32x8_{type} v[16:31], v[0:1], v[2:3], v[16:31]",
    "gfx1030": "{dot2} v0, v1, v2",
    "gfx1100": "v_wmma_f32_16x16x16_{type} v[0:7], v[8:15], v[16:23], v[0:7]",
}
FP16 = {"type": "f16", "k": 8, "dot2": "v_dot2c_f32_f16"}
BF16 = {"type": "bf16", "k": 4, "dot2": "v_fmac_f32_e32"}


class FakeTools:
    """Stands in for ``process.run``: lists for each code object a kernel of its name and arch."""

    def __init__(self):
        self.commands = []

    def __call__(self, argv, *, log=None, env=None, cwd=None, check=True, advice=""):
        self.commands.append([str(part) for part in argv])
        (mount,) = (part for part in self.commands[-1] if part.startswith("type=bind"))
        folder = Path(mount.split("source=")[1].split(",")[0])
        archs = self.commands[-1][self.commands[-1].index("/out") + 1 :]
        names = [name for _ in ARCHS for name in KERNELS]  # one bundle per arch, in it one object per kernel
        for number, (arch, name) in enumerate(zip(archs, names, strict=True)):
            assert (folder / f"{number}.hsaco").read_bytes().startswith(b"\x7fELF")
            line = CODE[arch].format(**(BF16 if "bf16" in name else FP16))
            (folder / f"{number}.s").write_text(disassembly(line, "s_endpgm", name=name))
        return Completed("", 0)
