"""A distribution of candidates made of the wheel's own code objects, as copies that differ in a comment.

The fake HIP runtime executes a copy's own disassembly, which may have another instruction.
"""

import hashlib
import json
import os
import re
import shutil
import struct
from pathlib import Path

from flash_attn_rocm.library.host import row_ids
from flash_attn_rocm.machine.requirements import LIBRARY, package_version

ARCH = "gfx942"
ALIGNMENT, BLOCK = 4096, 1 << 16
# A workgroup of gfx942's forwards here: so many waves, of 32 rows and 64 threads.
WAVES, ROWS, THREADS = 4, 32, 64


def stored(content):
    """A frame of zstd with its content in raw blocks, and a bundle's compressed form around it."""
    blocks = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
    frame = struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0x58, len(content))
    for number, block in enumerate(blocks):
        last = number == len(blocks) - 1
        frame += struct.pack("<I", last | len(block) << 3)[:3] + block
    header = struct.pack("<4sHHQQQ", b"CCOB", 3, 1, 32 + len(frame), len(content), 0)
    return header + frame


def bundle(code):
    names = ("host-x86_64-unknown-linux-gnu-", f"hipv4-amdgcn-amd-amdhsa--{ARCH}")
    table = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(names))
    for name, size in zip(names, (0, len(code)), strict=True):
        table += struct.pack("<QQQ", ALIGNMENT, size, len(name)) + name.encode()
    return padded(table) + padded(code)


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


class Made:
    """The distribution in ``site``, and ``disassembly`` with that of its code."""

    def __init__(self, folder):
        self.site, self.disassembly = folder / "site", folder / "disassembly"
        self.package = self.site / f"flash_attn_rocm_tuning_{ARCH}"
        self.package.mkdir(parents=True)
        shutil.copytree(os.environ["FA_FAKE_HIP_DISASSEMBLY"], self.disassembly, copy_function=os.symlink)
        (self.package / "__init__.py").touch()
        library = hashlib.sha256(LIBRARY.read_bytes()).hexdigest()
        wheel = {"version": package_version(), "libraries": ["0" * 64, library]}
        self.listed = {"format": 1, "arch": ARCH, "wheel": wheel, "kernels": {}}

    def add(self, kernel, rows, *, waves=WAVES, queries=0):
        """Candidates: for each row id, a pattern and its replacement, "" for a copy, None without any.

        ``queries``: rows of a workgroup, if not those of its waves.
        """
        own = next(
            file
            for file in sorted(self.disassembly.glob(f"{ARCH}*.s"))
            if f"<{kernel}>:\n" in file.read_text()
        )
        codes = {row: self._copy(own, kernel, row, change) for row, change in sorted(rows.items())}
        data = stored(b"".join(map(bundle, codes.values())))
        (self.package / f"{kernel}.hipfb").write_bytes(data)
        code = {"file": f"{kernel}.hipfb", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        candidates = {
            row: {
                "changes": "a copy", "settings": [{"waves": waves}], "rows": queries or ROWS * waves,
                "threads": THREADS * waves, "lds_bytes": 0, "vgprs": 0,
                "sha256": hashlib.sha256(copy).hexdigest(),
            }
            for row, copy in codes.items()
        }  # fmt: skip
        shipped = row_ids()[ARCH, kernel]
        self.listed["kernels"][kernel] = {"shipped": shipped, "code": code, "candidates": candidates}
        self.write()
        return shipped

    def write(self):
        (self.package / "candidates.json").write_text(json.dumps(self.listed))

    def forget_disassembly(self, row):
        """The runtime does not load the row any more."""
        for file in self.disassembly.glob(f"{row}*"):
            file.unlink()

    def change(self, kernel, row, pattern, becomes):
        """Another instruction for the row."""
        file = self.disassembly / f"{row}-{kernel}.s"
        text, count = re.subn(pattern, becomes, file.read_text(), count=1)
        assert count == 1, f"{row} has no {pattern}"
        file.write_text(text)

    def _copy(self, own, kernel, row, change):
        code = own.with_suffix(".co").read_bytes()
        at = code.rindex(b"clang version")
        copy = code[:at] + row[:5].encode() + code[at + 5 :]
        if change is not None:
            (self.disassembly / f"{row}-{kernel}.co").write_bytes(copy)
            shutil.copyfile(own, self.disassembly / f"{row}-{kernel}.s")
            if change:
                self.change(kernel, row, *change)
        return copy


def path_text(site):
    """Python text: the distribution is installed."""
    return f"import sys; sys.path.insert(0, {str(Path(site))!r})"
