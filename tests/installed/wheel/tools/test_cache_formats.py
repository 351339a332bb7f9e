"""What the documents say of the formats of caches: which one is more exact, and where one fails."""

import cache_formats
import pytest
import torch
from cache_formats import NORMAL, OF_HEADS, OF_KEYS, OUTLIERS, SINKS, SPIKES, Format, error

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
FP8, INT8 = torch.float8_e4m3fn, torch.int8


def test_descales_of_keys_make_int8_four_times_as_exact_as_fp8():
    for kind in (NORMAL, SINKS):
        assert 3.5 < error(kind, Format(FP8, OF_HEADS)) / error(kind, Format(INT8, OF_KEYS)) < 5
    assert error(OUTLIERS, Format(INT8, OF_KEYS)) < error(OUTLIERS, Format(FP8, OF_HEADS)) / 2


def test_one_extreme_key_spoils_a_descale_of_its_head():
    assert error(SINKS, Format(INT8, OF_HEADS)) > 10 * error(SINKS, Format(INT8, OF_KEYS))
    assert error(SPIKES, Format(INT8, OF_HEADS)) > 3 * error(SPIKES, Format(INT8, OF_KEYS))
    assert error(SINKS, Format(FP8, OF_HEADS)) < 0.05


def test_e5m2_has_twice_the_error():
    ratio = error(NORMAL, Format(torch.float8_e5m2, OF_HEADS)) / error(NORMAL, Format(FP8, OF_HEADS))
    assert 1.8 < ratio < 2.2


def test_the_memory_of_a_key():
    sizes = [
        cache_formats.row_bytes(form) for form in (Format(torch.float16), Format(INT8, OF_KEYS), Format(FP8))
    ]
    assert sizes == [512, 264, 256]
