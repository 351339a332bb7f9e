"""The small calls of the check at first use, as data: one call per row, with the reason for it.

The emulator's coverage and mutants of the kernels chose them: ``python -m tests.tools.mutation.canary``.
"""

import math
from typing import NamedTuple

DENSE, PACKED, IN_USE, CACHE, PAGED = "dense", "packed", "in use", "cache", "paged"
NONE, CAUSAL = (-1, -1), (-1, 0)
FLAT = (0.0, 0.0)
# Keys per step of decode. Some kernels take twice as many for head dims up to SMALL.
TILE, SMALL = 32, 64
WAVE = 64  # lanes that share parts out
BOOL, OWN, FP32 = "bool", "own", "fp32"
E4M3FN, E4M3FNUZ, E5M2, INT8 = "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "int8"
SOME, LEFT, WHOLE = "some keys", "left keys", "whole rows"
LATER, ONE, OTHERS = "later keys", "one key of a row", "all but one key of a row"
UNIT = 16  # keys of a mask that are tested together
FAR_BELOW = -20000.0  # a bias within fp16's range


class Mask(NamedTuple):
    """An attn_mask. ``holds`` is bool, the family's dtype or fp32.

    It differs per sequence (b), head (h) and row (i) if ``of`` has the letter. In masks of numbers, ``low``
    is the value for what the mask ``hides``. A rule about one key applies to one row of each of 128 heads, in
    each of 32 rows and 4 words.
    """

    holds: str
    of: str
    hides: str = SOME
    low: float = -math.inf


class Row(NamedTuple):
    """One call. ``rows`` and ``keys`` are per sequence, ``heads`` are the heads of q and of k and v.

    ``store`` is the layout of k and v: dense; packed, possibly with an unused last key; a cache with left
    padding, used lengths and rows by index; or pages, with packed queries. ``heads_first``: dense tensors
    have their heads first. ``scale`` is in units of 1 / sqrt(head_dim).

    ``scores`` are added to the random scores: the first key's, and the increment per key. Every other head of
    q subtracts them. ``mixed``: queries alternate between added, absent and subtracted. ``infinite``: a key
    of each of the first three sequences is NaN, -inf or inf. With windows that begin at the diagonal it is
    the last key, the only one that the last query sees. ``nan``: all tensors are NaN, and gradients of hidden
    keys must stay free of NaN.

    ``narrower`` than the family's head dim: rows are unaligned. ``path``: instead of the plan's. ``tiny``:
    with a number in bf16's range below fp16's, for bf16 only. ``uneven``: v has the head dim of kernels with
    two head dims. ``sink``: each head has one, of forward calls only. ``codes``: the cache has 8 bits of this
    dtype, with a descale ``per_key`` or for each head of a sequence. ``widened``: no kernel reads it in such
    a call.
    """

    why: str
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    heads: tuple[int, int] = (4, 2)
    window: tuple[int, int] = NONE
    scale: float = 1.0
    softcap: float = 0.0
    alibi: bool = False
    dropout: float = 0.0
    store: str = DENSE
    parts: int = 1
    scores: tuple[float, float] = FLAT
    mixed: bool = False
    infinite: bool = False
    nan: bool = False
    narrower: int = 0
    heads_first: bool = False
    path: str = ""
    mask: Mask | None = None
    tiny: bool = False
    uneven: bool = False
    sink: bool = False
    codes: str = ""
    per_key: bool = False
    widened: bool = False

    def of(self, head_dim: int) -> "Row":
        """With more parts than lanes: a tile per part, and an equal total rise of scores."""
        if self.parts <= WAVE or head_dim > SMALL:
            return self
        first, step = self.scores
        return self._replace(keys=tuple(2 * length for length in self.keys), scores=(first, step / 2))

    @property
    def featured(self) -> bool:
        """Whether kernels take their loop for features."""
        return bool(self.softcap or self.alibi or self.dropout or self.store == PAGED)


# fwd and its two loops, decode and its two loops, the kernel that joins decode's parts, the reference kernel.
# Windows end at each key of a tile: by more rows than a tile has keys, or by lengths 16 apart. Sequences of a
# row are one padded batch for PyTorch: they are all long or all short. A call covers several features where
# mutants showed that they stay visible. Rising scores hide keys, so pages also have flat ones. Kernels have
# separate code for packed and for dense rows. Both have some workgroups with a single row: 129 is 1 more than
# a multiple of 128, 64, 32 and 16, and 11 rows of three heads are 1 more than 32 and 16. With pages one
# sequence has more keys than there are queries, so mixing up the two numbers cuts it. A wrong maximum has no
# effect until an exponential overflows: in fp32 and bf16 from a difference of 88 on. A maximum taken for 0
# has an effect only if all scores are far below. tanh is a polynomial up to a quarter of softcap, and uses
# exp above: the heaviest keys lie around that point in some rows, far above in others. Each feature comes
# alone in some row: a kernel that wrongly takes its plain loop can be right with a second feature. Groups of
# three heads and rows of more than three pages are there because integer division corrects a wrong start by
# up to 2. A batch's last sequence has no queries in one row and no keys in another, because cumulative
# lengths are cut there.
ATTENTION = (
    Row("causal", (129,), (97,), (3, 1), CAUSAL),
    Row("window, scores that rise and fall", (150,), (200,), (2, 2), (33, 7), scores=(0.0, 5.0)),
    Row("scores far apart", (33,), (97,), (2, 1), (40, 7), scores=(0.0, 120.0)),
    Row("packed sequences, infinite scores", (33, 17, 17, 0, 20, 5, 1, 0),
        (65, 66, 51, 20, 11, 0, 1, 5), (6, 2), CAUSAL, store=PACKED, infinite=True),
    Row("the diagonal, heads first, infinite scores", (33, 33, 33), (49, 49, 49), (2, 1), (0, 0),
        infinite=True, heads_first=True),
    Row("left padded cache, negative scale", (40, 40), (129, 97), (2, 1), (0, 60), scale=-1.0, store=CACHE,
        scores=(-1500.0, -0.5)),
    Row("long packed sequences", (129, 20, 3), (65, 97, 0), (2, 1), (70, -1), store=PACKED),
    Row("window, heads first, softcap, ALiBi", (129, 129), (117, 117), (2, 1), (40, 8), scale=-8.0,
        softcap=1.0, alibi=True, heads_first=True),
    Row("softcap", (129,), (129,), (2, 1), scale=2.0, softcap=20.0, scores=(5.0, 0.0)),
    Row("ALiBi", (40,), (130,), (3, 1), (20, -1), alibi=True),
    Row("packed sequences, dropout, infinite scores", (70, 70, 70), (65, 65, 65), (6, 2), CAUSAL, scale=-2.0,
        dropout=0.6, store=PACKED, infinite=True),
    Row("pages", (70, 5, 0), (200, 260, 30), (2, 1), store=PAGED),
    Row("causal, pages, scores that rise and fall", (70,), (200,), (2, 1), CAUSAL, store=PAGED,
        scores=(0.0, 5.0)),
    Row("pages, from the diagonal on, infinite scores", (17, 40, 5, 0, 1, 3), (100, 150, 49, 30, 1, 0),
        (2, 2), (0, 20), store=PAGED, scores=(-1500.0, -0.5), mixed=True, infinite=True),
    Row("left padded cache, softcap", (31, 31), (200, 20), (2, 1), (-1, 16), softcap=2000.0, store=CACHE,
        scores=(0.0, 5.0)),
    Row("decode in parts, infinite scores", (16, 11, 1, 0, 3, 0), (257, 97, 129, 20, 2, 5), (6, 2), CAUSAL,
        store=PACKED, parts=3, infinite=True),
    Row("decode, window, scores that rise and fall", (16, 16, 16, 0, 16, 3), (161, 177, 193, 20, 209, 0),
        (2, 2), (33, 7), store=PACKED, scores=(0.0, 0.5)),
    Row("decode, scores far apart", (16, 11), (97, 65), (2, 1), (40, 7), store=PACKED, scores=(0.0, 120.0)),
    Row("decode, left padded cache, negative scale", (11, 11), (129, 97), (3, 1), scale=-1.0, store=CACHE,
        scores=(-1500.0, -0.5)),
    Row("decode, window, softcap, ALiBi", (16, 16, 11, 0, 16, 3), (161, 177, 65, 20, 81, 0), (6, 2), (70, 0),
        scale=-8.0, softcap=1.0, alibi=True, store=PACKED),
    Row("decode, softcap", (16,), (129,), (2, 1), scale=2.0, softcap=20.0, scores=(5.0, 0.0)),
    Row("decode, ALiBi", (3,), (50,), (3, 1), (20, -1), alibi=True),
    Row("decode, pages", (3, 16, 0), (257, 300, 30), (2, 1), store=PAGED),
    Row("decode, causal, pages, scores that rise and fall", (3,), (257,), (3, 1), CAUSAL, store=PAGED,
        scores=(0.0, 5.0)),
    Row("decode, pages, infinite scores", (2, 16, 3, 0, 3), (161, 209, 97, 30, 0), (2, 2), (55, 60),
        store=PAGED, parts=3, scores=(-1500.0, -0.5), mixed=True, infinite=True),
    Row("decode, the diagonal, heads first, infinite scores", (11, 11, 11), (33, 33, 33), (6, 2), (0, 0),
        parts=3, infinite=True, heads_first=True),
    Row("decode, the diagonal, heads first, ALiBi, infinite scores", (11, 11, 11), (33, 33, 33), (6, 2),
        (0, 0), alibi=True, parts=3, infinite=True, heads_first=True),
    Row("decode, left padded cache, softcap", (11, 11), (300, 20), (3, 1), softcap=2000.0, store=CACHE,
        scores=(0.0, 5.0)),
    Row("decode in parts, dense, high scores that rise and fall", (5, 5, 5), (257, 257, 257), (3, 1), parts=3,
        scores=(1500.0, 1.0)),
    Row("decode in many parts, scores that rise and fall", (1,), (67 * TILE,), (2, 1), parts=67,
        scores=(-2700.0, 1.1)),
    Row("unaligned cache", (5, 5), (40, 12), (6, 2), (0, 3), scale=-1.0, softcap=20.0, alibi=True,
        store=CACHE, scores=(0.0, 0.15), narrower=3),
    Row("unaligned packed sequences, in use, scores far apart", (5, 0, 3), (40, 9, 3), (3, 1), (0, 20),
        store=IN_USE, scores=(0.0, 120.0), narrower=3),
    Row("unaligned pages", (3, 17, 6), (40, 150, 2), (2, 1), CAUSAL, store=PAGED, narrower=1),
    Row("unaligned pages, scores far apart, some infinite", (7, 0, 70, 9), (60, 30, 200, 4), (2, 2), (20, 0),
        dropout=0.3, store=PAGED, scores=(0.0, 120.0), infinite=True, narrower=1),
    Row("many keys, scores that rise and fall", (33,), (300,), (2, 1), scores=(0.0, 5.0)),
    Row("a narrow window, few keys", (100,), (100,), (2, 1), (20, 0)),
    Row("sinks, workgroups dealt to dies", (150, 150), (40, 40), (3, 1), sink=True),
    Row("sinks, softcap", (33,), (65,), (2, 1), softcap=20.0, sink=True),
    Row("decode, sinks", (3,), (50,), (3, 1), sink=True),
    Row("decode, softcap, sinks", (3,), (50,), (3, 1), softcap=20.0, sink=True),
    Row("decode in parts, sinks", (3, 2), (129, 40), (2, 1), store=PACKED, parts=3, sink=True),
    Row("unaligned, sinks", (5,), (12,), (2, 1), narrower=3, sink=True),
)  # fmt: skip

# Rows for kernels with fwd's plain loop only.
PLAIN = tuple(
    row
    for row in ATTENTION
    if max(row.rows) > 16 and row.parts == 1 and not row.narrower and not row.featured
)

# Rows for large head dims, also with keys in parts.
WIDE = (
    *PLAIN,
    Row("causal in parts, packed sequences, infinite scores", (33, 11, 1, 0, 70, 0),
        (257, 97, 129, 20, 200, 5), (6, 2), CAUSAL, store=PACKED, parts=3, infinite=True),
    Row("window in parts, heads first, scores that rise and fall", (97, 97), (257, 257), (2, 1), (70, 7),
        parts=3, scores=(0.0, 5.0), heads_first=True),
    Row("in many parts", (5,), (67 * TILE,), (2, 1), parts=67),
)  # fmt: skip

# PLAIN for kernels with a different head dim of v.
UNEVEN = tuple(row._replace(why=f"another head dim of v: {row.why}", uneven=True) for row in PLAIN)

# The kernel with tall workgroups. As in fwd's rows, some workgroups have a single row.
TALL = tuple(
    row._replace(
        why=f"tall workgroups: {row.why}",
        rows=tuple(257 if n == 129 else n for n in row.rows),
        path="tall",
    )
    for row in PLAIN
)

# The kernel with a mask or a bias: each kind of mask, with and without each stride. Products may start from
# the softmax's shift, so numbers far below 0 come apart from other scores: first in a row, before others, or
# alone. The test whether a boolean mask shows a tile fully or hides it fully covers 32 rows and 4 words at a
# time: each of these decides somewhere. Kernels look at 4096 keys before any more.
MASKS: tuple[Row, ...] = (
    Row("bool, window", (129,), (97,), (3, 1), (33, 7), mask=Mask(BOOL, "hi")),
    Row("bool, rows that see nothing, infinite scores", (40, 40, 40), (70, 70, 70), (2, 1), CAUSAL,
        infinite=True, mask=Mask(BOOL, "bi", WHOLE)),
    Row("bool, scores that rise and fall", (33,), (200,), (2, 2), scores=(0.0, 5.0), mask=Mask(BOOL, "hi")),
    Row("bool, a workgroup without keys", (150,), (17,), (2, 1), CAUSAL, mask=Mask(BOOL, "hi")),
    Row("bool, later keys", (150, 150), (200, 200), (3, 1), mask=Mask(BOOL, "i", LATER)),
    Row("bool of keys, left keys, causal", (129, 129), (150, 150), (2, 1), CAUSAL,
        mask=Mask(BOOL, "b", LEFT)),
    Row("bool, left half of many keys", (5,), (4200,), (2, 1), mask=Mask(BOOL, "h", LEFT)),
    Row("bool, dropout, a negative scale", (129,), (150,), (3, 1), scores=(0.0, 5.0), scale=-1.0, dropout=0.4,
        mask=Mask(BOOL, "hi")),
    Row("bool, one key of a row", (33,) * 8, (97,) * 8, (16, 8), mask=Mask(BOOL, "bhi", ONE)),
    Row("bool, all but one key of a row", (33,) * 8, (1100,) * 8, (16, 1), mask=Mask(BOOL, "bhi", OTHERS)),
    Row("bias, heads first", (70, 70), (97, 97), (4, 2), heads_first=True, mask=Mask(OWN, "bhi")),
    Row("bias of keys, far below on the left", (40, 40), (200, 200), (2, 1), (70, -1), scale=-1.0,
        mask=Mask(OWN, "b", LEFT, FAR_BELOW)),
    Row("bias, rows far below, scores that rise and fall", (33,), (200,), (2, 2), scores=(0.0, 5.0),
        mixed=True, mask=Mask(OWN, "hi", WHOLE, FAR_BELOW)),
    Row("bias of heads, dropout", (129, 129), (150, 150), (3, 1), scores=(0.0, 5.0), dropout=0.4,
        mask=Mask(OWN, "h")),
    Row("bias, a workgroup without keys", (150,), (17,), (2, 1), CAUSAL, mask=Mask(OWN, "hi")),
    Row("fp32, window", (70,), (200,), (3, 1), (0, 60), scores=(0.0, 5.0), mask=Mask(FP32, "i")),
    Row("fp32, far below on the left, rows that see nothing", (40, 40), (150, 150), (2, 2), (-1, 7),
        mask=Mask(FP32, "bh", LEFT, FAR_BELOW)),
    Row("fp32, whole rows", (33,), (97,), (2, 1), scores=(1500.0, 1.0), mask=Mask(FP32, "hi", WHOLE)),
    Row("bool, rows that see nothing, sinks", (40,), (70,), (2, 1), mask=Mask(BOOL, "hi", WHOLE), sink=True),
    Row("bias, sinks", (33,), (97,), (2, 1), mask=Mask(OWN, "hi"), sink=True),
    Row("fp32, window, dropout, sinks", (33,), (97,), (2, 1), (40, -1), dropout=0.4, mask=Mask(FP32, "i"),
        sink=True),
)  # fmt: skip
# gfx1030 computes rows of bf16 with such numbers in another loop.
MASKS = (*MASKS, *(row._replace(why=f"{row.why}, numbers that fp16 has not", tiny=True) for row in MASKS))

# Both loops of the gradient kernels, on each of the two paths. Windows end at each of a thread's up to four
# keys. Where rows see one key, the gradients of q and k are 0, unless sums lose some of their bits. One
# sequence has more keys than the batch has queries. The batch's last sequence has no queries or no keys. In a
# dense batch whole blocks of keys are hidden from all rows. With NaN, the row before the first seeing row
# lies in each quarter of 64: a thread has up to four rows of 64.
GRADIENTS = (
    Row("causal", (129,), (190,), (3, 1), CAUSAL),
    Row("window, heads first, negative scale", (77, 77), (300, 300), (2, 2), (33, 7), scale=-1.0,
        heads_first=True),
    Row("window, packed sequences", (17, 0, 9, 33, 40, 35, 0), (33, 20, 0, 40, 42, 36, 5), (6, 2), (0, 9),
        store=PACKED),
    Row("long packed sequences", (129, 33, 3), (20, 170, 0), (1, 1), store=PACKED),
    Row("window, heads first, softcap, ALiBi", (129, 129), (118, 118), (3, 1), (40, 8), scale=-2.0,
        softcap=5.0, alibi=True, heads_first=True),
    Row("softcap", (129,), (150,), (2, 2), scale=2.0, softcap=20.0, scores=(5.0, 0.0)),
    Row("ALiBi, few rows", (2,), (300,), (2, 1), (20, -1), alibi=True),
    Row("window, packed sequences, dropout", (20, 0, 65, 33, 18, 1, 0), (33, 3, 140, 35, 22, 1, 5), (6, 2),
        (0, 9),
        dropout=0.6, store=PACKED),
    Row("one key", (70,), (1,), (2, 1)),
    Row("one key, packed sequences", (70, 20), (1, 1), (2, 1), store=PACKED),
    Row("NaN", (20, 129, 5, 20, 33, 129), (50, 20, 150, 10, 10, 10), (2, 1), (0, 0), store=PACKED, nan=True),
    Row("NaN, ALiBi", (20, 129, 5), (50, 20, 150), (2, 1), (0, 0), alibi=True, store=PACKED, nan=True),
)  # fmt: skip

# Gradient rows without features, for kernels with a different head dim of v.
UNEVEN_GRADIENTS = tuple(
    row._replace(why=f"another head dim of v: {row.why}", uneven=True)
    for row in GRADIENTS
    if not row.featured
)

# The gradient kernels with a mask or a bias, including the bias's gradient: each kind of mask, with and
# without each stride, and with windows. Rows that see no key have zero gradients. gfx950 has a loop for
# masks of bool, and one for numbers. It reads fp32 in a separate loop over two tiles of 32 rows at once:
# rows end in the first and in the second tile, in the first pair and later. Its calls also cover dropout
# and a block of keys hidden from all rows. One sequence has fewer keys than a tile. Kernels read a bias
# whose keys are a multiple of 8 without a copy, so NaN is behind its rows. From 1024 rows on, kernels skip
# tiles that a mask hides.
MASKED_GRADIENT_ROWS = (
    Row("bool, causal", (129,), (190,), (3, 1), CAUSAL, mask=Mask(BOOL, "hi")),
    Row("bool, rows that see nothing, window, heads first", (77, 77), (300, 300), (2, 2), (33, 7), scale=-1.0,
        heads_first=True, mask=Mask(BOOL, "bi", WHOLE)),
    Row("bool, later keys, window, few keys", (20,), (20,), (2, 1), (5, -1), mask=Mask(BOOL, "i", LATER)),
    Row("bool, window, dropout", (77,), (150,), (3, 1), (20, -1), dropout=0.3, mask=Mask(BOOL, "hi")),
    Row("bias, window, NaN behind its rows", (70, 70), (104, 104), (4, 2), (40, 8), mask=Mask(OWN, "bhi")),
    Row("bias, causal, dropout", (77, 77), (150, 150), (3, 1), CAUSAL, dropout=0.4, mask=Mask(OWN, "hi")),
    Row("bias, window, few keys", (20,), (20,), (2, 1), (5, -1), mask=Mask(OWN, "i", LATER)),
    Row("bias of keys, far below on the left", (40, 40), (150, 150), (2, 1),
        mask=Mask(OWN, "b", LEFT, FAR_BELOW)),
    Row("fp32, rows that see nothing, causal", (150,), (129,), (3, 1), CAUSAL, mask=Mask(FP32, "i", WHOLE)),
    Row("fp32 of heads, window, dropout, heads first", (60, 60), (210, 210), (3, 1), (20, -1), scale=-2.0,
        dropout=0.3, heads_first=True, mask=Mask(FP32, "h")),
    Row("bool, later keys, many rows", (1040,), (150,), (2, 1), mask=Mask(BOOL, "i", LATER)),
    Row("bias of heads, left keys, many rows", (1024,), (150,), (2, 1), mask=Mask(OWN, "h", LEFT)),
)  # fmt: skip

# Caches of 8 bits: the kernel of few queries, and more queries after widening. Each format, with descales of
# heads and of keys, and each kind of cache. As in fwd's rows, features come alone, and groups have three
# heads.
CODES = (
    Row("8 bits, decode, causal, pages", (3, 16, 0), (257, 300, 30), (2, 1), CAUSAL, store=PAGED,
        codes=E4M3FN),
    Row("8 bits, decode in parts, pages, descales of keys", (2, 11), (161, 209), (6, 2), (55, 60),
        store=PAGED, parts=3, codes=E4M3FN, per_key=True),
    Row("8 bits, decode, left padded cache", (11, 11), (129, 97), (3, 1), (0, 60), scale=-1.0, store=CACHE,
        codes=E4M3FNUZ),
    Row("8 bits, decode, left padded cache, softcap, descales of keys", (3, 3), (70, 20), (2, 1),
        softcap=20.0, store=CACHE, codes=E4M3FNUZ, per_key=True),
    Row("8 bits, decode, scores that rise and fall", (16, 16), (129, 129), (2, 2), (33, 7), scores=(0.0, 0.5),
        codes=E5M2),
    Row("8 bits, decode, ALiBi, descales of keys", (5, 5), (50, 50), (3, 1), (20, -1), alibi=True, codes=E5M2,
        per_key=True),
    Row("8 bits, decode in parts, sinks", (3, 1), (129, 40), (2, 1), store=PAGED, parts=3, sink=True,
        codes=INT8),
    Row("8 bits, decode in parts, dense, descales of keys", (5, 5, 5), (257, 257, 257), (3, 1), parts=3,
        scores=(0.0, 5.0), codes=INT8, per_key=True),
    Row("8 bits, widened, causal, pages", (20, 3), (70, 97), (2, 1), CAUSAL, store=PAGED, codes=E4M3FN,
        widened=True),
    Row("8 bits, widened, left padded cache, descales of keys", (17, 17), (40, 12), (3, 1), (0, 3),
        store=CACHE, codes=E4M3FNUZ, per_key=True, widened=True),
    Row("8 bits, widened, dense, softcap", (17,), (65,), (2, 1), softcap=20.0, codes=E5M2, widened=True),
    Row("8 bits, widened, unaligned", (17,), (65,), (2, 1), narrower=3, codes=E4M3FN, widened=True),
    Row("8 bits, widened, pages, descales of keys", (17, 0), (97, 30), (2, 2), store=PAGED, codes=INT8,
        per_key=True, widened=True),
)  # fmt: skip


# q, k and v in fp8, with products of fp8. A workgroup has 256 rows in waves of 32, and tiles of 64 keys. Rows
# that rise move the maximum, and rows far apart take another way of scaling.
CODED_PRODUCTS = (
    Row("fp8, causal", (300, 300), (257, 257), (3, 1), CAUSAL, codes=E4M3FN),
    Row("fp8, window, negative scale", (100, 100), (300, 300), (2, 2), (33, 7), scale=-1.0, codes=E4M3FN),
    Row("fp8, packed sequences, sinks", (17, 0, 270, 5), (33, 20, 150, 0), (6, 2), CAUSAL, store=PACKED,
        sink=True, codes=E4M3FN),
    Row("fp8, causal, scores that rise and fall", (40,), (300,), (2, 1), CAUSAL, scores=(0.0, 0.5),
        codes=E4M3FN),
    Row("fp8, window, scores that soon are far above", (150,), (200,), (2, 2), (33, 7), scores=(0.0, 5.0),
        codes=E4M3FN),
    Row("fp8, window, scores far apart", (200,), (200,), (2, 1), (40, 7), scores=(0.0, 120.0), mixed=True,
        codes=E4M3FN),
    Row("fp8, scale of 0", (20,), (70,), (2, 1), scale=0.0, codes=E4M3FN),
    Row("fp8, e4m3fnuz", (70,), (97,), (3, 1), codes=E4M3FNUZ),
)  # fmt: skip

# q, k and v that kernels quantise, 256 rows of a head in a workgroup, 32 or 64 at once.
QUANTISED = (
    Row("int8, causal, groups", (300, 300), (257, 257), (4, 2), CAUSAL),
    Row("int8, window, negative scale", (100, 100), (300, 300), (2, 2), (33, 7), scale=-1.0),
    Row("int8, heads first", (257,), (97,), (3, 1), heads_first=True),
    Row("int8, scores that rise and fall", (40,), (300,), (2, 1), scores=(0.0, 0.5)),
    Row("int8, window, scores far apart", (200,), (200,), (2, 1), (40, 7), scores=(0.0, 120.0), mixed=True),
    Row("int8, scale of 0", (20,), (70,), (2, 1), scale=0.0),
    Row("int8, a part of a tile", (20,), (40,), (2, 1)),
    Row("int8, causal, a workgroup without keys", (330,), (70,), (2, 1), CAUSAL),
)  # fmt: skip


class AppendRow(NamedTuple):
    """New keys of two sequences, written into a cache. ``rotary`` elements of each head dim are rotated.

    A head dim that is no multiple of 8 takes the kernel's code for unaligned rows. ``codes``: the cache has 8
    bits of this dtype, with a descale ``per_key`` or for each head of a sequence.
    """

    why: str
    head_dim: int
    rotary: int
    store: str = DENSE
    interleaved: bool = False
    advances: bool = True
    heads: tuple[int, int] = (4, 2)
    codes: str = ""
    per_key: bool = False


APPENDS = (
    AppendRow("append", 72, 32, heads=(3, 1)),
    AppendRow("append, all of a row rotated, pages", 80, 80, PAGED, advances=False),
    AppendRow("append, interleaved", 24, 16, interleaved=True),
    AppendRow("append, interleaved, rows by index", 128, 128, CACHE, interleaved=True, advances=False),
    AppendRow("append, pages, not rotated", 88, 0, PAGED, heads=(1, 1)),
    AppendRow("append, unaligned, pages", 41, 32, PAGED, heads=(3, 1)),
    AppendRow("append, unaligned", 9, 6, advances=False, heads=(1, 1)),
    AppendRow("append, unaligned, interleaved, pages", 23, 22, PAGED, interleaved=True),
    AppendRow("append, unaligned, interleaved, rows by index", 59, 10, CACHE, interleaved=True,
        advances=False),
    AppendRow("append, unaligned, not rotated", 7, 0, heads=(3, 1)),
)  # fmt: skip

# Caches of 8 bits: each format with aligned and with unaligned rows, and descales of both kinds. A row of 24
# and one of 41 elements leave threads of a workgroup without work, while others wait for a row's numbers.
CODED_APPENDS = (
    AppendRow("codes", 72, 32, heads=(3, 1), codes=E4M3FN),
    AppendRow("codes, pages, descales of keys", 80, 80, PAGED, advances=False, codes=E4M3FNUZ, per_key=True),
    AppendRow("codes, interleaved, descales of keys", 24, 16, interleaved=True, codes=E5M2, per_key=True),
    AppendRow("codes, interleaved, rows by index, descales of keys", 128, 128, CACHE, interleaved=True,
        advances=False, codes=INT8, per_key=True),
    AppendRow("codes, pages, not rotated", 88, 0, PAGED, heads=(1, 1), codes=INT8),
    AppendRow("codes, unaligned, pages, descales of keys", 41, 32, PAGED, heads=(3, 1), codes=E4M3FN,
        per_key=True),
    AppendRow("codes, unaligned", 9, 6, advances=False, heads=(1, 1), codes=E4M3FNUZ),
    AppendRow("codes, unaligned, interleaved, rows by index", 59, 10, CACHE, interleaved=True,
        advances=False, codes=E5M2),
    AppendRow("codes, unaligned, not rotated, descales of keys", 7, 0, heads=(3, 1), codes=INT8,
        per_key=True),
)  # fmt: skip
