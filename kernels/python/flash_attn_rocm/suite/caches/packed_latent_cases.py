"""Calls of latent attention over rows of 656 bytes: latent_cases.py, with codes as in coded_cases.py."""

import random
from dataclasses import dataclass

import torch

from flash_attn_rocm.arguments.packed_rows import BYTES, GROUPS, NUMBERS, SCALES_END, VALUE_DIM
from flash_attn_rocm.reference import codes
from flash_attn_rocm.suite import latent_cases
from flash_attn_rocm.suite.caches import coded_cases
from flash_attn_rocm.suite.caches.coded_append_cases import FORMATS, NONE
from flash_attn_rocm.suite.caches.coded_cases import EVERY, EVERY_SHARE, LARGEST, LEAST, UNUSED, fresh
from flash_attn_rocm.suite.forward_cases import Kernel
from flash_attn_rocm.suite.rule import Rules
from flash_attn_rocm.values import kinds

PACKED_LATENT = kinds.ATTENDING[kinds.PACKED_LATENT]
SCALES = ("near", "powers of two", "rising", "far apart")
FAR = 20  # log2 of what scales far apart differ by
RISE = 3  # log2 of what scales rise by, every RUN keys
RUN = 21


@dataclass(frozen=True)
class Case(latent_cases.Case):
    """``scales``: how the scales of a row's groups, and of rows, differ. The others are those of codes."""

    scales: str = SCALES[0]
    codes: str = FORMATS[0]
    descales: str = NONE
    sinks: bool = False

    @property
    def features(self):
        """Names of the features in this call."""
        scales, wanted = f"scales {self.scales}", served(self.kernel)
        more = {scales, f"{scales}, {self.store}", f"values {self.values}"}
        return super().features | {each for each in more if each in wanted}


def served(kernel):
    """The features to test with every kernel of this kind."""
    return {
        *latent_cases.served(kernel), f"values {EVERY}",
        *(f"scales {each}" for each in SCALES),
        *(f"scales {each}, {store}" for each in SCALES[2:] for store in latent_cases.STORES),
    }  # fmt: skip


def draw(kernel, number):
    """Case ``number`` of a kernel, the same in every run."""
    chance = random.Random(f"{kernel} {number} of rows")
    case = latent_cases.draw(Kernel(latent_cases.LATENT, kernel.dtype, kernel.head_dim), number)
    values, scales = case.values, chance.choice(SCALES)
    if not isinstance(values, str) and chance.random() < EVERY_SHARE:
        values = EVERY
    given = vars(case) | {"kernel": kernel, "values": values}
    return Case(**given, scales=scales)


class Call(coded_cases.Call, latent_cases.Call):
    """The tensors of a case, whose values are the first elements of its keys, in bytes of rows."""

    scaled = True

    def __init__(self, case, device):
        super().__init__(case, device)
        self.v, self.rows[1] = self.k, self.rows[0]
        self.kept = [None] * len(self.k)
        self.rules = Rules(*case.window, scale=case.scale)

    def descales_of(self, sequences):
        """A factor for each row's groups: (rows, 1, GROUPS, 1)."""
        found = []
        for x in sequences:
            groups = self.groups(x).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            own = groups.abs().amax(-1, keepdim=True) / codes.largest(self.format)
            if self.case.values == EVERY:
                own = torch.full_like(own, LARGEST / codes.largest(self.format))
            found.append(self.varied(own.clamp(min=LEAST)))
        return found

    def varied(self, scales):
        """As the case says."""
        row = torch.arange(len(scales))[:, None, None, None]
        group = torch.arange(GROUPS)[:, None]
        return {
            "near": lambda: scales * self.factors(scales.shape),
            "powers of two": lambda: torch.exp2(scales.log2().ceil()),
            "rising": lambda: scales * torch.exp2((row // RUN * RISE).float()),
            "far apart": lambda: scales * torch.exp2(-FAR * ((row + group) % 2).float()),
        }[self.case.scales]()

    @staticmethod
    def groups(x):
        return x[..., :VALUE_DIM].unflatten(-1, (GROUPS, -1))

    def encoded(self, x, descale, *, is_key):
        """The bytes of rows. Of scales far apart the small ones have small numbers, not saturated ones."""
        groups = self.groups(x).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        if self.case.scales == "far apart":
            groups = groups * (descale / descale.amax(-2, keepdim=True))
        coded = codes.encode(groups, descale, self.format).view(torch.uint8)
        if self.case.values == EVERY:
            coded = torch.randint(256, coded.shape, generator=self.generator, dtype=torch.uint8)
        rest = x[..., VALUE_DIM:].to(NUMBERS).contiguous()
        parts = (coded.flatten(-2), descale[..., 0].contiguous(), rest)
        return torch.cat([each.view(torch.uint8) for each in parts], -1)

    def read(self, coded, descale):
        numbers = super().read(self.groups(coded), descale).flatten(-2)
        return torch.cat((numbers, coded[..., SCALES_END:].contiguous().view(NUMBERS).double()), -1)

    def with_descale(self, coded, descale):
        return coded

    def cache(self, rows, count=None):
        count = len(self.case.keys) if count is None else count
        return tuple(torch.full((count, rows, 1, BYTES), UNUSED, dtype=torch.uint8) for _ in range(2))

    def store(self):
        numbers = self.k, self.v
        self.k, self.v = self.rows
        rows, options = getattr(self, f"_{self.case.store.replace(' ', '_')}")()
        self.k, self.v = numbers
        self.given = [None, None]
        return [self.laid_out(fresh(x)).view(self.format) for x in rows], options
