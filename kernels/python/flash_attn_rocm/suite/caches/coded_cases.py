"""Random calls of few queries over a cache of 8 bits: those of decode in forward_cases.py, with codes.

Results are compared with float64 on the numbers of the codes, as kernels read them.
"""

import random
from dataclasses import dataclass, replace

import torch

from flash_attn_rocm.reference import codes
from flash_attn_rocm.suite import forward_cases
from flash_attn_rocm.suite.caches.coded_append_cases import FORMATS, HEADS, KEYS, NONE, ONE
from flash_attn_rocm.suite.forward_cases import FAR, FAR_STRIDE, Kernel, far_apart, laid_out
from flash_attn_rocm.suite.target import arch
from flash_attn_rocm.values import kinds, paths
from flash_attn_rocm.values.rates import FLUSHING

CODED = kinds.ATTENDING[kinds.CODED]
DECODE = kinds.ATTENDING[paths.SPLIT]
DESCALES = (NONE, HEADS, HEADS, ONE, KEYS, KEYS)
EVERY, INFINITE = "every code", "infinite"
EVERY_SHARE = 0.25  # of the calls without a pattern of scores
SINKS_SHARE = 0.3
ALIGNED = 16  # bytes of rows, whose elements have one
DESCALE = 4  # bytes
UNUSED = 0xFF  # of caches outside of every sequence. A descale of such bytes is NaN
# e5m2's inf and NaN, and codes of NaN that kernels read as numbers.
SPECIAL = {
    "float8_e4m3fn": (0x7F, 0xFF), "float8_e4m3fnuz": (0x80,), "float8_e5m2": (0x7C, 0xFC, 0x7F),
    "int8": (0x80,),
}  # fmt: skip
READ_AS = {"float8_e4m3fn": 480.0, "float8_e4m3fnuz": 0.0}
INFINITE_OF_E5M2 = 0x7C
LARGEST = 7.0  # of "every code"
LEAST = 2.0**-40  # of descales
SPREAD = (-8, 5)  # exponents of values of single keys


@dataclass(frozen=True)
class Case(forward_cases.Case):
    """``codes`` is the cache's dtype."""

    codes: str = FORMATS[0]
    descales: str = NONE
    sinks: bool = False

    @property
    def features(self):
        """Names of the features in this call."""
        more = {
            "sinks": self.sinks,
            "sinks and parts": self.sinks and self.splits > 1,
            f"{self.codes}, descales {self.descales}": True,
            f"{self.codes}, values {self.values}": self.values in (EVERY, INFINITE),
            f"descales {self.descales}, {self.store}": self.descales in (HEADS, KEYS),
        }
        return super().features | {name for name, used in more.items() if used}


def served(kernel):
    """The features to test with every kernel of this kind."""
    decode = forward_cases.served(Kernel(DECODE, kernel.dtype, kernel.head_dim))
    stores = dict.fromkeys(map(stored, forward_cases.STORES))
    return {
        *(each for each in decode if not each.startswith("ragged and dense")),
        "sinks", "sinks and parts",
        *(f"{each}, descales {kind}" for each in FORMATS for kind in DESCALES),
        *(f"{each}, values {values}" for each in FORMATS for values in (EVERY, INFINITE)),
        *(f"descales {kind}, {store}" for kind in (HEADS, KEYS) for store in stores),
    }  # fmt: skip


def stored(store):
    """The store of codes in place of one of forward_cases.STORES. They are ragged only in pages."""
    return "paged packed" if store == "packed" else store


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number} of codes")
    case = forward_cases.draw(Kernel(DECODE, kernel.dtype, kernel.head_dim), number)
    descales, format_ = chance.choice(DESCALES), chance.choice(FORMATS)
    values, sinks = case.values, chance.random() < SINKS_SHARE
    if not isinstance(values, str) and chance.random() < EVERY_SHARE:
        values, descales = EVERY, HEADS if descales == NONE else descales
    given = vars(case) | {"kernel": kernel, "store": stored(case.store), "values": values}
    return Case(**given, codes=format_, descales=descales, sinks=sinks and values != INFINITE)


class Call(forward_cases.Call):
    """The tensors of a case. ``rows``: of each sequence's K and V, codes and the bytes of their descale."""

    coded = True

    def __init__(self, case, device):
        self.format = getattr(torch, case.codes)
        plain = case if case.values != EVERY else replace(case, values=1.0)
        super().__init__(plain, device)
        self.case = case
        self.sink = torch.randn(case.heads[0], generator=self.generator) if case.sinks else None
        spread = [torch.randint(*SPREAD, (len(v), 1, 1), generator=self.generator) for v in self.v]
        if case.descales == KEYS:
            self.v = [v * torch.exp2(by.float()) for v, by in zip(self.v, spread, strict=True)]
        self.rows, numbers, self.descales = [], [], []
        for each, is_key in ((self.k, True), (self.v, False)):
            descales = self.descales_of([x.float() for x in each])
            coded = [self.encoded(*one, is_key=is_key) for one in zip(each, descales, strict=True)]
            self.descales.append(descales)
            numbers.append([self.read(*one) for one in zip(coded, descales, strict=True)])
            self.rows.append([self.with_descale(*one) for one in zip(coded, descales, strict=True)])
        self.k, self.v = numbers
        self.kept = [None] * len(self.v)
        if case.descales == KEYS:
            self.kept, self.v = zip(*map(self.on_weights, self.v, self.descales[1]), strict=True)

    def on_weights(self, v, descales):
        """Descales of values as factors of the probabilities, as kernels have them, and values without.

        The plain computation rounds their products to q's dtype.
        """
        if not len(v):
            return None, v
        most = torch.exp2(descales.amax(0, keepdim=True).double().log2().ceil())
        factors = (descales.double() / most)[..., 0].T.repeat_interleave(self.case.heads[0] // v.shape[1], 0)
        return factors[:, None], v / descales.double() * most

    def descales_of(self, sequences):
        """A factor for each of a sequence's rows and heads, or heads: (rows or 1, heads, 1)."""
        kind, most = self.case.descales, codes.largest(self.format)
        if self.case.values == EVERY:
            own = [torch.full((len(x), x.shape[1], 1), LARGEST / most) for x in sequences]
        else:
            finite = [x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for x in sequences]
            own = [x.abs().amax(-1, keepdim=True) / most for x in finite]
        if kind == KEYS:
            return [x.clamp(min=LEAST) * self.factors(x.shape) for x in own]
        if kind == NONE:
            return [torch.ones(1, x.shape[1], 1) for x in sequences]
        heads = [torch.cat([x, x.new_full((1, *x.shape[1:]), LEAST)]).amax(0, keepdim=True) for x in own]
        if kind == ONE:
            return [torch.cat(heads).amax().expand(x.shape) for x in heads]
        # Powers of two make the numbers exact in q's dtype.
        if self.case.seed % 2:
            return [torch.exp2(x.log2().ceil()) for x in heads]
        return [x * self.factors(x.shape) for x in heads]

    def factors(self, shape):
        return 1 + torch.rand(shape, generator=self.generator) / 2

    def encoded(self, x, descale, *, is_key):
        """The codes, as bytes."""
        case, finite = self.case, x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        coded = codes.encode(finite, descale, self.format).view(torch.uint8)
        if case.values == EVERY:
            coded = torch.randint(256, x.shape, generator=self.generator, dtype=torch.uint8)
            if self.format == torch.float8_e5m2:
                coded = coded & torch.where((coded & 0x7F) < INFINITE_OF_E5M2, 0xFF, 0x83).to(torch.uint8)
        if case.values == INFINITE and is_key and len(x):
            special = SPECIAL[case.codes]
            coded[len(x) // 3, case.seed % case.heads[1], 0] = special[case.seed % len(special)]
        return coded

    def read(self, coded, descale):
        """The numbers in float64 as kernels read them."""
        numbers = codes.decode(coded.view(self.format)).double()
        if self.case.codes in READ_AS:
            negative = coded >= codes.SIGN
            numbers = numbers.where(~numbers.isnan(), READ_AS[self.case.codes] * (1 - 2 * negative.double()))
        elif self.format == torch.float8_e5m2 and arch() in FLUSHING:
            numbers = numbers.masked_fill(numbers.abs() < torch.finfo(torch.float16).tiny, 0)
        return numbers * descale.double()

    def with_descale(self, coded, descale):
        own = torch.empty(*coded.shape[:-1], DESCALE, dtype=torch.uint8)
        own.view(torch.float32).copy_(descale)
        return torch.cat([coded, own], dim=-1)

    def cache(self, rows, count=None):
        count = len(self.case.keys) if count is None else count
        size = (count, rows, self.case.heads[1], self.case.head_dim + DESCALE)
        return tuple(torch.full(size, UNUSED, dtype=torch.uint8) for _ in range(2))

    def store(self):
        numbers = self.k, self.v
        self.k, self.v = self.rows
        rows, options = getattr(self, f"_{self.case.store.replace(' ', '_')}")()
        self.k, self.v = numbers
        self.given = [self.given_descale(*each) for each in zip(rows, self.descales, strict=True)]
        caches = [self.laid_out(fresh(x[..., :-DESCALE])).view(self.format) for x in rows]
        return caches, options

    def given_descale(self, rows, descales):
        case = self.case
        if case.descales == NONE:
            return None
        if case.descales == KEYS:
            every = fresh(rows[..., -DESCALE:]).view(torch.float32)[..., 0].to(self.device)
            return every.mT.contiguous().mT if case.layout == "heads first" else every
        heads = torch.cat(descales)[..., 0].to(self.device)
        return heads[:1, :1].clone().expand(heads.shape) if case.descales == ONE else heads

    def laid_out(self, x):
        if x.dtype != torch.uint8:
            return super().laid_out(x)
        x = x.to(self.device)
        self.placed += 1
        if self.case.layout == FAR and self.device.type == "cpu":
            return far_apart(x, (self.placed * (FAR_STRIDE + ALIGNED // 2), *x.stride()[1:]))
        if self.case.layout == "padded":
            return torch.nn.functional.pad(x, (0, ALIGNED))[..., : x.shape[-1]]
        return laid_out(x, self.case.layout)

    def more(self):
        sink = None if self.sink is None else self.sink.to(self.device)
        return {"sink": sink, "k_descale": self.given[0], "v_descale": self.given[1]}

    def sequences(self, out, lse, weights):
        found = super().sequences(out, lse, self.kept)
        return [replace(each, sink=self.sink) for each in found]


def fresh(x):
    """A copy without other strides, also of dimensions of size 1."""
    return x.clone(memory_format=torch.contiguous_format)
