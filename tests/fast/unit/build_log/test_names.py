"""The meaning of object names from CK's generator and from ours."""

from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from wheel_builder.extras.build_log.names import describe
from wheel_builder.matrix.support_table import planned_kernels

NAMES = (Path(__file__).parent / "names.txt").read_text().splitlines()


def test_every_token_of_upstreams_names_is_known():
    described = [describe(name) for name in NAMES]
    assert len(described) > 70
    assert [one.name for one in described if one.unknown or one.family == "other"] == []


def test_a_forward_in_words():
    name = (
        "fmha_fwd_d128_fp16_batch_b128x64x32x128x32x128_r4x1x1_r4x1x1_w32x32x16_w32x32x16_qr_async_vr_psskddv"
        "_logits_alibi_mask_lse_dropout_nskip_nsquant.cu"
    )
    assert describe(f"/src/build/{name}").words == (
        "forward, head dim 128, fp16, equal lengths, tile of 128 queries x 64 keys, 4 warps, matrix"
        " instruction 32x32x16, Q in registers, K and V loaded straight to LDS, ragged edges of "
        "queries and keys and head dim and head dim of V, softcap, ALiBi, causal or window mask, "
        "writes the log-sum-exp, dropout"
    )


def test_a_backward_in_words():
    name = (
        "fmha_bwd_d64_bf16_group_b32x128x64x32x64x32x32x64x64_r1x4x1_r4x1x1_r1x4x1_w16x16x32_w16x16x16_o1_kr_ktr_vr"
        "_iglp_npad_bias_dbias_nmask_dropout_wg16_storerandval_deterministic_gfx11.o"
    )
    assert describe(name).words == (
        "backward, head dim 64, bf16, ragged lengths, tile of 32 queries x 128 keys, 4 warps, "
        "matrix instruction 16x16x32 and 16x16x16, occupancy 1, K and V in registers, instructions "
        "interleaved by hand, bias of every score, gradient of the bias, no mask, dropout, keeps "
        "the random numbers, deterministic, for gfx11"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fa_decode_bf16_d96.hsaco", "forward of few queries, keys split, bf16, head dim 96"),
        ("fa_append_fp16", "appending to a cache, rotary embedding, fp16, any head dim"),
        ("fmha_fwd_api.hip", "host code: chooses a kernel for forward"),
        ("mha_varlen_bwd.o", "host code: the backward call for ragged batches"),
        ("fmha_fwd_d64_fp16_sideways", "forward, head dim 64, fp16, and 'sideways', unknown here"),
        ("zlib.o", "unknown object"),
        ("", "unknown object"),
    ],
)
def test_words(name, words):
    assert describe(name).words == words


def test_all_our_kernels_are_known():
    names = set().union(*planned_kernels(CHECKOUT, ("gfx908", "gfx942", "gfx1030", "gfx1100")).values())
    assert names
    assert {name for name in names if describe(name).family == "other"} == set()
