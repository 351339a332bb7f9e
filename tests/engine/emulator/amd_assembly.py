"""AMD's assembly forwards in the released wheel ``amd-aiter``: fetched by tests, never shipped.

Their arguments are those of ``fmha_fwd_v3_args`` in the wheel's ``csrc/include/mha_fwd.h``, their launches
those of ``hsa/*/fmha_v3_fwd/codegen.py``.
"""

import struct
import zipfile
from dataclasses import dataclass

from tests.engine.emulator.foreign import Wheel, fetch
from wheel_builder.machine_code.emulator.machine import Launch

WHEEL = Wheel(
    "amd-aiter==0.1.7.post2.dev18", "fe139d74438217c35e87e3b961166bac8db2d381eadccb371da2e63615f05a31", {}
)
FOLDERS = {"gfx942": "gfx942/fmha_v3_fwd/MI300", "gfx950": "gfx950/fmha_v3_fwd"}
# How a kernel rounds probabilities to bf16. gfx950 has an instruction for it.
ROUNDINGS = {"gfx942": ("rtne", "rtna", "rtz"), "gfx950": ("",)}
HEAD_DIM, ROWS, THREADS = 128, 256, 512  # ROWS of queries of a workgroup, a causal one takes two such tiles
ROW = 2 * HEAD_DIM  # bytes


@dataclass(frozen=True)
class Forward:
    """A forward of bf16 tensors [heads, seqlen, 128]."""

    arch: str
    rounding: str
    causal: bool
    seqlen: int
    heads: int
    heads_k: int

    @property
    def name(self):
        return "_".join(["fwd_hd128_bf16", *["causal"] * self.causal, *filter(None, [self.rounding])])

    @property
    def kernel(self):
        name = f"fmha_{self.name}"
        return f"_ZN5aiter{len(name)}{name}E"

    @property
    def launch(self):
        tiles = -(-self.seqlen // ROWS)
        return Launch((-(-tiles // 2) if self.causal else tiles, self.heads, 1), (THREADS, 1, 1))

    def numbers(self):
        """The arguments between the pointers of tensors and those of lengths."""
        head, rows = self.seqlen * ROW, (ROW, self.seqlen * ROW)
        return [
            self.seqlen, ROW, ROWS * ROW, head, self.heads * head, self.heads // self.heads_k,
            *rows, self.heads_k * head, 3 if self.causal and self.heads % 8 else 5, 1,
            self.seqlen, HEAD_DIM, HEAD_DIM, self.heads,
            *rows, self.heads_k * head, *rows, self.heads * head,
        ]  # fmt: skip

    def arguments(self):
        """(format character, value) of each argument. A pointer is None."""
        yield from (("Q", None) for _ in range(5))
        yield "f", HEAD_DIM**-0.5
        yield from (("I", number) for number in self.numbers())
        yield from (("Q", 0), ("Q", 0), ("I", 4 * self.seqlen), ("Q", 0), ("Q", 0))

    def packed(self, pointers):
        """The argument segment. Every argument has 16 bytes."""
        pointers = iter(pointers)
        values = ((kind, next(pointers) if value is None else value) for kind, value in self.arguments())
        return b"".join(struct.pack(f"<{kind}", value).ljust(16, b"\0") for kind, value in values)


def code_object(file, forward):
    with zipfile.ZipFile(file) as archive:
        return archive.read(f"aiter_meta/hsa/{FOLDERS[forward.arch]}/{forward.name}.co")


def fetched(folder):
    return fetch(WHEEL, folder)


def forwards(seqlen, heads, heads_k):
    """One of each kernel."""
    for arch, roundings in ROUNDINGS.items():
        for rounding in roundings:
            for causal in (False, True):
                yield Forward(arch, rounding, causal, seqlen, heads, heads_k)
