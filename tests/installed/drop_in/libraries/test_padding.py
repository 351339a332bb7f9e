"""The name that OpenRLHF, verl and others import with flash_attn's own, where einops is installed."""

import einops
from flash_attn.bert_padding import rearrange


def test_rearrange_is_that_of_einops():
    assert rearrange is einops.rearrange
