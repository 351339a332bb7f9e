"""Jagged nested tensors, through flash_attn_varlen_func and through PyTorch's own function."""

import pytest
import torch
from flash_attn_rocm import FlashAttnArgumentError, flash_attn_func, flash_attn_varlen_func
from torch.nested import nested_tensor_from_jagged

pytestmark = pytest.mark.filterwarnings("ignore::flash_attn_rocm.FlashAttnFallbackWarning")
ENDS_Q, ENDS_K = torch.tensor([0, 3, 3, 9]), torch.tensor([0, 4, 6, 13])
NOTHING = (None,) * 4


def made(dtype=torch.float16):
    """q, k, v of their own rows, and the same as nested tensors (batch, ragged, nheads, headdim)."""
    rows = [torch.randn(n, heads, 64).to(dtype).requires_grad_() for n, heads in ((9, 4), (13, 2), (13, 2))]
    ends = ENDS_Q, ENDS_K, ENDS_K
    return rows, [nested_tensor_from_jagged(x, each) for x, each in zip(rows, ends, strict=True)]


@pytest.fixture(params=["kernels", "PyTorch implementation"])
def either_way(request, kernels_on, host_operators):
    if request.param == "kernels":
        kernels_on("gfx942")


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("options", [{"causal": True}, {"window_size": (2, 1), "softcap": 2.0}], ids=str)
def test_packed_sequences(options):
    rows, nested = made()
    cuts = ENDS_Q.int(), ENDS_K.int()
    wanted = flash_attn_varlen_func(*rows, *cuts, 6, 7, **options)
    found = flash_attn_varlen_func(*nested, *NOTHING, **options)
    assert found.shape == nested[0].shape  # the same ragged size, so that both can be added
    assert torch.equal((found + nested[0]).values(), wanted + rows[0])
    dout = torch.randn_like(wanted)
    gradients = torch.autograd.grad(found.values(), rows, dout)
    for one, other in zip(gradients, torch.autograd.grad(wanted, rows, dout), strict=True):
        assert torch.equal(one, other)


def test_log_sum_exps_are_those_of_the_rows():
    rows, nested = made()
    wanted = flash_attn_varlen_func(*rows, ENDS_Q.int(), ENDS_K.int(), 6, 7, return_attn_probs=True)
    out, lse, _ = flash_attn_varlen_func(*nested, *NOTHING, return_attn_probs=True)
    assert torch.equal(out.values(), wanted[0])
    assert torch.equal(lse, wanted[1])


def refused(*arguments):
    with pytest.raises(FlashAttnArgumentError, match="flash_attn_varlen_func cannot use its arg") as told:
        flash_attn_varlen_func(*arguments)
    return str(told.value)


def test_what_does_not_fit_is_an_error():
    rows, (q, k, v) = made()
    assert "cu_seqlens, max_seqlen, block_table: expected None beside" in refused(
        q, k, v, ENDS_Q, None, 6, None
    )
    assert (
        "k: expected a nested tensor with the layout torch.jagged like the others, got a tensor of shape"
        in (refused(q, rows[1], v, *NOTHING))
    )
    other = nested_tensor_from_jagged(rows[2], ENDS_K.clone())
    assert "v: expected the offsets of k, the same tensor, got others" in refused(q, k, other, *NOTHING)
    assert "q: expected a nested tensor (batch, ragged, nheads, headdim)" in (
        refused(q.transpose(1, 2), k, v, *NOTHING)
    )
    holes = nested_tensor_from_jagged(rows[0], ENDS_Q, torch.tensor([2, 0, 5]))
    assert "q: expected a nested tensor without holes" in refused(holes, k, v, *NOTHING)
    with pytest.raises(FlashAttnArgumentError, match="got a nested one, which flash_attn_varlen_func takes"):
        flash_attn_func(q, k, v)
