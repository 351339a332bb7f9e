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
OF_V, UNEVEN = 128, 192  # head dims: of v always, of q and k in the kernels with two
ROWS, THREADS = {128: 256, UNEVEN: 128}, {128: 512, UNEVEN: 256}  # a causal workgroup has two such tiles

ADDITION = (0x807C7CFF, 0x1040)  # s_add_u32 m0, 0x1040, m0
BARRIER = (0xBF8A0000, 0xBF800000)  # s_barrier, s_nop 0


@dataclass(frozen=True)
class Forward:
    """A forward of bf16 tensors [heads, seqlen, head dim]."""

    arch: str
    rounding: str
    causal: bool
    seqlen: int
    heads: int
    heads_k: int
    head_dim: int = 128

    @property
    def name(self):
        dims = head_dims(self.head_dim)
        return "_".join(["fwd", dims, "bf16", *["causal"] * self.causal, *filter(None, [self.rounding])])

    @property
    def file(self):
        return f"{FOLDERS[self.arch]}/{self.name}.co"

    @property
    def kernel(self):
        name = f"fmha_{self.name}"
        return f"_ZN5aiter{len(name)}{name}E"

    @property
    def rows(self):
        return ROWS[self.head_dim]

    @property
    def launch(self):
        tiles = -(-self.seqlen // self.rows)
        groups = -(-tiles // 2) if self.causal else tiles
        return Launch((groups, self.heads, 1), (THREADS[self.head_dim], 1, 1))

    def numbers(self):
        """The arguments between the pointers of tensors and those of lengths."""
        row, row_v = 2 * self.head_dim, 2 * OF_V
        of_q, of_k = strides(self.seqlen, self.heads, row), strides(self.seqlen, self.heads_k, row)
        of_v, of_out = strides(self.seqlen, self.heads_k, row_v), strides(self.seqlen, self.heads, row_v)
        return [
            self.seqlen, row, self.rows * row, *of_q[1:], self.heads // self.heads_k, *of_k,
            3 if self.causal and self.heads % 8 else 5, 1,
            self.seqlen, self.head_dim, OF_V, self.heads, *of_v, *of_out,
        ]  # fmt: skip

    def arguments(self):
        """(format character, value) of each argument. A pointer is None."""
        yield from (("Q", None) for _ in range(5))
        yield "f", self.head_dim**-0.5
        yield from (("I", number) for number in self.numbers())
        yield from (("Q", 0), ("Q", 0), ("I", 4 * self.seqlen), ("Q", 0), ("Q", 0))

    def packed(self, pointers):
        return packed(self.arguments(), pointers)


def head_dims(head_dim):
    """As the kernels' names have them."""
    return f"hd{head_dim}_hd{OF_V}" if head_dim == UNEVEN else f"hd{head_dim}"


def strides(seqlen, heads, row):
    """Bytes from row to row, from head to head, from sequence to sequence."""
    return row, seqlen * row, heads * seqlen * row


def packed(arguments, pointers):
    """The argument segment. Every argument has 16 bytes."""
    pointers = iter(pointers)
    values = ((kind, next(pointers) if value is None else value) for kind, value in arguments)
    return b"".join(struct.pack(f"<{kind}", value).ljust(16, b"\0") for kind, value in values)


def code_object(file, kernel):
    """Of a kernel of the wheel, by its ``file``."""
    with zipfile.ZipFile(file) as archive:
        return archive.read(f"aiter_meta/hsa/{kernel.file}")


def with_barriers(code):
    """The forward of two head dims, with a barrier before it loads the third and the fourth 64 rows of K.

    A barrier takes the place of an addition to M0 that nothing uses.
    """
    third = only_place(code, words(*ADDITION, 0xD3B70030, 0x1A020160, 0x8138383A))
    fourth = only_place(code, words(0xBEFC0022, 0xD3B70040, 0x1A020130))
    unused = only_place(code, words(*ADDITION, 0xD3B70050, 0x1A020160, 0xBEFC0023))
    size = len(words(*BARRIER))
    return b"".join([
        code[:third], words(*BARRIER), code[third + size : fourth],
        words(*BARRIER), code[fourth:unused], code[unused + size :],
    ])  # fmt: skip


def words(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


def only_place(code, of):
    assert code.count(of) == 1
    return code.index(of)


def fetched(folder):
    return fetch(WHEEL, folder)


def forwards(seqlen, heads, heads_k):
    """One of each kernel."""
    for arch, roundings in ROUNDINGS.items():
        for rounding in roundings:
            for causal in (False, True):
                yield Forward(arch, rounding, causal, seqlen, heads, heads_k)
    for causal in (False, True):
        yield Forward("gfx950", "", causal, seqlen, heads, heads_k, UNEVEN)
