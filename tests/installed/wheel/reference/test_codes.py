"""Numbers in 8 bits, against PyTorch's own conversions, and against the nearest of all 256 codes.

PyTorch neither saturates nor avoids -0: its conversions get numbers within the range.
"""

import pytest
import torch
from flash_attn_rocm.reference import codes

EVERY = torch.arange(256, dtype=torch.int32).to(torch.uint8)
FLOATS = tuple(codes.FORMATS)
NANS = {
    torch.float8_e4m3fn: {0x7F, 0xFF}, torch.float8_e4m3fnuz: {0x80},
    torch.float8_e5m2: {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}, torch.int8: set(),
}  # fmt: skip
NAN_CODE = {
    torch.float8_e4m3fn: 0x7F, torch.float8_e4m3fnuz: 0x80, torch.float8_e5m2: 0x7F, torch.int8: 0,
}  # fmt: skip


def bits(x):
    return x.view(torch.uint8)


def numbers_of(dtype):
    """The finite numbers of all codes."""
    every = codes.decode(EVERY.view(dtype))
    return every[every.isfinite()]


def many():
    """Random numbers of all magnitudes."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.randint(-30, 22, (100000,), generator=generator)
    return torch.randn(100000, generator=generator) * torch.exp2(exponents.float())


@pytest.mark.parametrize("dtype", codes.DTYPES)
def test_each_code_is_the_number_that_pytorch_makes_of_it(dtype):
    found, wanted = codes.decode(EVERY.view(dtype)), EVERY.view(dtype).float()
    assert {code for code in range(256) if found[code].isnan()} == NANS[dtype]
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found.nan_to_num().view(torch.int32), wanted.nan_to_num().view(torch.int32))


@pytest.mark.parametrize("dtype", codes.DTYPES)
def test_each_number_gets_its_code_again(dtype):
    found = bits(codes.encode(codes.decode(EVERY.view(dtype)), 1.0, dtype)).tolist()
    most = max(code for code in range(128) if codes.decode(EVERY.view(dtype))[code].isfinite())
    special = dict.fromkeys(NANS[dtype], NAN_CODE[dtype])
    if dtype in FLOATS:
        special.setdefault(0x80, 0)  # -0
    if dtype == torch.float8_e5m2:
        special |= {0x7C: most, 0xFC: most + 0x80}  # infinity
    if dtype == torch.int8:
        special[0x80] = 0x81  # -128
    assert found == [special.get(code, code) for code in range(256)]


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_in_the_range_are_rounded_as_pytorch_does(dtype):
    ends = numbers_of(dtype).sort().values
    midpoints = (ends[1:] + ends[:-1]) / 2  # exact
    x = torch.cat([many(), midpoints, midpoints.nextafter(torch.tensor(torch.inf)), -midpoints])
    x = x.clamp(-codes.largest(dtype), codes.largest(dtype))
    found, wanted = bits(codes.encode(x, 1.0, dtype)), bits(x.to(dtype))
    underflow = wanted == 0x80  # -0
    assert underflow.any() == (dtype != torch.float8_e4m3fnuz)
    assert torch.equal(found, wanted.masked_fill(underflow, 0))


@pytest.mark.parametrize("dtype", codes.DTYPES)
def test_the_code_is_the_nearest_of_all(dtype):
    x = many()[:2000].double()
    own = numbers_of(dtype).double().unique()
    limit = codes.largest(dtype)
    wanted = (own[None] - x.clamp(-limit, limit)[:, None]).abs().amin(1)
    found = codes.decode(codes.encode(x, 1.0, dtype)).double()
    assert torch.equal((found - x.clamp(-limit, limit)).abs(), wanted)


@pytest.mark.parametrize("dtype", codes.DTYPES)
def test_ties_go_to_the_even_code(dtype):
    own = numbers_of(dtype)
    own = own[own >= 0].unique()
    found = bits(codes.encode((own[1:] + own[:-1]) / 2, 1.0, dtype))
    assert not (found % 2).any()


@pytest.mark.parametrize("dtype", codes.DTYPES)
def test_beyond_the_largest_number_is_the_largest_number(dtype):
    most = codes.largest(dtype)
    x = torch.tensor([most * 1.03, 1e5, 3e38, torch.inf])
    assert codes.decode(codes.encode(x, 1.0, dtype)).tolist() == [most] * 4
    assert codes.decode(codes.encode(-x, 1.0, dtype)).tolist() == [-most] * 4


@pytest.mark.parametrize("dtype", codes.DTYPES)
@pytest.mark.parametrize("descale", [1.0, 0.0, 1e-45, 3e38, torch.inf])
def test_numbers_never_become_nan_or_minus_zero(dtype, descale):
    numbers = torch.tensor([0.0, -0.0, -1e-45, -1e-30, 1.0, -1.0, 3e38, torch.inf, -torch.inf])
    found = set(bits(codes.encode(numbers, descale, dtype)).tolist())
    assert not found & NANS[dtype]
    assert 0x80 not in found


@pytest.mark.parametrize("dtype", codes.DTYPES)
def test_nan_becomes_nan_or_0(dtype):
    x = torch.tensor([torch.nan, -torch.nan])
    for descale in (1.0, torch.inf):
        assert bits(codes.encode(x, descale, dtype)).tolist() == [NAN_CODE[dtype]] * 2


@pytest.mark.parametrize("dtype", codes.DTYPES)
def test_a_number_is_divided_by_its_descale(dtype):
    """By a reciprocal, some would be rounded differently."""
    x, descale = many()[:50000], torch.rand(50000, generator=torch.Generator().manual_seed(1)) + 0.01
    quotient = x.div(descale)
    assert torch.equal(bits(codes.encode(x, descale, dtype)), bits(codes.encode(quotient, 1.0, dtype)))


def test_a_negative_descale_gives_negative_codes():
    found = codes.encode(torch.tensor([3.0, -3.0]), -1.0, torch.int8)
    assert found.tolist() == [-3, 3]


@pytest.mark.parametrize("dtype", codes.DTYPES)
def test_descales_of_rows(dtype):
    most = codes.largest(dtype)
    nan, inf = torch.nan, torch.inf
    rows = torch.tensor([[1.0, -3.0], [0.0, -0.0], [nan, 2.0], [inf, 2.0], [-inf, nan]])
    found = codes.own_descales(rows.half(), dtype)
    wanted = torch.tensor([3.0, 2.0**-64, 2.0, 65504.0, 65504.0]) / most
    assert torch.equal(found, wanted)
    assert found.isfinite().all()
    assert (found > 0).all()


@pytest.mark.parametrize("dtype", codes.DTYPES)
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_row_by_its_descale_has_the_largest_code(dtype, kind):
    rows = many()[:64000].view(1000, 64).clamp(-6e4, 6e4).to(kind)
    descale = codes.own_descales(rows, dtype)
    coded = codes.encode(rows, descale[:, None], dtype)
    assert torch.equal(codes.decode(coded).abs().amax(1), torch.full((1000,), codes.largest(dtype)))
    back = codes.dequantised(coded, descale[:, None], torch.float32)
    worst = (back - rows.float()).abs().amax(1) / rows.float().abs().amax(1)
    assert worst.max() < {torch.int8: 0.5 / 127, torch.float8_e5m2: 1 / 8}.get(dtype, 1 / 16) * 1.01


def test_numbers_are_multiplied_in_fp32_and_rounded_once_more():
    coded = torch.tensor([0x7E], dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert codes.dequantised(coded, None, torch.float16).item() == 448
    third = torch.tensor([1 / 3])
    found = codes.dequantised(coded, third, torch.bfloat16)
    assert found.item() == (torch.tensor([448.0]) * third).bfloat16().item()


@pytest.mark.parametrize("dtype", codes.DTYPES)
@pytest.mark.parametrize("large", [1e300, float("inf")])
def test_descales_of_float64_are_finite(dtype, large):
    x = torch.tensor([[large, 0.0]], dtype=torch.float64)
    descale = codes.own_descales(x, dtype)
    assert descale.isfinite().all()
    found = codes.decode(codes.encode(x, descale[..., None], dtype))
    assert found.tolist() == [[codes.largest(dtype), 0.0]]
