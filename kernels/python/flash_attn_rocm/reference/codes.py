"""Numbers in 8 bits, of caches: encoding, decoding and descales, as kernels do (device/cache/codes.hpp).

Written with integers: PyTorch's own conversions do not saturate, and give -0 for small negative numbers.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from flash_attn_rocm.arguments.normal_form import CODES

# The smallest magnitude that a key's descale is made for: kLeastMagnitude of device/call/params.hpp.
LEAST_MAGNITUDE = 2.0**-64
MOST_MAGNITUDE = torch.finfo(torch.float32).max  # of float64, whose descale would be infinite
MANTISSA, BIAS = 23, 127  # of fp32
SIGN, MAGNITUDE = 0x80, 0x7F


class Format(NamedTuple):
    """How 8 bits are read. ``nan``: the code of NaN that encoding gives."""

    largest: float
    mantissa: int
    bias: int
    nan: int

    @property
    def normal(self) -> float:
        """The smallest number in exponent form. Smaller ones are multiples of a step."""
        return 2.0 ** (1 - self.bias)

    @property
    def step(self) -> float:
        """The distance of the smallest numbers."""
        return self.normal * 2.0**-self.mantissa


FORMATS = {
    torch.float8_e4m3fn: Format(448.0, 3, 7, 0x7F),
    torch.float8_e4m3fnuz: Format(240.0, 3, 8, 0x80),
    torch.float8_e5m2: Format(57344.0, 2, 15, 0x7F),
}
INTEGERS = 127.0  # the largest
DTYPES = CODES


def is_coded(cache: Tensor) -> bool:
    """Whether elements are codes of 8 bits."""
    return cache.dtype in DTYPES


def largest(dtype: torch.dtype) -> float:
    """The largest number of a dtype of codes."""
    return FORMATS[dtype].largest if dtype in FORMATS else INTEGERS


def encode(x: Tensor, descale: Tensor | float, dtype: torch.dtype) -> Tensor:
    """Codes of x / descale in fp32, rounded to nearest even, at most the largest number.

    NaN becomes NaN, or 0 of integers. Nothing else becomes NaN or -0, whatever the descale.
    """
    x = x.float()
    descale = torch.as_tensor(descale, dtype=torch.float32, device=x.device)
    most = largest(dtype)
    size = (x / descale).abs().nan_to_num(nan=most).clamp(max=most)
    negative = x.signbit() != descale.signbit()
    if dtype == torch.int8:
        return size.round().where(~negative, -size.round()).masked_fill(x.isnan(), 0).to(dtype)
    of = FORMATS[dtype]
    code = _magnitudes(size, of)
    code = code + SIGN * (negative & (code > 0)).int()
    return code.masked_fill(x.isnan(), of.nan).to(torch.uint8).view(dtype)


def decode(codes: Tensor) -> Tensor:
    """The numbers of codes, exactly, in fp32."""
    if codes.dtype == torch.int8:
        return codes.float()
    of = FORMATS[codes.dtype]
    code = codes.view(torch.uint8).int()
    size = code & MAGNITUDE
    exponent, mantissa = size >> of.mantissa, size & ((1 << of.mantissa) - 1)
    scale = torch.full_like(size, 2, dtype=torch.float32).pow(exponent.clamp(min=1) - of.bias - of.mantissa)
    number = (mantissa + (exponent > 0).int() * (1 << of.mantissa)).float() * scale
    number = number.where(code < SIGN, -number)
    if codes.dtype == torch.float8_e5m2:
        number = torch.where(size == 0x7C, torch.inf * number.sign(), number)
        return number.masked_fill(size > 0x7C, torch.nan)
    return number.masked_fill(code == of.nan if of.nan == SIGN else size == of.nan, torch.nan)


def own_descales(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A descale for each row of x, from its largest magnitude, in fp32.

    NaN counts as 0, and infinity as the largest number of x's dtype.
    """
    finite = x.nan_to_num(nan=0.0).abs()
    return finite.amax(dim=-1).float().clamp(LEAST_MAGNITUDE, MOST_MAGNITUDE) / largest(dtype)


def dequantised(codes: Tensor, descale: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The numbers of codes times a descale, which is broadcast: the product in fp32, rounded to ``dtype``."""
    numbers = decode(codes)
    return (numbers if descale is None else numbers * descale).to(dtype)


def _magnitudes(size: Tensor, of: Format) -> Tensor:
    """The codes of sizes up to the largest number."""
    dropped = MANTISSA - of.mantissa
    bits = size.view(torch.int32)
    rounded = bits + (1 << dropped >> 1) - 1 + (bits >> dropped & 1)
    normal = (rounded >> dropped) - (BIAS - of.bias << of.mantissa)
    small = (size * (1.0 / of.step)).round().int()
    return torch.where(size < of.normal, small, normal)
