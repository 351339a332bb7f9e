"""The name that OpenRLHF, verl and others import along with flash_attn's names, if einops is installed."""

import einops
from flash_attn.bert_padding import rearrange


def test_rearrange_is_that_of_einops():
    assert rearrange is einops.rearrange
