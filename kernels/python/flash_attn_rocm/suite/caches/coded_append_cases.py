"""Random calls of the operator ``append`` over a cache of 8 bits: those of append_cases.py, with codes.

The answer is exact, as there: each code and each written descale equals that of reference/codes.py.
"""

import random
from dataclasses import asdict, dataclass

import torch

from flash_attn_rocm.reference import codes
from flash_attn_rocm.suite.caches import append_cases
from flash_attn_rocm.suite.forward_cases import laid_out

CODED_APPEND = "append_8bit"
FORMATS = tuple(str(dtype).removeprefix("torch.") for dtype in codes.DTYPES)
# Descales of heads may have strides of 0. Those of keys are written.
NONE, HEADS, ONE, KEYS = "none", "of heads", "one for all heads", "of keys"
DESCALES = (NONE, HEADS, ONE, KEYS, KEYS, KEYS)
MIDPOINTS, WIDE, ZEROS, EXTREMES, NO_NUMBERS = "midpoints", "wide", "zeros", "extremes", "no numbers"
VALUES = (MIDPOINTS, MIDPOINTS, WIDE, ZEROS, EXTREMES, NO_NUMBERS)
UNWRITTEN = -7.0  # a descale before the call


@dataclass(frozen=True)
class CodedAppendCase(append_cases.AppendCase):
    """``codes`` is the cache's dtype."""

    codes: str
    descales: str

    @property
    def features(self):
        return {
            *(each for each in super().features if ", values " not in each),
            f"{self.codes}, {KEYS if self.descales == KEYS else HEADS}",
            f"descales {self.descales}",
            f"values {self.values}",
            f"{self.codes}, values {self.values}",
            self.turn,
        }


def served(kernel):
    """The features to test with every kernel that appends codes."""
    return {
        *(each for each in append_cases.served(kernel) if ", values " not in each),
        *(f"{each}, {kind}" for each in FORMATS for kind in (HEADS, KEYS)),
        *(f"descales {each}" for each in DESCALES),
        *(f"{each}, values {values}" for each in FORMATS for values in VALUES),
        *append_cases.TURNS,
    }


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number} of codes")
    some = chance.choice
    given = asdict(append_cases.draw(kernel, number)) | {"kernel": kernel, "values": some(VALUES)}
    return CodedAppendCase(**given, codes=some(FORMATS), descales=some(DESCALES))


class Call(append_cases.Call):
    """The tensors of a case."""

    def __init__(self, case, device):
        self.format = getattr(torch, case.codes)
        super().__init__(case, device)
        self.descales = self.given_descales()

    def stored(self, *size):
        return torch.randint(256, size, generator=self.generator, dtype=torch.uint8).view(self.format)

    def numbers(self, *size):
        """Values "midpoints" are often midway between two codes, if the descale is a power of two."""
        if self.case.values == ZEROS:
            return self.normal(*size) * 0
        x, exponents = super().numbers(*size), torch.randint(-24, 16, size, generator=self.generator)
        if self.case.values == WIDE:
            return (x.float() * torch.exp2(exponents.float())).to(self.dtype)
        if self.case.values == MIDPOINTS:
            few = torch.randint(-512, 513, size, generator=self.generator) * torch.exp2(-(exponents % 12))
            return few.to(self.dtype)
        return x

    def given_descales(self):
        """k_descale and v_descale before the call."""
        case = self.case
        if case.descales == NONE:
            return None, None
        if case.descales == KEYS:
            return [torch.full(cache.shape[:3], UNWRITTEN) for cache in self.caches]
        size = (1, 1) if case.descales == ONE else (len(case.lengths), case.heads[1])
        steps = torch.randint(-6, 7, (2, *size), generator=self.generator).float()
        factor = 1.0 if case.values == MIDPOINTS else 1.1
        every = (torch.exp2(steps) * factor).expand(2, len(case.lengths), case.heads[1])
        return list(every)

    def written(self, positions, k, v):
        found, descales = [], []
        for x, cache, descale in zip((k, v), self.caches, self.descales, strict=True):
            of = 1.0 if descale is None else descale[:, None, :, None]
            if self.case.descales == KEYS:
                own = codes.own_descales(x, self.format)
                descales.append(self.with_rows(descale, own, positions))
                of = own[..., None]
            coded = codes.encode(x, of, self.format)
            bits = (each.view(torch.uint8) for each in (cache, coded))
            found.append(self.with_rows(*bits, positions).view(self.format))
        return *found, *descales

    def placed(self, cache, layout):
        return laid_out(cache.view(torch.uint8), layout).view(self.format)

    def descales_on(self, device):
        """Moved there without copies of equal elements."""
        if self.case.descales != ONE:
            return [None if x is None else x.clone().to(device) for x in self.descales]
        return [x[:1, :1].to(device).expand(x.shape) for x in self.descales]

    def results(self, caches, descales):
        return [*caches, *(descales if self.case.descales == KEYS else [])]
