"""Attention modules against plain attention in float64, with gradients."""

from types import SimpleNamespace

import pytest
import torch
from flash_attn.modules.mha import (
    MHA,
    CrossAttention,
    FlashCrossAttention,
    FlashSelfAttention,
    SelfAttention,
    get_alibi_slopes,
)
from torch.nn.functional import scaled_dot_product_attention

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
BATCH, ROWS, HEADS, DIM = 2, 7, 4, 16
# fp16 results of at most 4: q, k, v and out are rounded to 11 bits.
NEAR = {"rtol": 2e-3, "atol": 4e-3}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def attention(q, k, v, mask=None, scale=None):
    """(batch, rows, heads, dim) in float64."""
    wide = (x.double().transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(*wide, mask, scale=scale, enable_gqa=True).transpose(1, 2)


def lower(rows, keys):
    return torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)


@pytest.mark.parametrize("kind", [FlashSelfAttention, SelfAttention])
def test_self_attention(kind):
    qkv = torch.randn(BATCH, ROWS, 3, HEADS, DIM, dtype=torch.float16, requires_grad=True)
    exactly = qkv.detach().double().requires_grad_()
    module = kind(causal=True, softmax_scale=0.2)
    for causal, mask in ((None, lower(ROWS, ROWS)), (False, None)):
        found, wanted = module(qkv, causal), attention(*exactly.unbind(2), mask, scale=0.2)
        torch.testing.assert_close(found.double(), wanted, **NEAR)
        weights = torch.randn_like(wanted)
        (one,) = torch.autograd.grad(found, qkv, weights.half())
        (other,) = torch.autograd.grad(wanted, exactly, weights)
        torch.testing.assert_close(one.double(), other, rtol=1e-2, atol=1e-2)  # sums of 7 rounded terms


@pytest.mark.parametrize("kind", [FlashCrossAttention, CrossAttention])
def test_cross_attention_is_causal_to_the_bottom_right(kind):
    q = torch.randn(BATCH, 3, HEADS, DIM).half()
    kv = torch.randn(BATCH, ROWS, 2, 2, DIM).half()
    wanted = attention(q, *kv.unbind(2), lower(3, ROWS))
    torch.testing.assert_close(kind(causal=True)(q, kv).double(), wanted, **NEAR)


def test_a_mask_of_keys():
    qkv = torch.randn(BATCH, ROWS, 3, HEADS, DIM)
    mask = torch.arange(ROWS) < torch.tensor([[4], [6]])
    wanted = attention(*qkv.unbind(2), lower(ROWS, ROWS) & mask[:, None, None, :])
    found = SelfAttention(causal=True)(qkv, key_padding_mask=mask)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_packed_sequences():
    qkv, cut = torch.randn(10, 3, HEADS, DIM).half(), torch.tensor([0, 4, 10], dtype=torch.int32)
    found = FlashSelfAttention()(qkv, cu_seqlens=cut, max_seqlen=6)
    parts = [attention(*part[None].unbind(2))[0] for part in qkv.split([4, 6])]
    torch.testing.assert_close(found.double(), torch.cat(parts), **NEAR)
    q, kv = qkv[:, 0], qkv[:, 1:]
    cross = FlashCrossAttention()(q, kv, cu_seqlens=cut, max_seqlen=6, cu_seqlens_k=cut, max_seqlen_k=6)
    assert torch.equal(cross, found)


@pytest.mark.parametrize("kind", [FlashSelfAttention, SelfAttention])
def test_dropout_is_for_training(kind):
    qkv = torch.randn(BATCH, ROWS, 3, HEADS, DIM).half()
    module = kind(attention_dropout=0.5)
    assert not torch.equal(module(qkv), module(qkv))
    module.eval()
    torch.testing.assert_close(module(qkv).double(), attention(*qkv.unbind(2)), **NEAR)


def test_slopes_are_those_of_the_paper():
    assert get_alibi_slopes(8) == [2**-n for n in range(1, 9)]
    assert get_alibi_slopes(12) == [2**-n for n in range(1, 9)] + [2 ** -(n + 0.5) for n in range(4)]


def mha(**options):
    return MHA(HEADS * DIM, HEADS, **({"use_flash_attn": True} | options)).half()


def projected(module, x, kv_heads=HEADS):
    q, k, v = module.Wqkv(x).split([HEADS * DIM, kv_heads * DIM, kv_heads * DIM], -1)
    return (part.unflatten(-1, (-1, DIM)) for part in (q, k, v))


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("kv_heads", [HEADS, 2])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_mha(flash, kv_heads, checkpointing):
    module = mha(causal=True, num_heads_kv=kv_heads, use_flash_attn=flash, checkpointing=checkpointing)
    names = ["Wqkv.weight", "Wqkv.bias", "out_proj.weight", "out_proj.bias"]
    assert list(module.state_dict()) == names
    x = torch.randn(BATCH, ROWS, HEADS * DIM).half()
    out = attention(*projected(module, x, kv_heads), lower(ROWS, ROWS))
    found = module(x)
    torch.testing.assert_close(found, module.out_proj(out.half().flatten(-2)), **NEAR)
    found.float().square().sum().backward()
    assert all(weight.grad.isfinite().all() and weight.grad.any() for weight in module.parameters())


def test_mha_of_packed_sequences_is_that_of_each():
    for kv_heads in (HEADS, 2):
        module = mha(causal=True, num_heads_kv=kv_heads)
        x, cut = torch.randn(10, HEADS * DIM).half(), torch.tensor([0, 4, 10], dtype=torch.int32)
        found = module(x, cu_seqlens=cut, max_seqlen=6)
        parts = [module(part[None])[0] for part in x.split([4, 6])]
        torch.testing.assert_close(found, torch.cat(parts), **NEAR)


@pytest.mark.parametrize("flash", [True, False])
def test_mha_to_another_sequence(flash):
    module = mha(cross_attn=True, use_flash_attn=flash, return_residual=True)
    x, other = torch.randn(BATCH, 3, HEADS * DIM).half(), torch.randn(BATCH, ROWS, HEADS * DIM).half()
    found, residual = module(x, other)
    assert residual is x
    q, kv = module.Wq(x).unflatten(-1, (-1, DIM)), module.Wkv(other).unflatten(-1, (2, -1, DIM))
    wanted = module.out_proj(attention(q, *kv.unbind(2)).half().flatten(-2))
    torch.testing.assert_close(found, wanted, **NEAR)
    torch.testing.assert_close(module(other, mixer_subset=slice(2, 3))[0], module(other)[0][:, 2:3], **NEAR)


@pytest.mark.parametrize("options", [{"use_alibi": True}, {"window_size": (2, 0)}, {"rotary_emb_dim": DIM}])
@pytest.mark.parametrize("kv_heads", [HEADS, 2])
def test_generation_is_the_whole_at_once(options, kv_heads):
    module = mha(causal=True, layer_idx=3, num_heads_kv=kv_heads, **options).eval()
    x = torch.randn(BATCH, ROWS, HEADS * DIM).half()
    wanted, plain = module(x), mha(causal=True, num_heads_kv=kv_heads)
    plain.load_state_dict(module.state_dict())
    assert not torch.allclose(plain(x), wanted, **NEAR), "the option has an effect"
    generation = SimpleNamespace(
        seqlen_offset=0, lengths_per_sample=None, max_batch_size=4, max_seqlen=9, key_value_memory_dict={}
    )
    with torch.no_grad():
        found = [module(x[:, :4], inference_params=generation)]
        for row in range(4, ROWS):
            generation.seqlen_offset = row
            if row == 5:
                generation.lengths_per_sample = torch.full((4,), row, dtype=torch.int32)
                generation.seqlen_offset = 0  # lengths stand for it
            found.append(module(x[:, row : row + 1], inference_params=generation))
            generation.lengths_per_sample = None
    torch.testing.assert_close(torch.cat(found, 1), wanted, **NEAR)
    assert generation.key_value_memory_dict[3].shape == (4, 9, 2, kv_heads, DIM)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"use_alibi": True, "use_flash_attn": False}, "use_flash_attn: expected True for ALiBi or a window"),
        ({"num_heads_kv": 3}, "num_heads: expected a multiple of num_heads_kv"),
        ({"cross_attn": True, "rotary_emb_dim": 8}, "rotary_emb_dim: expected 0 with cross_attn"),
    ],
)
def test_options_that_do_not_fit(options, words):
    with pytest.raises(ValueError, match=words):
        mha(**options)


def test_what_is_not_there():
    with pytest.raises(NotImplementedError, match="dwconv: expected False"):
        mha(dwconv=True)


@pytest.mark.parametrize(
    ("options", "call", "words"),
    [
        ({}, {"x_kv": 0}, "x_kv: expected None without cross_attn"),
        ({}, {"mixer_subset": 0}, "mixer_subset: expected None without cross_attn"),
        ({}, {"key_padding_mask": 0}, "key_padding_mask: expected None with use_flash_attn"),
        ({"use_flash_attn": False}, {"cu_seqlens": 0}, "cu_seqlens: expected use_flash_attn"),
        ({"cross_attn": True}, {"cu_seqlens": 0, "x_kv": 0}, "cu_seqlens: expected None beside x_kv"),
        ({"rotary_emb_dim": 8}, {"cu_seqlens": 0}, "cu_seqlens: expected no rotary embedding"),
        ({"cross_attn": True}, {"inference_params": 0}, "inference_params: expected None with cross_attn"),
        ({"use_flash_attn": False}, {"inference_params": 0}, "inference_params: expected use_flash_attn"),
        ({}, {"inference_params": 0}, "inference_params: expected a layer_idx"),
    ],
)
def test_calls_that_do_not_fit(options, call, words):
    with pytest.raises(ValueError, match=words):
        mha(**options)(torch.randn(1, 2, HEADS * DIM).half(), **call)
