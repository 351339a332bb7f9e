"""Lines of assembly as dwords, by the builder image's llvm-mc: one container for all lines of an arch."""

import re
import tempfile
from pathlib import Path

from wheel_builder.images.docker import Mount, caller, run_in
from wheel_builder.tables.archs import arch_named

ENCODED = re.compile(r"encoding: \[([0-9a-fx,]+)\]")
REFUSED = re.compile(r"^/in\.s:(\d+):\d+: error", re.MULTILINE)
SCRIPT = (
    '"$FA_LLVM/llvm-mc" -triple=amdgcn-amd-amdhsa -mcpu="$1" -mattr="$2" -show-encoding /in.s 2>/tmp/errors; '
    "cat /tmp/errors"
)


def encodings(image, arch, lines):
    """Each line's dwords as in listings. Empty for a refused line."""
    with tempfile.NamedTemporaryFile("w", suffix=".s") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        Path(file.name).chmod(0o644)
        argv = ["sh", "-c", SCRIPT, "sh", arch, "+wavefrontsize32" if arch_named(arch).isa.wave == 32 else ""]
        mounts = [Mount(Path(file.name), "/in.s")]
        text = run_in(image, argv, mounts=mounts, user=caller(), check=False).stdout
    refused = {int(number) for number in REFUSED.findall(text)}
    found = iter(ENCODED.findall(text))
    return [() if number in refused else _dwords(next(found, "")) for number in range(1, len(lines) + 1)]


def _dwords(encoding):
    raw = [int(byte, 16) for byte in encoding.split(",") if byte]
    return tuple(f"{int.from_bytes(bytes(raw[at : at + 4]), 'little'):08X}" for at in range(0, len(raw), 4))
