"""Rotary embedding of packed tensors, against turning by complex numbers in float64."""

import pytest
import torch
from flash_attn.layers.rotary import RotaryEmbedding, apply_rotary_emb_kv_, apply_rotary_emb_qkv_
from flash_attn.ops.triton.rotary import apply_rotary

DIM, ROTARY, ROWS = 16, 12, 7
STEP = 2**-10  # fp32 has no step here: results are rounded to fp16


def turned(x, positions, interleaved, sign=1):
    """x (batch, rows, heads, DIM) with its first ROTARY elements turned."""
    rates = 10000.0 ** (-torch.arange(0, ROTARY, 2, dtype=torch.float64) / ROTARY)
    angles = sign * positions[..., None].double() * rates
    unit = torch.polar(torch.ones_like(angles), angles)[:, :, None]
    some = x[..., :ROTARY].double()
    pairs = some.unflatten(-1, (-1, 2)) if interleaved else torch.stack(some.chunk(2, -1), -1)
    moved = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * unit)
    moved = moved.flatten(-2) if interleaved else torch.cat(moved.unbind(-1), -1)
    return torch.cat([moved, x[..., ROTARY:].double()], -1)


def near(found, wanted):
    # The angles' cosine and sine, each product and the sum are rounded to fp16 at most once.
    assert (found.double() - wanted).abs().max() <= 4 * STEP * wanted.abs().max()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offset", [0, 3, torch.tensor([2, 5])])
def test_packed_q_k_and_v(interleaved, offset):
    qkv = torch.randn(2, ROWS, 3, 2, DIM).half()
    begin = offset[:, None] if isinstance(offset, torch.Tensor) else torch.full((2, 1), offset)
    positions = begin + torch.arange(ROWS)
    wanted = [turned(qkv[:, :, n], positions, interleaved) for n in (0, 1)] + [qkv[:, :, 2].double()]
    given = qkv.clone()
    found = RotaryEmbedding(ROTARY, interleaved=interleaved)(given, seqlen_offset=offset)
    near(found, torch.stack(wanted, 2))
    assert found is given, "in place, as nothing wants a gradient"


def test_fewer_heads_of_k_and_v():
    qkv = torch.randn(2, ROWS, 4 + 2 * 2, DIM).half()
    positions = torch.arange(ROWS).expand(2, -1)
    wanted = torch.cat([turned(qkv[:, :, :6], positions, False), qkv[:, :, 6:].double()], 2)
    near(RotaryEmbedding(ROTARY)(qkv.clone(), num_heads_q=4), wanted)


def test_q_beside_k_and_v():
    q, kv = torch.randn(2, ROWS, 4, DIM).half(), torch.randn(2, ROWS, 2, 2, DIM).half()
    positions = torch.arange(ROWS).expand(2, -1)
    found_q, found_kv = RotaryEmbedding(ROTARY)(q.clone(), kv.clone(), max_seqlen=32)
    near(found_q, turned(q, positions, False))
    near(found_kv[:, :, 0], turned(kv[:, :, 0], positions, False))
    assert torch.equal(found_kv[:, :, 1], kv[:, :, 1])


def test_scaled_by_position_the_products_of_q_and_k_decay():
    """XPos: a product of q and k depends on their distance only, and shrinks with it."""
    x = torch.ones(1, ROWS, 1, 12)
    q, kv = RotaryEmbedding(12, scale_base=4)(x.clone(), torch.stack([x, x], 2))
    products = (
        (q @ kv[:, :, 0].transpose(-1, -2)).squeeze() if q.dim() == 3 else (q[0, :, 0] @ kv[0, :, 0, 0].T)
    )
    assert torch.allclose(products.diagonal(-1), products[1, 0].expand(ROWS - 1), atol=1e-4)
    plain = RotaryEmbedding(12)(x.clone(), torch.stack([x, x], 2))
    unscaled = plain[0][0, :, 0] @ plain[1][0, :, 0, 0].T
    shares = [(products / unscaled)[n, 0].item() for n in range(3)]
    assert shares[0] == pytest.approx(1, abs=1e-5)
    assert shares[0] > shares[1] > shares[2] > 0


def test_gradients_turn_backwards():
    qkv = torch.randn(2, ROWS, 3, 2, DIM, requires_grad=True)
    rotary = RotaryEmbedding(ROTARY)
    out = rotary(qkv)
    weights = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, qkv, weights)
    positions = torch.arange(ROWS).expand(2, -1)
    wanted = [turned(weights[:, :, n], positions, False, sign=-1) for n in (0, 1)] + [
        weights[:, :, 2].double()
    ]
    near(found, torch.stack(wanted, 2))
    kv = qkv.detach()[:, :, 1:].clone().requires_grad_()
    angles = rotary._cos_cached, rotary._sin_cached
    assert apply_rotary_emb_kv_(kv, *angles).requires_grad
    assert torch.equal(apply_rotary_emb_qkv_(qkv, *angles), out)


def test_the_name_that_vllm_takes():
    x = torch.randn(2, ROWS, 3, DIM).half()
    angles = torch.arange(ROWS)[:, None] * 10000.0 ** (-torch.arange(0, ROTARY, 2) / ROTARY)
    cos, sin = angles.cos().half(), angles.sin().half()
    positions = torch.arange(ROWS).expand(2, -1)
    near(apply_rotary(x, cos, sin), turned(x, positions, False))
    near(apply_rotary(x, cos, sin, conjugate=True), turned(x, positions, False, sign=-1))
    given = x.clone()
    assert apply_rotary(given, cos, sin, inplace=True) is given
