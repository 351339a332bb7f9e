"""Calls of latent attention over a cache of 8 bits: latent_cases.py, with codes as in coded_cases.py."""

import random
from dataclasses import dataclass

from flash_attn_rocm.suite import latent_cases
from flash_attn_rocm.suite.caches import coded_cases
from flash_attn_rocm.suite.caches.coded_append_cases import FORMATS, HEADS, KEYS, NONE
from flash_attn_rocm.suite.caches.coded_cases import EVERY, EVERY_SHARE, INFINITE
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.rule import Rules
from flash_attn_rocm.values import kinds

CODED_LATENT = kinds.ATTENDING[kinds.CODED_LATENT]
DESCALES = (NONE, HEADS, HEADS, KEYS, KEYS)


@dataclass(frozen=True)
class Case(coded_cases.Case, latent_cases.Case):
    """Without sinks, and with no descale for all heads and sequences."""


def served(kernel):
    """The features to test with every kernel of this kind."""
    return {
        *latent_cases.served(kernel),
        *(f"{each}, descales {kind}" for each in FORMATS for kind in (NONE, HEADS, KEYS)),
        *(f"{each}, values {values}" for each in FORMATS for values in (EVERY, INFINITE)),
        *(f"descales {kind}, {store}" for kind in (HEADS, KEYS) for store in latent_cases.STORES),
    }


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number} of codes")
    case = latent_cases.draw(Kernel(latent_cases.LATENT, kernel.dtype, kernel.head_dim), number)
    descales, format_ = chance.choice(DESCALES), chance.choice(FORMATS)
    values = case.values
    if not isinstance(values, str) and chance.random() < EVERY_SHARE:
        values, descales = EVERY, HEADS if descales == NONE else descales
    given = vars(case) | {"kernel": kernel, "values": values}
    return Case(**given, codes=format_, descales=descales)


class Call(coded_cases.Call, latent_cases.Call):
    """The tensors of a case, whose values are the first elements of its keys, with their descales."""

    def __init__(self, case, device):
        super().__init__(case, device)
        self.v, self.rows[1], self.descales[1] = self.k, self.rows[0], self.descales[0]
        self.kept = [None] * len(self.k)
        if case.descales == KEYS:
            self.kept, self.v = zip(*map(self.on_weights, self.k, self.descales[0]), strict=True)
        self.rules = Rules(*case.window, scale=case.scale)

    def encoded(self, x, descale, *, is_key):
        """A code of no number is outside of V: inside, it could reach rows that hide the key."""
        coded = super().encoded(x, descale, is_key=is_key)
        if self.case.values == INFINITE and len(x):
            one = coded[len(x) // 3, 0]
            one[0], one[-1] = one[-1].item(), one[0].item()
        return coded
