"""AMD's assembly backwards in the released wheel ``amd-aiter``: fetched by tests, never shipped.

Their arguments and launches are those of ``csrc/include/mha_bwd.h`` and ``hsa/*/fmha_v3_bwd/codegen.py`` in
the wheel. A kernel adds up dq in fp32 (``a32``) or in bf16 (``a16``), by atomics. The sum of gfx950's ``a16``
has an order of its own, which ``Shuffle`` undoes.
"""

from dataclasses import dataclass
from math import e, log2

from tests.engine.emulator.amd_assembly import OF_V, UNEVEN, head_dims, packed, strides
from wheel_builder.machine_code.emulator.machine import Launch

THREADS = 256
KEYS = {("gfx942", 128): 192, ("gfx950", 128): 256, ("gfx950", UNEVEN): 192}  # of a workgroup's tile
# How a kernel rounds to bf16. gfx942: as in AMD's benchmark. gfx950 has an instruction for it.
ROUNDING = {"gfx942": "rtz", "gfx950": ""}
# gfx950's kernels take lengths and head dims that are no multiples of a tile's.
ANY_SHAPE = {("gfx950", 128): "psskddv", ("gfx950", UNEVEN): "pssk"}
SHUFFLED = 64  # rows of dq of a workgroup


@dataclass(frozen=True)
class Backward:
    """A backward of bf16 tensors [heads, seqlen, head dim], with as many heads of k as of q.

    Its tensors: dq (the sum), dk, dv, q, k, v, dout, lse and delta. A causal workgroup has two tiles of keys.
    """

    arch: str
    atomics: str
    causal: bool
    seqlen: int
    heads: int
    head_dim: int = 128

    @property
    def name(self):
        parts = ["bwd", head_dims(self.head_dim), "bf16", *["causal"] * self.causal, self.atomics]
        ends = (ROUNDING[self.arch], ANY_SHAPE.get((self.arch, self.head_dim)))
        return "_".join([*parts, *filter(None, ends)])

    @property
    def file(self):
        return f"{self.arch}/fmha_v3_bwd/{self.name}.co"

    @property
    def kernel(self):
        return mangled(f"fmha_{self.name}")

    @property
    def keys(self):
        return KEYS[self.arch, self.head_dim]

    @property
    def launch(self):
        tiles = -(-self.seqlen // self.keys)
        return Launch((-(-tiles // 2) if self.causal else tiles, self.heads, 1), (THREADS, 1, 1))

    @property
    def is_shuffled(self):
        return (self.arch, self.atomics) == ("gfx950", "a16")

    def arguments(self):
        """(format character, value) of each argument. A pointer is None."""
        yield from (("Q", None) for _ in range(9))
        yield from (("f", self.head_dim**-0.5), ("f", log2(e)))
        row, head, all_ = strides(self.seqlen, self.heads, 2 * self.head_dim)
        numbers = [self.seqlen, self.keys * row, head, all_, row, 1, head, all_, row, row]
        yield from (("I", number) for number in numbers)
        if self.arch != "gfx942":
            yield from self._further()

    def _further(self):
        """For any shape: lengths, v, dout, dk, dv and lse, and what packed sequences and windows have."""
        _, head, all_ = strides(self.seqlen, self.heads, 2 * self.head_dim)
        row_v, head_v, all_v = strides(self.seqlen, self.heads, 2 * OF_V)
        numbers = [
            self.seqlen, self.head_dim, OF_V, self.heads, *(head_v, all_v, row_v) * 2,
            head, all_, head_v, all_v, row_v, 4 * self.seqlen,
        ]  # fmt: skip
        yield from (("I", number) for number in numbers)
        yield from (("Q", 0) for _ in range(4))
        yield from (("I", number) for number in (sixteens(self.seqlen), 0, 0))

    def packed(self, pointers):
        return packed(self.arguments(), pointers)


@dataclass(frozen=True)
class Shuffle:
    """Puts the sums of a backward with ``is_shuffled`` in order. Its tensors: the sums, dq."""

    of: Backward

    @property
    def name(self):
        return f"bwd_hd{self.of.head_dim}_dq_shuffle"

    @property
    def file(self):
        return f"{self.of.arch}/fmha_v3_bwd/{self.name}.co"

    @property
    def kernel(self):
        return mangled(f"fmha_{self.name}")

    @property
    def launch(self):
        return Launch((-(-self.of.seqlen // SHUFFLED), self.of.heads, 1), (THREADS, 1, 1))

    def arguments(self):
        row, head, all_ = strides(self.of.seqlen, self.of.heads, 2 * self.of.head_dim)
        yield from (("Q", None) for _ in range(2))
        numbers = [SHUFFLED * row, *(head, all_, row) * 2, self.of.seqlen, self.of.head_dim]
        yield from (("I", number) for number in numbers)
        yield from (("Q", 0), ("Q", 0), ("I", sixteens(self.of.seqlen)))

    def packed(self, pointers):
        return packed(self.arguments(), pointers)


def mangled(name):
    return f"_ZN5aiter{len(name)}{name}E"


def sixteens(seqlen):
    return -(-seqlen // 16) * 16


def backwards(tiles, heads):
    """One of each kernel, with this many tiles of keys."""
    for (arch, head_dim), keys in KEYS.items():
        for atomics in ("a16", "a32"):
            for causal in (False, True):
                yield Backward(arch, atomics, causal, tiles * keys, heads, head_dim)
